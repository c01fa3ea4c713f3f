/* cuda_attention_forward.h - attention forward on tensor cores (Dao,
 * FlashAttention-2, 2023).
 *
 * A block of threads has BM queries of one head; each of its warps 16 MT of
 * them, alone: its rows of the scores, their maxima and sums, and the output
 * stay in its registers. Keys and values come in tiles of BN, the next one
 * copied while this one is worked on, into two stages of shared memory, so that
 * one barrier a tile is enough. Scores are kept in units of log 2.
 * Probabilities, rounded to 16 bits, are the left operand of the product with the
 * values as they stand in the registers.
 *
 * Of a tile a warp of mma.sync does 64 MT BN dim operations and reads 4 BN dim
 * bytes from shared memory, which gives 128 bytes a cycle: 2048 MT operations a
 * cycle, where an H100's tensor cores do 4096. So heads that leave the
 * registers for it have MT = 2. A block reads keys and values from the
 * second-level cache, for BM operations per byte of them; queries and the
 * output cross memory once.
 */
#ifndef WEFT_CUDA_ATTENTION_FORWARD_H
#define WEFT_CUDA_ATTENTION_FORWARD_H

#include "cuda/cuda_attention_rows.h"

/* Shared memory: a tile of queries, two stages of a tile of keys and one of
 * values. */
template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN>
struct forward_shared {
    TILE<T, DIM, BM> q;
    struct {
        TILE<T, DIM, BN> k, v;
    } stage[2];
};

template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN,
          int WARPS, int BLOCKS, bool FROM>
CUDA_KERNEL void __launch_bounds__(32 * WARPS, BLOCKS)
    attend(struct kernel_attention t, struct attention_near near, const T *q, const T *k,
           const T *v, T *o, float *lse) {
    const int MT = BM / WARPS / 16, THREADS = 32 * WARPS;
    if (!TILE<T, DIM, BN>::HERE)
        return;
    CUDA_DYNAMIC(char, bytes);
    auto *shared = room_in<forward_shared<TILE, T, DIM, BM, BN>>(bytes);
    const struct query_block x = query_block_of(t, BM);
    const int row = (int)(threadIdx.x / 32) * 16 * MT; /* the warp's first */
    const int dim = (int)t.dim, first = x.q0 + row;
    q += query_at(t, x.b, x.h);
    k += x.kv, v += x.kv;
    o += result_at(t, x.b, x.h) + first * t.o_seq;
    lse += row_at(t, x.b, x.h) + first;

    const int begin = FROM ? first_key(t, x.b, x.q0) / BN * BN : 0;
    const int from = FROM ? first_key(t, x.b, first + 16 * MT - 1) : 0;
    struct rows_done<MT, DIM> w;
    rows_begin<MT, DIM>(t, x.rows - row, o, lse, w);
    tile_begin<THREADS>(shared->q, q, t.q_seq, x.q0, (int)t.q_len, dim);
    keys_begin<THREADS>(t, k, v, begin, x.seen, shared->stage[0]);
    for (int k0 = begin; k0 < x.seen; k0 += BN) {
        const int now = (k0 - begin) / BN % 2;
        tiles_wait(shared->q);
        __syncthreads(); /* this tile is there, and all are done with the one before
                        it */
        keys_begin<THREADS>(t, k, v, k0 + BN, x.seen, shared->stage[1 - now]);
        float s[MT][BN / 8][4], fade[MT][2];
        clear(s);
        product(dim, shared->q, row, shared->stage[now].k, s);
        product_wait(shared->q, s);
        weigh<FROM>(t, near, x.b, x.h, first, from, k0, x.all, s, w, fade);
        rescale(fade, w);
        add_product(dim, s, shared->stage[now].v, 0, w.o);
        product_wait(shared->q, w.o);
    }
    copy_wait<0>();
    rows_end<MT, DIM>(t, x.rows - row, w, o, lse);
}

/* BLOCKS: of a multiprocessor, for which the compiler shares out registers. FROM: queries do not see all keys in
 * front of them, under a window or where documents start; a kernel of its own, so that the others keep their
 * registers. */
template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN,
          int WARPS, int BLOCKS, bool FROM>
static bool launch_forward_of(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const size_t bytes = room_bytes<forward_shared<TILE, T, DIM, BM, BN>>();
    if ((int64_t)bytes > c->dev->shared_bytes)
        return false;
    CUDA_SHARED((attend<TILE, T, DIM, BM, BN, WARPS, BLOCKS, FROM>), bytes);
    CUDA_LAUNCH((attend<TILE, T, DIM, BM, BN, WARPS, BLOCKS, FROM>),
                dim3(blocks_of(t->q_len, BM), (int)t->heads, (int)t->batch), 32 * WARPS,
                bytes, c->stream, *t, job->near, (const T *)job->q, (const T *)job->k,
                (const T *)job->v, (T *)job->o, job->lse);
    return true;
}

template <template <typename, int, int> class TILE, typename T, int DIM, int BM, int BN,
          int WARPS, int BLOCKS>
static bool launch_forward(const struct cuda_call *c, const struct attention_job *job) {
    return sees_from(job->t)
               ? launch_forward_of<TILE, T, DIM, BM, BN, WARPS, BLOCKS, true>(c, job)
               : launch_forward_of<TILE, T, DIM, BM, BN, WARPS, BLOCKS, false>(c, job);
}

#endif
