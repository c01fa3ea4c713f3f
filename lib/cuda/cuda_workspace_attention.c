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
