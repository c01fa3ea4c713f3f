/* workspace.h - memory that a rank takes beside its arena: scratch of kernels, what the library of
 * matrix products allocates for itself, meeting places and staging of collectives.
 *
 * It holds no tensor and is not planned to the byte: these are upper bounds for the CPU and MPI,
 * from a program and the nodes that it runs on. What MPI itself and the program's text take is not
 * in them.
 *
 *     struct workspace w = workspace_of(g, stage, &cluster, threads);
 *     printf("%lld\n", (long long)w.total);
 */
#ifndef WEFT_WORKSPACE_H
#define WEFT_WORKSPACE_H

#include "program/program.h"

enum {
    WORKSPACE_SCRATCH = 4 << 20, /* bytes of kernel scratch, per thread */
    WORKSPACE_PRODUCT =
        8 << 20, /* bytes that oneDNN packs into: per thread, and twice that */
    WORKSPACE_PRODUCT_BF16 = 14 << 20, /* of bf16: per thread */
    WORKSPACE_DESK = 2200 << 10,       /* bytes that a rank shows its node peers (lanes) */
    WORKSPACE_GPU_PRODUCT = 32 << 20,  /* bytes that a product of cuBLASLt may take */
    WORKSPACE_SEGMENT = 65536, /* floats in a segment of a ring, where members are few */
    WORKSPACE_LEAST_SEGMENT = 4096 /* and where they are many */
};

struct workspace {
    int64_t kernels;  /* scratch of the kernels */
    int64_t products; /* of matrix products */
    /* of convolutions: weights in the library's layout, sums by threads */
    int64_t convolutions;
    int64_t lanes; /* meeting places in shared memory, if the node has other ranks */
    int64_t rings; /* staging of groups that stand on several nodes */
    int64_t total;
};
/* Of each rank of a stage that computes with so many threads, or on a GPU: then exactly what it
 * takes. */
struct workspace workspace_of(const struct program *g, int stage,
                              const struct cluster *cluster, int threads);

/* Of a convolution in its three passes, one at a time: bytes. */
int64_t workspace_convolution(const struct conv2d_n *n, enum dtype dtype, int threads);

/* On a GPU (lib/cuda) instructions of a stream share a room, as large as the largest needs: bytes that
 * one takes, and that all of a rank of the stage take, those of its other chunks too. */
int64_t workspace_gpu(enum opcode code, const union instr_n *n, enum dtype dtype);
int64_t workspace_gpu_of(const struct program *g, int stage);

/* Floats in a segment of a ring of n ranks; each stages 2 n of them. */
static inline int64_t workspace_segment(int n) {
    int64_t seg = WORKSPACE_SEGMENT / (n > 16 ? n / 16 : 1);
    return seg > WORKSPACE_LEAST_SEGMENT ? seg : (int64_t)WORKSPACE_LEAST_SEGMENT;
}

#endif
