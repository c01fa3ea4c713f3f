/* cuda_impl.h - inside the CUDA device: one function per instruction that computes.
 *
 * `cuda_ID` puts instruction ID on a stream; what it gets is named as in instr.def, and means what
 * it means to the CPU (lib/device/kernel_typed.h): the same formulas, sums in floats whatever the
 * type of the elements, in an order that does not change from run to run.
 *
 * A function gives its kernels to call->stream alone. It never waits, allocates or reads memory of
 * the device: a CUDA graph may be capturing the stream. So what changes from step to step its kernels
 * read from args->scalars, which lies on the device. All else in `args` is the host's and is the same
 * whenever the instruction runs: what a kernel needs of it (the numbers of args->copy,
 * args->matrices, the pieces of args->halo) goes to it by value.
 *
 * C and CUDA C++ include this file; functions have the names of C.
 * A file defines its functions with CUDA_FUNCTION(fill) { ... }, and gives kernels with CUDA_LAUNCH
 * (cuda_kernel.h).
 */
#ifndef WEFT_CUDA_IMPL_H
#define WEFT_CUDA_IMPL_H

#ifdef __cplusplus
/* The headers of systems first, outside of what has the names of C. */
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jansson.h>
extern "C" {
#endif

#include "cuda/cuda_workspace.h"
#include "device/device.h"

#include <stddef.h>

/* As cuda_runtime_api.h has it, for files that do not call CUDA themselves. */
typedef struct CUstream_st *cudaStream_t;

struct cuda_products;     /* cuda_product.h */
struct cuda_convolutions; /* cuda_convolution.h */
struct cuda_attentions;   /* cuda_attention_library.h */

/* What is known of a device. */
struct cuda_device {
    int index;             /* CUDA's number of it */
    int arch;              /* 90: compute capability 9.0 */
    int processors;        /* multiprocessors */
    int64_t shared_bytes;  /* most shared memory of a block */
    bool deterministic;    /* the same bits each time */
    bool tf32;             /* products of floats may round operands to 10 bits */
    const char *attention; /* NULL, or which of the attention kernels: for comparisons */
    const char *epilogues; /* NULL, or which way to take: for comparisons */
    struct cuda_products *products;
    struct cuda_convolutions *convolutions; /* NULL: weft's own kernels do all */
    struct cuda_attentions *attentions;     /* the same of attention */
};

/* One instruction that is to go to a stream. */
struct cuda_call {
    struct cuda_device *dev;
    cudaStream_t stream;
    const struct device_args *args;
    void *workspace;         /* the stream's, on the device; what is in it is nobody's */
    int64_t workspace_bytes; /* at least cuda_workspace_instr() of the instruction */
    struct err *err;
};

#define CUDA_FUNCTION(id)                                                                  \
    int cuda_##id(struct cuda_call *c, const struct id##_n *n, const struct id##_src *in,  \
                  const struct id##_dst *out)

/* Declares those that are keyed by what they compute; the others are the executor's. */
#define CUDA_DECLARE_SHAPE(id) CUDA_FUNCTION(id);
#define CUDA_DECLARE_CURVE(id) CUDA_FUNCTION(id);
#define CUDA_DECLARE_PARTS(id) CUDA_FUNCTION(id);
#define CUDA_DECLARE_FREE(id)
#define CUDA_DECLARE_COMM(id)
#define CUDA_DECLARE_P2P(id)
#define OPCODE(id, key, about) CUDA_DECLARE_##key(id)
#include "program/instr.def"

#ifdef __cplusplus
}
#endif

#endif
