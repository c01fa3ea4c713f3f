/* The CUDA runtime on the host: streams of things to do, worked off by turns. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cudart.h"

#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_cuda fake_cuda;

static const struct fake_gpu small_gpu = {"Fake H100 80GB", 90, 132, 227 << 10,
                                          (int64_t)8 << 30};

/* As mpirun starts them, each rank sees a GPU of its own. */
__attribute__((constructor(101))) static void see_own_gpu(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    fake_cuda.first_gpu = rank ? atoi(rank) : 0;
}

enum kind { RUN, STEP, RECORD, WAIT, MARK };

struct op {
    enum kind kind;
    void (*run)(void *args);
    bool (*step)(void *arg);
    void *args; /* RUN: owned */
    size_t bytes;
    struct place *place;
    struct CUevent_st *event; /* MARK, in a graph: is recorded when the graph is launched */
};
typedef ARR(struct op) op_list;

/* A place that an event marks: the event forgets it with the next, but waits that were given before mean
 * this one. */
struct place {
    int holders;
    bool reached;
    double at_s;
};

struct CUevent_st {
    struct place *last; /* NULL: none */
    bool captured;      /* marks a place in a graph: nobody can wait for it */
    bool untimed;
};

struct CUstream_st {
    op_list ops;
    int64_t done;
    bool capturing, broken;
    op_list graph;
};

struct CUgraph_st {
    op_list ops;
    bool up;
};

static struct {
    ARR(struct CUstream_st *) streams;
    struct {
        bool (*step)(void *arg);
        void *arg;
    } beside[4];
    int n_beside;
    struct rng rng;
    ARR(const void *) loaded; /* kernels */
    int gpu;
    cudaError_t last;
} now;

const struct fake_gpu *fake_cuda_gpu(void) {
    return fake_cuda.gpu ? fake_cuda.gpu : &small_gpu;
}

static cudaError_t answer(cudaError_t rc) {
    if (rc != cudaSuccess)
        now.last = rc;
    return rc;
}

cudaError_t fake_cuda_error(cudaError_t rc) {
    return answer(rc);
}

static struct place *hold(struct place *p) {
    if (p)
        p->holders++;
    return p;
}

static void let_go(struct place *p) {
    if (p && --p->holders == 0)
        free(p);
}

/* ---- turns -------------------------------------------------------------------------------- */

static bool do_first(struct CUstream_st *s) {
    struct op *op = &s->ops.p[s->done];
    switch (op->kind) {
    case RUN:
        op->run(op->args);
        fake_cuda.done++;
        free(op->args);
        break;
    case STEP:
        if (!op->step(op->args))
            return false;
        break;
    case RECORD:
        op->place->reached = true;
        op->place->at_s = now_s();
        let_go(op->place);
        break;
    case WAIT:
        if (op->place && !op->place->reached)
            return false;
        let_go(op->place);
        break;
    case MARK: /* in graphs alone */ return false;
    }
    if (++s->done == s->ops.n)
        s->done = s->ops.n = 0;
    return true;
}

bool fake_cuda_turn(void) {
    int64_t n = now.streams.n, first = 0;
    bool moved = false;
    for (int i = 0; i < now.n_beside; i++)
        moved |= now.beside[i].step(now.beside[i].arg);
    now.rng.seed = fake_cuda.seed;
    if (n && fake_cuda.order == FAKE_DRAWN)
        first = rng_below(&now.rng, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = fake_cuda.order == FAKE_NEWEST_FIRST ? n - 1 - i : (first + i) % n;
        struct CUstream_st *s = now.streams.p[k];
        if (s->done < s->ops.n && do_first(s))
            return true;
    }
    return moved;
}

static bool stream_done(const void *s) {
    return ((const struct CUstream_st *)s)->ops.n == 0;
}

static bool event_done(const void *e) {
    const struct CUevent_st *event = e;
    return !event->last || event->last->reached;
}

static bool all_done(const void *none) {
    (void)none;
    for (int64_t i = 0; i < now.streams.n; i++)
        if (now.streams.p[i]->ops.n)
            return false;
    return true;
}

static cudaError_t wait_until(bool (*done)(const void *), const void *what) {
    double until = now_s() + (fake_cuda.patience_s > 0 ? fake_cuda.patience_s : 60);
    while (!done(what)) {
        fake_cuda_turn();
        if (now_s() > until) {
            fprintf(stderr, "fake CUDA: waits for ever\n");
            abort();
        }
    }
    return cudaSuccess;
}

void fake_cuda_finish(void) {
    wait_until(all_done, NULL);
}

/* For what may wait until the GPU has done everything; counts where a work between ranks is part of that. */
static void wait_for_all(void) {
    bool works = false;
    for (int64_t i = 0; i < now.streams.n; i++)
        for (int64_t k = now.streams.p[i]->done; k < now.streams.p[i]->ops.n; k++)
            works |= now.streams.p[i]->ops.p[k].kind == STEP;
    fake_cuda.waits_for_works += works;
    wait_until(all_done, NULL);
}

static cudaError_t look(bool (*done)(const void *), const void *what) {
    fake_cuda.waits_polled++;
    bool there = done(what);
    fake_cuda_turn();
    return answer(there ? cudaSuccess : cudaErrorNotReady);
}

static void give(struct CUstream_st *s, struct op op) {
    if (s->capturing)
        arr_push(&s->graph, op);
    else
        arr_push(&s->ops, op);
}

void fake_cuda_give(cudaStream_t s, void (*run)(void *args), const void *args,
                    size_t bytes) {
    struct op op = {.kind = RUN, .run = run, .args = mem_alloc(bytes), .bytes = bytes};
    memcpy(op.args, args, bytes);
    fake_cuda.launches++;
    give(s, op);
}

static void do_nothing(void *args) {
    (void)args;
}

void fake_cuda_launch(cudaStream_t s, void (*run)(void *args), const void *args,
                      size_t bytes) {
    fake_cuda_give(s, fake_cuda.idle ? do_nothing : run, args, bytes);
}

void fake_cuda_load(const void *kernel) {
    for (int64_t i = 0; i < now.loaded.n; i++)
        if (now.loaded.p[i] == kernel)
            return;
    wait_for_all();
    arr_push(&now.loaded, kernel);
}

void fake_cuda_work(cudaStream_t s, bool (*step)(void *arg), void *arg) {
    give(s, (struct op){.kind = STEP, .step = step, .args = arg});
}

void fake_cuda_beside(bool (*step)(void *arg), void *arg) {
    now.beside[now.n_beside].step = step;
    now.beside[now.n_beside++].arg = arg;
}

/* ---- devices ------------------------------------------------------------------------------ */

static int gpus(void) {
    return fake_cuda.gpus ? fake_cuda.gpus : 1;
}

/* What CUDA reads when it is first called, which is this here. */
cudaError_t cudaGetDeviceCount(int *n) {
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (!fake_cuda.queues)
        fake_cuda.queues = queues ? atoi(queues) : 8;
    *n = fake_cuda.none ? 0 : gpus();
    return fake_cuda_error(fake_cuda.none);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = fake_cuda.driver;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) {
    now.gpu = gpu;
    return answer(gpu >= 0 && gpu < gpus() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *gpu) {
    *gpu = now.gpu;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr what, int gpu) {
    (void)gpu;
    switch (what) {
    case cudaDevAttrComputeCapabilityMajor: *value = fake_cuda_gpu()->arch / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = fake_cuda_gpu()->arch % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = fake_cuda_gpu()->processors; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = fake_cuda_gpu()->shared_bytes;
        break;
    default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int gpu) {
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", fake_cuda_gpu()->name);
    snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "fake-%d", fake_cuda.first_gpu + gpu);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *buf, int size, int gpu) {
    snprintf(buf, (size_t)size, "0000:%02x:00.0", gpu);
    return cudaSuccess;
}

/* ---- streams and events ------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    (void)flags;
    *s = mem_alloc(sizeof **s);
    arr_push(&now.streams, *s);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) {
    *least = 0;
    *most = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    fake_cuda.first_streams += priority == -5;
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    int64_t kept = 0;
    wait_until(stream_done, s);
    for (int64_t i = 0; i < now.streams.n; i++)
        if (now.streams.p[i] != s)
            now.streams.p[kept++] = now.streams.p[i];
    now.streams.n = kept;
    arr_release(&s->ops);
    arr_release(&s->graph);
    free(s);
    return cudaSuccess;
}

int fake_cuda_gpu_of(const char *how, int rank) {
    return !strcmp(how, "own") ? rank : !strcmp(how, "pairs") ? rank / 2 : 0;
}

bool fake_cuda_is_stream(cudaStream_t s) {
    for (int64_t i = 0; i < now.streams.n; i++)
        if (now.streams.p[i] == s)
            return true;
    return false;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    *status = !s->capturing ? cudaStreamCaptureStatusNone
              : s->broken   ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* What is captured is not under way: to wait for it is an error, and ends the capture. */
static cudaError_t not_captured(cudaStream_t s) {
    if (!s->capturing)
        return cudaSuccess;
    s->broken = true;
    return answer(cudaErrorStreamCaptureUnsupported);
}

/* A GPU that has fallen off its bus: what waits for it is told so, and so is what is given to it. */
static cudaError_t is_lost(void) {
    return fake_cuda.lost && fake_cuda.graphs >= fake_cuda.lost
               ? answer(cudaErrorDevicesUnavailable)
               : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    cudaError_t rc = is_lost() ? cudaErrorDevicesUnavailable : not_captured(s);
    return rc ? rc : wait_until(stream_done, s);
}

cudaError_t cudaDeviceSynchronize(void) {
    for (int64_t i = 0; i < now.streams.n; i++)
        if (not_captured(now.streams.p[i]))
            return cudaErrorStreamCaptureUnsupported;
    return wait_until(all_done, NULL);
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
    cudaError_t rc = is_lost() ? cudaErrorDevicesUnavailable : not_captured(s);
    return rc ? rc : look(stream_done, s);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    give(s, (struct op){.kind = WAIT, .place = hold(e->last)});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    *e = mem_alloc(sizeof **e);
    (*e)->untimed = flags & cudaEventDisableTiming;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, 0);
}

/* What was given before goes on without it. */
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    let_go(e->last);
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    let_go(e->last);
    e->last = mem_alloc(sizeof *e->last);
    e->last->holders = 1;
    e->captured = s->capturing;
    give(s, (struct op){.kind = RECORD, .place = hold(e->last)});
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
    if (!(flags & cudaEventRecordExternal))
        return cudaEventRecord(e, s);
    if (!s->capturing)
        return answer(cudaErrorIllegalState);
    give(s, (struct op){.kind = MARK, .event = e});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    if (is_lost())
        return cudaErrorDevicesUnavailable;
    return e->captured ? answer(cudaErrorCapturedEvent) : look(event_done, e);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (is_lost())
        return cudaErrorDevicesUnavailable;
    return e->captured ? answer(cudaErrorCapturedEvent) : wait_until(event_done, e);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    if (a->untimed || b->untimed || !a->last || !b->last || a->captured || b->captured)
        return answer(cudaErrorInvalidResourceHandle);
    if (!event_done(a) || !event_done(b))
        return answer(cudaErrorNotReady);
    *ms = (float)(1e3 * (b->last->at_s - a->last->at_s));
    return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void)mode;
    if (s->capturing)
        return answer(cudaErrorIllegalState);
    s->capturing = true;
    s->broken = false;
    return cudaSuccess;
}

static void graph_free(struct CUgraph_st *g) {
    for (int64_t i = 0; i < g->ops.n; i++)
        free(g->ops.p[i].args);
    arr_release(&g->ops);
    free(g);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    *graph = NULL;
    if (!s->capturing)
        return answer(cudaErrorIllegalState);
    struct CUgraph_st *g = mem_alloc(sizeof *g);
    g->ops = s->graph;
    memset(&s->graph, 0, sizeof s->graph);
    s->capturing = false;
    if (s->broken) {
        graph_free(g);
        return answer(cudaErrorStreamCaptureInvalidated);
    }
    *graph = g;
    return cudaSuccess;
}

/* A graph that can run is a copy. To make it may wait for all that the GPU does, as may its first launch
 * unless it was brought up before. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    struct CUgraph_st *copy = mem_alloc(sizeof *copy);
    (void)flags;
    wait_for_all();
    for (int64_t i = 0; i < graph->ops.n; i++) {
        struct op op = graph->ops.p[i];
        if (op.kind != RUN && op.kind != MARK) {
            graph_free(copy);
            return answer(cudaErrorStreamCaptureUnsupported);
        }
        if (op.kind == RUN)
            op.args = memcpy(mem_alloc(op.bytes), op.args, op.bytes);
        arr_push(&copy->ops, op);
    }
    *exec = (cudaGraphExec_t)(void *)copy;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
    if (not_captured(s))
        return cudaErrorStreamCaptureUnsupported;
    wait_for_all();
    ((struct CUgraph_st *)(void *)exec)->up = true;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    const struct CUgraph_st *g = (const struct CUgraph_st *)(void *)exec;
    if (not_captured(s))
        return cudaErrorStreamCaptureUnsupported;
    if (is_lost())
        return cudaErrorDevicesUnavailable;
    if (!g->up)
        cudaGraphUpload(exec, s);
    fake_cuda.graphs++;
    for (int64_t i = 0; i < g->ops.n; i++) {
        struct op op = g->ops.p[i];
        if (op.kind == MARK) {
            cudaEventRecord(op.event, s);
            continue;
        }
        op.args = memcpy(mem_alloc(op.bytes), op.args, op.bytes);
        give(s, op);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    graph_free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    wait_until(all_done, NULL);
    graph_free((struct CUgraph_st *)(void *)exec);
    return cudaSuccess;
}

/* ---- errors ------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) {
    cudaError_t rc = now.last;
    now.last = cudaSuccess;
    return rc;
}

cudaError_t cudaPeekAtLastError(void) {
    return now.last;
}

const char *cudaGetErrorName(cudaError_t rc) {
    return rc == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaError";
}

const char *cudaGetErrorString(cudaError_t rc) {
    return rc == cudaErrorInvalidValue ? "invalid argument" : "error of the fake";
}
