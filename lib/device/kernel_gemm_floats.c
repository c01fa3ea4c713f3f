/* Products of 16 bits where the library has none: kernels widen their operands in blocks. */
#include "kernel_impl.h"

#ifndef WEFT_GEMM_dnnl

bool kernel_blas_half(enum dtype type, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                      const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                      const void *bias, enum dtype type_c, void *c, int64_t ldc) {
    (void)type, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)bias, (void)type_c, (void)c, (void)ldc;
    return false;
}

bool kernel_blas_tiles(void) {
    return false;
}

#endif
