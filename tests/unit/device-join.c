/* Joining heads: elements where they must be, and the gradient as the adjoint, <A (x, z), y> = <(x, z), A' y>.
 * Heads split over ranks give the blocks of the whole, and parts of the sums. */
#include "device.h"

#include "device/cpu.h"

struct test {
    struct join_n n;
    int64_t first; /* head, of those that read z's */
    float *x, *z, *y, *dy, *dx, *dz;
};

static struct test make(struct join_n n, int64_t first) {
    struct test t = {.n = n, .first = first};
    const int64_t heads = n.rows * n.heads;
    t.x = noise(heads * n.dim, 1, 1);
    t.z = noise(n.rows * n.few * n.behind, 1, 2);
    t.y = floats(heads * (n.dim + n.behind));
    t.dy = noise(heads * (n.dim + n.behind), 1, 3);
    t.dx = floats(heads * n.dim);
    t.dz = floats(n.rows * n.few * n.behind);
    return t;
}

static void drop(struct test *t) {
    free(t->x), free(t->z), free(t->y), free(t->dy), free(t->dx), free(t->dz);
}

static void run(const struct test *t) {
    const struct device_args args = {.first_head = t->first};
    union instr_n n = {.join = t->n};
    union instr_src in = {.join = {t->x, t->z, NULL}};
    union instr_dst out = {.join = {t->y, NULL}};
    cpu_exec(I_join, &n, &in, &out, &args);
    in.join_bwd = (struct join_bwd_src){t->dy, NULL};
    out.join_bwd = (struct join_bwd_dst){t->dx, t->dz, NULL};
    cpu_exec(I_join_bwd, &n, &in, &out, &args);
}

static double product(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void check(struct join_n n, int64_t first) {
    struct test t = make(n, first);
    const int64_t width = n.dim + n.behind;
    bool right = true;
    run(&t);
    for (int64_t i = 0; i < n.rows * n.heads * width; i++) {
        const int64_t row = i / width / n.heads, head = i / width % n.heads, j = i % width;
        const int64_t few = (first + head) / n.group;
        right &= t.y[i] == (j < n.dim ? t.x[(row * n.heads + head) * n.dim + j]
                                      : t.z[(row * n.few + few) * n.behind + j - n.dim]);
    }
    const double forward = product(n.rows * n.heads * width, t.y, t.dy);
    const double back = product(n.rows * n.heads * n.dim, t.x, t.dx) +
                        product(n.rows * n.few * n.behind, t.z, t.dz);
    ok(right && fabs(forward - back) < 1e-4 * (1 + fabs(forward)),
       "%d rows of %d heads from %d, %d in each of %d groups, %d + %d: joined, gradients adjoint",
       (int)n.rows, (int)n.heads, (int)first, (int)n.group, (int)n.few, (int)n.dim,
       (int)n.behind);
    drop(&t);
}

/* The ranks' parts of z's gradient are the whole one's in sum. */
static void check_split(void) {
    const struct join_n all = {
        .rows = 5, .heads = 6, .group = 3, .few = 2, .dim = 4, .behind = 3};
    struct test whole = make(all, 0);
    double apart = 0;
    run(&whole);
    for (int64_t first = 0; first < 6; first += 2) {
        struct join_n n = all;
        n.heads = 2;
        struct test t = make(n, first);
        for (int64_t i = 0; i < 5 * 2 * 7; i++)
            t.dy[i] = whole.dy[(i / 14 * 6 + first + i / 7 % 2) * 7 + i % 7];
        run(&t);
        for (int64_t i = 0; i < 5 * 2 * 3; i++)
            whole.dz[i] -= t.dz[i];
        drop(&t);
    }
    for (int64_t i = 0; i < 5 * 2 * 3; i++)
        apart = fmax(apart, fabs((double)whole.dz[i]));
    ok(apart < 1e-6, "two heads on each of three ranks: parts of the sum, to %.0e", apart);
    drop(&whole);
}

static void everything(void) {
    check(
        (struct join_n){.rows = 1, .heads = 1, .group = 1, .few = 1, .dim = 1, .behind = 1},
        0);
    check(
        (struct join_n){
            .rows = 33, .heads = 6, .group = 1, .few = 6, .dim = 16, .behind = 8},
        0);
    check(
        (struct join_n){
            .rows = 7, .heads = 16, .group = 16, .few = 1, .dim = 128, .behind = 64},
        0);
    check(
        (struct join_n){.rows = 9, .heads = 3, .group = 4, .few = 2, .dim = 5, .behind = 7},
        3);
    check(
        (struct join_n){.rows = 4, .heads = 2, .group = 2, .few = 3, .dim = 3, .behind = 2},
        1);
    check_split();
}

int main(void) {
    with_threads(everything);
    return done_testing();
}
