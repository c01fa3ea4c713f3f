/* The matrix product through oneDNN: all that is known of that library stands here.
 *
 * dnnl_sgemm takes row-major matrices with any strides and creates nothing per call. The
 * numbers behind the choice are in doc/kernels.md.
 */
#include "kernel_impl.h"

#ifdef WEFT_GEMM_dnnl

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <stdio.h>

void kernel_blas_init(int threads) {
    (void)threads; /* oneDNN asks OpenMP */
}

void kernel_blas_release(void) {
}

const char *kernel_blas_name(void) {
    static char name[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

static void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                  int64_t ldc) {
    dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda,
                                      b, ldb, beta, c, ldc);
    assert(status == dnnl_success);
    (void)status;
}

/* The gradient of a matrix: a long sum, over the rows of both operands, into a result that caches
 * hold. In pieces of PIECE rows it is 1 to 5 % faster than at once; a larger result loses more by
 * being read and written for every piece. */
enum { PIECE = 512, RESULT_ELEMENTS = 1 << 20 };

void kernel_blas_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                      int64_t ldc) {
    if (ta && !tb && m * n <= RESULT_ELEMENTS)
        for (; k >= 2 * PIECE; k -= PIECE, a += PIECE * lda, b += PIECE * ldb, beta = 1)
            sgemm(ta, tb, m, n, PIECE, a, lda, b, ldb, beta, c, ldc);
    sgemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

#endif
