/* kernel_tile.h - the small dense products inside attention.
 *
 * One tile is up to TILE_ROWS x TILE_COLS of C = A B or C += A B, held in registers while k
 * runs. A is read one element at a time with any strides, so a transposed A costs nothing;
 * B and C are rows of whole vectors, 64-byte aligned, in scratch. A general library reaches
 * its speed only on larger products, and cannot stop at the diagonal of a causal block.
 *
 */
#ifndef WEFT_KERNEL_TILE_H
#define WEFT_KERNEL_TILE_H

#include "kernel_type.h"

#include <stdbool.h>
#include <stdint.h>

/* With AVX-512, 24 of 32 registers hold C; others have half the registers. */
#if defined(__AVX512F__)
enum { TILE_ROWS = 6, TILE_COLS = 64 };
#else
enum { TILE_ROWS = 6, TILE_COLS = 16 };
#endif

/* C[rows, cols] = (add ? C : 0) + A[rows, k] B[k, cols]. Element (i, l) of A stands at
 * a[i * a_row + l * a_step]. rows <= TILE_ROWS; cols <= TILE_COLS, rounded up to whole
 * vectors of 16. */
struct tile_product {
    int rows, cols;
    int64_t k;
    const float *a;
    int64_t a_row, a_step;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
};
void kernel_tile(const struct tile_product *p);

/* Columns of a packed row: dim rounded up to whole vectors. */
static inline int64_t kernel_tile_pad(int64_t dim) {
    return (dim + 15) & ~(int64_t)15;
}

/* From tensors of each type of elements to floats in scratch and back. */
/* dst[rows, pad(dim)] = scale * src[rows, dim], zeros in the padding. */
void kernel_tile_pack(int64_t rows, int64_t dim, float scale, const T *src,
                      int64_t src_stride, float *dst);
/* dst[rows, dim] = scale * src[rows, pad(dim)]. */
void kernel_tile_unpack(int64_t rows, int64_t dim, float scale, const float *src, T *dst,
                        int64_t dst_stride);
/* The transpose in panels: element (i, e) of src goes to
 * dst[(i / TILE_COLS) * dim * TILE_COLS + e * TILE_COLS + i % TILE_COLS]; rows are filled
 * with zeros up to whole panels. */
void kernel_tile_pack_transposed(int64_t rows, int64_t dim, const T *src,
                                 int64_t src_stride, float *dst);

#endif
