/* cuda_workspace_attention.h - what attention on a GPU keeps beside its operands while it runs: never
 * anything of queries times keys.
 *
 *     struct cuda_workspace_attention w = cuda_workspace_attention(2, 12, 1024, 0, true);
 *     char *delta = workspace + w.delta;
 */
#ifndef WEFT_CUDA_WORKSPACE_ATTENTION_H
#define WEFT_CUDA_WORKSPACE_ATTENTION_H

#include "program/instr.h"

enum {
    CUDA_WORKSPACE_NEAR =
        2049, /* distances that may count on their own: 1024 each way, and 0 */
    CUDA_WORKSPACE_QUERIES = 64, /* blocks of a backward pass have no fewer queries */
    CUDA_WORKSPACE_ATTENTION = 8 << 20, /* bytes that a plan of cuDNN may take */
    CUDA_WORKSPACE_KEYS = 1024          /* fewer are weft's, backward */
};

/* Where each begins, in bytes; nothing has no bytes. */
struct cuda_workspace_attention {
    int64_t delta;  /* floats [batch, heads, seq]: rows of dO O, summed */
    int64_t near;   /* floats [heads, CUDA_WORKSPACE_NEAR]: what is added at a distance */
    int64_t bucket; /* 16 bits [CUDA_WORKSPACE_NEAR]: whose number that is */
    int64_t parts;  /* floats [batch, blocks, heads, buckets]: gradients of numbers */
    int64_t total;
};
struct cuda_workspace_attention cuda_workspace_attention(int64_t batch, int64_t heads,
                                                         int64_t seq, int64_t buckets,
                                                         bool backward);

/* What cuDNN would take for it in all, that of above included; -1 where it is no attention that cuDNN is asked
 * for: of 16 bits, up to 128 columns a head, without positions and lengths, backward of many keys, for which
 * alone it may be faster. Both instructions have the same numbers. */
int64_t cuda_workspace_attention_library(const struct attention_n *n, enum dtype dtype,
                                         bool backward);
/* Parts of that: the gradient of queries in floats, which only a backward pass has; and what a plan of cuDNN may
 * take of its own, which is more where heads share keys, since their gradients are summed behind it. */
int64_t cuda_workspace_attention_sums(int64_t batch, int64_t heads, int64_t seq,
                                      int64_t dim);
int64_t cuda_workspace_attention_plan(int64_t batch, int64_t heads, int64_t kv_heads,
                                      int64_t kv_seq, int64_t dim);

#endif
