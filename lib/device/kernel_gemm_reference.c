/* The matrix product in plain C, for machines without a library: slow and right.
 *
 * Row i of C is the sum of rows of op(B) scaled by elements of op(A), so that the inner
 * loop runs along memory; where B is transposed each element is a dot product.
 */
#include "kernel_impl.h"

#if !defined(WEFT_GEMM_dnnl) && !defined(WEFT_GEMM_openblas)

void kernel_blas_init(int threads) {
    (void)threads;
}

void kernel_blas_release(void) {
}

const char *kernel_blas_name(void) {
    return "reference";
}

/* op(B), by its strides. */
struct operand {
    const float *p;
    int64_t row, col;
};

static void product_row(int64_t n, int64_t k, const float *a, int64_t a_step,
                        struct operand b, float beta, float *c) {
    for (int64_t j = 0; j < n; j++)
        c[j] = beta == 0 ? 0 : beta * c[j];
    if (b.col == 1) {
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++)
                c[j] += a[l * a_step] * b.p[l * b.row + j];
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t l = 0; l < k; l++)
            sum += a[l * a_step] * b.p[l * b.row + j * b.col];
        c[j] += sum;
    }
}

void kernel_blas_gemm(const struct kernel_product *p) {
    const float *a = p->a.p;
    float *c = p->c;
    const int64_t a_row = p->a.turned ? 1 : p->a.ld, a_step = p->a.turned ? p->a.ld : 1;
    const struct operand b = {p->b.p, p->b.turned ? 1 : p->b.ld, p->b.turned ? p->b.ld : 1};
    KERNEL_SPLIT(p->m, 1, p->m * p->n * p->k / 8, {
        for (int64_t i = first; i < end; i++)
            product_row(p->n, p->k, a + i * a_row, a_step, b, p->beta, c + i * p->ldc);
    });
}

#endif
