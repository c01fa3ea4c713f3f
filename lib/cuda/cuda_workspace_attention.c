#include "cuda/cuda_workspace_attention.h"

/* Pieces lie on 256 bytes. */
static int64_t after(int64_t at, int64_t bytes) {
    return at + (bytes + 255) / 256 * 256;
}

struct cuda_workspace_attention cuda_workspace_attention(int64_t batch, int64_t heads,
                                                         int64_t seq, int64_t buckets,
                                                         bool backward) {
    const int64_t blocks = (seq + CUDA_WORKSPACE_QUERIES - 1) / CUDA_WORKSPACE_QUERIES;
    struct cuda_workspace_attention w = {.delta = 0};
    w.near = after(w.delta, backward ? batch * heads * seq * 4 : 0);
    w.bucket = after(w.near, buckets ? heads * CUDA_WORKSPACE_NEAR * 4 : 0);
    w.parts = after(w.bucket, buckets ? CUDA_WORKSPACE_NEAR * 2 : 0);
    w.total = after(w.parts, backward ? batch * blocks * heads * buckets * 4 : 0);
    return w;
}

int64_t cuda_workspace_attention_sums(int64_t batch, int64_t heads, int64_t seq,
                                      int64_t dim) {
    return after(0, batch * heads * seq * dim * 4);
}

int64_t cuda_workspace_attention_plan(int64_t batch, int64_t heads, int64_t kv_heads,
                                      int64_t kv_seq, int64_t dim) {
    const int64_t gradients =
        batch * heads * kv_seq * dim * 2; /* of keys, as each head gives them */
    return CUDA_WORKSPACE_ATTENTION + (heads == kv_heads ? 0 : 2 * gradients);
}

int64_t cuda_workspace_attention_library(const struct attention_n *n, enum dtype dtype,
                                         bool backward) {
    if (dtype == DTYPE_f32 || n->dim > 128 || n->dim % 8 || n->buckets || n->lengths ||
        n->window || n->capped || n->starts || n->sloped || n->value ||
        n->heads != n->kv_heads * n->group || (n->causal && n->seq != n->kv_seq) ||
        (backward && n->kv_seq < CUDA_WORKSPACE_KEYS))
        return -1;
    return cuda_workspace_attention(n->batch, n->heads, n->seq, 0, backward).total +
           (backward ? cuda_workspace_attention_sums(n->batch, n->heads, n->seq, n->dim)
                     : 0) +
           cuda_workspace_attention_plan(n->batch, n->heads, n->kv_heads, n->kv_seq,
                                         n->dim);
}
