/* Attention on the tensor cores of compute capability 8.0 and later, by mma.sync. */
#include "cuda/cuda_attention_backward.h"
#include "cuda/cuda_attention_forward.h"
#include "cuda/cuda_attention_mma.h"

template <typename T>
static bool forward(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_forward<tile_of, T, 64, 128, 64, 4, 2>(c, job);
    if (job->t.dim <= 128)
        return launch_forward<tile_of, T, 128, 128, 32, 4, 2>(c, job);
    return launch_forward<tile_of, T, 256, 64, 32, 4, 2>(c, job);
}

template <typename T>
static bool backward(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_backward<tile_of, T, 64, 64, 32, 128, 128, 32, 4, 2, 2>(c, job);
    if (job->t.dim <= 128)
        return launch_backward<tile_of, T, 128, 128, 32, 128, 128, 32, 8, 1, 1>(c, job);
    return launch_backward<tile_of, T, 256, 128, 32, 64, 64, 32, 4, 1, 1>(c, job);
}

bool attention_mma(const struct cuda_call *c, const struct attention_job *job) {
    CUDA_HALF(c->args->dtype, T, return forward<T>(c, job));
}

bool attention_mma_bwd(const struct cuda_call *c, const struct attention_job *job) {
    CUDA_HALF(c->args->dtype, T, return backward<T>(c, job));
}
