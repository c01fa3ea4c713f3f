/* cuda_workspace.h - what a GPU takes beside the arena (program/workspace.h), and how kernels cut up
 * what they sum up: their parts' sums stand in the workspace, so what is planned and the kernels read
 * the same numbers here. They follow from the shape alone.
 *
 *     int64_t bytes = cuda_workspace_instr(I_linear, &ins->n, ins->dtype);
 */
#ifndef WEFT_CUDA_WORKSPACE_H
#define WEFT_CUDA_WORKSPACE_H

#include "program/workspace.h"

#include <stdint.h>

enum {
    CUDA_WORKSPACE_PRODUCT = 32 << 20, /* bytes that a product of cuBLASLt may take */
    CUDA_WORKSPACE_SUMS = 1024,        /* blocks that leave a double each, at most */
    CUDA_WORKSPACE_SORTED = 8192,      /* rows that are sorted at a time, at most */
    CUDA_WORKSPACE_TOKENS = 64, /* of a group, whose load on experts one block adds up */
    CUDA_WORKSPACE_TILE =
        64, /* rows and columns of a convolution's product that a block makes */
    CUDA_WORKSPACE_CONVOLUTION = 32 << 20, /* bytes that a convolution of cuDNN may take */
    CUDA_WORKSPACE_DEEP = 128, /* places at least in a part of its weights' gradient */
    CUDA_WORKSPACE_NORM =
        1 << 20, /* columns of all blocks that share the rows of a norm's backward pass */
    CUDA_WORKSPACE_LEAST = 32,  /* rows of a chunk, where sums go down columns */
    CUDA_WORKSPACE_TILES = 1056 /* blocks wanted then, in all */
};

static inline int64_t cuda_workspace_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Blocks that share the rows of a norm's backward pass. A block of short rows has few threads, so there
 * are more of them. */
static inline int64_t cuda_workspace_norm(int64_t rows, int64_t n) {
    const int64_t wanted = CUDA_WORKSPACE_NORM / (n > 1024 ? n : 1024);
    return cuda_workspace_min(rows, wanted > 256 ? wanted : 256);
}

/* Rows of an embedding's gradient that are sorted at a time: two whole numbers each. */
static inline int64_t cuda_workspace_sorted(int64_t rows) {
    return cuda_workspace_min(rows, CUDA_WORKSPACE_SORTED);
}

/* Blocks that add up a group's load on experts. */
static inline int64_t cuda_workspace_token_chunks(int64_t tokens) {
    return (tokens + CUDA_WORKSPACE_TOKENS - 1) / CUDA_WORKSPACE_TOKENS;
}

/* Parts of the places that a convolution's weights' gradient [rows, columns] is summed over. */
static inline int64_t cuda_workspace_parts(int64_t rows, int64_t columns, int64_t places) {
    const int64_t tiles = ((rows + CUDA_WORKSPACE_TILE - 1) / CUDA_WORKSPACE_TILE) *
                          ((columns + CUDA_WORKSPACE_TILE - 1) / CUDA_WORKSPACE_TILE);
    const int64_t wanted = CUDA_WORKSPACE_TILES / 4 / (tiles > 0 ? tiles : 1);
    const int64_t parts = cuda_workspace_min(wanted, places / CUDA_WORKSPACE_DEEP);
    return parts > 0 ? parts : 1;
}

/* Bytes of a convolution's weights, or of their gradients, as cuDNN has them: before its own workspace, so in
 * multiples of what that is aligned to. */
static inline int64_t cuda_workspace_turned(int64_t weights, int64_t size) {
    return (weights * size + 255) / 256 * 256;
}

/* Chunks of the rows of each of `groups` matrices with n columns. */
static inline int64_t cuda_workspace_chunks(int64_t rows, int64_t n, int64_t groups) {
    const int64_t across = (n + 127) / 128 * groups;
    const int64_t wanted = (CUDA_WORKSPACE_TILES + across - 1) / (across > 0 ? across : 1);
    const int64_t most = (rows + CUDA_WORKSPACE_LEAST - 1) / CUDA_WORKSPACE_LEAST;
    const int64_t chunks = cuda_workspace_min(wanted, most);
    return chunks > 0 ? chunks : 1;
}

workspace_query cuda_workspace;

/* Instructions of a stream share a workspace, as large as the largest needs: bytes that one takes,
 * and that all of a rank of the stage take, those of its other chunks too. */
int64_t cuda_workspace_instr(enum opcode code, const union instr_n *n, enum dtype dtype);
int64_t cuda_workspace_of(const struct program *g, int stage);

#endif
