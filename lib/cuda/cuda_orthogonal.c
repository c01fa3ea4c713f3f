/* Matrices are made orthogonal (orthogonalize of instr.def), by products of cuBLASLt and the passes between
 * them (cuda_muon.h). kernel_muon.c says what is computed. */
#include "cuda/cuda_linear.h"
#include "cuda/cuda_muon.h"

#include <math.h>

/* A matrix with so many floats from row to row. */
struct plane {
    float *p;
    int64_t ld;
};

/* The sizes of one, and dense scratch for two of the shorter side. */
struct newton {
    int64_t rows, columns, side;
    struct plane a, b;
};

/* y[m,n] = op(a) op(b) */
static int multiply(struct cuda_call *c, struct cuda_product p, struct plane a,
                    struct plane b, struct plane y) {
    const struct cuda_operands o = {.a = a.p, .b = b.p, .y = y.p};
    p.type = p.type_y = DTYPE_f32;
    p.lda = a.ld, p.ldb = b.ld, p.ldy = y.ld;
    p.batch = 1;
    return cuda_product(c, &p, &o, c->workspace, cuda_product_workspace(c));
}

/* y = scale times a step from x. */
static int newton_step(struct cuda_call *c, const struct newton *s, struct plane x,
                       struct plane y, float scale) {
    const bool wide = s->rows <= s->columns;
    const struct cuda_product square = {.ta = !wide,
                                        .tb = wide,
                                        .m = s->side,
                                        .n = s->side,
                                        .k = wide ? s->columns : s->rows};
    const struct cuda_product again = {.m = s->side, .n = s->side, .k = s->side};
    const struct cuda_product last = {.m = s->rows, .n = s->columns, .k = s->side};
    if (multiply(c, square, x, x, s->a) < 0 || multiply(c, again, s->a, s->a, s->b) < 0 ||
        cuda_muon_polynomial(c, s->side, scale, s->a.p, s->b.p) < 0)
        return -1;
    return multiply(c, last, wide ? s->b : x, wide ? x : s->b, y);
}

/* An odd number of steps, to and fro between the scratch and where the result belongs. */
static int orthogonalize(struct cuda_call *c, const struct newton *s, const float *u,
                         struct plane o, float *scratch) {
    const float longer = (float)(s->rows > s->columns ? s->rows : s->columns);
    const float scale = 0.2f * sqrtf(longer);
    struct plane x = {scratch, s->columns}, y = o;
    if (cuda_muon_normalize(c, s->rows, s->columns, o.ld, u, scratch) < 0)
        return -1;
    for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
        if (newton_step(c, s, x, y, i == NEWTON_SCHULZ_STEPS - 1 ? scale : 1) < 0)
            return -1;
        const struct plane other = x;
        x = y;
        y = other;
    }
    return 0;
}

CUDA_FUNCTION(orthogonalize) {
    const int64_t ld = n->inner * n->columns;
    const int64_t side = n->rows < n->columns ? n->rows : n->columns;
    float *scratch = out->scratch, *a = scratch + n->rows * n->columns;
    const struct newton s = {n->rows, n->columns, side, {a, side}, {a + side * side, side}};
    for (int64_t i = 0; i < n->outer; i++)
        for (int64_t j = 0; j < n->inner; j++) {
            const int64_t at = i * n->rows * ld + j * n->columns;
            const struct plane o = {(float *)out->o + at, ld};
            if (orthogonalize(c, &s, (const float *)in->u + at, o, scratch) < 0)
                return -1;
        }
    return 0;
}
