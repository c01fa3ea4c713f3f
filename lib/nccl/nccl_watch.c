/* What is looked at while a rank waits for anything: works that wait for NCCL, errors, and works that
 * wait too long for their peers. */
#include "cuda/cuda_check.h"
#include "nccl/nccl_impl.h"

#include "common/progress.h"

#include <sched.h>

static const double look_s = 0.02; /* between looks at errors and times */

/* All as one group: to abort one, NCCL gives back its memory, for which CUDA waits until the GPU has done
 * everything, the works of the others among it, which end only when those are aborted, too. */
int nccl_abort(struct nccl_job *j, const struct err *err) {
    if (j->failed)
        return -1;
    j->failed = true;
    if (err)
        j->err = *err;
    if (!j->nccl
             .ncclGroupStart) /* no rank has a GPU of its own, so there are no communicators */
        return -1;
    j->nccl.ncclGroupStart();
    for (int64_t i = 0; i < j->channels.n; i++) {
        struct nccl_channel *channel = j->channels.p[i];
        if (channel->comm && !channel->borrowed)
            j->nccl.ncclCommAbort(channel->comm);
        channel->comm = NULL;
        channel->head = NULL;
    }
    if (j->root)
        j->nccl.ncclCommAbort(j->root);
    j->root = NULL;
    j->nccl.ncclGroupEnd();
    return -1;
}

/* ---- errors and times --------------------------------------------------------------------- */

static int look_at_channel(const struct nccl_channel *channel, struct err *err) {
    const struct nccl_library *lib = &channel->job->nccl;
    ncclResult_t state = ncclSuccess;
    if (channel->state != CHANNEL_READY || channel->busy || !channel->comm)
        return 0;
    if (nccl_check(lib, lib->ncclCommGetAsyncError(channel->comm, &state), "asking", err) <
        0)
        return -1;
    return nccl_check(lib, state, "communicating", err);
}

/* A work that the device has come to and that is not done waits for its peers. */
static int look_at_track(struct nccl_job *j, struct nccl_track *t, struct err *err) {
    if (!t->given || t->complete)
        return 0;
    int done = nccl_reached(t->done, err);
    int begun = done == 0 ? nccl_reached(t->begun, err) : 0;
    if (done < 0 || begun < 0)
        return -1;
    t->complete = done;
    return begun ? comm_watch(j->comm, &t->watch, &t->what, -1, err) : 0;
}

static int look(struct nccl_job *j, struct err *err) {
    int64_t kept = 0;
    for (int64_t i = 0; i < j->channels.n; i++)
        if (look_at_channel(j->channels.p[i], err) < 0)
            return -1;
    for (int64_t i = 0; i < j->tracks.n; i++)
        if (look_at_track(j, j->tracks.p[i], err) < 0)
            return -1;
    for (int64_t i = 0; i < j->tracks.n; i++) {
        struct nccl_track *t = j->tracks.p[i];
        if (t->complete && t->waited)
            arr_push(&j->spare, t);
        else
            j->tracks.p[kept++] = t;
    }
    j->tracks.n = kept;
    return 0;
}

int nccl_move(void *job, struct err *err) {
    struct nccl_job *j = job;
    struct err own = {0};
    int moved = 0;
    if (j->failed) {
        if (err)
            *err = j->err;
        return -1;
    }
    for (int64_t i = 0; i < j->channels.n && moved >= 0; i++) {
        struct nccl_channel *channel = j->channels.p[i];
        int rc = channel->head || channel->state != CHANNEL_READY
                     ? nccl_channel_move(channel, &own)
                     : 0;
        moved = rc < 0 ? -1 : moved | rc;
    }
    double now = now_s();
    if (moved >= 0 && now - j->looked_s > look_s) {
        j->looked_s = now;
        moved = look(j, &own) < 0 ? -1 : moved;
    }
    if (moved >= 0)
        return moved;
    if (err)
        *err = own;
    return nccl_abort(j, &own);
}

/* ---- communicators begin and end ------------------------------------------------------------- */

static int wait_for_call(struct nccl_job *j, ncclComm_t comm, const char *what,
                         struct err *err) {
    struct comm_work opening = {.op = COMM_barrier, .group = comm_world(j->comm)};
    struct comm_watch watch = {0};
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (nccl_check(&j->nccl, j->nccl.ncclCommGetAsyncError(comm, &state), what, err) <
                0 ||
            nccl_check(&j->nccl, state, what, err) < 0)
            return -1;
        if (state != ncclInProgress)
            return 0;
        if (comm_watch(j->comm, &watch, &opening, -1, err) < 0)
            return err_prefix(err, "NCCL: %s", what);
        sched_yield();
    }
}

/* What did not end in time once is not waited for again. */
int nccl_settle(struct nccl_job *j, ncclComm_t comm, const char *what, struct err *err) {
    if (j->failed && err)
        *err = j->err;
    if (j->failed)
        return -1;
    return wait_for_call(j, comm, what, err) == 0 ? 0 : nccl_abort(j, err);
}

/* What it answers is the communicator's state, too. */
void nccl_tell_end(struct nccl_job *j, ncclComm_t comm) {
    if (comm && nccl_settle(j, comm, "ending", NULL) == 0)
        j->nccl.ncclCommFinalize(comm);
}

void nccl_end(struct nccl_job *j, ncclComm_t comm) {
    if (comm && nccl_settle(j, comm, "ending", NULL) == 0)
        j->nccl.ncclCommDestroy(comm);
}
