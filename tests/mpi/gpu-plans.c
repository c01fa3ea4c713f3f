/* gpu-plans.c - the random plans of plans.c on GPUs that are not there: with its object this is plans,
 * whose check-gpu runs on the fakes of CUDA, NCCL and the kernels (tests/fake). Each rank has a GPU,
 * and an order of its own in which streams go on. */
#include "fake/cudart.h"
#include "fake/nccl.h"

__attribute__((constructor(200))) static void be_slow(void) {
    fake_cuda.seed = (uint64_t)fake_cuda.first_gpu;
    fake_nccl.busy_turns = 3;
}
