/* kernel_dot.h - products of blocks of bf16 inside attention, summed in floats.
 *
 * The machine multiplies pairs of numbers: A is rows of bf16, B is rows of pairs, a word of row r
 * and column j holding elements (2r, j) and (2r + 1, j). Intel's AMX takes tiles of 16 rows of 64
 * bytes, AVX512_BF16 vectors; both read the same blocks. Rows, columns and depth are multiples of
 * DOT, blocks are padded with zeros.
 *
 *     static bf16 q[32 * 128];
 *     static uint32_t keys[128 / 2 * 64];
 *     static float scores[32 * 64];
 *     kernel_dot_open();
 *     kernel_dot(&(struct dot_product){32, 64, 128, q, 128, keys, 64, scores, 64, false});
 *     kernel_dot_close();
 */
#ifndef WEFT_KERNEL_DOT_H
#define WEFT_KERNEL_DOT_H

#include "device/kernel.h"

enum { DOT = 32 };

static inline int64_t kernel_dot_pad(int64_t n) {
    return (n + DOT - 1) & ~(int64_t)(DOT - 1);
}

/* Are there instructions for it? */
bool kernel_dot_known(void);
/* The calling thread is about to call kernel_dot, and done with it. */
void kernel_dot_open(void);
void kernel_dot_close(void);

/* C[m, n] = (add ? C : 0) + A[m, k] B[k, n]: lda in elements of A, ldb in words, ldc in floats. */
struct dot_product {
    int64_t m, n, k;
    const bf16 *a;
    int64_t lda;
    const uint32_t *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
};
void kernel_dot(const struct dot_product *p);

/* dst[pad(rows), pad(dim)] = src[rows, dim], zeros in the padding. */
void kernel_dot_rows(int64_t rows, int64_t dim, const bf16 *src, int64_t src_stride,
                     bf16 *dst);
/* Packed rows [rows, columns] as pairs for a product over the rows: dst[rows / 2, columns]; and for
 * one over the columns, that is of the transpose: dst[columns / 2, rows], ld words apart. */
void kernel_dot_pairs(int64_t rows, int64_t columns, const bf16 *src, uint32_t *dst);
void kernel_dot_turn(int64_t rows, int64_t columns, const bf16 *src, uint32_t *dst,
                     int64_t ld);

#endif
