/* The job: whose GPU is whose, the communicator that all others are split from, and groups.
 *
 * Ranks that share a GPU are in different *layers*: a rank's layer is the number of lower ranks with the
 * same GPU. So the ranks of a layer have GPUs of their own, each layer has a communicator, and a group
 * whose members are all in one layer has one split from it. All other groups go by way of the hosts. */
#include "cuda/cuda.h"
#include "cuda/cuda_check.h"
#include "nccl/nccl_impl.h"

#include "comm/comm_stage.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

/* ---- who has what ------------------------------------------------------------------------- */

/* This rank's GPU from here on, and its name for all. */
static int own_uuid(struct nccl_job *j, char *uuid, struct err *err) {
    struct cudaDeviceProp p;
    int gpu = cuda_index(comm_node_rank(j->comm), err);
    if (gpu < 0 || cuda_check(cudaSetDevice(gpu), "the device", err) < 0 ||
        cuda_check(cudaGetDeviceProperties(&p, gpu), "naming a GPU", err) < 0)
        return -1;
    _Static_assert(sizeof p.uuid.bytes == NCCL_UUID, "a uuid");
    memcpy(uuid, p.uuid.bytes, NCCL_UUID);
    return 0;
}

static bool same_gpu(const struct nccl_job *j, int a, int b) {
    return !memcmp(j->uuid[a], j->uuid[b], NCCL_UUID);
}

static int find_layers(struct nccl_job *j, struct err *err) {
    struct nccl_report *report = j->report;
    int n = comm_size(j->comm);
    char uuid[NCCL_UUID];
    j->uuid = mem_array((size_t)n, sizeof *j->uuid);
    j->layer = mem_array((size_t)n, sizeof *j->layer);
    if (exec_agree(j->comm, own_uuid(j, uuid, err), err) < 0 ||
        comm_all_gather(comm_world(j->comm), uuid, j->uuid, NCCL_UUID, DTYPE_u8, err) < 0)
        return -1;
    *report = (struct nccl_report){0};
    for (int r = 0; r < n; r++) {
        int others = 0;
        for (int k = 0; k < n; k++) {
            others += k != r && same_gpu(j, k, r);
            j->layer[r] += k < r && same_gpu(j, k, r);
        }
        report->gpus += j->layer[r] == 0;
        report->sharing += others > 0;
        report->here += same_gpu(j, r, comm_rank(j->comm));
    }
    j->shares = report->sharing > 0;
    return 0;
}

/* ---- the communicators of layers ------------------------------------------------------------ */

/* Each layer takes the id of its first rank; with an id NCCL opens a port and waits there. */
static int open_root(struct nccl_job *j, struct err *err) {
    if (exec_agree(j->comm, nccl_library_open(&j->nccl, err), err) < 0)
        return -1;
    const struct nccl_library *lib = &j->nccl;
    int size = comm_size(j->comm), rank = comm_rank(j->comm), first = -1, n = 0, me = 0;
    ncclUniqueId own = {{0}}, *ids = mem_array((size_t)size, sizeof *ids);
    for (int r = 0; r < size; r++) {
        if (j->layer[r] != j->layer[rank])
            continue;
        first = first < 0 ? r : first;
        me += r < rank;
        n++;
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    int rc = 0;
    if (first == rank && n > 1)
        rc = nccl_check(lib, lib->ncclGetUniqueId(&own), "making an id", err);
    rc = exec_agree(j->comm, rc, err);
    if (rc == 0)
        rc = comm_all_gather(comm_world(j->comm), &own, ids, sizeof own, DTYPE_u8, err);
    if (rc == 0 && n > 1)
        rc = nccl_check(lib,
                        lib->ncclCommInitRankConfig(&j->root, n, ids[first], me, &config),
                        "opening", err);
    if (rc == 0 && n > 1)
        rc = nccl_settle(j, j->root, "opening", err);
    j->report->communicators += rc == 0 && n > 1;
    free(ids);
    return rc;
}

static void close_job(void *job) {
    struct nccl_job *j = job;
    comm_moves(j->comm, NULL, j, NULL);
    nccl_tell_end(j, j->root);
    nccl_end(j, j->root);
    if (j->stage)
        comm_backend_stage.close(j->stage);
    arr_release(&j->channels);
    arr_release(&j->tracks);
    arr_release(&j->spare);
    free(j->uuid);
    free(j->layer);
    free(j);
}

static void *open_job(struct comm *comm, void *arg, struct err *err) {
    const struct nccl_options *o = arg;
    struct nccl_job *j = mem_alloc(sizeof *j);
    j->report = o && o->report ? o->report : &j->unread;
    j->comm = comm;
    if (find_layers(j, err) == 0 &&
        (!j->shares || (j->stage = comm_backend_stage.open(comm, NULL, err))) &&
        (j->report->gpus == 1 || open_root(j, err) == 0) &&
        comm_moves(comm, nccl_move, j, err) == 0)
        return j;
    close_job(j);
    return NULL;
}

/* ---- groups ------------------------------------------------------------------------------- */

/* at[r * n + i]: the place of rank r in set i of a list, -1 = none. */
static int32_t *all_places(struct nccl_job *j, struct comm_group *const *groups, int n,
                           struct err *err) {
    int size = comm_size(j->comm);
    int32_t *own = mem_array((size_t)n + 1, sizeof *own);
    int32_t *at = mem_array((size_t)(n * size) + 1, sizeof *at);
    for (int i = 0; i < n; i++)
        own[i] = groups[i] ? groups[i]->me : -1;
    int rc = comm_all_gather(comm_world(j->comm), own, at, n, DTYPE_i32, err);
    free(own);
    if (rc == 0)
        return at;
    free(at);
    return NULL;
}

/* What a set is to this rank's layer. */
struct set {
    int members; /* 0: another layer's, or of several */
    bool all;    /* the ranks of the layer, in their order */
};

static struct set look_at_set(const struct nccl_job *j, const int32_t *at, int n, int i) {
    int size = comm_size(j->comm), layer = j->layer[comm_rank(j->comm)], ranks = 0;
    struct set s = {.all = true};
    for (int r = 0; r < size; r++) {
        int place = at[r * n + i];
        if (place >= 0 && j->layer[r] != layer)
            return (struct set){0};
        s.members += place >= 0;
        if (j->layer[r] == layer)
            s.all = s.all && place == ranks++;
    }
    return s;
}

/* One call makes communicators for sets that have no rank in common: of this rank it makes that of
 * `channel`, or none. NCCL writes where it is to be when it is made, however long after the call. */
static int split(struct nccl_job *j, struct nccl_channel *channel, int color, int key,
                 struct err *err) {
    const struct nccl_library *lib = &j->nccl;
    ncclComm_t none = NULL, *child = channel ? &channel->comm : &none;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (nccl_settle(j, j->root, "splitting", err) < 0) /* works may be under way there */
        return -1;
    ncclResult_t rc = lib->ncclCommSplit(j->root, channel ? color : NCCL_SPLIT_NOCOLOR, key,
                                         child, &config);
    if (nccl_check(lib, rc, "splitting", err) < 0 ||
        nccl_settle(j, j->root, "splitting", err) < 0)
        return -1;
    if (!channel)
        return 0;
    if (!*child)
        return err_system(err, "NCCL: splitting: no communicator came out");
    j->report->communicators++;
    return nccl_settle(j, *child, "splitting", err);
}

/* All groups of the whole layer share the root, and so a channel: their works happen in the order of their
 * starts. */
static struct nccl_channel *root_channel(struct nccl_job *j) {
    if (!j->root_channel) {
        j->root_channel = nccl_channel_new(j);
        j->root_channel->comm = j->root;
        j->root_channel->borrowed = true;
    }
    return j->root_channel;
}

/* The sets of a list in rounds: as many in each as have no rank in common. All ranks of the layer do
 * the same. */
static int make_lines(struct nccl_job *j, struct comm_group **groups, int n,
                      const int32_t *at, struct err *err) {
    int size = comm_size(j->comm), rc = 0, color = 0, key = 0, sets = 0;
    bool *taken = mem_array((size_t)size, sizeof *taken);
    struct nccl_channel *own = NULL;
    for (int i = 0; i <= n && rc == 0; i++) {
        struct set s = i < n ? look_at_set(j, at, n, i) : (struct set){0};
        bool splits = s.members > 1 && !s.all, meets = i == n;
        for (int r = 0; r < size && splits; r++)
            meets = meets || (taken[r] && at[r * n + i] >= 0);
        if (meets && sets) {
            rc = split(j, own, color, key, err);
            memset(taken, 0, (size_t)size * sizeof *taken);
            own = NULL;
            sets = 0;
        }
        for (int r = 0; r < size && splits; r++)
            taken[r] = taken[r] || at[r * n + i] >= 0;
        sets += splits;
        if (i == n || !groups[i] || !s.members)
            continue;
        struct nccl_group *g = groups[i]->state;
        g->channel = s.all && s.members > 1 ? root_channel(j) : nccl_channel_new(j);
        if (splits) {
            own = g->channel;
            color = i;
            key = groups[i]->me;
        }
    }
    free(taken);
    return rc;
}

/* The same groups for the staging backend, where some ranks share a GPU. */
static int stage_groups(struct nccl_job *j, struct comm_group **groups, int n,
                        struct err *err) {
    struct comm_group **staged = mem_array((size_t)n + 1, sizeof(struct comm_group *));
    for (int i = 0; i < n; i++) {
        if (!groups[i])
            continue;
        struct nccl_group *g = groups[i]->state;
        staged[i] = g->staged = mem_alloc(sizeof *g->staged);
        *g->staged = *groups[i];
        g->staged->backend = &comm_backend_stage;
        g->staged->job = j->stage;
        g->staged->state = NULL;
    }
    int rc = comm_backend_stage.open_groups(j->stage, staged, n, err);
    free(staged);
    return rc;
}

static int open_groups(void *job, struct comm_group **groups, int n, struct err *err) {
    struct nccl_job *j = job;
    for (int i = 0; i < n; i++)
        if (groups[i]) {
            groups[i]->state = mem_alloc(sizeof(struct nccl_group));
            j->groups++;
        }
    int32_t *at = all_places(j, groups, n, err);
    int rc = at ? make_lines(j, groups, n, at, err) : -1;
    free(at);
    return rc == 0 && j->shares ? stage_groups(j, groups, n, err) : rc;
}

static void destroy_track(struct nccl_track *t) {
    cudaEventDestroy(t->place);
    cudaEventDestroy(t->begun);
    cudaEventDestroy(t->done);
    free(t);
}

/* All that is the device's, when no group is left that could use it. */
static void drop_lines(struct nccl_job *j) {
    for (int64_t i = 0; i < j->channels.n; i++)
        if (!j->channels.p[i]->borrowed)
            nccl_tell_end(j, j->channels.p[i]->comm);
    for (int64_t i = 0; i < j->channels.n; i++)
        nccl_channel_end(j->channels.p[i]);
    for (int64_t i = 0; i < j->channels.n; i++)
        nccl_channel_free(j->channels.p[i]);
    for (int64_t i = 0; i < j->tracks.n; i++)
        destroy_track(j->tracks.p[i]);
    for (int64_t i = 0; i < j->spare.n; i++)
        destroy_track(j->spare.p[i]);
    j->channels.n = j->tracks.n = j->spare.n = 0;
    j->root_channel = NULL;
    if (j->device)
        device_watch(j->device, NULL, NULL);
    j->device = NULL;
}

static void close_group(struct comm_group *group) {
    struct nccl_job *j = group->job;
    struct nccl_group *g = group->state;
    if (!g)
        return;
    if (g->staged)
        comm_backend_stage.close_group(g->staged);
    free(g->staged);
    free(g);
    if (--j->groups == 0)
        drop_lines(j);
}

/* ---- works -------------------------------------------------------------------------------- */

static int start(struct comm_work *w, struct err *err) {
    struct nccl_job *j = w->group->job;
    struct nccl_group *g = w->group->state;
    bool message = w->op == COMM_send || w->op == COMM_recv;
    if (j->failed) {
        if (err)
            *err = j->err;
        return -1;
    }
    if (!j->device) {
        j->device = w->stream->device;
        device_watch(j->device, comm_watch_device, j->comm);
    }
    if (message ? same_gpu(j, comm_rank(j->comm), w->group->ranks[w->peer]) : !g->channel) {
        w->group = g->staged;
        return comm_backend_stage.start(w, err);
    }
    struct nccl_channel *channel = message ? nccl_message_channel(j, w, err) : g->channel;
    return channel ? nccl_channel_start(channel, w, err) : -1;
}

const struct comm_backend comm_backend_gpu = {.name = "nccl",
                                              .streams = true,
                                              .open = open_job,
                                              .close = close_job,
                                              .open_groups = open_groups,
                                              .close_group = close_group,
                                              .start = start,
                                              .wait = nccl_channel_wait};

int nccl_use(struct comm *comm, struct nccl_report *report, struct err *err) {
    return comm_use(comm, &comm_backend_gpu, &(struct nccl_options){.report = report}, err);
}
