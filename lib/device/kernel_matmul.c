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

/* The matrix of rows by columns. */
static struct kernel_operand operand(const struct matrix *m, int64_t rows, int64_t columns,
                                     const T *p) {
    return (struct kernel_operand){p, leading(m, rows, columns), transposed(m)};
}

static struct kernel_operand turned(struct kernel_operand x) {
    x.turned = !x.turned;
    return x;
}

/* What is alike in all products of an instruction. */
struct products {
    int64_t m, n, k;
    const struct matrices *s;
    enum dtype type_y;
};

/* y = a b + beta y; where the rows of y are neighbours, y^T = b^T a^T. */
static void product(const struct products *of, const T *a, const T *b, float beta,
                    void *y) {
    const struct matrices *s = of->s;
    struct kernel_product p = {.m = of->m,
                               .n = of->n,
                               .k = of->k,
                               .type = TYPE,
                               .a = operand(&s->a, of->m, of->k, a),
                               .b = operand(&s->b, of->k, of->n, b),
                               .beta = beta,
                               .type_c = of->type_y,
                               .c = y,
                               .ldc = leading(&s->y, of->m, of->n)};
    if (transposed(&s->y)) {
        const struct kernel_operand first = p.a;
        p.m = of->n, p.n = of->m;
        p.a = turned(p.b), p.b = turned(first);
    }
    kernel_product(&p);
}

static void products(const struct matmul_n *n, const struct products *of, const T *a,
                     const T *b, bool adds, char *y) {
    const struct matrices *s = of->s;
    for (int64_t o = 0; o < n->outer; o++)
        for (int64_t i = 0; i < n->inner; i++) {
            /* several may be summed in one place */
            const bool summed = (o && !s->y.outer) || (i && !s->y.inner);
            product(of, a + o * s->a.outer + i * s->a.inner,
                    b + o * s->b.outer + i * s->b.inner, adds || summed ? 1 : 0,
                    y + (o * s->y.outer + i * s->y.inner) * dtype_size(of->type_y));
        }
}

CPU_FUNCTION(matmul) {
    const struct products of = {n->m, n->n, n->k, a->matrices, TYPE};
    products(n, &of, in->a, in->b, false, out->y);
}

CPU_FUNCTION(matmul_dw) {
    const struct matmul_n shape = {n->outer, n->inner, n->m, n->n, n->k, 0};
    const struct products of = {n->m, n->n, n->k, a->matrices, DTYPE_f32};
    products(&shape, &of, in->a, in->b, !a->fresh, out->y);
}
