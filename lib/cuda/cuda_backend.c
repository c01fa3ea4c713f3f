/* A GPU as a device: what it is, its streams and its events. */
#include "cuda/cuda_attention_library.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_convolution.h"
#include "cuda/cuda_product.h"
#include "cuda/cuda_state.h"

#include "common/progress.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Calls go to the GPU that the calling thread has set; a process may have several devices. */
static int use(const struct device *dev, struct err *err) {
    return cuda_check(cudaSetDevice(cuda_state_of(dev)->dev.index), "the device", err);
}

static int attribute(enum cudaDeviceAttr what, int index, int *out, struct err *err) {
    return cuda_check(cudaDeviceGetAttribute(out, what, index), "what the device is", err);
}

static int describe(struct cuda_device *d, struct err *err) {
    int major, minor, shared;
    if (attribute(cudaDevAttrComputeCapabilityMajor, d->index, &major, err) < 0 ||
        attribute(cudaDevAttrComputeCapabilityMinor, d->index, &minor, err) < 0 ||
        attribute(cudaDevAttrMultiProcessorCount, d->index, &d->processors, err) < 0 ||
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, d->index, &shared, err) < 0)
        return -1;
    d->arch = 10 * major + minor;
    d->shared_bytes = shared;
    if (d->arch < 80)
        return err_system(err, "compute capability %d.%d: weft's kernels want 8.0", major,
                          minor);
    return 0;
}

static int64_t workspace_of_options(const struct cuda_options *o) {
    if (!o->program)
        return o->workspace_bytes;
    int group = program_group_of_rank(o->program, o->rank);
    const struct plan *p = o->program->plan;
    return cuda_workspace_of(o->program, p->chunks[p->first_chunk[group]]);
}

/* NULL: weft's own kernels. */
static struct cuda_convolutions *open_convolutions(const struct cuda_options *o,
                                                   struct cuda_report *r) {
    const char *which = o->convolution;
    if (which && !strcmp(which, "own"))
        return NULL;
    return cuda_convolutions_create(which != NULL, o->tunes, r->no_cudnn,
                                    sizeof r->no_cudnn);
}

/* NULL: weft's own kernels. A kind of these may be asked for by name. */
static struct cuda_attentions *open_attentions(const struct cuda_options *o) {
    const char *which = o->attention;
    const bool asked = which && !strcmp(which, "cudnn");
    return which && !asked ? NULL : cuda_attentions_create(asked, o->tunes);
}

static int create(struct device *dev, struct err *err) {
    const struct cuda_backend *b = (const struct cuda_backend *)(const void *)dev->backend;
    int index = cuda_index(dev->index, err);
    if (index < 0)
        return -1;
    struct cuda_state *s = dev->state = mem_alloc(sizeof *s);
    s->options = &b->options;
    s->report = b->options.report ? b->options.report : &s->unread;
    s->workspace_bytes = workspace_of_options(&b->options);
    s->dev = (struct cuda_device){.index = index,
                                  .deterministic = b->options.deterministic,
                                  .tf32 = b->options.tf32,
                                  .attention = b->options.attention,
                                  .epilogues = b->options.epilogues};
    if (use(dev, err) < 0 || describe(&s->dev, err) < 0)
        return err_prefix(err, "GPU %d", s->dev.index);
    s->dev.products = cuda_products_create(&s->dev, b->options.tunes, err);
    if (!s->dev.products)
        return -1;
    cuda_products_know(s->dev.products, b->options.choices);
    s->dev.convolutions = open_convolutions(&b->options, s->report);
    cuda_convolutions_know(s->dev.convolutions, b->options.choices);
    s->dev.attentions = open_attentions(&b->options);
    cuda_attentions_know(s->dev.attentions, b->options.choices);
    return b->options.program ? cuda_tune(dev, b->options.program, b->options.rank, err)
                              : 0;
}

static void destroy(struct device *dev) {
    struct cuda_state *s = cuda_state_of(dev);
    if (!s)
        return;
    cuda_attentions_destroy(s->dev.attentions);
    cuda_convolutions_destroy(s->dev.convolutions);
    cuda_products_destroy(s->dev.products);
    arr_release(&s->blocks);
    free(s);
}

/* ---- streams and events ------------------------------------------------------------------- */

/* Apart from the default stream, which would wait for all others. */
static int stream_create(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = s->state = mem_alloc(sizeof *q);
    if (use(s->device, err) < 0)
        return -1;
    return cuda_check(cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking),
                      "making a stream", err);
}

int cuda_stream_first(struct device_stream *s, struct err *err) {
    struct cuda_queue *q = cuda_queue_of(s);
    int least, most;
    cudaStream_t fresh;
    if (cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most), "priorities of streams",
                   err) < 0 ||
        cuda_check(cudaStreamCreateWithPriority(&fresh, cudaStreamNonBlocking, most),
                   "making a stream", err) < 0)
        return -1;
    cudaStreamDestroy(q->stream);
    q->stream = fresh;
    return 0;
}

static void stream_destroy(struct device_stream *s) {
    struct cuda_queue *q = cuda_queue_of(s);
    if (!q)
        return;
    cuda_staging_release(&q->staging);
    if (q->workspace)
        cuda_free(s->device, q->workspace);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    free(q);
}

/* CUDA keeps "not ready" as the last error, which it is not. */
static cudaError_t forget(cudaError_t rc) {
    if (rc == cudaErrorNotReady)
        (void)cudaGetLastError();
    return rc;
}

static cudaError_t look(const struct cuda_queue *q, cudaEvent_t until) {
    return forget(until ? cudaEventQuery(until) : cudaStreamQuery(q->stream));
}

/* Where what the GPU does may wait for other ranks, somebody is asked meanwhile whether to go on. */
static int wait_watching(struct device_stream *s, cudaEvent_t until, struct err *err) {
    const struct cuda_queue *q = cuda_queue_of(s);
    cudaError_t rc;
    while ((rc = look(q, until)) == cudaErrorNotReady) {
        if (s->device->watch(s->device->watch_arg, err) < 0)
            return -1;
        sched_yield();
    }
    return cuda_check(rc, "waiting for the GPU", err);
}

static int wait_quietly(struct device_stream *s, cudaEvent_t until, struct err *err) {
    return cuda_check(until ? cudaEventSynchronize(until)
                            : cudaStreamSynchronize(cuda_queue_of(s)->stream),
                      "waiting for the GPU", err);
}

int cuda_wait(struct device_stream *s, cudaEvent_t until, struct err *err) {
    double begin = now_s();
    int rc = s->device->watch ? wait_watching(s, until, err) : wait_quietly(s, until, err);
    cuda_state_of(s->device)->report->waited_s += now_s() - begin;
    return rc;
}

static int synchronize(struct device_stream *s, struct err *err) {
    return cuda_wait(s, NULL, err);
}

static int event_create(struct device_event *e, struct err *err) {
    cudaEvent_t event = NULL;
    int rc = cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                        "making an event", err);
    e->state = event;
    return rc;
}

static void event_destroy(struct device_event *e) {
    if (e->state)
        cudaEventDestroy(e->state);
}

static int event_record(struct device_event *e, struct device_stream *s, struct err *err) {
    return cuda_check(cudaEventRecord(e->state, cuda_queue_of(s)->stream),
                      "marking a place", err);
}

static int event_wait(struct device_event *e, struct device_stream *s, struct err *err) {
    return cuda_check(cudaStreamWaitEvent(cuda_queue_of(s)->stream, e->state, 0),
                      "waiting for a place", err);
}

static int event_reached(struct device_event *e, struct err *err) {
    cudaError_t rc = forget(cudaEventQuery(e->state));
    if (rc == cudaErrorNotReady)
        return 0;
    return cuda_check(rc, "asking for a place", err) < 0 ? -1 : 1;
}

/* ---- marks -------------------------------------------------------------------------------- */

static int mark_create(struct device_event *e, struct err *err) {
    cudaEvent_t event = NULL;
    int rc = cuda_check(cudaEventCreate(&event), "making an event", err);
    e->state = event;
    return rc;
}

/* In a captured region the event is external: a node of the graph records it, each time anew. */
static int mark(struct device_event *e, struct device_stream *s, bool rest,
                struct err *err) {
    const struct cuda_queue *q = cuda_queue_of(s);
    if (q->capturing && (q->holds || q->together.count)) {
        if (!rest)
            return 0;
        if (cuda_launch_rest(s, err) < 0)
            return -1;
    }
    unsigned flags = q->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    return cuda_check(cudaEventRecordWithFlags(e->state, q->stream, flags), "marking",
                      err) < 0
               ? -1
               : 1;
}

static int mark_between(struct device_event *from, struct device_event *to, double *us,
                        struct err *err) {
    float ms = 0;
    int rc = cuda_check(cudaEventElapsedTime(&ms, from->state, to->state),
                        "the time between marks", err);
    *us = 1e3 * (double)ms;
    return rc;
}

/* ---- the table ---------------------------------------------------------------------------- */

static const struct device_backend backend = {.name = "cuda",
                                              .host = false,
                                              .create = create,
                                              .destroy = destroy,
                                              .alloc = cuda_alloc,
                                              .free = cuda_free,
                                              .alloc_host = cuda_alloc_host,
                                              .free_host = cuda_free_host,
                                              .stream_create = stream_create,
                                              .stream_destroy = stream_destroy,
                                              .synchronize = synchronize,
                                              .event_create = event_create,
                                              .event_destroy = event_destroy,
                                              .event_record = event_record,
                                              .event_wait = event_wait,
                                              .event_reached = event_reached,
                                              .mark_create = mark_create,
                                              .mark = mark,
                                              .mark_between = mark_between,
                                              .upload = cuda_upload,
                                              .download = cuda_download,
                                              .unpack = cuda_unpack,
                                              .launch = cuda_launch,
                                              .capture_begin = cuda_capture_begin,
                                              .capture_end = cuda_capture_end,
                                              .replay = cuda_replay,
                                              .region_destroy = cuda_region_destroy};

struct cuda_backend cuda_backend(const struct cuda_options *o) {
    return (struct cuda_backend){.backend = backend, .options = *o};
}

static int old_driver(struct err *err) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || !driver)
        return err_system(err, "CUDA: no driver of NVIDIA's is installed");
    err_system(err, "CUDA: the driver is of CUDA %d.%d, and weft was built with %d.%d",
               driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
               CUDART_VERSION % 1000 / 10);
    return err_hint(err, "install a newer driver, or build weft with the CUDA of this one");
}

/* The first that is asked of CUDA, which reads its settings then. Streams are to have queues of their own
 * on the GPU, of which there are 8 unless one asks for more, and 32 at most: streams that share one can
 * hold each other up, and those of works between ranks for ever. */
int cuda_count(struct err *err) {
    int n = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaErrorNoDevice)
        return 0;
    if (rc == cudaErrorInsufficientDriver)
        return old_driver(err);
    return cuda_check(rc, "counting GPUs", err) < 0 ? -1 : n;
}

int cuda_kind(int index, char *buf, size_t size, struct err *err) {
    struct cudaDeviceProp p;
    if (cuda_check(cudaGetDeviceProperties(&p, index), "naming a GPU", err) < 0)
        return -1;
    cuda_kind_of_name(p.name, buf, size);
    return 0;
}

int cuda_index(int number, struct err *err) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n = cuda_count(err);
    if (n)
        return n < 0 ? -1 : number % n;
    err_system(err, "no GPU is to be seen");
    return visible ? err_hint(err, "CUDA_VISIBLE_DEVICES is \"%s\": CUDA hides all others",
                              visible)
                   : -1;
}

int cuda_memory(int index, int64_t *total, int64_t *left, struct err *err) {
    size_t of, there;
    if (cuda_check(cudaSetDevice(index), "the device", err) < 0 ||
        cuda_check(cudaMemGetInfo(&there, &of), "asking for memory", err) < 0)
        return -1;
    *total = (int64_t)of;
    *left = (int64_t)there;
    return 0;
}

/* ---- time --------------------------------------------------------------------------------- */

struct cuda_timer {
    cudaEvent_t begin, end;
};

struct cuda_timer *cuda_timer_create(struct err *err) {
    struct cuda_timer *t = mem_alloc(sizeof *t);
    if (cuda_check(cudaEventCreate(&t->begin), "making an event", err) == 0 &&
        cuda_check(cudaEventCreate(&t->end), "making an event", err) == 0)
        return t;
    cuda_timer_destroy(t);
    return NULL;
}

void cuda_timer_destroy(struct cuda_timer *t) {
    if (t && t->begin)
        cudaEventDestroy(t->begin);
    if (t && t->end)
        cudaEventDestroy(t->end);
    free(t);
}

int cuda_timer_begin(struct cuda_timer *t, struct device_stream *s, struct err *err) {
    return cuda_check(cudaEventRecord(t->begin, cuda_queue_of(s)->stream), "timing", err);
}

int cuda_timer_end(struct cuda_timer *t, struct device_stream *s, double *us,
                   struct err *err) {
    float ms = 0;
    if (cuda_check(cudaEventRecord(t->end, cuda_queue_of(s)->stream), "timing", err) < 0 ||
        cuda_wait(s, t->end, err) < 0 ||
        cuda_check(cudaEventElapsedTime(&ms, t->begin, t->end), "timing", err) < 0)
        return -1;
    *us = 1e3 * (double)ms;
    return 0;
}
