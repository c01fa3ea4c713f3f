/* cuda_row.h - kernels of rows: a block takes one row after another, its threads the row's elements.
 *
 *     CUDA_ROWS(squares<T>, n->rows, n->n, aligned(in->x), (const T *)in->x, (float *)out->squares);
 */
#ifndef WEFT_CUDA_ROW_H
#define WEFT_CUDA_ROW_H

#include "cuda/cuda_block.h"

/* f(j, lanes) for the block's row of n elements; from `head` on in vectors. */
template <typename T, typename F>
CUDA_DEVICE void each_in_row(int64_t n, int64_t head, F f) {
    each<T>(n, head, threadIdx.x, blockDim.x, f);
}

/* What memory would hold of it. */
template <typename T> CUDA_DEVICE float rounded(float x) {
    return widen(narrow<T>(x));
}

/* The sum over the n elements of x from `at` on of f(x), in every thread. With ADDS x = a + b is made and
 * written first. */
template <typename T, bool ADDS, typename F>
CUDA_DEVICE float row_sum_of(int64_t n, int64_t head, int64_t at, const T *a, const T *b,
                             T *x, F f) {
    float sum = 0;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L];
        if constexpr (ADDS) {
            float w[L];
            load(a + at + j, lanes, v);
            load(b + at + j, lanes, w);
#pragma unroll
            for (int i = 0; i < L; i++)
                v[i] = rounded<T>(v[i] + w[i]);
            store(x + at + j, lanes, v);
        } else {
            load(x + at + j, lanes, v);
        }
#pragma unroll
        for (int i = 0; i < L; i++)
            sum += f(v[i]);
    });
    return block_sum(sum);
}
/* Over x[0..n-1]. */
template <typename T, typename F>
CUDA_DEVICE float row_sum(int64_t n, int64_t head, const T *x, F f) {
    return row_sum_of<T, false>(n, head, 0, (const T *)NULL, (const T *)NULL, (T *)x, f);
}

/* dx[j ..] = v, or with ADDS y = dx + g, with dx where that is elsewhere. */
template <typename T, bool ADDS, int L>
CUDA_DEVICE void store_gradient(T *dx, const T *g, T *y, int64_t j, lanes_of<L> lanes,
                                float *v) {
    if constexpr (ADDS) {
        float more[L];
        load(g + j, lanes, more);
        if (dx != y)
            store(dx + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            v[i] = rounded<T>(v[i]) + more[i];
        store(y + j, lanes, v);
    } else {
        store(dx + j, lanes, v);
    }
}

/* Launches kernel(n, head, ...) for the type T of the call c: a block for each of `rows` rows of n elements,
 * whose addresses are those of vectors or not. */
#define CUDA_ROWS(kernel, rows, n, vectors, ...)                                           \
    do {                                                                                   \
        if ((rows) > 0)                                                                    \
            CUDA_TYPED(c->args->dtype, T,                                                  \
                       CUDA_LAUNCH(kernel, (unsigned)(rows), row_threads<T>(n, BLOCK), 0,  \
                                   c->stream, n, row_head<T>(n, vectors), __VA_ARGS__));   \
    } while (0)

#endif
