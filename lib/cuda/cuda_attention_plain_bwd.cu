/* Attention backward in floats: the two kernels of cuda_attention_mma_bwd.cu
 * for floats, f16, and heads that the tensor cores do not take. */
#include "cuda/cuda_attention_near.h"
#include "cuda/cuda_attention_plain.h"

/* The rows of what a pass reads, of a block of queries and a block of keys of
 * one head. */
template <typename T> struct plain_pair {
    struct plain_rows<T> q, dout, k, v;
    const float *lse, *delta; /* of the queries */
    int b, q0, k0;            /* the sample, numbers of the first query and key */
    struct alibi_head slope;  /* what ALiBi has for the head, in units of log 2 */
};

template <typename T> struct plain_source {
    const T *q, *dout, *k, *v;
    const float *lse, *delta;
};

template <typename T>
CUDA_DEVICE struct plain_pair<T> pair_of(const struct kernel_attention &t,
                                         const struct plain_source<T> &x, int b, int h,
                                         int kv_head, int q0, int k0, int seen) {
    const int rows = least((int)t.q_len - q0, PLAIN);
    const int keys = most(0, least(seen - k0, PLAIN));
    const int64_t kv = key_at(t, b, kv_head) + k0 * t.kv_seq, row = row_at(t, b, h) + q0;
    const int64_t values = value_at(t, b, kv_head) + k0 * t.v_seq;
    return {{x.q + query_at(t, b, h) + q0 * t.q_seq, rows, t.q_seq},
            {x.dout + result_at(t, b, h) + q0 * t.o_seq, rows, t.o_seq},
            {x.k + kv, keys, t.kv_seq},
            {x.v + values, keys, t.v_seq},
            x.lse + row,
            x.delta + row,
            b,
            q0,
            k0,
            alibi_head(&t.slope, h, LOG2_E)};
}

/* P from a score and dS from dO V^T, in their places; zero for what is not seen
   or not there. */
template <typename T>
CUDA_DEVICE void plain_slope(const struct kernel_attention &t,
                             const struct attention_near &near,
                             const struct plain_pair<T> &x, int h, int i, int k, int seen,
                             float &s, float &ds) {
    const int query = x.q0 + i, key = x.k0 + k;
    if (i >= x.q.rows || key >= keys_of(t, query, seen) || key < first_key(t, x.b, query)) {
        s = ds = 0;
        return;
    }
    float slope = 1;
    s *= t.scale * LOG2_E;
    if (t.cap > 0)
        s = cap_score(t, s, slope);
    if (x.slope.slope != 0)
        s += alibi_between(&x.slope, t.first_key + key, t.first_key + t.first + query);
    if (near.near)
        s += near_at(near, h, key - ((int)t.first + query));
    s = exp2f(s - LOG2_E * x.lse[i]);
    ds = s * (ds - x.delta[i]) * slope; /* positions have no cap */
}

/* A block of threads has 64 keys of a head and goes over the queries of all
 * heads that read it. */
template <typename T>
CUDA_KERNEL void __launch_bounds__(PLAIN_THREADS, 1)
    plain_keys(struct kernel_attention t, struct attention_near near,
               struct plain_source<T> x, T *dk, T *dv) {
    __shared__ struct plain_shared w;
    const int b = blockIdx.z, kv_head = blockIdx.y, k0 = blockIdx.x * PLAIN,
              dim = (int)t.dim;
    const int seen = keys_seen(t, b), rows = least((int)t.kv_len - k0, PLAIN);
    const int from = first_query(t, k0) / PLAIN * PLAIN,
              end = end_query(t, b, k0 + rows - 1);
    const struct head_range heads = heads_of(t, kv_head);
    const int64_t to = key_at(t, b, kv_head) + k0 * t.kv_seq;
    const int64_t v_to = value_at(t, b, kv_head) + k0 * t.v_seq;
    const int value = (int)t.value;
    for (int e = 0; e < most(dim, value); e += PLAIN_WIDE) {
        const int wide = least(dim - e, PLAIN_WIDE), v_wide = least(value - e, PLAIN_WIDE);
        float dk_sum[4][8], dv_sum[4][8];
        plain_clear(dk_sum);
        plain_clear(dv_sum);
        for (int h = heads.first; h < heads.end && k0 < seen; h++)
            for (int q0 = from; q0 < end; q0 += PLAIN) {
                const struct plain_pair<T> p = pair_of(t, x, b, h, kv_head, q0, k0, seen);
                float s[4][4], ds[4][4]; /* [key, query] */
                plain_product(w, p.k, p.q, dim, s);
                plain_product(w, p.v, p.dout, value, ds);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        plain_slope(t, near, p, h, plain_column(j), plain_row(i), seen,
                                    s[i][j], ds[i][j]);
                plain_put(w, s);
                plain_add(w, p.dout, e, v_wide, dv_sum);
                plain_put(w, ds);
                plain_add(w, p.q, e, wide, dk_sum);
            }
        plain_store(dk_sum, t.scale, false, rows, e, wide, dk + to, t.kv_seq);
        plain_store(dv_sum, 1.0f, false, rows, e, v_wide, dv + v_to, t.v_seq);
    }
}

/* A block of threads has 64 queries of a head and goes over its keys. */
template <typename T>
CUDA_KERNEL void __launch_bounds__(PLAIN_THREADS, 1)
    plain_queries(struct kernel_attention t, struct attention_near near,
                  struct plain_source<T> x, T *dq) {
    __shared__ struct plain_shared w;
    __shared__ float of_near[POSITION_NEAR];
    const struct query_block at = query_block_of(t, PLAIN);
    const int dim = (int)t.dim, kv_head = ((int)t.first_head + at.h) / (int)t.group;
    struct near_sums sums = {};
    if (near.near)
        sums = near_begin<PLAIN_THREADS>(near, w.s, of_near);
    for (int e = 0; e < dim; e += PLAIN_WIDE) {
        const int wide = least(dim - e, PLAIN_WIDE);
        float dq_sum[4][8];
        plain_clear(dq_sum);
        for (int k0 = first_key(t, at.b, at.q0) / PLAIN * PLAIN; k0 < at.seen;
             k0 += PLAIN) {
            const struct plain_pair<T> p =
                pair_of(t, x, at.b, at.h, kv_head, at.q0, k0, at.seen);
            float s[4][4], ds[4][4]; /* [query, key] */
            plain_product(w, p.q, p.k, dim, s);
            plain_product(w, p.dout, p.v, (int)t.value, ds);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    plain_slope(t, near, p, at.h, plain_row(i), plain_column(j), at.all,
                                s[i][j], ds[i][j]);
            plain_put(w, ds);
            plain_add(w, p.k, e, wide, dq_sum); /* has a barrier, as there are keys */
            if (near.near && e == 0)
                near_add<PLAIN, PLAIN, PLAIN_THREADS>(
                    near, sums, k0 - ((int)t.first + at.q0 + PLAIN - 1));
        }
        plain_store(dq_sum, t.scale, t.more, at.rows, e, wide,
                    dq + query_at(t, at.b, at.h) + at.q0 * t.q_seq, t.q_seq);
    }
    if (near.near)
        near_end<PLAIN_THREADS>(near, sums, near_parts(t, near, at));
}

void attention_plain_bwd(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const dim3 keys(blocks_of(t->kv_len, PLAIN), (int)t->kv_heads, (int)t->batch);
    const dim3 queries(blocks_of(t->q_len, PLAIN), (int)t->heads, (int)t->batch);
    CUDA_TYPED(c->args->dtype, T, {
        const struct plain_source<T> x = {
            (const T *)job->q, (const T *)job->dout, (const T *)job->k,
                (const T *)job->v, job->lse, job->delta
        };
        CUDA_LAUNCH(plain_keys<T>, keys, PLAIN_THREADS, 0, c->stream, *t, job->near, x,
                    (T *)job->dk, (T *)job->dv);
        CUDA_LAUNCH(plain_queries<T>, queries, PLAIN_THREADS, 0, c->stream, *t, job->near,
                    x, (T *)job->dq);
    });
    if (job->near.near)
        attention_collect(c, job, PLAIN);
}
