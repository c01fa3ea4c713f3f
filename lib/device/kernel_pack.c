/* Copies between strided tensors and the scratch that register tiles read.
 *
 * The slices of one attention head lie hidden-size apart; where that is a multiple of 4 KiB
 * all rows would fight for the same few lines of the nearest cache. Packed rows are dense,
 * aligned and padded to whole vectors.
 */
#include "kernel_tile.h"
#include "kernel_type.h"
#include "kernel_vec.h"

void kernel_tile_pack(int64_t rows, int64_t dim, float scale, const T *src,
                      int64_t src_stride, float *dst) {
    const int64_t pad = kernel_tile_pad(dim);
    for (int64_t i = 0; i < rows; i++, src += src_stride, dst += pad) {
        int64_t j = 0;
        for (; j + VL <= dim; j += VL)
            v_store(dst + j, v_load(src + j) * scale);
        if (j < dim)
            v_store(dst + j, v_load_n(src + j, dim - j) * scale);
    }
}

void kernel_tile_unpack(int64_t rows, int64_t dim, float scale, const float *src, T *dst,
                        int64_t dst_stride) {
    const int64_t pad = kernel_tile_pad(dim);
    for (int64_t i = 0; i < rows; i++, src += pad, dst += dst_stride) {
        int64_t j = 0;
        for (; j + VL <= dim; j += VL)
            v_store(dst + j, v_load(src + j) * scale);
        if (j < dim)
            v_store_n(dst + j, dim - j, v_load(src + j) * scale);
    }
}

/* Up to 16 rows and 16 columns of src, transposed to rows TILE_COLS apart. */
static void transpose_square(int64_t rows, int64_t cols, const T *src, int64_t src_stride,
                             float *dst) {
    vf r[VL];
    if (rows == VL && cols == VL) {
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++)
            r[i] = v_load(src + i * src_stride);
    } else {
        for (int i = 0; i < VL; i++)
            r[i] = i < rows ? v_load_n(src + i * src_stride, cols) : v_set(0);
    }
    transpose16(r);
    for (int64_t i = 0; i < cols; i++)
        v_store(dst + i * TILE_COLS, r[i]);
}

void kernel_tile_pack_transposed(int64_t rows, int64_t dim, const T *src,
                                 int64_t src_stride, float *dst) {
    const int64_t whole = (rows + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
    for (int64_t i = 0; i < whole; i += VL) {
        float *panel = dst + i / TILE_COLS * TILE_COLS * dim + i % TILE_COLS;
        const int64_t left = rows - i < 0 ? 0 : rows - i < VL ? rows - i : VL;
        for (int64_t e = 0; e < dim; e += VL)
            transpose_square(left, dim - e < VL ? dim - e : VL,
                             left > 0 ? src + i * src_stride + e : src, src_stride,
                             panel + e * TILE_COLS);
    }
}
