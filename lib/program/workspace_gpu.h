/* workspace_gpu.h - how kernels of GPUs cut up what they sum up: their parts' sums stand in the
 * workspace, so the memory plan and the kernels read the same numbers here. They follow from the
 * shape alone.
 */
#ifndef WEFT_WORKSPACE_GPU_H
#define WEFT_WORKSPACE_GPU_H

#include <stdint.h>

enum {
    WORKSPACE_GPU_SUMS = 1024, /* blocks that leave a double each, at most */
    WORKSPACE_GPU_NORM =
        512, /* blocks that share the rows of a norm's backward pass, at most */
    WORKSPACE_GPU_LEAST = 32,  /* rows of a chunk, where sums go down columns */
    WORKSPACE_GPU_TILES = 1056 /* blocks wanted then, in all */
};

static inline int64_t workspace_gpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Blocks that share the rows of a norm's backward pass. */
static inline int64_t workspace_gpu_norm(int64_t rows) {
    return workspace_gpu_min(rows, WORKSPACE_GPU_NORM);
}

/* Chunks of the rows of each of `groups` matrices with n columns. */
static inline int64_t workspace_gpu_chunks(int64_t rows, int64_t n, int64_t groups) {
    const int64_t across = (n + 127) / 128 * groups;
    const int64_t wanted = (WORKSPACE_GPU_TILES + across - 1) / (across > 0 ? across : 1);
    const int64_t most = (rows + WORKSPACE_GPU_LEAST - 1) / WORKSPACE_GPU_LEAST;
    const int64_t chunks = workspace_gpu_min(wanted, most);
    return chunks > 0 ? chunks : 1;
}

#endif
