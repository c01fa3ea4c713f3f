/* cuda_attention_ahead.h - attention forward with wgmma (Shah et al.,
 * FlashAttention-3, 2024): as cuda_attention_forward.h, but while the
 * exponentials of a tile are taken, the tensor cores multiply the probabilities
 * of the tile before with its values.
 *
 * So scores of a tile and output of the one before are under way together, and
 * keys come one tile ahead of values: a stage of shared memory holds a tile of
 * keys and the values of the tile before it. Where a product is under way
 * nothing touches its registers; the output is rescaled behind it.
 */
#ifndef WEFT_CUDA_ATTENTION_AHEAD_H
#define WEFT_CUDA_ATTENTION_AHEAD_H

#include "cuda/cuda_attention_rows.h"
#include "cuda/cuda_wgmma.h"

/* A stage: the keys of tile j, and the values of tile j - 1. */
template <typename T, int DIM, int BM, int BN> struct ahead_shared {
    panels_of<T, DIM, BM> q;
    struct {
        panels_of<T, DIM, BN> k, v;
    } stage[2];
};

/* The tile of keys from k0 on and that of values before it, where these are; `begin`: the first of all. */
template <int THREADS, int BN, typename T, typename STAGE>
CUDA_DEVICE void ahead_begin(const struct kernel_attention &t, const T *k, const T *v,
                             int begin, int k0, int seen, STAGE &stage) {
    if (k0 < seen)
        tile_begin<THREADS>(stage.k, k, t.kv_seq, k0, seen, (int)t.dim);
    if (k0 >= begin + BN)
        tile_begin<THREADS>(stage.v, v, t.kv_seq, k0 - BN, seen, (int)t.dim);
    copy_commit();
}

template <typename T, int DIM, int BM, int BN, int BLOCKS, bool FROM>
CUDA_KERNEL void __launch_bounds__(2 * BM, BLOCKS)
    attend_ahead(struct kernel_attention t, struct attention_near near, const T *q,
                 const T *k, const T *v, T *o, float *lse) {
    if (!panels_of<T, DIM, BN>::HERE)
        return;
    CUDA_DYNAMIC(char, bytes);
    auto *shared = room_in<ahead_shared<T, DIM, BM, BN>>(bytes);
    const int THREADS = 2 * BM; /* a warp for 16 queries */
    const struct query_block x = query_block_of(t, BM);
    const int row = (int)(threadIdx.x / 32) * 16; /* the warp's first */
    const int dim = (int)t.dim, first = x.q0 + row;
    q += query_at(t, x.b, x.h);
    k += x.kv, v += x.kv;
    o += result_at(t, x.b, x.h) + first * t.o_seq;
    lse += row_at(t, x.b, x.h) + first;

    const int begin = FROM ? first_key(t, x.b, x.q0) / BN * BN : 0;
    const int from = FROM ? first_key(t, x.b, first + 15) : 0;
    struct rows_done<1, DIM> w;
    float s[1][BN / 8][4], fade[1][2];
    uint32_t p[1][BN / 16][4];
    rows_begin<1, DIM>(t, x.rows - row, o, lse, w);
    tile_begin<THREADS>(shared->q, q, t.q_seq, x.q0, (int)t.q_len, dim);
    ahead_begin<THREADS, BN>(t, k, v, begin, begin, x.seen, shared->stage[0]);
    if (x.seen > begin) {
        tiles_wait(shared->q);
        __syncthreads();
        ahead_begin<THREADS, BN>(t, k, v, begin, begin + BN, x.seen, shared->stage[1]);
        clear(s);
        product_begin(shared->q, s);
        product(dim, shared->q, row, shared->stage[0].k, s);
        product_wait(shared->q, s);
        weigh<FROM>(t, near, x.b, x.h, first, from, begin, x.all, s, w, fade);
        rescale(fade, w);
        pack<T>(s, p);
    }
    int k0 = begin + BN;
    for (; k0 < x.seen; k0 += BN) {
        const int now = (k0 - begin) / BN % 2;
        auto &stage = shared->stage[now];
        tiles_wait(shared->q);
        __syncthreads(); /* this stage is there, and all are done with the other */
        ahead_begin<THREADS, BN>(t, k, v, begin, k0 + BN, x.seen, shared->stage[1 - now]);
        clear(s);
        product_begin(shared->q, s, w.o);
        product(dim, shared->q, row, stage.k, s);
        add_product(p, stage.v, w.o);
        wgmma_wait<1>();
        hold(s);
        weigh<FROM>(t, near, x.b, x.h, first, from, k0, x.all, s, w, fade);
        product_wait(shared->q, w.o);
        rescale(fade, w);
        pack<T>(s, p);
    }
    tiles_wait(shared->q);
    __syncthreads();
    if (x.seen > begin) {
        add_product(p, shared->stage[(k0 - begin) / BN % 2].v, w.o);
        product_wait(shared->q, w.o);
    }
    rows_end<1, DIM>(t, x.rows - row, w, o, lse);
}

template <typename T, int DIM, int BM, int BN, int BLOCKS, bool FROM>
static bool launch_ahead_of(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const size_t bytes = room_bytes<ahead_shared<T, DIM, BM, BN>>();
    if ((int64_t)bytes > c->dev->shared_bytes)
        return false;
    CUDA_SHARED((attend_ahead<T, DIM, BM, BN, BLOCKS, FROM>), bytes);
    CUDA_LAUNCH((attend_ahead<T, DIM, BM, BN, BLOCKS, FROM>),
                dim3(blocks_of(t->q_len, BM), (int)t->heads, (int)t->batch), 2 * BM, bytes,
                c->stream, *t, job->near, (const T *)job->q, (const T *)job->k,
                (const T *)job->v, (T *)job->o, job->lse);
    return true;
}

template <typename T, int DIM, int BM, int BN, int BLOCKS>
static bool launch_ahead(const struct cuda_call *c, const struct attention_job *job) {
    return sees_from(job->t) ? launch_ahead_of<T, DIM, BM, BN, BLOCKS, true>(c, job)
                             : launch_ahead_of<T, DIM, BM, BN, BLOCKS, false>(c, job);
}

#endif
