/* cuda_attention_rows.h - the softmax of attention in the registers of a warp: scores of a tile become
 * probabilities, and rows keep their maximum, their sum and their output.
 */
#ifndef WEFT_CUDA_ATTENTION_ROWS_H
#define WEFT_CUDA_ATTENTION_ROWS_H

#include "cuda/cuda_attention_block.h"
#include "cuda/cuda_attention_mma.h"
#include "cuda/cuda_attention_near.h"

/* What a warp keeps of its rows: of lane / 4 and lane / 4 + 8 of each 16. */
template <int MT, int DIM> struct rows_done {
    float o[MT][DIM / 8][4]; /* not yet divided by the sum */
    float max[MT][2];        /* of the scores so far */
    float sum[MT][2];        /* of exp2(score - max), of this lane's columns */
};

/* No keys yet, or those that o and lse are of. o is the head's, its first row the warp's. */
template <int MT, int DIM, typename T>
CUDA_DEVICE void rows_begin(const struct kernel_attention &t, int rows, const T *o,
                            const float *lse, struct rows_done<MT, DIM> &w) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = lane_row(m, half);
            const bool there = t.more && r < rows;
            w.max[m][half] = there ? LOG2_E * lse[r] : -INFINITY;
            w.sum[m][half] =
                w.max[m][half] > -INFINITY && lane_column(0) == 0 ? 1.0f : 0.0f;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int e = lane_column(n) + i;
                    w.o[m][n][2 * half + i] =
                        there && e < t.dim ? get(o + r * t.o_seq + e) : 0.0f;
                }
        }
}

/* Adds what relative positions give; scores are then in units of log 2. i0, k0: the numbers of the
 * warp's first query, counted among the keys, and of the tile's first key. */
template <int MT, int BN>
CUDA_DEVICE void add_near(const struct attention_near &p, int h, float unit, int i0, int k0,
                          float (&s)[MT][BN][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < BN; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] =
                    s[m][n][i] * unit +
                    near_at(p, h, k0 + lane_column(n) + i % 2 - (i0 + lane_row(m, i / 2)));
}

/* Keys that a query of sample b does not see have no score. first: the warp's first query. */
template <bool FROM, int MT, int BN>
CUDA_DEVICE void mask(const struct kernel_attention &t, int b, int seen, int first, int k0,
                      float (&s)[MT][BN][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = first + lane_row(m, half);
            const int end = keys_of(t, query, seen) - k0;
            const int from = FROM ? first_key(t, b, query) - k0 : 0;
#pragma unroll
            for (int n = 0; n < BN; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (lane_column(n) + i >= end || (FROM && lane_column(n) + i < from))
                        s[m][n][2 * half + i] = -INFINITY;
        }
}

/* The largest, or the sum, of what the four lanes of a row have. */
CUDA_DEVICE float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

CUDA_DEVICE float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Turns scores into probabilities relative to the row's maximum. fade: by how much what has been
 * summed is less, as that grew. */
template <int MT, int DIM, int BN>
CUDA_DEVICE void softmax(float unit, float (&s)[MT][BN][4], struct rows_done<MT, DIM> &w,
                         float (&fade)[MT][2]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -INFINITY, sum = 0;
#pragma unroll
            for (int n = 0; n < BN; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top = fmaxf(w.max[m][half], row_max(top) * unit);
            /* Rows that have seen nothing stay without a maximum. */
            const float shift = top > -INFINITY ? top : 0.0f;
            fade[m][half] = exp2_fast(w.max[m][half] - shift);
            w.max[m][half] = top;
#pragma unroll
            for (int n = 0; n < BN; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = exp2_fast(s[m][n][i] * unit - shift);
                    sum += s[m][n][i];
                }
            w.sum[m][half] = w.sum[m][half] * fade[m][half] + sum;
        }
}

/* What has been summed of the output follows. */
template <int MT, int DIM>
CUDA_DEVICE void rescale(const float (&fade)[MT][2], struct rows_done<MT, DIM> &w) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                w.o[m][n][i] *= fade[m][i / 2];
}

/* A tile's scores become probabilities: k0 is its first key, `first` the warp's first query, `from` the first
 * key that its last one sees. FROM: there are keys in front that a query does not see. */
template <bool FROM, int MT, int DIM, int BN>
CUDA_DEVICE void weigh(const struct kernel_attention &t, const struct attention_near &near,
                       int b, int h, int first, int from, int k0, int seen,
                       float (&s)[MT][BN][4], struct rows_done<MT, DIM> &w,
                       float (&fade)[MT][2]) {
    const float unit = t.scale * LOG2_E;
    if (near.near)
        add_near(near, h, unit, (int)t.first + first, k0, s);
    if (k0 + 8 * BN > keys_of(t, first, seen) || (FROM && k0 < from))
        mask<FROM>(t, b, seen, first, k0, s);
    softmax(near.near ? 1.0f : unit, s, w, fade);
}

/* Divides by the sums, and keeps log(sum(exp(scores))). */
template <int MT, int DIM, typename T>
CUDA_DEVICE void rows_end(const struct kernel_attention &t, int rows,
                          const struct rows_done<MT, DIM> &w, T *o, float *lse) {
    __syncwarp(); /* where no keys are seen a lane writes what others have just read of lse */
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = lane_row(m, half);
            const float sum = row_sum(w.sum[m][half]);
            const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
            if (r >= rows)
                continue;
            if (lane_column(0) == 0)
                lse[r] = LN_2 * (w.max[m][half] + log2f(sum));
#pragma unroll
            for (int n = 0; n < DIM / 8; n++)
                if (lane_column(n) < t.dim)
                    put_pair(o + r * t.o_seq + lane_column(n),
                             w.o[m][n][2 * half] * inverse,
                             w.o[m][n][2 * half + 1] * inverse);
        }
}

#endif
