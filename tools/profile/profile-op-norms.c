/* Norms and their gradients where a GPU adds a residual in the same pass (cuda.h).
 *
 * Sums of residuals are of one sort with all other sums of so many elements, forward and backward, and stand
 * alone in other places. So theirs is the row of a sum alone, and what the two save is in the row of the norm:
 * their time in one less that of the sum. Not every norm has a sum beside it: no gradient comes by another way
 * to the last norm of most models. A row is the mean over all places of norms so wide in the model's program, so
 * the sum of all rows over that program is its time. */
#include "profile-op.h"

#include "common/mem.h"

#include <math.h>

static bool is_forward(enum opcode code) {
    return code == I_layernorm || code == I_rmsnorm;
}

static bool is_norm(enum opcode code) {
    return is_forward(code) || code == I_layernorm_bwd || code == I_rmsnorm_bwd;
}

/* Columns of a whole row, of which some may be here. */
static int64_t width_of(const struct instr_key *norm) {
    const union instr_n *n = &norm->n;
    switch (norm->code) {
    case I_layernorm: return n->layernorm.n * n->layernorm.parts;
    case I_layernorm_bwd: return n->layernorm_bwd.total;
    case I_rmsnorm: return n->rmsnorm.total;
    default: return n->rmsnorm_bwd.total;
    }
}

/* ---- where they stand --------------------------------------------------------------------- */

static struct norm_places *places_of(const struct pairs *p, const struct instr_key *key) {
    for (int64_t i = 0; i < p->norms.n; i++) {
        struct norm_places *at = &p->norms.p[i];
        if (at->code == key->code && at->dtype == key->dtype && at->width == width_of(key))
            return at;
    }
    return NULL;
}

static void count(struct pairs *out, const struct instr_key *key, bool paired) {
    struct norm_places *at = places_of(out, key);
    if (!at) {
        arr_push(&out->norms, (struct norm_places){.code = key->code,
                                                   .dtype = key->dtype,
                                                   .width = width_of(key)});
        at = &arr_last(&out->norms);
    }
    at->all++;
    at->paired += paired;
}

void norms_of_stage(const struct stage_program *sp, struct pairs *out) {
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        if (!is_norm(ins->code))
            continue;
        const struct instr_key key = instr_key(ins->code, ins->dtype, &ins->n);
        const bool paired = is_forward(ins->code)
                                ? i > 0 && cuda_is_pair(ins - 1, ins)
                                : i + 1 < sp->n_instrs && cuda_is_pair(ins, ins + 1);
        count(out, &key, paired);
    }
}

/* ---- what it adds ------------------------------------------------------------------------- */

static int64_t elements_of(const struct instr_key *norm) {
    return norm->n.layernorm.rows * norm->n.layernorm.n; /* they come first of all */
}

/* A part of a row is summed up before it is normed. */
static bool may_fit(const struct instr_key *norm) {
    return !is_forward(norm->code) || width_of(norm) == norm->n.layernorm.n;
}

/* Both, one behind the other; PAIRS_APART where they are not one call. */
static int measure_both(struct bench *b, const struct instr_key *norm,
                        const struct instr_key *sum, const struct limits *l,
                        struct measured *out, struct err *err) {
    const bool forward = is_forward(norm->code);
    if (bench_prepare(b, forward ? sum : norm, err) < 0 ||
        bench_put_behind(b, forward ? norm : sum, err) < 0)
        return -1;
    const int in_one = bench_run_pair(b, err);
    if (in_one <= 0)
        return in_one < 0 ? -1 : PAIRS_APART;
    return bench_measure(b, l, out, err);
}

static int measure_alone(struct bench *b, const struct instr_key *key,
                         const struct limits *l, struct measured *out, struct err *err) {
    return bench_prepare(b, key, err) < 0 ? -1 : bench_measure(b, l, out, err);
}

/* The mean, where this share of places is as the first. */
static struct measured mean_of(double share, const struct measured *a,
                               const struct measured *b) {
    const double us = share * a->median_us + (1 - share) * b->median_us;
    const double wide =
        share * a->spread * a->median_us + (1 - share) * b->spread * b->median_us;
    return (struct measured){us, us > 0 ? fmin(1, wide / us) : 1, a->repeats + b->repeats};
}

int norms_measure(struct bench *b, const struct pairs *p, const struct instr_key *key,
                  const struct limits *l, struct measured *out, struct err *err) {
    const union instr_n n = {.add = {.elems = elements_of(key)}};
    const struct instr_key sum = instr_key(I_add, key->dtype, &n);
    const struct norm_places *at = places_of(p, key);
    struct measured both, other, alone = {0};
    if (!at || !at->paired || !may_fit(key) ||
        bench_bytes(NULL, key, 0) + bench_bytes(NULL, &sum, 0) > b->budget / 2)
        return PAIRS_APART;
    int rc = measure_both(b, key, &sum, l, &both, err);
    if (rc == 0)
        rc = measure_alone(b, &sum, l, &other, err);
    if (rc == 0 && at->paired < at->all)
        rc = measure_alone(b, key, l, &alone, err);
    if (rc == 0) {
        const struct measured added = pairs_added(&both, &other);
        *out = mean_of((double)at->paired / (double)at->all, &added, &alone);
    }
    return rc;
}
