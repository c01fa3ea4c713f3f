/* The matrix product through OpenBLAS (CBLAS): the fallback where oneDNN is absent. */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_openblas

#include <cblas.h>

#include <stdio.h>

void kernel_blas_init(int threads) {
    openblas_set_num_threads(threads);
}

void kernel_blas_release(void) {
}

const char *kernel_blas_name(void) {
    static char name[32];
    char version[16] = "";
    if (sscanf(openblas_get_config(), "OpenBLAS %15s", version) != 1)
        return "OpenBLAS";
    snprintf(name, sizeof name, "OpenBLAS %s", version);
    return name;
}

void kernel_blas_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                      int64_t ldc) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans,
                tb ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1.0f, a,
                (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

#endif
