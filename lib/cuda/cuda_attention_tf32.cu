/* Attention of floats on the tensor cores, in TF32: where that was asked for. */
#include "cuda/cuda_attention_backward.h"
#include "cuda/cuda_attention_forward.h"

bool attention_tf32(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_forward<tile_of, float, 64, 128, 32, 4, 2>(c, job);
    return launch_forward<tile_of, float, 128, 128, 32, 8, 1>(c, job);
}

bool attention_tf32_bwd(const struct cuda_call *c, const struct attention_job *job) {
    if (job->t.dim <= 64)
        return launch_backward<tile_of, float, 64, 64, 32, 128, 128, 32, 4, 2, 2>(c, job);
    return launch_backward<tile_of, float, 128, 128, 32, 64, 64, 32, 4, 1, 1>(c, job);
}
