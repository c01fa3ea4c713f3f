/* Sums over blocks. */
#include "cuda/cuda_sum.h"

CUDA_KERNEL void finish(unsigned n, const double *part, double *sum, const double *factor,
                        double weight) {
    double all = 0;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        all += part[i];
    all = block_sum(all);
    if (threadIdx.x == 0)
        *sum += all * weight * (factor ? *factor : 1);
}

int cuda_sum_finish(struct cuda_call *c, unsigned blocks, double *sum, const double *factor,
                    double weight) {
    if (c->args->counts)
        CUDA_LAUNCH(finish, 1, BLOCK, 0, c->stream, blocks, (const double *)c->workspace,
                    sum, factor, weight);
    return 0;
}
