/* gpu-profile-comm.c - weft-profile-comm on the fakes of CUDA and NCCL (tests/fake): with the objects
 * of the tool this is the tool, each of whose ranks sees a GPU of its own. Products take no time. */
#include "cuda/cuda_impl.h"
#include "fake/cudart.h"

#include <stdlib.h>

__attribute__((constructor)) static void see_own_gpu(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    fake_cuda.first_gpu = rank ? atoi(rank) : 0;
}

CUDA_FUNCTION(linear) {
    (void)c, (void)n, (void)in, (void)out;
    return 0;
}
