/* Products of matrices by strides: one call of the matrix product's library each. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

/* Which way a matrix lies: rows of columns that are neighbours, or the other way round. */
static bool transposed(const struct matrix *m) {
    return m->column != 1;
}

/* Elements from one run of neighbours to the next; a lone run may say anything. */
static int64_t leading(const struct matrix *m, int64_t rows, int64_t columns) {
    int64_t step = transposed(m) ? m->column : m->row, run = transposed(m) ? rows : columns;
    return step > run ? step : run;
}

/* y = a b + beta y; where the rows of y are neighbours, y^T = b^T a^T. */
static void product(const struct matrices *s, int64_t m, int64_t n, int64_t k, const T *a,
                    const T *b, float beta, enum dtype type_y, void *y) {
    bool ta = transposed(&s->a), tb = transposed(&s->b);
    int64_t lda = leading(&s->a, m, k), ldb = leading(&s->b, k, n);
    int64_t ldy = leading(&s->y, m, n);
    if (transposed(&s->y))
        kernel_product(TYPE, !tb, !ta, n, m, k, b, ldb, a, lda, beta, type_y, y, ldy);
    else
        kernel_product(TYPE, ta, tb, m, n, k, a, lda, b, ldb, beta, type_y, y, ldy);
}

static void products(const struct matmul_n *n, const struct matrices *s, const T *a,
                     const T *b, bool adds, enum dtype type_y, char *y) {
    for (int64_t o = 0; o < n->outer; o++)
        for (int64_t i = 0; i < n->inner; i++) {
            /* several may be summed in one place */
            const bool again = (o && !s->y.outer) || (i && !s->y.inner);
            product(s, n->m, n->n, n->k, a + o * s->a.outer + i * s->a.inner,
                    b + o * s->b.outer + i * s->b.inner, adds || again ? 1 : 0, type_y,
                    y + (o * s->y.outer + i * s->y.inner) * dtype_size(type_y));
        }
}

CPU_FUNCTION(matmul) {
    products(n, a->matrices, in->a, in->b, false, TYPE, out->y);
}

CPU_FUNCTION(matmul_dw) {
    const struct matmul_n shape = {n->outer, n->inner, n->m, n->n, n->k, 0};
    products(&shape, a->matrices, in->a, in->b, !a->fresh, DTYPE_f32, out->y);
}
