/* cuda_attention_mma.h - the two products that attention on tensor cores is made of, by a warp.
 *
 * A warp has 16 MT rows of a block of scores. It makes them of its rows of one tile and all rows of
 * another (product); what they become, rounded, is the left operand of a product with a tile
 * as it lies (add_product), and never leaves the registers in between. Tiles are DIM wide, of which
 * the first `dim` columns hold something.
 */
#ifndef WEFT_CUDA_ATTENTION_MMA_H
#define WEFT_CUDA_ATTENTION_MMA_H

#include "cuda/cuda_mma.h"

/* Where the lane's row `half` of m-tile m is, from the warp's first. */
CUDA_DEVICE int lane_row(int m, int half) {
    return 16 * m + 8 * half + (int)(threadIdx.x & 31) / 4;
}

/* Where its first column of n-tile n is. */
CUDA_DEVICE int lane_column(int n) {
    return 8 * n + 2 * (int)(threadIdx.x & 3);
}

/* Nothing yet. */
template <int MT, int N> CUDA_DEVICE void clear(float (&c)[MT][N][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* S += A B^T: A is rows row .. row + 16 MT - 1 of a tile, B a tile of N rows. */
template <int MT, typename T, int DIM, int M, int N>
CUDA_DEVICE void product(int dim, const struct tile_of<T, DIM, M> &a, int row,
                         const struct tile_of<T, DIM, N> &b, float (&s)[MT][N / 8][4]) {
#pragma unroll
    for (int e = 0; e < DIM; e += depth_of<T>::N) {
        if (e >= dim)
            break;
        uint32_t x[MT][4], y[4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_rows<DIM>(x[m], a.at, row + 16 * m, e);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            load_columns<DIM>(y, b.at, 16 * n, e);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(s[m][2 * n], x[m], y[0], y[1]);
                mma<T>(s[m][2 * n + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/* Rounded, as the left operand of products that follow. */
template <typename T, int MT, int N>
CUDA_DEVICE void pack(const float (&p)[MT][N][4],
                      uint32_t (&x)[MT][8 * N / depth_of<T>::N][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int k = 0; k < 8 * N / depth_of<T>::N; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if constexpr (std::is_same_v<T, float>)
                    x[m][k][i] = tf32_of(p[m][k][i % 2 * 2 + i / 2]);
                else
                    x[m][k][i] = pack_pair<T>(p[m][2 * k + i / 2][i % 2 * 2],
                                              p[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

/* C += P B: B is as many columns as C, from one on, of a tile of N rows. */
template <int MT, typename T, int DIM, int N, int WIDE>
CUDA_DEVICE void add_product(int dim, const float (&p)[MT][N / 8][4],
                             const struct tile_of<T, DIM, N> &b, int column,
                             float (&c)[MT][WIDE][4]) {
    uint32_t x[MT][N / depth_of<T>::N][4], y[4];
    pack<T>(p, x);
#pragma unroll
    for (int k = 0; k < N / depth_of<T>::N; k++) {
#pragma unroll
        for (int n = 0; n < WIDE / 2; n++) {
            if (column + 16 * n >= dim)
                break;
            load_block<DIM>(y, b.at + column, depth_of<T>::N * k, 16 * n);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(c[m][2 * n], x[m][k], y[0], y[1]);
                mma<T>(c[m][2 * n + 1], x[m][k], y[2], y[3]);
            }
        }
    }
}

/* Before products with such tiles that add to these results. */
template <typename T, int DIM, int ROWS, typename... C>
CUDA_DEVICE void product_begin(const struct tile_of<T, DIM, ROWS> &, C &...) {
}

/* Until products with such tiles are done, and the results hold them. */
template <typename T, int DIM, int ROWS, typename... C>
CUDA_DEVICE void product_wait(const struct tile_of<T, DIM, ROWS> &, C &...) {
}

/* Begins to copy the keys from k0 on, and their values, which lie alike, where any are seen. */
template <int THREADS, typename T, typename STAGE>
CUDA_DEVICE void keys_begin(const struct kernel_attention &t, const T *k, const T *v,
                            int k0, int seen, STAGE &stage) {
    if (k0 < seen) {
        tile_begin<THREADS>(stage.k, k, t.kv_seq, k0, seen, (int)t.dim);
        tile_begin<THREADS>(stage.v, v, t.kv_seq, k0, seen, (int)t.dim);
    }
    copy_commit();
}

/* The first `rows` rows of a head = factor C, added to what is there if `more`. */
template <typename T, int MT, int N>
CUDA_DEVICE void store_rows(const float (&c)[MT][N][4], float factor, bool more, int rows,
                            int columns, T *to, int64_t stride) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int r = lane_row(m, half), e = lane_column(n);
                if (r >= rows || e >= columns)
                    continue;
                T *at = to + r * stride + e;
                const float x = more ? get(at) : 0, y = more ? get(at + 1) : 0;
                put_pair(at, x + factor * c[m][n][2 * half],
                         y + factor * c[m][n][2 * half + 1]);
            }
}

#endif
