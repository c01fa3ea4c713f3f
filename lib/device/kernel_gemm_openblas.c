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

void kernel_blas_gemm(const struct kernel_product *p) {
    cblas_sgemm(CblasRowMajor, p->a.turned ? CblasTrans : CblasNoTrans,
                p->b.turned ? CblasTrans : CblasNoTrans, (blasint)p->m, (blasint)p->n,
                (blasint)p->k, 1.0f, p->a.p, (blasint)p->a.ld, p->b.p, (blasint)p->b.ld,
                p->beta, p->c, (blasint)p->ldc);
}

#endif
