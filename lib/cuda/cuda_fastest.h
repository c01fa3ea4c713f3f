/* cuda_fastest.h - of several ways to do the same, the one that is fastest on this GPU.
 *
 * Each is run on the operands at hand, which then are scratch, and timed by events: rounds
 * over all of them, of which the least time counts, for the clock of the device drifts. The
 * first round does not count, since a library loads a kernel with its first run; who is behind
 * in the next is left out of the others.
 *
 *     struct cuda_contest t = {.n = 3, .run = give, .arg = &job, .stream = stream};
 *     if (cuda_fastest(&t, &best, &us, err) < 0) ...
 */
#ifndef WEFT_CUDA_FASTEST_H
#define WEFT_CUDA_FASTEST_H

#include "common/err.h"

#include <cuda_runtime_api.h>

#include <stdbool.h>

enum { CUDA_WAYS = 16 /* at most */ };

struct cuda_contest {
    int n; /* ways, those first that are expected to be fast */
    /* gives way i to the stream; false: it fails after all */
    bool (*run)(void *arg, int i);
    void *arg;
    cudaStream_t stream;
};

/* The number of the fastest, and microseconds of a run: infinite where all fail. A later way
 * is taken where it is faster by more than noise. Returns 0, or -1 where time cannot be
 * taken. */
int cuda_fastest(const struct cuda_contest *t, int *best, double *us, struct err *err);

/* Is the stream captured, so that nothing may be timed? */
static inline bool cuda_is_captured(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
}

#endif
