/* Stands in for cuBLASLt where kernels are emulated: products of floats, an element of the result by each
 * thread, as many sums as it takes. */
#include "cuda/cuda_block.h"

extern "C" {
#include "cuda/cuda_product.h"
}

CUDA_KERNEL void multiply(struct cuda_product p, const float *a, const float *b, float *y) {
    for (int64_t i = grid_thread(); i < p.m * p.n; i += grid_threads()) {
        const int64_t row = i / p.n, column = i % p.n;
        float sum = 0;
        for (int64_t l = 0; l < p.k; l++)
            sum += a[p.ta ? l * p.lda + row : row * p.lda + l] *
                   b[p.tb ? column * p.ldb + l : l * p.ldb + column];
        y[row * p.ldy + column] = sum;
    }
}

extern "C" int cuda_product(struct cuda_call *c, const struct cuda_product *p,
                            const struct cuda_operands *o, void *workspace,
                            int64_t workspace_bytes) {
    (void)workspace, (void)workspace_bytes;
    if (p->type != DTYPE_f32 || p->type_y != DTYPE_f32 || p->batch != 1 || p->add ||
        p->epilogue != PRODUCT_PLAIN)
        return err_system(c->err, "not a product that is emulated");
    CUDA_LAUNCH(multiply, blocks_of(p->m * p->n, BLOCK), BLOCK, 0, c->stream, *p,
                (const float *)o->a, (const float *)o->b, (float *)o->y);
    return 0;
}
