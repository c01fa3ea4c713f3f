/* workspace_gpu.h - how kernels of GPUs cut up what they sum up: their parts' sums stand in the
 * workspace, so the memory plan and the kernels read the same numbers here. They follow from the
 * shape alone.
 */
#ifndef WEFT_WORKSPACE_GPU_H
#define WEFT_WORKSPACE_GPU_H

#include <stdint.h>

enum {
    WORKSPACE_GPU_SUMS = 1024,   /* blocks that leave a double each, at most */
    WORKSPACE_GPU_SORTED = 8192, /* rows that are sorted at a time, at most */
    WORKSPACE_GPU_TOKENS = 64,   /* of a group, whose load on experts one block adds up */
    WORKSPACE_GPU_TILE =
        64, /* rows and columns of a convolution's product that a block makes */
    WORKSPACE_GPU_CONVOLUTION = 32 << 20, /* bytes that a convolution of cuDNN may take */
    WORKSPACE_GPU_DEEP = 128, /* places at least in a part of its weights' gradient */
    WORKSPACE_GPU_NORM =
        1 << 20, /* columns of all blocks that share the rows of a norm's backward pass */
    WORKSPACE_GPU_LEAST = 32,  /* rows of a chunk, where sums go down columns */
    WORKSPACE_GPU_TILES = 1056 /* blocks wanted then, in all */
};

static inline int64_t workspace_gpu_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Blocks that share the rows of a norm's backward pass. A block of short rows has few threads, so there
 * are more of them. */
static inline int64_t workspace_gpu_norm(int64_t rows, int64_t n) {
    const int64_t wanted = WORKSPACE_GPU_NORM / (n > 1024 ? n : 1024);
    return workspace_gpu_min(rows, wanted > 256 ? wanted : 256);
}

/* Rows of an embedding's gradient that are sorted at a time: two whole numbers each. */
static inline int64_t workspace_gpu_sorted(int64_t rows) {
    return workspace_gpu_min(rows, WORKSPACE_GPU_SORTED);
}

/* Blocks that add up a group's load on experts. */
static inline int64_t workspace_gpu_token_chunks(int64_t tokens) {
    return (tokens + WORKSPACE_GPU_TOKENS - 1) / WORKSPACE_GPU_TOKENS;
}

/* Parts of the places that a convolution's weights' gradient [rows, columns] is summed over. */
static inline int64_t workspace_gpu_parts(int64_t rows, int64_t columns, int64_t places) {
    const int64_t tiles = ((rows + WORKSPACE_GPU_TILE - 1) / WORKSPACE_GPU_TILE) *
                          ((columns + WORKSPACE_GPU_TILE - 1) / WORKSPACE_GPU_TILE);
    const int64_t wanted = WORKSPACE_GPU_TILES / 4 / (tiles > 0 ? tiles : 1);
    const int64_t parts = workspace_gpu_min(wanted, places / WORKSPACE_GPU_DEEP);
    return parts > 0 ? parts : 1;
}

/* Bytes of a convolution's weights, or of their gradients, as cuDNN has them: before its own room, so in
 * multiples of what that is aligned to. */
static inline int64_t workspace_gpu_turned(int64_t weights, int64_t size) {
    return (weights * size + 255) / 256 * 256;
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
