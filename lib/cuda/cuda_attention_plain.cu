/* Attention forward in floats, as cuda_attention_mma.cu does it on tensor
 * cores: for floats that are not to be rounded, and heads that those do not take.
 *
 * A block of threads has 64 queries of one head and goes over its keys 64 at a
 * time. */
#include "cuda/cuda_attention_near.h"
#include "cuda/cuda_attention_plain.h"

/* What a thread keeps of its four rows; the 16 threads of a row have the same
 * maximum and sum. */
struct plain_done {
    float max[4], sum[4]; /* in units of log 2 */
    float o[4][8];        /* not yet divided by the sum */
};

CUDA_DEVICE float half_warp_max(float x) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

CUDA_DEVICE float half_warp_sum(float x) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Scores in units of log 2, -infinity of what is not seen. i, k: numbers of the
 * block's first query and key. */
CUDA_DEVICE void plain_scores(const struct kernel_attention &t,
                              const struct attention_near &near, int b, int h, int i0,
                              int k0, int seen, float (&s)[4][4]) {
    const struct alibi_head by = alibi_head(&t.slope, h, LOG2_E);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int query = i0 + plain_row(i), end = keys_of(t, query, seen);
        const int from = first_key(t, b, query);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int key = k0 + plain_column(j);
            float slope;
            s[i][j] *= t.scale * LOG2_E;
            if (t.cap > 0)
                s[i][j] = cap_score(t, s[i][j], slope);
            if (by.slope != 0)
                s[i][j] +=
                    alibi_between(&by, t.first_key + key, t.first_key + t.first + query);
            if (near.near)
                s[i][j] += near_at(near, h, key - ((int)t.first + query));
            if (key >= end || key < from)
                s[i][j] = -INFINITY;
        }
    }
}

/* Scores become probabilities relative to the maximum; rescales what has been
 * summed. */
CUDA_DEVICE void plain_softmax(float (&s)[4][4], struct plain_done &w) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float top = fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])), sum = 0;
        top = fmaxf(w.max[i], half_warp_max(top));
        /* Rows that have seen nothing stay without a maximum. */
        const float shift = top > -INFINITY ? top : 0.0f;
        const float fade = exp2f(w.max[i] - shift);
        w.max[i] = top;
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum += s[i][j] = exp2f(s[i][j] - shift);
        w.sum[i] = w.sum[i] * fade + half_warp_sum(sum);
#pragma unroll
        for (int j = 0; j < 8; j++)
            w.o[i][j] *= fade;
    }
}

/* No keys yet, or those that o and `before`, the logarithm of their sum, are
 * of. */
template <typename T>
CUDA_DEVICE void plain_begin(const struct kernel_attention &t, int rows, int e, int wide,
                             const T *o, const float (&before)[4], struct plain_done &w) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w.max[i] = before[i];
        w.sum[i] = before[i] > -INFINITY ? 1.0f : 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++)
            w.o[i][j] = t.more && plain_row(i) < rows && plain_column(j) < wide
                            ? get(o + plain_row(i) * t.o_seq + e + plain_column(j))
                            : 0.0f;
    }
}

/* Divides by the sums, and keeps log(sum(exp(scores))) with the last columns.
 */
template <typename T>
CUDA_DEVICE void plain_end(const struct kernel_attention &t, int rows, int e, int wide,
                           struct plain_done &w, T *o, float *lse) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float inverse = w.sum[i] > 0 ? 1.0f / w.sum[i] : 0.0f;
#pragma unroll
        for (int j = 0; j < 8; j++)
            w.o[i][j] *= inverse;
        if (e + wide == t.value && plain_row(i) < rows && plain_column(0) == 0)
            lse[plain_row(i)] = LN_2 * (w.max[i] + log2f(w.sum[i]));
    }
    plain_store(w.o, 1.0f, false, rows, e, wide, o, t.o_seq);
}

template <typename T>
CUDA_KERNEL void __launch_bounds__(PLAIN_THREADS, 1)
    plain_attend(struct kernel_attention t, struct attention_near near, const T *q,
                 const T *k, const T *v, T *o, float *lse) {
    __shared__ struct plain_shared w;
    const struct query_block at = query_block_of(t, PLAIN);
    const int dim = (int)t.dim, rows = at.rows;
    const struct plain_rows<T> queries = {
        q + query_at(t, at.b, at.h) + at.q0 *t.q_seq, rows, t.q_seq
    };
    o += result_at(t, at.b, at.h) + at.q0 * t.o_seq;
    lse += row_at(t, at.b, at.h) + at.q0;
    float before[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        before[i] = t.more && plain_row(i) < rows ? LOG2_E * lse[plain_row(i)] : -INFINITY;
    __syncthreads(); /* a thread of each row is going to write lse */
    for (int e = 0; e < (int)t.value; e += PLAIN_WIDE) {
        const int wide = least((int)t.value - e, PLAIN_WIDE);
        struct plain_done x;
        plain_begin(t, rows, e, wide, o, before, x);
        for (int k0 = first_key(t, at.b, at.q0) / PLAIN * PLAIN; k0 < at.seen;
             k0 += PLAIN) {
            const int keys = least(at.seen - k0, PLAIN);
            const struct plain_rows<T> part = { k + at.kv + k0 *t.kv_seq, keys, t.kv_seq };
            const struct plain_rows<T> values = { v + at.v + k0 *t.v_seq, keys, t.v_seq };
            float s[4][4];
            plain_product(w, queries, part, dim, s);
            plain_scores(t, near, at.b, at.h, at.q0, k0, at.all, s);
            plain_softmax(s, x);
            plain_put(w, s);
            plain_add(w, values, e, wide, x.o);
        }
        plain_end(t, rows, e, wide, x, o, lse);
    }
}

void attention_plain(const struct cuda_call *c, const struct attention_job *job) {
    const struct kernel_attention *t = &job->t;
    const dim3 grid(blocks_of(t->q_len, PLAIN), (int)t->heads, (int)t->batch);
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(plain_attend<T>, grid, PLAIN_THREADS, 0, c->stream, *t,
                           job->near, (const T *)job->q, (const T *)job->k,
                           (const T *)job->v, (T *)job->o, job->lse));
}
