/* runtime.h - the events and errors of the CUDA runtime, for a test that links none. The test says what time
 * it is, and whether a call left an error behind. Included once in a program. */
#ifndef WEFT_TESTS_RUNTIME_H
#define WEFT_TESTS_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static double runtime_ms(void);
static bool runtime_left_error(void); /* and forgets it */

struct CUevent_st {
    double ms;
};

cudaError_t cudaEventCreate(cudaEvent_t *e) {
    *e = calloc(1, sizeof **e);
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    (void)s;
    e->ms = runtime_ms();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    (void)e;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    *ms = (float)(b->ms - a->ms);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s) {
    (void)kind, (void)s;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return runtime_left_error() ? cudaErrorInvalidValue : cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t rc) {
    (void)rc;
    return "";
}

const char *cudaGetErrorName(cudaError_t rc) {
    (void)rc;
    return "";
}

#endif
