/* Linear layers: matrix products, bias and the gradient of the bias.
 *
 * The bias is laid down first and the product added to it: a product with a fused bias is no
 * faster and for some shapes half as fast (doc/kernels.md).
 */
#include "kernel_impl.h"
#include "kernel_vec.h"

static void scale_block(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

void kernel_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                 int64_t ldc) {
    if (m == 0 || n == 0)
        return;
    if (k == 0)
        scale_block(m, n, beta, c, ldc);
    else
        kernel_blas_gemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

static void fill_rows(int64_t rows, int64_t n, const float *bias, float *y) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * n, bias, (size_t)n * sizeof *y);
}

void kernel_linear(int64_t m, int64_t n, int64_t k, const float *x, const float *w, bool wt,
                   const float *bias, float *y) {
    if (bias)
        KERNEL_SPLIT(m, 1, m * n, fill_rows(end - first, n, bias, y + first * n));
    kernel_gemm(false, wt, m, n, k, x, k, w, wt ? k : n, bias ? 1.0f : 0.0f, y, n);
}

void kernel_linear_dx(int64_t m, int64_t n, int64_t k, const float *dy, const float *w,
                      bool wt, float *dx) {
    kernel_gemm(false, !wt, m, k, n, dy, n, w, wt ? k : n, 0.0f, dx, k);
}

void kernel_linear_dw(int64_t m, int64_t n, int64_t k, const float *x, const float *dy,
                      bool wt, float *dw, float *db) {
    if (wt)
        kernel_gemm(true, false, n, k, m, dy, n, x, k, 1.0f, dw, k);
    else
        kernel_gemm(true, false, k, n, m, x, k, dy, n, 1.0f, dw, n);
    if (db)
        kernel_column_sums(m, n, dy, db);
}

/* Eight rows at a time: eight streams for the prefetcher, an eighth of the traffic on dst,
 * and a tree of additions instead of a chain. */
static void column_sums_range(int64_t rows, int64_t n, int64_t first, int64_t end,
                              const float *x, float *dst) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        const float *r = x + i * n;
        int64_t j = first;
        for (; j + VL <= end; j += VL) {
            vf a = v_load(r + j) + v_load(r + n + j);
            vf b = v_load(r + 2 * n + j) + v_load(r + 3 * n + j);
            vf c = v_load(r + 4 * n + j) + v_load(r + 5 * n + j);
            vf d = v_load(r + 6 * n + j) + v_load(r + 7 * n + j);
            v_store(dst + j, v_load(dst + j) + ((a + b) + (c + d)));
        }
        for (; j < end; j++) {
            float a = r[j] + r[n + j], b = r[2 * n + j] + r[3 * n + j];
            float c = r[4 * n + j] + r[5 * n + j], d = r[6 * n + j] + r[7 * n + j];
            dst[j] += (a + b) + (c + d);
        }
    }
    for (; i < rows; i++)
        for (int64_t j = first; j < end; j++)
            dst[j] += x[i * n + j];
}

void kernel_column_sums(int64_t rows, int64_t n, const float *x, float *dst) {
    KERNEL_SPLIT(n, VL, rows * n, column_sums_range(rows, n, first, end, x, dst));
}
