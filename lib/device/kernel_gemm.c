/* The matrix product for every type of elements.
 *
 * Floats go to the library (kernel_gemm_*.c), as do numbers of 16 bits if it multiplies them. If not,
 * they are widened block by block: a product of blocks is long beside that.
 */
#include "kernel_impl.h"
#include "kernel_vec.h"

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

/* Element (i, j) of an operand. */
static const char *element(const struct kernel_operand *x, enum dtype type, int64_t i,
                           int64_t j) {
    return (const char *)x->p +
           dtype_size(type) * (x->turned ? j * x->ld + i : i * x->ld + j);
}

/* The block [rows, columns] of an operand at (i, j), as one of floats in scratch. */
static struct kernel_operand block_of(const struct kernel_operand *x, enum dtype type,
                                      const int64_t at[2], const int64_t size[2],
                                      float *scratch) {
    const int64_t rows = size[x->turned], columns = size[!x->turned];
    widen_block(type, rows, columns, element(x, type, at[0], at[1]), x->ld, scratch);
    return (struct kernel_operand){scratch, columns, x->turned};
}

/* The block of C at (i, j), m by n. */
static void product_block(const struct kernel_product *p, int64_t i, int64_t j, int64_t m,
                          int64_t n) {
    float *a = kernel_scratch(0), *b = a + ROWS * DEPTH, *c = b + DEPTH * COLUMNS;
    char *at = (char *)p->c + dtype_size(p->type_c) * (i * p->ldc + j);
    if (p->beta != 0)
        widen_block(p->type_c, m, n, at, p->ldc, c);
    for (int64_t l = 0; l < p->k; l += DEPTH) {
        const int64_t k = least(DEPTH, p->k - l);
        kernel_blas_gemm(&(struct kernel_product){
            .m = m,
            .n = n,
            .k = k,
            .a = block_of(&p->a, p->type, (int64_t[]){i, l}, (int64_t[]){m, k}, a),
            .b = block_of(&p->b, p->type, (int64_t[]){l, j}, (int64_t[]){k, n}, b),
            .beta = l ? 1 : p->beta,
            .c = c,
            .ldc = n});
    }
    narrow_block(p->type_c, m, n, c, at, p->ldc);
}

static void product_by_blocks(const struct kernel_product *p) {
    for (int64_t i = 0; i < p->m; i += ROWS)
        for (int64_t j = 0; j < p->n; j += COLUMNS)
            product_block(p, i, j, least(ROWS, p->m - i), least(COLUMNS, p->n - j));
}

/* Nothing is summed: C is cleared or stays. */
static void product_of_nothing(const struct kernel_product *p) {
    const int64_t size = dtype_size(p->type_c);
    for (int64_t i = 0; i < p->m && p->beta == 0; i++)
        memset((char *)p->c + i * p->ldc * size, 0, (size_t)(p->n * size));
}

void kernel_product(const struct kernel_product *p) {
    if (p->m == 0 || p->n == 0)
        return;
    if (p->k == 0)
        product_of_nothing(p);
    else if (p->type == DTYPE_f32)
        kernel_blas_gemm(p);
    else if (!kernel_blas_half(p))
        product_by_blocks(p);
}
