/* The staging backend: its groups, and the queues that works go through. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/comm_impl.h"
#include "comm/comm_stage_impl.h"

#include "device/device_backend.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

/* ---- the job ------------------------------------------------------------------------------ */

/* Does MPI say that it takes memory of CUDA devices? */
static bool mpi_takes_devices(void) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

static int move_all(void *arg, struct err *err) {
    struct stage_job *j = arg;
    int moved = 0;
    for (int64_t i = 0; i < j->queues.n && moved >= 0; i++) {
        int rc = stage_move(j->queues.p[i], err);
        moved = rc < 0 ? -1 : moved | rc;
    }
    return moved;
}

static void *open_job(struct comm *comm, void *arg, struct err *err) {
    const struct comm_stage_options *o = arg;
    enum comm_stage_direct direct = o ? o->direct : COMM_STAGE_ASK;
    struct stage_job *j = mem_alloc(sizeof *j);
    j->comm = comm;
    j->piece_bytes = o && o->piece_bytes ? o->piece_bytes : COMM_STAGE_PIECE;
    j->direct =
        direct == COMM_STAGE_ASK ? mpi_takes_devices() : direct == COMM_STAGE_DIRECT;
    if (comm_moves(comm, move_all, j, err) == 0)
        return j;
    free(j);
    return NULL;
}

static void close_job(void *job) {
    struct stage_job *j = job;
    comm_moves(j->comm, NULL, j, NULL);
    arr_release(&j->queues);
    free(j);
}

/* ---- queues ------------------------------------------------------------------------------- */

static void queue_free(struct stage_queue *q) {
    struct device *dev = q->job->device;
    for (int i = 0; i < COMM_STAGE_SLOTS; i++) {
        device_event_destroy(q->slot[i].copied);
        device_free_host(dev, q->slot[i].in);
        device_free_host(dev, q->slot[i].out);
    }
    for (int64_t i = 0; i < q->outgrown.n; i++)
        device_free_host(dev, q->outgrown.p[i]);
    arr_release(&q->outgrown);
    for (struct comm_work *w = q->head; w; w = w->next) /* after a failure */
        device_event_destroy(stage_started(w));
    for (int64_t i = 0; i < q->spare.n; i++)
        device_event_destroy(q->spare.p[i]);
    arr_release(&q->spare);
    device_stream_destroy(q->down);
    device_stream_destroy(q->up);
    free(q);
}

static struct stage_queue *queue_new(struct stage_job *j, const struct stage_queue *key,
                                     struct err *err) {
    struct stage_queue *q = mem_alloc(sizeof *q);
    *q = *key;
    q->job = j;
    q->down = device_stream_create(j->device, err);
    q->up = q->down ? device_stream_create(j->device, err) : NULL;
    bool good = q->up != NULL;
    for (int i = 0; i < COMM_STAGE_SLOTS && good; i++)
        good = (q->slot[i].copied = device_event_create(j->device, err)) != NULL;
    if (good) {
        arr_push(&j->queues, q);
        return q;
    }
    queue_free(q);
    return NULL;
}

/* The queue of a work, made when its first one comes. Tags are the job's, so messages of two ranks
 * share one whatever their groups are. */
static struct stage_queue *queue_of(struct stage_job *j, const struct comm_work *w,
                                    struct err *err) {
    const struct comm_group *g = w->group;
    struct stage_queue key = {.op = COMM_barrier, .host = g->state};
    if (w->op == COMM_send || w->op == COMM_recv)
        key = (struct stage_queue){.op = w->op,
                                   .host = comm_world(j->comm),
                                   .peer = g->ranks[w->peer],
                                   .tag = w->tag};
    for (int64_t i = 0; i < j->queues.n; i++) {
        struct stage_queue *q = j->queues.p[i];
        if (q->op == key.op && q->host == key.host && q->peer == key.peer &&
            q->tag == key.tag)
            return q;
    }
    return queue_new(j, &key, err);
}

/* The last group takes all with it that is the device's. */
static void drop_queues(struct stage_job *j, const struct comm_group *host, bool all) {
    int64_t kept = 0;
    for (int64_t i = 0; i < j->queues.n; i++) {
        struct stage_queue *q = j->queues.p[i];
        if (all || q->host == host)
            queue_free(q);
        else
            j->queues.p[kept++] = q;
    }
    j->queues.n = kept;
    if (!all || !j->device)
        return;
    device_watch(j->device, NULL, NULL);
    j->device = NULL;
}

/* ---- groups ------------------------------------------------------------------------------- */

/* Each has a group of MPI of the same ranks in the same order. */
static int open_groups(void *job, struct comm_group **groups, int n, struct err *err) {
    struct stage_job *j = job;
    struct comm *c = j->comm;
    struct comm_group **hosts = mem_array((size_t)n + 1, sizeof(struct comm_group *));
    for (int i = 0; i < n; i++) {
        const struct comm_group *g = groups[i];
        if (g)
            hosts[i] = group_new(c, &comm_backend_mpi, c->engine, g->ranks, g->n, g->me);
        else
            c->next_id++;
        if (g) {
            groups[i]->state = hosts[i];
            j->groups++;
        }
    }
    int rc = comm_backend_mpi.open_groups(c->engine, hosts, n, err);
    free(hosts);
    return rc;
}

static void close_group(struct comm_group *g) {
    struct stage_job *j = g->job;
    struct comm_group *host = g->state;
    if (!host)
        return;
    j->groups--;
    drop_queues(j, host, j->groups == 0);
    comm_group_destroy(host);
}

/* ---- works -------------------------------------------------------------------------------- */

/* Marks the place on the work's stream behind which it belongs. */
static int mark_start(struct stage_queue *q, struct comm_work *w, struct err *err) {
    struct device_event *e =
        q->spare.n ? q->spare.p[--q->spare.n] : device_event_create(q->job->device, err);
    if (!e)
        return -1;
    w->scratch[0] = (intptr_t)e;
    if (device_event_record(e, w->stream, err) == 0)
        return 0;
    arr_push(&q->spare, e);
    return -1;
}

static int start(struct comm_work *w, struct err *err) {
    struct stage_job *j = w->group->job;
    if (!j->device) {
        j->device = w->stream->device;
        device_watch(j->device, comm_watch_device, j->comm);
    }
    struct stage_queue *q = queue_of(j, w, err);
    if (!q || mark_start(q, w, err) < 0)
        return -1;
    w->stream = w->op == COMM_recv ? q->up : q->down;
    w->next = NULL;
    atomic_store_explicit(&w->state, WORK_STARTED, memory_order_relaxed);
    if (q->head)
        q->tail = q->tail->next = w;
    else
        q->head = q->tail = w;
    if (!q->next)
        q->next = w;
    return stage_move(q, err) < 0 ? -1 : 0;
}

/* The i-th time in a row that nothing moved. */
static void pause_a_little(int i) {
    enum { NAP_AFTER = 20000 };
    if (i > NAP_AFTER)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    else
        sched_yield();
}

static int wait_for(struct comm_work *w, struct err *err) {
    struct comm *c = w->group->comm;
    struct comm_watch watch = {0};
    for (int idle = 0; atomic_load(&w->state) == WORK_STARTED;) {
        int moved = comm_poll(c, err);
        if (moved < 0 || (!moved && comm_watch(c, &watch, w, -1, err) < 0))
            return -1;
        if (moved)
            idle = 0;
        else
            pause_a_little(idle++);
    }
    w->state = WORK_NONE;
    return 0;
}

const struct comm_backend comm_backend_stage = {.name = "stage",
                                                .streams = true,
                                                .open = open_job,
                                                .close = close_job,
                                                .open_groups = open_groups,
                                                .close_group = close_group,
                                                .start = start,
                                                .wait = wait_for};
