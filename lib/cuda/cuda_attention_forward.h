/* cuda_attention_forward.h - attention forward on tensor cores (Dao, FlashAttention-2, 2023).
 *
 * A block of threads has BM queries of one head; each of its warps 16 MT of them, alone: its rows of
 * the scores, their maxima and sums, and the output stay in its registers. Keys and values come in
 * tiles of BN, the next one copied while this one is worked on, into two stages of shared memory, so
 * that one barrier a tile is enough. Scores are kept in units of log 2. Probabilities, rounded to
 * bf16, are the left operand of the product with the values as they stand in the registers.
 *
 * Of a tile a warp of mma.sync does 64 MT BN dim operations and reads 4 BN dim bytes from shared memory,
 * which gives 128 bytes a cycle: 2048 MT operations a cycle, where an H100's tensor cores do 4096. So
 * heads that leave the registers for it have MT = 2. A block reads keys and values from the
 * second-level cache, for BM operations per byte of them; queries and the output cross memory once.
 *
 * The last queries of a causal mask have the most to do and begin first.
 */
#ifndef WEFT_CUDA_ATTENTION_FORWARD_H
#define WEFT_CUDA_ATTENTION_FORWARD_H

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
template <int MT, int DIM>
CUDA_DEVICE void rows_begin(const struct kernel_attention &t, int rows, const bf16 *o,
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
                          float (&s)[MT][BN / 8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < BN / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] =
                    s[m][n][i] * unit +
                    near_at(p, h, k0 + lane_column(n) + i % 2 - (i0 + lane_row(m, i / 2)));
}

/* Keys that a query does not see have no score. i: the warp's first query. */
template <int MT, int BN>
CUDA_DEVICE void mask(const struct kernel_attention &t, int seen, int first, int k0,
                      float (&s)[MT][BN / 8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int end = keys_of(t, first + lane_row(m, half), seen) - k0;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    if (lane_column(n) + i >= end)
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

/* Turns scores into probabilities relative to the row's maximum, and rescales what has been summed
 * by how much that grew. */
template <int MT, int DIM, int BN>
CUDA_DEVICE void softmax(float unit, float (&s)[MT][BN / 8][4],
                         struct rows_done<MT, DIM> &w) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = -INFINITY, sum = 0;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            top = fmaxf(w.max[m][half], row_max(top) * unit);
            /* Rows that have seen nothing stay without a maximum. */
            const float shift = top > -INFINITY ? top : 0.0f;
            const float fade = exp2_fast(w.max[m][half] - shift);
            w.max[m][half] = top;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = exp2_fast(s[m][n][i] * unit - shift);
                    sum += s[m][n][i];
                }
            w.sum[m][half] = w.sum[m][half] * fade + sum;
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) {
                w.o[m][n][2 * half] *= fade;
                w.o[m][n][2 * half + 1] *= fade;
            }
        }
}

/* Divides by the sums, and keeps log(sum(exp(scores))). */
template <int MT, int DIM>
CUDA_DEVICE void rows_end(const struct kernel_attention &t, int rows,
                          const struct rows_done<MT, DIM> &w, bf16 *o, float *lse) {
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
                    *(uint32_t *)(o + r * t.o_seq + lane_column(n)) = pack_bf16(
                        w.o[m][n][2 * half] * inverse, w.o[m][n][2 * half + 1] * inverse);
        }
}

/* Shared memory: a tile of queries, two stages of a tile of keys and one of values. */
template <template <int, int> class TILE, int DIM, int BM, int BN> struct forward_shared {
    TILE<DIM, BM> q;
    struct {
        TILE<DIM, BN> k, v;
    } stage[2];
};

template <template <int, int> class TILE, int DIM, int BM, int BN, int WARPS, int BLOCKS>
CUDA_KERNEL void __launch_bounds__(32 * WARPS, BLOCKS)
    attend(struct kernel_attention t, struct attention_near near, const bf16 *q,
           const bf16 *k, const bf16 *v, bf16 *o, float *lse) {
    const int MT = BM / WARPS / 16, THREADS = 32 * WARPS;
    if (!TILE<DIM, BN>::HERE)
        return;
    CUDA_DYNAMIC(char, bytes);
    auto *shared = room_in<forward_shared<TILE, DIM, BM, BN>>(bytes);
    const int b = blockIdx.z, h = blockIdx.y, dim = (int)t.dim, queries = (int)t.q_len;
    const int q0 = (int)(t.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * BM;
    const int row = (int)(threadIdx.x / 32) * 16 * MT; /* the warp's first */
    const int all = keys_seen(t, b), seen = keys_of(t, least(q0 + BM, queries) - 1, all);
    const float unit = t.scale * LOG2_E;
    q += query_at(t, b, h);
    k += key_at(t, b, ((int)t.first_head + h) / (int)t.group);
    v += key_at(t, b, ((int)t.first_head + h) / (int)t.group);
    o += result_at(t, b, h) + (q0 + row) * t.o_seq;
    lse += row_at(t, b, h) + q0 + row;

    struct rows_done<MT, DIM> w;
    rows_begin<MT, DIM>(t, queries - q0 - row, o, lse, w);
    tile_begin<THREADS>(shared->q, q, t.q_seq, q0, queries, dim);
    tile_begin<THREADS>(shared->stage[0].k, k, t.kv_seq, 0, seen, dim);
    tile_begin<THREADS>(shared->stage[0].v, v, t.kv_seq, 0, seen, dim);
    copy_commit();
    for (int k0 = 0; k0 < seen; k0 += BN) {
        const int now = k0 / BN % 2;
        tiles_wait(shared->q);
        __syncthreads(); /* this tile is there, and all are done with the one before it */
        if (k0 + BN < seen) {
            tile_begin<THREADS>(shared->stage[1 - now].k, k, t.kv_seq, k0 + BN, seen, dim);
            tile_begin<THREADS>(shared->stage[1 - now].v, v, t.kv_seq, k0 + BN, seen, dim);
        }
        copy_commit();
        float s[MT][BN / 8][4];
        clear(s);
        product(dim, shared->q, row, shared->stage[now].k, s);
        product_wait(shared->q, s);
        if (near.near)
            add_near<MT, BN>(near, h, unit, (int)t.first + q0 + row, k0, s);
        if (k0 + BN > keys_of(t, q0 + row, all))
            mask<MT, BN>(t, all, q0 + row, k0, s);
        softmax<MT, DIM, BN>(near.near ? 1.0f : unit, s, w);
        add_product(dim, s, shared->stage[now].v, 0, w.o);
        product_wait(shared->q, w.o);
    }
    copy_wait<0>();
    rows_end<MT, DIM>(t, queries - q0 - row, w, o, lse);
}

/* BLOCKS: of a multiprocessor, for which the compiler shares out registers. */
template <template <int, int> class TILE, int DIM, int BM, int BN, int WARPS, int BLOCKS>
static bool launch_forward(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const size_t bytes = room_bytes<forward_shared<TILE, DIM, BM, BN>>();
    if ((int64_t)bytes > c->dev->shared_bytes)
        return false;
    CUDA_SHARED((attend<TILE, DIM, BM, BN, WARPS, BLOCKS>), bytes);
    CUDA_LAUNCH((attend<TILE, DIM, BM, BN, WARPS, BLOCKS>),
                dim3(blocks_of(t->q_len, BM), (int)t->heads, (int)t->batch), 32 * WARPS,
                bytes, c->stream, *t, job->near, (const bf16 *)job->q, (const bf16 *)job->k,
                (const bf16 *)job->v, (bf16 *)job->o, job->lse);
    return true;
}

#endif
