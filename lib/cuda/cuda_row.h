/* cuda_row.h - kernels of rows: a block takes one row after another, its threads the row's elements.
 *
 *     CUDA_LAUNCH(squares<T>, rows, row_threads<T>(n, BLOCK), 0, c->stream, n, head, x, y);
 */
#ifndef WEFT_CUDA_ROW_H
#define WEFT_CUDA_ROW_H

#include "cuda/cuda_block.h"

/* f(j, lanes) for the block's row of n elements; from `head` on in vectors. */
template <typename T, typename F>
CUDA_DEVICE void each_in_row(int64_t n, int64_t head, F f) {
    each<T>(n, head, threadIdx.x, blockDim.x, f);
}

/* The sum over x[0..n-1] of f(x), in every thread. */
template <typename T, typename F>
CUDA_DEVICE float row_sum(int64_t n, int64_t head, const T *x, F f) {
    float sum = 0;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L];
        load(x + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            sum += f(v[i]);
    });
    return block_sum(sum);
}

/* ---- sums for gamma and beta --------------------------------------------------------------
 * A block adds up the shares of its rows, [count][n], in shared memory, or where that does not hold them in
 * its part of the workspace. A thread has the same columns in every row, so its sums are its own. */

enum { NORM_SHARED = 40 << 10 }; /* bytes */

template <typename T>
CUDA_DEVICE void norm_clear(int count, int64_t n, int64_t head, float *sum) {
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        const float zero[decltype(lanes)::N] = {0};
        for (int k = 0; k < count; k++)
            store(sum + k * n + j, lanes, zero);
    });
}

template <typename T>
CUDA_DEVICE void norm_keep(int count, int64_t n, int64_t head, const float *sum,
                           float *part) {
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        float v[decltype(lanes)::N];
        for (int k = 0; k < count; k++) {
            load(sum + k * n + j, lanes, v);
            store(part + k * n + j, lanes, v);
        }
    });
}

#endif
