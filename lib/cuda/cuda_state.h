/* cuda_state.h - what the files of the backend keep of a device and of a stream. */
#ifndef WEFT_CUDA_STATE_H
#define WEFT_CUDA_STATE_H

#include "cuda/cuda.h"
#include "cuda/cuda_impl.h"
#include "cuda/cuda_multi.h"
#include "cuda/cuda_pair.h"

#include "common/mem.h"

#include <cuda_runtime_api.h>

/* Memory of the device that was asked for. */
struct cuda_block {
    void *p, *base; /* what the caller got, what CUDA gave */
    int64_t bytes;
};

/* device->state */
struct cuda_state {
    struct cuda_device dev;
    const struct cuda_options *options; /* of the backend */
    ARR(struct cuda_block) blocks;      /* memory and workspaces */
    int64_t workspace_bytes;            /* of each stream that computes */
    struct cuda_report *report, unread; /* the second where nobody asked for one */
};

/* Pinned memory in two halves, through which uploads and downloads go: one is filled while the
 * device copies the other. */
enum { CUDA_STAGING_BYTES = 2 << 20 }; /* of a half */
struct cuda_staging {
    char *half[2]; /* NULL before the first copy */
    cudaEvent_t free[2];
    int now;
    int64_t used; /* bytes of the half at hand */
};

/* stream->state */
struct cuda_queue {
    cudaStream_t stream;
    void *workspace; /* NULL before the first instruction */
    struct cuda_staging staging;
    bool capturing;             /* in it: */
    struct cuda_multi together; /* what waits for others of its sort */
    bool holds;                 /* what may go with the next one (cuda_pair.h) */
    struct cuda_given held;
};

static inline struct cuda_state *cuda_state_of(const struct device *dev) {
    return dev->state;
}
static inline struct cuda_queue *cuda_queue_of(const struct device_stream *s) {
    return s->state;
}

/* cuda_backend.c: until the event, or else all of the stream, is done; the time counts as
 * waited. */
int cuda_wait(struct device_stream *s, cudaEvent_t until, struct err *err);

/* cuda_backend.c: what this fresh stream is given goes before what others are, wherever the GPU has room for
 * a block of either. */
int cuda_stream_first(struct device_stream *s, struct err *err);

/* cuda_tune.c: tries how each product and convolution of the rank's program is fastest, or
 * runs it where nothing may be chosen by its speed, on operands of its own, which it frees
 * again; from then on the device takes it. */
int cuda_tune(struct device *dev, const struct program *g, int rank, struct err *err);

/* cuda_memory.c: device->backend's alloc ... free_host, and memory that counts as the
 * device's. */
void *cuda_alloc(struct device *dev, int64_t bytes, struct err *err);
void cuda_free(struct device *dev, void *p);
void *cuda_alloc_host(struct device *dev, int64_t bytes, struct err *err);
void cuda_free_host(struct device *dev, void *p);

/* cuda_copy.c: device->backend's upload and download. */
int cuda_upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                struct err *err);
int cuda_download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err);
void cuda_staging_release(struct cuda_staging *g);

/* cuda_capture.c: device->backend's captured regions, as CUDA graphs. */
int cuda_capture_begin(struct device_stream *s, struct err *err);
int cuda_capture_end(struct device_stream *s, struct device_region *r, struct err *err);
int cuda_replay(struct device_region *r, struct device_stream *s, struct err *err);
void cuda_region_destroy(struct device_region *r);

/* cuda_launch.c: device->backend's launch. The workspace is made with the first instruction or
 * capture: streams that only copy or carry collectives need none. */
int cuda_open_workspace(struct device_stream *s, struct err *err);
/* What capturing has put together or held back goes to the stream (cuda_multi.h, cuda_pair.h). */
int cuda_launch_rest(struct device_stream *s, struct err *err);
int cuda_launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                const union instr_src *in, const union instr_dst *out,
                const struct device_args *args, struct err *err);
/* The same of device->backend's unpack. */
int cuda_unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                enum dtype from, int64_t n, struct err *err);

#endif
