/* The matrix product for every type of elements.
 *
 * Floats go to the library (kernel_gemm_*.c), as do numbers of 16 bits if it multiplies them. If not,
 * they are widened block by block: a product of blocks is long beside that.
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

/* ---- elements of 16 bits by blocks of floats ---------------------------------------------- */

/* Blocks of A, B and C that fill three quarters of the scratch. */
enum { ROWS = 256, COLUMNS = 256, DEPTH = 1024 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A block of a matrix, dense floats in scratch; one of C also goes back. */
static void widen_block(enum dtype type, int64_t rows, int64_t columns, const void *from,
                        int64_t stride, float *to) {
    const int64_t bytes = dtype_size(type);
    for (int64_t i = 0; i < rows; i++)
        kernel_widen(columns, type, (const char *)from + i * stride * bytes,
                     to + i * columns);
}

static void narrow_block(enum dtype type, int64_t rows, int64_t columns, const float *from,
                         void *to, int64_t stride) {
    const int64_t bytes = dtype_size(type);
    for (int64_t i = 0; i < rows; i++)
        kernel_narrow(columns, type, from + i * columns, (char *)to + i * stride * bytes);
}

/* What does not change from block to block. */
struct product {
    enum dtype type, type_c;
    bool ta, tb;
    int64_t k, lda, ldb, ldc;
    const char *a, *b;
    char *c;
    float beta;
};

/* Element (i, j) of op(X). */
static const char *element(const char *x, enum dtype type, bool transposed, int64_t ld,
                           int64_t i, int64_t j) {
    return x + dtype_size(type) * (transposed ? j * ld + i : i * ld + j);
}

/* The block of C at (i, j), m by n. */
static void product_block(const struct product *p, int64_t i, int64_t j, int64_t m,
                          int64_t n) {
    float *a = kernel_scratch(0), *b = a + ROWS * DEPTH, *c = b + DEPTH * COLUMNS;
    char *at = p->c + dtype_size(p->type_c) * (i * p->ldc + j);
    if (p->beta != 0)
        widen_block(p->type_c, m, n, at, p->ldc, c);
    for (int64_t l = 0; l < p->k; l += DEPTH) {
        const int64_t k = least(DEPTH, p->k - l), ra = p->ta ? k : m, ca = p->ta ? m : k;
        const int64_t rb = p->tb ? n : k, cb = p->tb ? k : n;
        widen_block(p->type, ra, ca, element(p->a, p->type, p->ta, p->lda, i, l), p->lda,
                    a);
        widen_block(p->type, rb, cb, element(p->b, p->type, p->tb, p->ldb, l, j), p->ldb,
                    b);
        kernel_blas_gemm(p->ta, p->tb, m, n, k, a, ca, b, cb, l ? 1 : p->beta, c, n);
    }
    narrow_block(p->type_c, m, n, c, at, p->ldc);
}

static void product_by_blocks(const struct product *p, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i += ROWS)
        for (int64_t j = 0; j < n; j += COLUMNS)
            product_block(p, i, j, least(ROWS, m - i), least(COLUMNS, n - j));
}

void kernel_product(enum dtype type, bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                    const void *a, int64_t lda, const void *b, int64_t ldb, float beta,
                    enum dtype type_c, void *c, int64_t ldc) {
    if (type == DTYPE_f32) {
        kernel_gemm(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
        return;
    }
    if (k > 0 && m > 0 && n > 0 &&
        kernel_blas_half(type, ta, tb, m, n, k, a, lda, b, ldb, beta, NULL, type_c, c, ldc))
        return;
    if (k == 0 && beta == 0)
        for (int64_t i = 0; i < m; i++)
            memset((char *)c + i * ldc * dtype_size(type_c), 0,
                   (size_t)(n * dtype_size(type_c)));
    else if (k > 0)
        product_by_blocks(
            &(struct product){type, type_c, ta, tb, k, lda, ldb, ldc, a, b, c, beta}, m, n);
}
