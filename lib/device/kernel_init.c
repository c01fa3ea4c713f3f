/* Threads and scratch: the only state of the kernels, made once by kernel_init.
 *
 * Every rank gets its own share of the cores. The share must be set before the first call
 * into any library: two ranks that each start a thread per core run small products thirty
 * times slower. The library's own name stands in kernel_gemm_*.c.
 */
#include "kernel_impl.h"

#include <assert.h>
#include <stdlib.h>

static struct {
    int threads;    /* 0 before kernel_init: kernels then use one */
    float *scratch; /* threads * KERNEL_SCRATCH_BYTES */
} state;

int kernel_init(int threads, struct err *err) {
    if (threads < 1)
        return err_input(err, "threads: expected at least 1, got %d", threads);
    kernel_release();
    state.scratch = aligned_alloc(4096, (size_t)threads * KERNEL_SCRATCH_BYTES);
    if (!state.scratch)
        return err_system(err, "cannot allocate scratch for %d kernel threads", threads);
    state.threads = threads;
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    kernel_blas_init(threads);
    return 0;
}

void kernel_release(void) {
    if (state.threads) {
        kernel_conv_release();
        kernel_blas_release();
    }
    free(state.scratch);
    state.scratch = NULL;
    state.threads = 0;
}

const char *kernel_gemm_library(void) {
    return kernel_blas_name();
}

int kernel_threads(void) {
    return state.threads > 1 ? state.threads : 1;
}

int kernel_share(int64_t work) {
    int64_t most = work / KERNEL_GRAIN;
    int threads = kernel_threads();
    return most >= threads ? threads : most > 1 ? (int)most : 1;
}

float *kernel_scratch(int thread) {
    assert(state.scratch && thread < state.threads && "kernel_init comes first");
    return state.scratch + (size_t)thread * (KERNEL_SCRATCH_BYTES / sizeof(float));
}
