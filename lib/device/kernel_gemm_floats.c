/* Products of 16 bits where the library has none: kernels widen their operands in blocks. */
#include "kernel_impl.h"

#ifndef WEFT_GEMM_dnnl

bool kernel_blas_half(const struct kernel_product *p) {
    (void)p;
    return false;
}

bool kernel_blas_tiles(void) {
    return false;
}

#endif
