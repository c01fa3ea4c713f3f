/* cuda_sum.h - numbers that blocks add to the scalars of a step: losses, metrics, the gradient's norm.
 *
 * Each block leaves its sum, a double, in the workspace; cuda_sum_finish adds them up in the order of
 * the blocks' numbers, so the result does not depend on which was done first:
 *
 *     double *part = (double *)c->workspace;
 *     const unsigned blocks = cuda_sum_blocks(c, rows, 1);
 *     CUDA_LAUNCH(loss_rows, blocks, BLOCK, 0, c->stream, rows, x, part);
 *     return cuda_sum_finish(c, blocks, &c->args->scalars->loss_sum, c->args->per_target, 1);
 */
#ifndef WEFT_CUDA_SUM_H
#define WEFT_CUDA_SUM_H

#include "cuda/cuda_block.h"

/* Blocks for n > 0 tasks, of which a block takes `each` at least, that leave a sum each; 0, with the error
 * set, where the workspace does not hold them. */
static inline unsigned cuda_sum_blocks(const struct cuda_call *c, int64_t n, int64_t each) {
    const unsigned blocks = blocks_up_to(n, each, CUDA_WORKSPACE_SUMS);
    return workspace_holds(c, blocks * (int64_t)sizeof(double)) < 0 ? 0 : blocks;
}

/* *sum += weight times *factor (1 where it is NULL) times the sums of the blocks, which are the first
 * doubles of the workspace; nothing where the instruction's value does not count (args->counts). */
int cuda_sum_finish(struct cuda_call *c, unsigned blocks, double *sum, const double *factor,
                    double weight);

#endif
