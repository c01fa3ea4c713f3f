/* Attention on the tensor cores of compute capability 9.0, by wgmma: heads of up to 128 columns.
 *
 * Backward a block is one warpgroup. So several are on a multiprocessor that wait for each other at no
 * barrier: the one takes exponentials while another's products run. Forward, where blocks of 64 queries
 * would read keys and values too often, a block has two, and overlaps by itself. */
#include "cuda/cuda_wgmma.h"

#include "cuda/cuda_attention_ahead.h"
#include "cuda/cuda_attention_backward.h"

template <typename T>
static bool forward(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_ahead<T, 64, 128, 64, 2>(c, job);
    return launch_ahead<T, 128, 128, 128, 1>(c, job);
}

template <typename T>
static bool backward(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_backward<panels_of, T, 64, 64, 64, 64, 64, 64, 4, 3, 3>(c, job);
    return launch_backward<panels_of, T, 128, 128, 64, 64, 64, 64, 4, 2, 2>(c, job);
}

/* With blocks twice as large, which read half as much from the second-level cache. */
template <typename T>
static bool backward_128(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_backward<panels_of, T, 64, 64, 64, 128, 128, 64, 8, 1, 1>(c, job);
    return launch_backward<panels_of, T, 128, 128, 64, 128, 128, 64, 8, 1, 1>(c, job);
}

bool attention_wgmma(const struct cuda_call *c, const struct attention_job *job) {
    CUDA_HALF(c->args->dtype, T, return forward<T>(c, job));
}

bool attention_wgmma_bwd(const struct cuda_call *c, const struct attention_job *job,
                         bool by_128) {
    CUDA_HALF(c->args->dtype, T,
              return by_128 ? backward_128<T>(c, job) : backward<T>(c, job));
}
