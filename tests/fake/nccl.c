/* NCCL over MPI: communicators, and what they put on streams. Messages travel in MPI_COMM_WORLD, which
 * weft itself leaves alone, with tags that are the communicator's. */
#include "fake/nccl.h"
#include "fake/cudart.h"
#include "fake/post.h"

#include "common/half.h"
#include "common/mem.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_nccl fake_nccl;

enum { INFO, LIST, SPLIT, CONNECT, SEND, DATA, END, TAG_KINDS };

/* What one member tells another: first of all what it is about. */
struct head {
    int op, type;
    int64_t count, number; /* of the launch, in its communicator */
};
enum prim_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, POINT_SEND, POINT_RECV };
struct prim {
    enum prim_kind kind;
    const void *in;
    void *out;
    int64_t count;
    ncclDataType_t type;
    int peer;
};

/* All that one group gives to a communicator: one kernel, so to say. */
struct launch {
    ncclComm_t comm;
    cudaStream_t stream;
    ARR(struct prim) prims;
    int64_t number;
    bool posted;
    int64_t beside; /* fake_cuda.done when it was */
    struct post post;
    struct post connect;
};

struct ncclComm {
    int id, n, me, rank[RANKS]; /* members, as ranks of the job */
    char gpu[RANKS][16];
    ncclResult_t state;
    int turns;           /* that the call in progress takes still */
    int64_t given, done; /* launches, in the order of their calls */
    int pending;         /* launches that no stream has done */
    bool aborted, finalized;
    bool connected, sends_to[RANKS], receives_from[RANKS];
    /* The call in progress. */
    bool (*go_on)(struct ncclComm *c);
    struct post post;
    struct launch *launch;    /* that waits for its connections */
    ncclComm_t *child;        /* of a split */
    struct ncclComm *newborn; /* that it makes; NULL where this rank has no color */
    int color, key;
};

/* What members know of each other. */
struct info {
    int me, rank, color, key, id;
    char gpu[16];
};

static struct {
    ARR(struct ncclComm *) comms;
    int ids;   /* that this rank has given */
    int depth; /* of groups */
    ARR(struct launch *) group;
    ARR(struct ncclComm *) aborts; /* of the group */
    bool opened;
} now;

static int tag(int id, int kind) {
    return id * TAG_KINDS + kind;
}

static ncclResult_t broke(const char *rule) {
    fprintf(stderr, "fake NCCL: %s\n", rule);
    fake_nccl.broken++;
    return ncclInvalidUsage;
}

/* ---- communicators ------------------------------------------------------------------------ */

/* A call in progress is over when it has taken its turns and what it waits for is there. */
static bool go_on_all(void *none) {
    (void)none;
    for (int64_t i = 0; i < now.comms.n; i++) {
        struct ncclComm *c = now.comms.p[i];
        if (c->state != ncclInProgress || (c->turns > 0 && c->turns-- > 0) ||
            (c->go_on && !c->go_on(c)))
            continue;
        c->go_on = NULL;
        if (c->state == ncclInProgress)
            c->state = ncclSuccess;
    }
    return false;
}

static ncclResult_t progress(struct ncclComm *c, bool (*go_on)(struct ncclComm *c)) {
    c->state = ncclInProgress;
    c->go_on = go_on;
    c->turns = fake_nccl.busy_turns;
    return ncclInProgress;
}

static struct ncclComm *comm_new(int n, int me) {
    struct ncclComm *c = mem_alloc(sizeof *c);
    if (!now.opened)
        fake_cuda_beside(go_on_all, NULL);
    now.opened = true;
    c->n = n;
    c->me = me;
    arr_push(&now.comms, c);
    fake_nccl.open++;
    return c;
}

static ncclResult_t check(const struct ncclComm *c) {
    if (c->aborted)
        return broke("a call on a communicator that was aborted");
    if (c->state == ncclInProgress)
        return broke("a call on a communicator whose last call is in progress");
    return c->state;
}

static struct info own_info(int me, int color, int key) {
    struct info info = {.me = me, .color = color, .key = key};
    struct cudaDeviceProp p;
    int gpu = 0;
    cudaGetDevice(&gpu);
    cudaGetDeviceProperties(&p, gpu);
    memcpy(info.gpu, p.uuid.bytes, sizeof info.gpu);
    MPI_Comm_rank(MPI_COMM_WORLD, &info.rank);
    info.id = info.rank * 4096 + ++now.ids;
    return info;
}

static void set_member(struct ncclComm *c, int m, const struct info *info) {
    c->rank[m] = info->rank;
    memcpy(c->gpu[m], info->gpu, sizeof c->gpu[m]);
    for (int k = 0; k < c->n; k++)
        if (k != m && *c->gpu[k] && !memcmp(c->gpu[k], c->gpu[m], sizeof c->gpu[k])) {
            broke("two ranks of a communicator share a GPU");
            c->state = ncclInvalidUsage;
        }
}

ncclResult_t fake_ncclGetUniqueId(ncclUniqueId *id) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    memset(id, 0, sizeof *id);
    int numbers[2] = {rank, rank * 4096 + ++now.ids};
    memcpy(id, numbers, sizeof numbers);
    return ncclSuccess;
}

/* The rank that made the id gets everybody's information and gives all of it to everybody. */
static bool receive_list(struct ncclComm *c) {
    if (!post_done(&c->post))
        return false;
    const struct info *all = NULL;
    for (int i = 0; i < c->post.n; i++)
        if (c->post.letter[i].peer >= 0)
            all = (const struct info *)(void *)c->post.letter[i].bytes;
    for (int m = 0; m < c->n && all; m++)
        set_member(c, m, &all[m]);
    post_end(&c->post);
    return true;
}

static bool receive_infos(struct ncclComm *c) {
    if (!post_done(&c->post))
        return false;
    struct info all[RANKS];
    for (int i = 0; i < c->post.n; i++) {
        const struct info *info = (const struct info *)(void *)c->post.letter[i].bytes;
        all[info->me] = *info;
    }
    post_end(&c->post);
    all[c->me] = own_info(c->me, 0, 0);
    for (int m = 0; m < c->n; m++) {
        set_member(c, m, &all[m]);
        if (m != c->me)
            post_send(&c->post, all[m].rank, tag(c->id, LIST), all,
                      (int64_t)(sizeof *all * (size_t)c->n));
    }
    c->go_on = receive_list;
    return false;
}

ncclResult_t fake_ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int me,
                                         ncclConfig_t *config) {
    int numbers[2];
    memcpy(numbers, &id, sizeof numbers);
    if (config->blocking != 0)
        return broke("a communicator that blocks");
    struct ncclComm *c = *comm = comm_new(n, me);
    struct info info = own_info(me, 0, 0);
    c->id = numbers[1];
    fake_nccl.inits++;
    bool root = info.rank == numbers[0];
    for (int k = 0; k < n - 1 && root; k++)
        post_recv(&c->post, MPI_ANY_SOURCE, tag(c->id, INFO), k, sizeof info);
    if (!root) {
        post_send(&c->post, numbers[0], tag(c->id, INFO), &info, sizeof info);
        post_recv(&c->post, numbers[0], tag(c->id, LIST), 0,
                  (int64_t)(sizeof info * (size_t)n));
    }
    return progress(c, root ? receive_infos : receive_list);
}

static int by_key(const void *a, const void *b) {
    const struct info *x = a, *y = b;
    return x->key != y->key ? x->key - y->key : x->me - y->me;
}

/* Those of the same color, by their keys; the first one's id is the new communicator's. */
static bool receive_colors(struct ncclComm *c) {
    if (!post_done(&c->post))
        return false;
    struct info same[RANKS];
    int n = 0;
    for (int i = 0; i < c->post.n; i++) { /* its own is among those that it sent */
        const struct info *info = (const struct info *)(void *)c->post.letter[i].bytes;
        bool twice = false;
        for (int k = 0; k < n; k++)
            twice = twice || same[k].me == info->me;
        if (info->color == c->color && !twice)
            same[n++] = *info;
    }
    post_end(&c->post);
    if (c->color == NCCL_SPLIT_NOCOLOR)
        return true;
    qsort(same, (size_t)n, sizeof *same, by_key);
    struct ncclComm *child = c->newborn;
    child->n = n;
    child->id = same[0].id;
    for (int m = 0; m < n; m++) {
        set_member(child, m, &same[m]);
        child->me = same[m].me == c->me ? m : child->me;
    }
    *c->child = child;
    return true;
}

ncclResult_t fake_ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *child,
                                ncclConfig_t *config) {
    ncclResult_t rc = check(c);
    (void)config;
    if (rc != ncclSuccess)
        return rc;
    *child = NULL;
    c->newborn = color == NCCL_SPLIT_NOCOLOR ? NULL : comm_new(0, 0);
    c->child = child;
    c->color = color;
    struct info info = own_info(c->me, color, key);
    for (int m = 0; m < c->n; m++) {
        post_send(&c->post, c->rank[m], tag(c->id, SPLIT), &info, sizeof info);
        post_recv(&c->post, c->rank[m], tag(c->id, SPLIT), m, sizeof info);
    }
    fake_nccl.splits++;
    return progress(c, receive_colors);
}

ncclResult_t fake_ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    fake_cuda_turn();
    *state = c->state;
    return ncclSuccess;
}

static void comm_free(struct ncclComm *c) {
    for (int64_t i = 0; i < now.comms.n; i++)
        if (now.comms.p[i] == c)
            now.comms.p[i] = now.comms.p[--now.comms.n];
    fake_nccl.open--;
    if (!c->pending) /* else a stream has it still */
        free(c);
}

static bool all_have_ended(struct ncclComm *c) {
    if (!post_done(&c->post))
        return false;
    post_end(&c->post);
    return true;
}

/* In progress until all members have called it. */
ncclResult_t fake_ncclCommFinalize(ncclComm_t c) {
    ncclResult_t rc = check(c);
    char nothing = 0;
    if (rc != ncclSuccess)
        return rc;
    c->finalized = true;
    for (int m = 0; m < c->n; m++) {
        post_send(&c->post, c->rank[m], tag(c->id, END), &nothing, 1);
        post_recv(&c->post, c->rank[m], tag(c->id, END), m, 1);
    }
    return progress(c, all_have_ended);
}

ncclResult_t fake_ncclCommDestroy(ncclComm_t c) {
    if (!c->finalized || c->state == ncclInProgress || c->pending)
        broke("a communicator is destroyed before it is finalized");
    fake_nccl.destroys++;
    comm_free(c);
    return ncclSuccess;
}

/* Its memory is given back, for which CUDA waits for all that the GPU does: for ever, where that is a work
 * of another communicator that waits for its peers. Of a group all are told before the first waits. */
static void end_aborts(void) {
    if (now.aborts.n)
        cudaDeviceSynchronize();
    for (int64_t i = 0; i < now.aborts.n; i++)
        comm_free(now.aborts.p[i]);
    now.aborts.n = 0;
}

ncclResult_t fake_ncclCommAbort(ncclComm_t c) {
    fake_nccl.aborts++;
    c->aborted = true;
    arr_push(&now.aborts, c);
    if (!now.depth)
        end_aborts();
    return ncclSuccess;
}

/* ---- what happens on streams -------------------------------------------------------------- */

static int64_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: broke("a type that is not expected"); return 1;
    }
}

static void post_data(struct launch *l, const struct prim *p, int to, const void *data,
                      int64_t count) {
    struct ncclComm *c = l->comm;
    int64_t n = count * size_of(p->type);
    struct head head = {p->kind == POINT_SEND ? POINT_RECV : p->kind, p->type, p->count,
                        l->number};
    char *both = mem_alloc(sizeof head + (size_t)n);
    memcpy(both, &head, sizeof head);
    memcpy(both + sizeof head, data, (size_t)n);
    post_send(&l->post, c->rank[to], tag(c->id, p->kind == POINT_SEND ? SEND : DATA), both,
              (int64_t)sizeof head + n);
    free(both);
}

/* What this member tells the others, and what it wants from them. */
static void post_prim(struct launch *l, const struct prim *p) {
    struct ncclComm *c = l->comm;
    int64_t size = size_of(p->type), head = sizeof(struct head);
    if (p->kind == POINT_SEND)
        post_data(l, p, p->peer, p->in, p->count);
    if (p->kind == POINT_RECV)
        post_recv(&l->post, c->rank[p->peer], tag(c->id, SEND), p->peer,
                  head + p->count * size);
    for (int m = 0; m < c->n && p->kind < POINT_SEND; m++) {
        const char *part = p->in;
        part += p->kind == REDUCE_SCATTER ? m * p->count * size : 0;
        post_data(l, p, m, part, p->count);
        post_recv(&l->post, c->rank[m], tag(c->id, DATA), m, head + p->count * size);
    }
}

static float as_float(ncclDataType_t type, const void *p, int64_t i) {
    if (type == ncclFloat32)
        return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return type == ncclBfloat16 ? bf16_widen(bits) : f16_widen(bits);
}

static void put_float(ncclDataType_t type, void *p, int64_t i, float x) {
    if (type == ncclFloat32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = type == ncclBfloat16 ? bf16_narrow(x) : f16_narrow(x);
}

/* Sums in the order of members, rounded once; NCCL itself promises no order. */
static void take_sum(const struct launch *l, const struct prim *p,
                     const char *const *from) {
    for (int64_t i = 0; i < p->count; i++) {
        float sum = as_float(p->type, from[0], i);
        for (int m = 1; m < l->comm->n; m++)
            sum += as_float(p->type, from[m], i);
        put_float(p->type, p->out, i, sum);
    }
}

static void take_prim(struct launch *l, const struct prim *p, int *at) {
    const char *from[RANKS] = {NULL};
    int64_t bytes = p->count * size_of(p->type);
    int letters = p->kind < POINT_SEND ? 2 * l->comm->n : 1;
    for (int k = 0; k < letters; k++) {
        const struct letter *t = &l->post.letter[(*at)++];
        const struct head *head = (const struct head *)(void *)t->bytes;
        if (t->peer < 0)
            continue;
        if (head->op != (int)p->kind || head->type != (int)p->type ||
            head->count != p->count || (p->kind < POINT_SEND && head->number != l->number))
            broke("two members call different things");
        from[t->peer] = t->bytes + sizeof *head;
    }
    if (p->kind == ALL_REDUCE || p->kind == REDUCE_SCATTER)
        take_sum(l, p, from);
    for (int m = 0; m < l->comm->n && p->kind == ALL_GATHER; m++)
        memcpy((char *)p->out + m * bytes, from[m], (size_t)bytes);
    if (p->kind == POINT_RECV)
        memcpy(p->out, from[p->peer], (size_t)bytes);
}

static void launch_free(struct launch *l) {
    struct ncclComm *c = l->comm;
    c->pending--;
    if (c->aborted && !c->pending)
        free(c);
    arr_release(&l->prims);
    free(l);
}

/* A step of the stream: in the order of the communicator's calls, all members together. */
static bool step(void *arg) {
    struct launch *l = arg;
    struct ncclComm *c = l->comm;
    if (c->aborted) { /* kernels end; their letters are lost */
        launch_free(l);
        return true;
    }
    if (c->done < l->number || c->state == ncclRemoteError)
        return false;
    for (int64_t i = 0; i < l->prims.n && !l->posted; i++)
        post_prim(l, &l->prims.p[i]);
    l->beside = l->posted ? l->beside : fake_cuda.done;
    l->posted = true;
    if (!post_done(&l->post))
        return false;
    for (int64_t i = 0, at = 0; i < l->prims.n; i++) {
        int k = (int)at;
        take_prim(l, &l->prims.p[i], &k);
        at = k;
    }
    post_end(&l->post);
    fake_nccl.overlapped += fake_cuda.done > l->beside;
    c->done++;
    launch_free(l);
    return true;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* With whom it has not spoken yet: they must come to the same point. */
static void post_connect(struct launch *l) {
    struct ncclComm *c = l->comm;
    char nothing = 0;
    for (int64_t i = 0; i < l->prims.n; i++) {
        const struct prim *p = &l->prims.p[i];
        bool *known = p->kind == POINT_SEND   ? &c->sends_to[p->peer]
                      : p->kind == POINT_RECV ? &c->receives_from[p->peer]
                                              : &c->connected;
        if (*known)
            continue;
        *known = true;
        for (int m = 0; m < c->n; m++) {
            bool collective = p->kind < POINT_SEND,
                 with = collective ? m != c->me : m == p->peer;
            if (with && p->kind != POINT_RECV)
                post_send(&l->connect, c->rank[m], tag(c->id, CONNECT), &nothing, 1);
            if (with && p->kind != POINT_SEND)
                post_recv(&l->connect, c->rank[m], tag(c->id, CONNECT), m, 1);
        }
    }
}

static bool give_launch(struct ncclComm *c) {
    struct launch *l = c->launch;
    if (!post_done(&l->connect))
        return false;
    post_end(&l->connect);
    fake_cuda_work(l->stream, step, l);
    c->launch = NULL;
    return true;
}

static ncclResult_t end_launch(struct launch *l) {
    struct ncclComm *c = l->comm;
    l->number = c->given++;
    c->pending++;
    c->launch = l;
    post_connect(l);
    if (++fake_nccl.launches == fake_nccl.fail_at) {
        c->state = ncclRemoteError;
        c->launch = NULL;
        fake_cuda_work(l->stream, step, l);
        return ncclSuccess; /* what follows is seen by who asks */
    }
    if (fake_nccl.busy_turns < 0 && give_launch(c))
        return ncclSuccess;
    return progress(c, give_launch);
}

ncclResult_t fake_ncclGroupStart(void) {
    now.depth++;
    return ncclSuccess;
}

ncclResult_t fake_ncclGroupEnd(void) {
    ncclResult_t rc = ncclSuccess;
    if (now.depth-- == 0)
        return broke("a group ends that was not begun");
    for (int64_t i = 0; i < now.group.n && now.depth == 0; i++) {
        ncclResult_t one = end_launch(now.group.p[i]);
        rc = rc == ncclSuccess ? one : rc;
    }
    now.group.n = now.depth ? now.group.n : 0;
    if (!now.depth)
        end_aborts();
    return rc;
}

static ncclResult_t add(ncclComm_t c, cudaStream_t stream, struct prim prim) {
    struct launch *l = NULL;
    ncclResult_t rc = check(c);
    if (rc != ncclSuccess)
        return rc;
    if (!fake_cuda_is_device(prim.in ? prim.in : prim.out, prim.count * size_of(prim.type)))
        return broke("memory that is not the device's");
    for (int64_t i = 0; i < now.group.n; i++)
        if (now.group.p[i]->comm == c)
            l = now.group.p[i];
    if (!l) {
        l = mem_alloc(sizeof *l);
        l->comm = c;
        l->stream = stream;
        arr_push(&now.group, l);
    }
    arr_push(&l->prims, prim);
    *(prim.kind < POINT_SEND ? &fake_nccl.collectives : &fake_nccl.messages) += 1;
    if (now.depth)
        return ncclSuccess;
    now.depth = 1;
    return fake_ncclGroupEnd();
}

ncclResult_t fake_ncclAllReduce(const void *in, void *out, size_t count,
                                ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                                cudaStream_t s) {
    if (op != ncclSum)
        return broke("a reduction that is no sum");
    return add(c, s, (struct prim){ALL_REDUCE, in, out, (int64_t)count, type, 0});
}

ncclResult_t fake_ncclReduceScatter(const void *in, void *out, size_t count,
                                    ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                                    cudaStream_t s) {
    if (op != ncclSum)
        return broke("a reduction that is no sum");
    return add(c, s, (struct prim){REDUCE_SCATTER, in, out, (int64_t)count, type, 0});
}

ncclResult_t fake_ncclAllGather(const void *in, void *out, size_t count,
                                ncclDataType_t type, ncclComm_t c, cudaStream_t s) {
    return add(c, s, (struct prim){ALL_GATHER, in, out, (int64_t)count, type, 0});
}

ncclResult_t fake_ncclSend(const void *in, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t c, cudaStream_t s) {
    return add(c, s, (struct prim){POINT_SEND, in, NULL, (int64_t)count, type, peer});
}

ncclResult_t fake_ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                           ncclComm_t c, cudaStream_t s) {
    return add(c, s, (struct prim){POINT_RECV, NULL, out, (int64_t)count, type, peer});
}

const char *fake_ncclGetErrorString(ncclResult_t rc) {
    return rc == ncclRemoteError ? "remote process exited or there was a network error"
                                 : "an error of the fake";
}

const char *fake_ncclGetLastError(ncclComm_t c) {
    (void)c;
    return "";
}
