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
    CUDA_WORKSPACE_QUERIES = 64 /* blocks of a backward pass have no fewer queries */
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

#endif
