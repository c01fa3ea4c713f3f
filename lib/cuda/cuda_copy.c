/* Copies between the host and a GPU, through pinned memory.
 *
 * What the caller gives may be reused or freed when an upload returns, so it is copied into one half of
 * the staging, from which the device takes it in its own time. A half is filled again when an event
 * says that the device has taken all that was in it. Small uploads (a few scalars) share a half. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_state.h"

#include <string.h>

static int open_staging(struct cuda_staging *g, struct err *err) {
    for (int i = 0; i < 2; i++)
        if (!g->half[i] &&
            (cuda_check(cudaHostAlloc((void **)&g->half[i], CUDA_STAGING_BYTES,
                                      cudaHostAllocDefault),
                        "pinned memory of the host", err) < 0 ||
             cuda_check(cudaEventCreateWithFlags(&g->free[i], cudaEventDisableTiming),
                        "making an event", err) < 0))
            return -1;
    return 0;
}

void cuda_staging_release(struct cuda_staging *g) {
    for (int i = 0; i < 2; i++) {
        if (g->free[i])
            cudaEventDestroy(g->free[i]);
        if (g->half[i])
            cudaFreeHost(g->half[i]);
    }
}

/* The other half, when the device is done with it. */
static int turn(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    struct cuda_staging *g = &q->staging;
    if (cuda_check(cudaEventRecord(g->free[g->now], q->stream), "copying", err) < 0)
        return -1;
    g->now = !g->now;
    g->used = 0;
    return cuda_wait(s, g->free[g->now], err);
}

/* A stream that computes gets what it needs with its first upload, which is before any work between
 * ranks: to make memory waits for all of the GPU, and such a work may wait for this very rank. */
int cuda_upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    struct cuda_staging *g = &q->staging;
    if (open_staging(g, err) < 0 || cuda_open_workspace(s, err) < 0)
        return -1;
    for (int64_t at = 0, n; at < bytes; at += n) {
        if (g->used == CUDA_STAGING_BYTES && turn(s, err) < 0)
            return -1;
        n = CUDA_STAGING_BYTES - g->used;
        n = n < bytes - at ? n : bytes - at;
        char *p = g->half[g->now] + g->used;
        g->used += n;
        memcpy(p, (const char *)src + at, (size_t)n);
        if (cuda_check(cudaMemcpyAsync((char *)dst + at, p, (size_t)n,
                                       cudaMemcpyHostToDevice, q->stream),
                       "upload", err) < 0)
            return -1;
    }
    return 0;
}

/* Waits for a half that the device has filled, and takes it. */
static int take(struct device_stream *s, int half, void *dst, int64_t bytes,
                struct err *err) {
    struct cuda_staging *g = &cuda_queue_of(s)->staging;
    if (cuda_wait(s, g->free[half], err) < 0)
        return -1;
    memcpy(dst, g->half[half], (size_t)bytes);
    return 0;
}

/* The device fills one half while the host empties the other. */
int cuda_download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    struct cuda_staging *g = &q->staging;
    if (open_staging(g, err) < 0 || turn(s, err) < 0 || turn(s, err) < 0)
        return -1;
    int64_t before = 0, at = 0;
    for (int half = 0; at < bytes; half = !half) {
        int64_t n = bytes - at < CUDA_STAGING_BYTES ? bytes - at : CUDA_STAGING_BYTES;
        if (cuda_check(cudaMemcpyAsync(g->half[half], (const char *)src + at, (size_t)n,
                                       cudaMemcpyDeviceToHost, q->stream),
                       "download", err) < 0 ||
            cuda_check(cudaEventRecord(g->free[half], q->stream), "download", err) < 0)
            return -1;
        if (at && take(s, !half, (char *)dst + at - before, before, err) < 0)
            return -1;
        before = n;
        at += n;
        if (at == bytes)
            return take(s, half, (char *)dst + at - n, n, err);
    }
    return 0;
}
