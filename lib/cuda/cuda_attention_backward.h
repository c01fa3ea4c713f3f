/* cuda_attention_backward.h - attention backward on tensor cores (Dao,
 * FlashAttention-2, 2023): probabilities are made again from the scores and
 * lse.
 *
 *     P  = exp(scale Q K^T - lse)          dV = P^T dO
 *     dS = P (dO V^T - D)                  dK = scale dS^T Q
 *     D  = rowsum(dO O)                    dQ = scale dS K
 *
 * Two kernels. In the one a block of threads has keys and goes over the queries
 * of all heads that read them; it works on the transposes of the scores, so
 * that P^T and dS^T stand in the registers as the left operands that dV and dK
 * need. In the other it has queries and goes over their keys, for dQ and the
 * gradients of relative positions. So no two blocks add to one number: nothing
 * is accumulated in memory, and the order of every sum is fixed. That makes Q
 * K^T and dO V^T twice: 14 instead of 10 operations per score and column of a
 * head, against a second copy of dQ in floats and blocks that wait for each
 * other.
 *
 * As in cuda_attention_mma.cu tiles come in two stages. Where a warp's sums of
 * dK and dV would not fit its registers (heads wider than 128), a block makes
 * WIDE columns of them and others the rest, each with scores of its own.
 */
#ifndef WEFT_CUDA_ATTENTION_BACKWARD_H
#define WEFT_CUDA_ATTENTION_BACKWARD_H

#include "cuda/cuda_attention_block.h"
#include "cuda/cuda_attention_mma.h"
#include "cuda/cuda_attention_near.h"

/* ---- dK and dV
 * -------------------------------------------------------------------------------
 */

template <template <typename, int, int> class TILE, typename T, int DIM, int BM>
struct query_stage {
    TILE<T, DIM, BM> q, dout;
    float lse[BM], delta[BM];
};

template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN>
struct key_shared {
    TILE<T, DIM, BN> k, v;
    query_stage<TILE, T, DIM, BM> stage[2];
};

/* What a pass over queries reads. */
template <typename T> struct query_side {
    const T *q, *dout;
    const float *lse, *delta;
};

/* Begins to copy queries q0 .. q0 + BM - 1 of head h. Those beyond the last are
 * zeros with a log-sum of zero: probabilities of 1, which multiply gradients of
 * zero. */
template <int THREADS, template <typename, int, int> class TILE, typename T, int DIM,
          int BM>
CUDA_DEVICE void queries_begin(const struct kernel_attention &t, const query_side<T> &x,
                               int b, int h, int q0, query_stage<TILE, T, DIM, BM> &stage) {
    const int queries = (int)t.q_len, i = q0 + (int)threadIdx.x;
    tile_begin<THREADS>(stage.q, x.q + query_at(t, b, h), t.q_seq, q0, queries, (int)t.dim);
    tile_begin<THREADS>(stage.dout, x.dout + result_at(t, b, h), t.o_seq, q0, queries,
                        (int)t.dim);
    if ((int)threadIdx.x < BM) {
        const int64_t at = row_at(t, b, h) + (i < queries ? i : 0);
        copy_float(stage.lse + threadIdx.x, x.lse + at, i < queries);
        copy_float(stage.delta + threadIdx.x, x.delta + at, i < queries);
    }
}

/* P^T in place of the scores, dS^T in place of V dO^T. k, i: the numbers of the
 * warp's first key, and of the tile's first query. */
template <bool FROM, int MT, template <typename, int, int> class TILE, typename T, int DIM,
          int BM>
CUDA_DEVICE void key_slopes(const struct kernel_attention &t,
                            const struct attention_near &near, int b, int h, int k, int i,
                            int seen, const query_stage<TILE, T, DIM, BM> &stage,
                            float (&s)[MT][BM / 8][4], float (&ds)[MT][BM / 8][4]) {
    const float unit = t.scale * LOG2_E;
    const bool edge =
        k + 16 * MT > keys_of(t, i, seen) || (FROM && k < first_key(t, b, i + BM - 1));
#pragma unroll
    for (int n = 0; n < BM / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int query = lane_column(n) + c;
            const float lse = stage.lse[query] * LOG2_E, delta = stage.delta[query];
            const int from = FROM && edge ? first_key(t, b, i + query) : 0;
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int key = k + lane_row(m, half), at = 2 * half + c;
                    float x = s[m][n][at] * unit - lse;
                    if (near.near)
                        x += near_at(near, h, key - ((int)t.first + i + query));
                    const bool sees = !edge || (key < keys_of(t, i + query, seen) &&
                                                (!FROM || key >= from));
                    const float p = sees ? exp2_fast(x) : 0.0f;
                    s[m][n][at] = p;
                    ds[m][n][at] = p * (ds[m][n][at] - delta);
                }
        }
}

template <template <typename, int, int> class TILE, typename T, int DIM, int WIDE, int BM,
          int BN, int WARPS, int BLOCKS, bool FROM>
CUDA_KERNEL void __launch_bounds__(32 * WARPS, BLOCKS)
    key_gradients(struct kernel_attention t, struct attention_near near, query_side<T> x,
                  const T *k, const T *v, T *dk, T *dv) {
    const int MT = BN / WARPS / 16, THREADS = 32 * WARPS, parts = DIM / WIDE;
    if (!TILE<T, DIM, BN>::HERE)
        return;
    CUDA_DYNAMIC(char, bytes);
    auto *shared = room_in<key_shared<TILE, T, DIM, BM, BN>>(bytes);
    const int b = blockIdx.z, kv_head = blockIdx.y / parts, k0 = blockIdx.x * BN;
    const int column = (int)(blockIdx.y % parts) * WIDE, dim = (int)t.dim;
    const int row = (int)(threadIdx.x / 32) * 16 * MT; /* the warp's first */
    const int seen = keys_seen(t, b), from = first_query(t, k0) / BM;
    const struct head_range heads = heads_of(t, kv_head);
    const int queries = FROM ? end_query(t, b, k0 + BN - 1) : (int)t.q_len;
    const int end = k0 < seen ? blocks_of(queries, BM) : 0;
    const int64_t at = key_at(t, b, kv_head);

    float dk_sum[MT][WIDE / 8][4], dv_sum[MT][WIDE / 8][4];
    clear(dk_sum);
    clear(dv_sum);
    int h = heads.first, tile = from, now = 0;
    bool any = h < heads.end && tile < end;
    if (any) {
        tile_begin<THREADS>(shared->k, k + at, t.kv_seq, k0, seen, dim);
        tile_begin<THREADS>(shared->v, v + at, t.kv_seq, k0, seen, dim);
        queries_begin<THREADS>(t, x, b, h, tile * BM, shared->stage[0]);
    }
    copy_commit();
    for (; any; now = 1 - now) {
        const int next_tile = tile + 1 < end ? tile + 1 : from;
        const int next_h = tile + 1 < end ? h : h + 1;
        any = next_h < heads.end;
        tiles_wait(shared->k);
        __syncthreads(); /* this stage is there, and all are done with the other */
        if (any)
            queries_begin<THREADS>(t, x, b, next_h, next_tile * BM, shared->stage[1 - now]);
        copy_commit();
        const query_stage<TILE, T, DIM, BM> &stage = shared->stage[now];
        float s[MT][BM / 8][4], ds[MT][BM / 8][4];
        clear(s);
        clear(ds);
        product_begin(shared->k, s, ds);
        product(dim, shared->k, row, stage.q, s);
        product(dim, shared->v, row, stage.dout, ds);
        product_wait(shared->k, s, ds);
        key_slopes<FROM, MT>(t, near, b, h, k0 + row, tile * BM, seen, stage, s, ds);
        add_product(dim, s, stage.dout, column, dv_sum);
        add_product(dim, ds, stage.q, column, dk_sum);
        product_wait(shared->k, dv_sum, dk_sum);
        h = next_h, tile = next_tile;
    }
    const int rows = (int)t.kv_len - k0 - row;
    const int64_t to = at + (k0 + row) * t.kv_seq + column;
    store_rows(dk_sum, t.scale, false, rows, dim - column, dk + to, t.kv_seq);
    store_rows(dv_sum, 1.0f, false, rows, dim - column, dv + to, t.kv_seq);
}

/* ---- dQ and the gradients of positions
 * --------------------------------------------------------- */

template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN>
struct query_shared {
    TILE<T, DIM, BM> q, dout;
    struct {
        TILE<T, DIM, BN> k, v;
    } stage[2];
}; /* then, where there are positions, [BM, BN + 1] and [2 distance + 1] floats
    */

/* dS in place of dO V^T. i, k: the numbers of the warp's first query, and of
 * the tile's first key. */
template <bool FROM, int MT, int BN, typename ROWS>
CUDA_DEVICE void query_slopes(const struct kernel_attention &t,
                              const struct attention_near &near, int b, int h, int i, int k,
                              int seen, const ROWS &lse, const ROWS &delta,
                              const float (&s)[MT][BN / 8][4], float (&ds)[MT][BN / 8][4]) {
    const float unit = t.scale * LOG2_E;
    const bool edge =
        k + BN > keys_of(t, i, seen) || (FROM && k < first_key(t, b, i + 16 * MT - 1));
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = i + lane_row(m, half);
            const int end = edge ? keys_of(t, query, seen) - k : BN;
            const int from = FROM && edge ? first_key(t, b, query) - k : 0;
#pragma unroll
            for (int n = 0; n < BN / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int key = lane_column(n) + c, at = 2 * half + c;
                    float x = s[m][n][at] * unit - lse[m][half];
                    if (near.near)
                        x += near_at(near, h, k + key - ((int)t.first + query));
                    const float p =
                        key < end && (!FROM || key >= from) ? exp2_fast(x) : 0.0f;
                    ds[m][n][at] = p * (ds[m][n][at] - delta[m][half]);
                }
        }
}

/* The warp's rows of a tile of dS. */
template <int MT, int BN>
CUDA_DEVICE void tile_put(float *tile, int row, const float (&ds)[MT][BN / 8][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < BN / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                tile[(row + lane_row(m, i / 2)) * (BN + 1) + lane_column(n) + i % 2] =
                    ds[m][n][i];
}

template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN,
          int WARPS, int BLOCKS, bool FROM>
CUDA_KERNEL void __launch_bounds__(32 * WARPS, BLOCKS)
    query_gradients(struct kernel_attention t, struct attention_near near,
                    query_side<T> side, const T *k, const T *v, T *dq) {
    const int MT = BM / WARPS / 16, THREADS = 32 * WARPS;
    if (!TILE<T, DIM, BN>::HERE)
        return;
    CUDA_DYNAMIC(char, bytes);
    auto *shared = room_in<query_shared<TILE, T, DIM, BM, BN>>(bytes);
    const struct query_block x = query_block_of(t, BM);
    const int row = (int)(threadIdx.x / 32) * 16 * MT; /* the warp's first */
    const int dim = (int)t.dim, queries = (int)t.q_len, first = x.q0 + row;
    const int64_t rows_at = row_at(t, x.b, x.h);
    k += x.kv, v += x.kv;

    float lse[MT][2], delta[MT][2], dq_sum[MT][DIM / 8][4];
    clear(dq_sum);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = first + lane_row(m, half);
            lse[m][half] = i < queries ? LOG2_E * side.lse[rows_at + i] : 0;
            delta[m][half] = i < queries ? side.delta[rows_at + i] : 0;
        }
    struct near_sums sums = {};
    float *of_near = (float *)(shared + 1);
    if (near.near)
        sums = near_begin<THREADS>(near, of_near, of_near + BM * (BN + 1));
    tile_begin<THREADS>(shared->q, side.q + query_at(t, x.b, x.h), t.q_seq, x.q0, queries,
                        dim);
    tile_begin<THREADS>(shared->dout, side.dout + result_at(t, x.b, x.h), t.o_seq, x.q0,
                        queries, dim);
    const int begin = FROM ? first_key(t, x.b, x.q0) / BN * BN : 0;
    keys_begin<THREADS>(t, k, v, begin, x.seen, shared->stage[0]);
    for (int k0 = begin; k0 < x.seen; k0 += BN) {
        const int now = (k0 - begin) / BN % 2;
        tiles_wait(shared->q);
        __syncthreads(); /* this stage is there, and all are done with the other */
        keys_begin<THREADS>(t, k, v, k0 + BN, x.seen, shared->stage[1 - now]);
        float s[MT][BN / 8][4], ds[MT][BN / 8][4];
        clear(s);
        clear(ds);
        product_begin(shared->q, s, ds);
        product(dim, shared->q, row, shared->stage[now].k, s);
        product(dim, shared->dout, row, shared->stage[now].v, ds);
        product_wait(shared->q, s, ds);
        query_slopes<FROM, MT, BN>(t, near, x.b, x.h, first, k0, x.all, lse, delta, s, ds);
        add_product(dim, ds, shared->stage[now].k, 0, dq_sum);
        product_wait(shared->q, dq_sum);
        if (near.near) {
            tile_put<MT, BN>(sums.tile, row, ds);
            __syncthreads();
            near_add<BM, BN, THREADS>(near, sums, k0 - ((int)t.first + x.q0 + BM - 1));
        }
    }
    copy_wait<0>();
    if (near.near)
        near_end<THREADS>(near, sums, near_parts(t, near, x));
    store_rows(dq_sum, t.scale, t.more, x.rows - row, dim,
               dq + query_at(t, x.b, x.h) + first * t.q_seq, t.q_seq);
}

/* ---- launches
 * ----------------------------------------------------------------------------------
 */

/* WIDE: columns of dK and dV of a block. KM, KN: queries of a tile and keys of
 * a block for dK and dV; QM, QN: queries of a block and keys of a tile for dQ.
 * KBLOCKS, QBLOCKS: as in launch_forward, of each kernel. */
template <template <typename, int, int> class TILE, typename T, int DIM, int WIDE, int KM,
          int KN, int QM, int QN, int WARPS, int KBLOCKS, int QBLOCKS, bool FROM>
static bool launch_backward_of(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const struct attention_near *near = &job->near;
    const query_side<T> x = {(const T *)job->q, (const T *)job->dout, job->lse, job->delta};
    const T *k = (const T *)job->k, *v = (const T *)job->v;
    const size_t of_keys = room_bytes<key_shared<TILE, T, DIM, KM, KN>>();
    const size_t of_near = QM * (QN + 1) + 2 * (size_t)near->distance + 1;
    const size_t of_queries = room_bytes<query_shared<TILE, T, DIM, QM, QN>>() +
                              (near->near ? of_near * sizeof *near->near : 0);
    if ((int64_t)of_keys > c->dev->shared_bytes ||
        (int64_t)of_queries > c->dev->shared_bytes)
        return false;
    CUDA_SHARED((key_gradients<TILE, T, DIM, WIDE, KM, KN, WARPS, KBLOCKS, FROM>), of_keys);
    CUDA_LAUNCH(
        (key_gradients<TILE, T, DIM, WIDE, KM, KN, WARPS, KBLOCKS, FROM>),
        dim3(blocks_of(t->kv_len, KN), (int)t->kv_heads * DIM / WIDE, (int)t->batch),
        32 * WARPS, of_keys, c->stream, *t, *near, x, k, v, (T *)job->dk, (T *)job->dv);
    CUDA_SHARED((query_gradients<TILE, T, DIM, QM, QN, WARPS, QBLOCKS, FROM>), of_queries);
    CUDA_LAUNCH((query_gradients<TILE, T, DIM, QM, QN, WARPS, QBLOCKS, FROM>),
                dim3(blocks_of(t->q_len, QM), (int)t->heads, (int)t->batch), 32 * WARPS,
                of_queries, c->stream, *t, *near, x, k, v, (T *)job->dq);
    if (near->near)
        attention_collect(c, job, QM);
    return true;
}

/* Bounds on both sides take registers of a third block. */
template <template <typename, int, int> class TILE, typename T, int DIM, int WIDE, int KM,
          int KN, int QM, int QN, int WARPS, int KBLOCKS, int QBLOCKS>
static bool launch_backward(const struct cuda_call *c, const struct attention_job *job) {
    const int K = KBLOCKS > 2 ? 2 : KBLOCKS, Q = QBLOCKS > 2 ? 2 : QBLOCKS;
    return sees_from(job->t)
               ? launch_backward_of<TILE, T, DIM, WIDE, KM, KN, QM, QN, WARPS, K, Q, true>(
                     c, job)
               : launch_backward_of<TILE, T, DIM, WIDE, KM, KN, QM, QN, WARPS, KBLOCKS,
                                    QBLOCKS, false>(c, job);
}

#endif
