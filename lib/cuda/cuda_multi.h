/* cuda_multi.h - the update of many tensors in one launch.
 *
 * A model has hundreds of tensors, most of them small: steps of AdamW, the rounding of their results and the
 * squares of gradients, given one by one, cost more in launches than in memory. So what a captured region is
 * given of one sort, one behind the other, is put together for one kernel (as apex' multi-tensor apply):
 * squares; roundings; or steps, each with the rounding that follows it, which need not read its result again.
 *
 *     int taken = cuda_multi_take(&together, call, code, n, in, out);
 *     if (taken == 0)
 *         return 0; // launch it: what had been put together stands before it on the stream
 *     cuda_multi_give(&together, call); // before the captured region ends
 */
#ifndef WEFT_CUDA_MULTI_H
#define WEFT_CUDA_MULTI_H

#include "cuda/cuda_impl.h"

/* As many as a kernel's parameters hold, which are 4 KB. */
enum { CUDA_MULTI_MOST = 64 };

/* What is not wanted is NULL. */
struct cuda_multi_tensor {
    int64_t n;
    const float *g;
    float *p, *m, *v;
    void *rounded; /* p in 16 bits */
    float decay;
    float by; /* what g is multiplied by; squares: what their sum is */
};

struct cuda_multi {
    enum opcode code; /* sum_squares: of g; adamw; narrow: of p */
    enum dtype dtype; /* of what is rounded; f32: nothing is */
    float beta1, beta2, eps;
    struct scalars *scalars;
    int count;
    struct cuda_multi_tensor tensor[CUDA_MULTI_MOST];
};

#ifdef __cplusplus
extern "C" {
#endif

/* 1: the instruction is put together with others, and done with them. 0: it is not of these; what
 * had been put together has been launched. -1 as a launch. */
int cuda_multi_take(struct cuda_multi *m, struct cuda_call *c, enum opcode code,
                    const union instr_n *n, const union instr_src *in,
                    const union instr_dst *out);
/* Launches what there is, and forgets it. */
int cuda_multi_give(struct cuda_multi *m, struct cuda_call *c);

/* cuda_optim.cu: the kernels. Of the call only the device, the stream and the workspace count, which
 * holds a double for each of CUDA_WORKSPACE_SUMS blocks where squares are summed. */
int cuda_multi_launch(struct cuda_call *c, const struct cuda_multi *m);

#ifdef __cplusplus
}
#endif

#endif
