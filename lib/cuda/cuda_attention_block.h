/* cuda_attention_block.h - which part of an attention a block of threads has,
 * and what it sees. */
#ifndef WEFT_CUDA_ATTENTION_BLOCK_H
#define WEFT_CUDA_ATTENTION_BLOCK_H

#include "cuda/cuda_attention.h"
#include "cuda/cuda_block.h"

CUDA_BOTH int least(int a, int b) {
    return a < b ? a : b;
}

CUDA_BOTH int most(int a, int b) {
    return a > b ? a : b;
}

/* Blocks of so many rows. */
CUDA_BOTH int blocks_of(int64_t rows, int each) {
    return (int)((rows + each - 1) / each);
}

/* Keys of sample b that may be seen, of those that are here
 * (kernel_attention_keys). */
CUDA_DEVICE int keys_seen(const struct kernel_attention &t, int b) {
    if (!t.lengths)
        return (int)t.kv_len;
    const int64_t n = (t.lengths[b] < 1 ? 1 : t.lengths[b]) - t.first_key;
    return n < 0 ? 0 : n < t.kv_len ? (int)n : (int)t.kv_len;
}

/* How many keys query i sees, of the first `seen`. */
CUDA_DEVICE int keys_of(const struct kernel_attention &t, int i, int seen) {
    return t.causal ? most(0, least(seen, (int)t.first + i + 1)) : seen;
}

/* The first key that query i of sample b sees; behind the last query as of that. */
CUDA_DEVICE int first_key(const struct kernel_attention &t, int b, int i) {
    const int64_t near = t.first + i + 1 - t.window;
    const int from = t.window && near > 0 ? (int)near : 0;
    if (!t.starts)
        return from;
    const int64_t at = b * t.q_len + least(i, (int)t.q_len - 1);
    return most(from, (int)(t.starts[at] - t.first_key));
}

/* Are there keys in front of a query that it does not see? */
static inline bool sees_from(const struct kernel_attention &t) {
    return t.window || t.starts;
}

/* The end of the queries of sample b that see one of the keys up to k. Documents start in order, so those
 * that do are found by halves. */
CUDA_DEVICE int end_query(const struct kernel_attention &t, int b, int k) {
    const int64_t near = k + t.window - t.first;
    int end = t.window && near < t.q_len ? (int)(near < 0 ? 0 : near) : (int)t.q_len;
    for (int from = 0; t.starts && from < end;) {
        const int half = (from + end) / 2;
        if (first_key(t, b, half) > k)
            end = half;
        else
            from = half + 1;
    }
    return end;
}

/* A score in units of log 2 that stays below the cap, and the slope of that. */
CUDA_DEVICE float cap_score(const struct kernel_attention &t, float s, float &slope) {
    const float cap = t.cap * LOG2_E, x = tanhf(s / cap);
    slope = 1.0f - x * x;
    return cap * x;
}

/* The first query that sees key k. */
CUDA_DEVICE int first_query(const struct kernel_attention &t, int k) {
    return t.causal ? most(0, k - (int)t.first) : 0;
}

/* Query heads first .. end - 1 of this rank read a key head: none, where it has
 * others. */
struct head_range {
    int first, end;
};
CUDA_DEVICE struct head_range heads_of(const struct kernel_attention &t, int kv_head) {
    const int first = kv_head * (int)t.group - (int)t.first_head, heads = (int)t.heads;
    return {least(most(first, 0), heads), least(most(first + (int)t.group, 0), heads)};
}

/* Where a head of sample b begins. */
CUDA_DEVICE int64_t query_at(const struct kernel_attention &t, int b, int h) {
    return b * t.q_batch + h * t.dim;
}
CUDA_DEVICE int64_t result_at(const struct kernel_attention &t, int b, int h) {
    return b * t.o_batch + h * t.value;
}
CUDA_DEVICE int64_t key_at(const struct kernel_attention &t, int b, int kv_head) {
    return b * t.kv_batch + kv_head * t.dim;
}
CUDA_DEVICE int64_t value_at(const struct kernel_attention &t, int b, int kv_head) {
    return b * t.v_batch + kv_head * t.value;
}
CUDA_DEVICE int64_t row_at(const struct kernel_attention &t, int b, int h) {
    return (b * t.heads + h) * t.q_len;
}

/* Queries of one head that a block of threads has, and what they see. */
struct query_block {
    int b, h;      /* sample and head */
    int number;    /* of the head's blocks */
    int q0, rows;  /* first query, and how many */
    int all, seen; /* keys that may be seen in the sample, and by any of these
                    queries */
    int64_t kv, v; /* where the keys and the values begin that the head reads */
};

/* Blocks have `each` queries. The last queries of a causal mask have the most
 * to do: they begin first. */
CUDA_DEVICE struct query_block query_block_of(const struct kernel_attention &t, int each) {
    struct query_block x;
    x.b = blockIdx.z, x.h = blockIdx.y;
    x.number = (int)(t.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    x.q0 = x.number * each;
    x.rows = least((int)t.q_len - x.q0, each);
    x.all = keys_seen(t, x.b);
    x.seen = keys_of(t, x.q0 + x.rows - 1, x.all);
    const int kv_head = ((int)t.first_head + x.h) / (int)t.group;
    x.kv = key_at(t, x.b, kv_head);
    x.v = value_at(t, x.b, kv_head);
    return x;
}

#endif
