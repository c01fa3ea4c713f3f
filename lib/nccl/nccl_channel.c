/* Works on a channel: started, given to NCCL, done.
 *
 * A communicator takes one call at a time. While the last one is in progress, which is long when NCCL connects
 * two ranks for the first time, works wait on the channel; any wait of the rank gives them as soon as it can
 * (nccl_move). Usually NCCL has a work before its start returns, and the executor's events order it. If NCCL
 * got it later, the host waits for it, since the event that the executor recorded after the start came
 * before the work. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_state.h"
#include "nccl/nccl_impl.h"

#include "common/progress.h"

#include <sched.h>
#include <stdlib.h>

static const double give_s = 2e-3; /* so long a start waits for NCCL to take the work */

static cudaStream_t stream_of(const struct nccl_channel *channel) {
    return cuda_queue_of(channel->stream)->stream;
}

static struct nccl_track *track_of(const struct comm_work *w) {
    return (struct nccl_track *)(intptr_t)w->scratch[0];
}

/* ---- calls -------------------------------------------------------------------------------- */

static ncclDataType_t type_of(enum dtype dtype) {
    static const ncclDataType_t types[DTYPE_COUNT] = {[DTYPE_f32] = ncclFloat32,
                                                      [DTYPE_bf16] = ncclBfloat16,
                                                      [DTYPE_f16] = ncclFloat16,
                                                      [DTYPE_i32] = ncclInt32,
                                                      [DTYPE_u8] = ncclUint8};
    return types[dtype];
}

static bool goes_on(ncclResult_t rc) {
    return rc == ncclSuccess || rc == ncclInProgress;
}

/* A message to and from every member, as one call. */
static ncclResult_t call_all_to_all(const struct nccl_library *lib,
                                    struct nccl_channel *channel,
                                    const struct comm_work *w) {
    int64_t bytes = w->count * dtype_size(w->dtype);
    ncclDataType_t type = type_of(w->dtype);
    ncclResult_t rc = lib->ncclGroupStart();
    for (int r = 0; r < w->group->n && goes_on(rc); r++) {
        rc = lib->ncclSend((const char *)w->in + r * bytes, (size_t)w->count, type, r,
                           channel->comm, stream_of(channel));
        if (goes_on(rc))
            rc = lib->ncclRecv((char *)w->out + r * bytes, (size_t)w->count, type, r,
                               channel->comm, stream_of(channel));
    }
    ncclResult_t end = lib->ncclGroupEnd(); /* every begin has its end */
    return goes_on(rc) ? end : rc;
}

static ncclResult_t call(struct nccl_channel *channel, const struct comm_work *w) {
    const struct nccl_library *lib = &channel->job->nccl;
    size_t n = (size_t)w->count;
    ncclDataType_t type = type_of(w->dtype);
    cudaStream_t s = stream_of(channel);
    switch (w->op) {
    case COMM_all_reduce:
        return lib->ncclAllReduce(w->in, w->out, n, type, ncclSum, channel->comm, s);
    case COMM_all_gather:
        return lib->ncclAllGather(w->in, w->out, n, type, channel->comm, s);
    case COMM_reduce_scatter:
        return lib->ncclReduceScatter(w->in, w->out, n, type, ncclSum, channel->comm, s);
    case COMM_all_to_all: return call_all_to_all(lib, channel, w);
    /* Of the two ranks of a message the first sends. */
    case COMM_send: return lib->ncclSend(w->in, n, type, 1, channel->comm, s);
    case COMM_recv: return lib->ncclRecv(w->out, n, type, 0, channel->comm, s);
    default: return ncclInvalidUsage;
    }
}

/* In a group of one a collective is a copy. */
static int copy_alone(struct nccl_channel *channel, const struct comm_work *w,
                      struct err *err) {
    if (w->in == w->out || !w->count)
        return 0;
    size_t bytes = (size_t)(w->count * dtype_size(w->dtype));
    return cuda_check(
        cudaMemcpyAsync(w->out, w->in, bytes, cudaMemcpyDeviceToDevice, stream_of(channel)),
        "copying", err);
}

/* ---- giving ------------------------------------------------------------------------------- */

/* NCCL has put the first work of the channel on the stream. */
static int was_given(struct nccl_channel *channel, struct err *err) {
    struct comm_work *w = channel->head;
    struct nccl_track *t = track_of(w);
    channel->head = w->next;
    channel->busy = false;
    t->given = true;
    return cuda_check(cudaEventRecord(t->done, stream_of(channel)), "marking a place", err);
}

static int give(struct nccl_channel *channel, struct err *err) {
    struct comm_work *w = channel->head;
    struct nccl_track *t = track_of(w);
    cudaStream_t s = stream_of(channel);
    if (cuda_check(cudaStreamWaitEvent(s, t->place, 0), "waiting for a place", err) < 0 ||
        cuda_check(cudaEventRecord(t->begun, s), "marking a place", err) < 0)
        return -1;
    if (!channel->comm)
        return copy_alone(channel, w, err) < 0 ? -1 : was_given(channel, err);
    ncclResult_t rc = call(channel, w);
    if (nccl_check(&channel->job->nccl, rc, comm_op_name(w->op), err) < 0)
        return -1;
    channel->busy = rc == ncclInProgress;
    return channel->busy ? 0 : was_given(channel, err);
}

int nccl_channel_move(struct nccl_channel *channel, struct err *err) {
    const struct nccl_library *lib = &channel->job->nccl;
    int moved = 0;
    if (channel->state != CHANNEL_READY)
        return nccl_message_open(channel, err);
    if (channel->busy) {
        ncclResult_t state = ncclSuccess;
        if (nccl_check(lib, lib->ncclCommGetAsyncError(channel->comm, &state), "asking",
                       err) < 0 ||
            nccl_check(lib, state, comm_op_name(channel->head->op), err) < 0)
            return -1;
        if (state == ncclInProgress)
            return 0;
        if (was_given(channel, err) < 0)
            return -1;
        moved = 1;
    }
    for (; channel->head && !channel->busy; moved = 1)
        if (give(channel, err) < 0)
            return -1;
    return moved;
}

/* ---- starting and waiting ----------------------------------------------------------------- */

static int new_event(cudaEvent_t *e, struct err *err) {
    return cuda_check(cudaEventCreateWithFlags(e, cudaEventDisableTiming),
                      "making an event", err);
}

static struct nccl_track *take_track(struct nccl_job *j, struct err *err) {
    struct nccl_track *t;
    if (j->spare.n) {
        t = j->spare.p[--j->spare.n];
        *t = (struct nccl_track){.place = t->place, .begun = t->begun, .done = t->done};
    } else {
        t = mem_alloc(sizeof *t);
        if (new_event(&t->place, err) < 0 || new_event(&t->begun, err) < 0 ||
            new_event(&t->done, err) < 0) {
            free(t); /* the process ends: its events do, too */
            return NULL;
        }
    }
    arr_push(&j->tracks, t);
    return t;
}

/* Gives it at once, or within a moment. */
static int hurry(struct nccl_channel *channel, struct nccl_track *t, struct err *err) {
    int rc = nccl_channel_move(channel, err);
    if (channel->state != CHANNEL_READY)
        return rc;
    for (double until = now_s() + give_s; rc >= 0 && !t->given && now_s() < until;)
        rc = nccl_channel_move(channel, err);
    return rc;
}

/* Before what computes: a work needs few multiprocessors, and peers wait for it. Behind a product that fills
 * the GPU it would begin when that ends. */
static int open_stream(struct nccl_channel *channel, struct err *err) {
    if (channel->stream)
        return 0;
    channel->stream = device_stream_create(channel->job->device, err);
    return channel->stream ? cuda_stream_first(channel->stream, err) : -1;
}

int nccl_channel_start(struct nccl_channel *channel, struct comm_work *w, struct err *err) {
    struct nccl_job *j = channel->job;
    if (open_stream(channel, err) < 0)
        return -1;
    struct nccl_track *t = take_track(j, err);
    if (!t || cuda_check(cudaEventRecord(t->place, cuda_queue_of(w->stream)->stream),
                         "marking a place", err) < 0)
        return -1;
    t->channel = channel;
    w->scratch[0] = (intptr_t)t;
    w->stream = channel->stream;
    w->next = NULL;
    w->state = WORK_STARTED;
    t->what = *w;
    if (channel->head)
        channel->tail = channel->tail->next = w;
    else
        channel->head = channel->tail = w;
    if (hurry(channel, t, err) < 0)
        return nccl_abort(j, err);
    t->late = !t->given;
    return 0;
}

int nccl_reached(cudaEvent_t e, struct err *err) {
    cudaError_t rc = cudaEventQuery(e);
    if (rc == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* where CUDA keeps it, though it is none */
        return 0;
    }
    return cuda_check(rc, "communicating", err) < 0 ? -1 : 1;
}

/* The host waits for what the executor's events do not know of. */
static int wait_late(struct nccl_track *t, struct err *err) {
    struct comm *comm = t->channel->job->comm;
    struct comm_watch watch = {0};
    for (;;) {
        int done = t->given ? nccl_reached(t->done, err) : 0;
        if (done)
            return done < 0 ? -1 : 0;
        int moved = comm_poll(comm, err);
        if (moved < 0 || (!moved && comm_watch(comm, &watch, &t->what, -1, err) < 0))
            return -1;
        if (!moved)
            sched_yield();
    }
}

int nccl_channel_wait(struct comm_work *w, struct err *err) {
    struct nccl_track *t = track_of(w);
    struct nccl_job *j = t->channel->job;
    if (j->failed) {
        *err = j->err;
        return -1;
    }
    if (t->late && wait_late(t, err) < 0)
        return nccl_abort(j, err);
    t->waited = true;
    w->state = WORK_NONE;
    return 0;
}

/* ---- channels -------------------------------------------------------------------------------- */

struct nccl_channel *nccl_channel_new(struct nccl_job *j) {
    struct nccl_channel *channel = mem_alloc(sizeof *channel);
    *channel = (struct nccl_channel){.job = j, .state = CHANNEL_READY, .peer = -1};
    arr_push(&j->channels, channel);
    return channel;
}

void nccl_channel_end(struct nccl_channel *channel) {
    if (!channel->borrowed)
        nccl_end(channel->job, channel->comm);
    channel->comm = NULL;
}

void nccl_channel_free(struct nccl_channel *channel) {
    device_stream_destroy(channel->stream);
    free(channel);
}
