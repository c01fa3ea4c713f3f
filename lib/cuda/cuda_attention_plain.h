/* cuda_attention_plain.h - the two products that attention is made of, in floats, for elements of any
 * type and heads of any width, by a block of 256 threads.
 *
 * Blocks of scores are 64 x 64. Thread (ty, tx) of the 16 x 16 has rows ty + 16 i and columns
 * tx + 16 j, so that a half of a warp has whole rows, and that what it reads together lies in
 * different banks or is one word. A block makes 128 columns of its result at a time; heads that are
 * wider go over their scores again for the rest.
 */
#ifndef WEFT_CUDA_ATTENTION_PLAIN_H
#define WEFT_CUDA_ATTENTION_PLAIN_H

#include "cuda/cuda_attention_block.h"
#include "cuda/cuda_type.h"

enum {
    PLAIN = 64,       /* rows and columns of a block of scores */
    PLAIN_WIDE = 128, /* columns of a result */
    PLAIN_DEEP = 32,  /* columns of a head that are in shared memory at a time */
    PLAIN_THREADS = 256,
    PLAIN_ROW = PLAIN + 1 /* floats of a row in shared memory */
};

struct plain_shared {
    float s[PLAIN * PLAIN_ROW]; /* a block of probabilities or their gradients */
    union {
        struct {
            float a[PLAIN_DEEP * PLAIN_ROW], b[PLAIN_DEEP * PLAIN_ROW];
        } product;
        float add[PLAIN_DEEP * PLAIN_WIDE];
    };
};

CUDA_DEVICE int plain_row(int i) {
    return (int)threadIdx.x / 16 + 16 * i;
}

CUDA_DEVICE int plain_column(int j) {
    return (int)threadIdx.x % 16 + 16 * j;
}

/* Rows of a head: the first of a block, how many there are of it, elements from one to the next. */
template <typename T> struct plain_rows {
    const T *at;
    int rows;
    int64_t stride;
};

/* Columns e .. e + 31 of the rows, transposed; zeros where there is nothing. */
template <typename T>
CUDA_DEVICE void plain_load(const struct plain_rows<T> &x, int e, int dim, float *to) {
    const int column = e + (int)threadIdx.x % PLAIN_DEEP;
    for (int r = threadIdx.x / PLAIN_DEEP; r < PLAIN; r += PLAIN_THREADS / PLAIN_DEEP)
        to[(column - e) * PLAIN_ROW + r] =
            r < x.rows && column < dim ? get(x.at + r * x.stride + column) : 0.0f;
}

/* S = A B^T. Begins with a barrier. */
template <typename T>
CUDA_DEVICE void plain_product(struct plain_shared &w, const struct plain_rows<T> &a,
                               const struct plain_rows<T> &b, int dim, float (&s)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = 0;
    for (int e = 0; e < dim; e += PLAIN_DEEP) {
        __syncthreads();
        plain_load(a, e, dim, w.product.a);
        plain_load(b, e, dim, w.product.b);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < PLAIN_DEEP; k++) {
            float y[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                y[j] = w.product.b[k * PLAIN_ROW + plain_column(j)];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float x = w.product.a[k * PLAIN_ROW + plain_row(i)];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    s[i][j] = fmaf(x, y[j], s[i][j]);
            }
        }
    }
}

/* The thread's part of a block of probabilities or gradients, for plain_add. Begins with a barrier. */
CUDA_DEVICE void plain_put(struct plain_shared &w, const float (&s)[4][4]) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            w.s[plain_row(i) * PLAIN_ROW + plain_column(j)] = s[i][j];
}

/* C += S B, with the S that plain_put put; `wide` columns of B from column e on. */
template <typename T>
CUDA_DEVICE void plain_add(struct plain_shared &w, const struct plain_rows<T> &b, int e,
                           int wide, float (&c)[4][8]) {
    for (int k0 = 0; k0 < b.rows; k0 += PLAIN_DEEP) {
        __syncthreads();
#pragma unroll 4
        for (int x = threadIdx.x; x < PLAIN_DEEP * PLAIN_WIDE; x += PLAIN_THREADS) {
            const int r = k0 + x / PLAIN_WIDE, column = x % PLAIN_WIDE;
            w.add[x] =
                r < b.rows && column < wide ? get(b.at + r * b.stride + e + column) : 0.0f;
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < PLAIN_DEEP; k++) {
            float x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = w.s[plain_row(i) * PLAIN_ROW + k0 + k];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float y = w.add[k * PLAIN_WIDE + plain_column(j)];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    c[i][j] = fmaf(x[i], y, c[i][j]);
            }
        }
    }
}

CUDA_DEVICE void plain_clear(float (&c)[4][8]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            c[i][j] = 0;
}

/* `wide` columns from e of the first `rows` rows = factor C, added to what is there if `more`. */
template <typename T>
CUDA_DEVICE void plain_store(const float (&c)[4][8], float factor, bool more, int rows,
                             int e, int wide, T *to, int64_t stride) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (plain_row(i) < rows && plain_column(j) < wide) {
                T *at = to + plain_row(i) * stride + e + plain_column(j);
                put(at, (more ? get(at) : 0.0f) + factor * c[i][j]);
            }
}

#endif
