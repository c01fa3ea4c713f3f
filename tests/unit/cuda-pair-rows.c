/* What an instruction adds to the product before it (tools/profile/profile-op-pairs.c), with measurements
 * that are made up: a row comes about only where both of them were made. */
#include "../../tools/profile/profile-op.h"
#include "tap.h"

#include <math.h>

/* ---- the bench, as the measurements are to turn out ------------------------------------------ */

static struct {
    struct measured as;
    int rc;
} given[2];
static int n_measured;

int64_t bench_bytes(const struct cold *cold, const struct instr_key *key, int64_t budget) {
    (void)cold, (void)key, (void)budget;
    return 0;
}

int bench_prepare(struct bench *b, const struct instr_key *key, struct err *err) {
    (void)b, (void)key, (void)err;
    return 0;
}

int bench_put_behind(struct bench *b, const struct instr_key *behind, struct err *err) {
    (void)b, (void)behind, (void)err;
    return 0;
}

int bench_run_pair(struct bench *b, struct err *err) {
    (void)b, (void)err;
    return 1;
}

int bench_measure(struct bench *b, const struct limits *l, struct measured *out,
                  struct err *err) {
    (void)b, (void)l;
    const int i = n_measured++;
    if (given[i].rc == 0)
        *out = given[i].as;
    return given[i].rc < 0 ? err_system(err, "measurement %d", i) : given[i].rc;
}

/* Norms are none of this test. */
void norms_of_stage(const struct stage_program *sp, struct pairs *out) {
    (void)sp, (void)out;
}

int norms_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err) {
    (void)b, (void)p, (void)key, (void)l, (void)out, (void)err;
    return -1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The row of a GELU whose last row of elements is cut: of 131, where the product makes 128. */
static int measure_gelu(struct measured *out, struct err *err) {
    struct pairs p = {.norms = {NULL}};
    struct bench b = {.budget = 1};
    const union instr_n n = {.linear = {.m = 1, .n = 16, .k = 8}};
    const union instr_n elems = {.gelu = {.elems = 131}};
    const struct instr_key gelu = instr_key(I_gelu, DTYPE_f32, &elems);
    arr_push(&p.products, instr_key(I_linear, DTYPE_f32, &n));
    n_measured = 0;
    const int rc = pairs_measure(&b, &p, &gelu, &(struct limits){.row_s = 1}, out, err);
    pairs_release(&p);
    return rc;
}

int main(void) {
    struct err err = {0};
    struct measured row = {-1, -1, -1};
    given[0].as = (struct measured){10, 0, 7};
    given[1].as = (struct measured){14, 0, 9};
    ok(measure_gelu(&row, &err) == 0 && fabs(row.median_us - 4.0 * 131 / 128) < 1e-9 &&
           row.repeats == 9,
       "what GELU adds, for all of its elements: %g us", row.median_us);
    const int failures[] = {-1, 1};
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < 2; at++) {
            given[at].rc = failures[i];
            row = (struct measured){-1, -1, -1};
            ok(measure_gelu(&row, &err) == failures[i] && row.median_us == -1 &&
                   row.repeats == -1,
               "measurement %d %s: there is no row", at,
               failures[i] < 0 ? "fails" : "is interrupted");
            given[at].rc = 0;
        }
    return done_testing();
}
