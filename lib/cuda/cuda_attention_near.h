/* cuda_attention_near.h - relative positions inside the kernels of attention:
 * what is added to a score, and the gradients by distance of a block of
 * queries.
 *
 * Scores at one distance lie on a diagonal. A tile of dS stands in shared
 * memory; each thread sums some of its diagonals and adds them to the block's
 * sums by distance, which nobody else touches meanwhile. Distances beyond the
 * last one that counts share its sum, so each thread keeps those sums itself
 * until the end. No order depends on chance.
 */
#ifndef WEFT_CUDA_ATTENTION_NEAR_H
#define WEFT_CUDA_ATTENTION_NEAR_H

#include "cuda/cuda_attention_block.h"

/* What head h adds at a distance (key minus query). */
CUDA_DEVICE float near_at(const struct attention_near &p, int h, int distance) {
    const int d = p.distance, i = distance + d;
    return p.near[h * (2 * d + 1) + (i < 0 ? 0 : i > 2 * d ? 2 * d : i)];
}

/* Sums by distance of a block of queries. */
struct near_sums {
    float *sums; /* shared: [2 distance + 1] */
    float *tile; /* shared: [ROWS, COLUMNS + 1] of dS */
    float below, above;
};

template <int THREADS>
CUDA_DEVICE struct near_sums near_begin(const struct attention_near &p, float *tile,
                                        float *sums) {
    for (int i = threadIdx.x; i <= 2 * p.distance; i += THREADS)
        sums[i] = 0;
    return {sums, tile, 0, 0};
}

/* Adds the tile, which all threads have written. nearest: the distance of its
 * last row and first column. The tile is free again after the next barrier. */
template <int ROWS, int COLUMNS, int THREADS>
CUDA_DEVICE void near_add(const struct attention_near &p, struct near_sums &s,
                          int nearest) {
    for (int x = threadIdx.x; x < ROWS + COLUMNS - 1; x += THREADS) {
        const int shift = x - (ROWS - 1), distance = nearest + x; /* column = row + shift */
        const int last = COLUMNS - shift < ROWS ? COLUMNS - shift : ROWS;
        float sum = 0;
        for (int r = shift < 0 ? -shift : 0; r < last; r++)
            sum += s.tile[r * (COLUMNS + 1) + r + shift];
        if (distance <= -p.distance)
            s.below += sum;
        else if (distance >= p.distance)
            s.above += sum;
        else
            s.sums[distance + p.distance] += sum;
    }
}

/* Writes the block's gradients by bucket. The tile has at least 2 THREADS
 * floats. */
template <int THREADS>
CUDA_DEVICE void near_end(const struct attention_near &p, struct near_sums &s,
                          float *parts) {
    const int me = threadIdx.x;
    __syncthreads();
    s.tile[me] = s.below;
    s.tile[THREADS + me] = s.above;
    __syncthreads();
    if (me < 2) {
        float sum = 0;
        for (int i = 0; i < THREADS; i++)
            sum += s.tile[me * THREADS + i];
        s.sums[me * 2 * p.distance] = sum;
    }
    __syncthreads();
    for (int b = me; b < p.buckets; b += THREADS) {
        float sum = 0;
        for (int i = 0; i <= 2 * p.distance; i++)
            sum += p.bucket[i] == b ? s.sums[i] : 0;
        parts[b] = sum;
    }
}

/* Where a block's gradients go. */
CUDA_DEVICE float *near_parts(const struct kernel_attention &t,
                              const struct attention_near &p, const struct query_block &x) {
    return p.parts + (((int64_t)x.b * gridDim.x + x.number) * t.heads + x.h) * p.buckets;
}

#endif
