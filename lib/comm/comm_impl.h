/* comm_impl.h - what the files of comm itself and of its MPI backend share; nobody else
 * includes it.
 *
 * The idea in one picture. Every rank owns shared pieces (comm_shared.c) that its node
 * peers have mapped: the arenas with the tensors, and one piece with an alarm and lanes. A
 * group takes one lane of each member. A lane has a counter of arrivals (the meeting), a
 * place to post where a buffer lies, and a few kilobytes for small messages; posts and small
 * messages exist twice, used in turn, so that one meeting per operation is enough to
 * publish them:
 *
 *     op k  :  write copy k&1, arrive, see everyone at k, read the others' copy k&1
 *     op k+2:  writes copy k&1 again, which is safe, for all have arrived at k+1 by then
 *              and so have finished reading what op k wrote
 *
 * Groups that have no lanes (members on several nodes) exchange MPI messages instead.
 *
 * No collective ever blocks: each is a chain of steps that return when they cannot go on.
 * The engine (comm_engine.c) takes the steps: of the first work in the queue of every group,
 * turn and turn about, in whichever thread has nothing better to do.
 */
#ifndef WEFT_COMM_IMPL_H
#define WEFT_COMM_IMPL_H

#include "comm/comm.h"
#include "comm/comm_backend.h"

#include <mpi.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

enum {
    COMM_ARENAS = 16,     /* comm_alloc calls per job */
    COMM_MOVERS = 4,      /* backends that have something to do on the host */
    COMM_LANES = 128,     /* node groups that a rank can be a member of at one time */
    COMM_SMALL = 8192,    /* bytes that travel inside a lane */
    COMM_BITE = 65536,    /* elements that one step reads or adds at most */
    COMM_PIECE = 1 << 30, /* bytes in one MPI message of a collective (counts are int) */
    COMM_MAIL_TAG = 1,    /* of failures that go to other nodes */
    COMM_FOLD = COMM_SMALL / (int)sizeof(double), /* doubles in one sum_double work */
};

/* One rank's part of a group's meeting place, in memory that node peers have mapped. */
struct lane {
    alignas(128) _Atomic uint32_t seq; /* arrivals of the owner, ever; never reset */
    _Atomic uint32_t sleepers;         /* peers asleep on seq */
    int64_t key;                       /* of the group it serves, 0 = free */
    uint32_t base;                     /* seq when the group was made */
    struct {
        int32_t arena;  /* index into comm.arena, -1 = not in shared memory */
        int64_t offset; /* bytes from its start */
    } post[2];
    alignas(128) char data[2][COMM_SMALL];
};

/* The failure that ends the job, as the ranks of a node know it: the one of its rank 0. */
struct alarm {
    _Atomic int owner; /* 1 + the rank whose failure it is, 0 = none */
    _Atomic int ready; /* the rest is written */
    int status;
    char msg[sizeof((struct err *)0)->msg];
};

/* What a rank shows its node peers besides its arenas. */
struct desk {
    struct alarm alarm;
    struct lane lane[COMM_LANES];
};

/* Memory of this rank that node peers have mapped; peer == NULL when it is private. */
struct shared {
    char *own;
    int64_t bytes;
    char **peer;         /* [node_size], peer[node_rank] == own */
    int64_t *peer_bytes; /* [node_size] */
};

struct comm {
    struct comm_options options;
    MPI_Comm world;  /* collectives */
    MPI_Comm p2p;    /* messages */
    MPI_Comm alarms; /* failures, between nodes */
    int rank, size;
    int node, nodes, node_rank, node_size;
    int *node_of;      /* [size] */
    int *node_rank_of; /* [size] */
    int spins, yields; /* how long to wait busily, see comm_engine.c */
    bool crowded;      /* more ranks than cores on this node */
    bool finalize;     /* MPI was started by comm_create */
    bool threads;      /* MPI allows calls of several threads in turn */
    struct shared arena[COMM_ARENAS];
    int arenas;
    struct shared desks; /* struct desk */
    bool lane_used[COMM_LANES];
    struct alarm *alarm;      /* of the node; early until there are desks */
    struct alarm early, mail; /* mail: where one from another node arrives */
    MPI_Request mail_req;
    struct {
        comm_mover *move;
        void *arg;
    } movers[COMM_MOVERS];
    int n_movers;
    bool moving; /* in one of them */
    int next_id; /* of groups */
    struct engine *engine;
    void *job; /* of options.backend */
    struct comm_group *world_group;
};

/* The MPI backend's part of a group. */
enum step { STEP_WAIT, STEP_MORE, STEP_DONE, STEP_FAILED };

/* `total` elements cut into chunks of `per`, one a rank; the last may be short or empty. */
struct cut {
    int64_t total, per;
};

/* One rank's place in a chain of nodes, see comm_chain.c. */
struct chain {
    int place, last;     /* in the chain */
    int stride;          /* between neighbours in it, as ranks of the group */
    char **part;         /* [m] the buffers of the node's members in group order */
    int m;               /* members on this node that add up together */
    int64_t lo, hi, seg; /* the slice, and how it is cut */
    enum dtype dtype;
    int64_t segs, up, down; /* segments; how many are done upwards, downwards */
    bool taking;            /* the segment `down` is being received from above */
};

struct mpi_group {
    struct comm *comm;
    const int *ranks; /* [n] in the job, borrowed */
    int n, me, id;
    bool several; /* spans nodes and some node has several members: chains, not rings */
    struct mpi_group *local; /* of several, in blocks: the members on this node */

    /* The meeting in shared memory (comm_lane.c). */
    bool direct;        /* all members have lanes */
    int64_t key;        /* of its lanes */
    int slot;           /* own lane, -1 = none */
    struct lane **lane; /* [n] */
    uint32_t *base;     /* [n] lane[p]->seq when the group was made */
    uint32_t seq;       /* arrivals of this rank since then */
    int met;            /* members seen there, counted from this rank */

    /* The collective under way. */
    struct comm_work *head, *tail; /* started; head is the one */
    enum step (*step)(struct mpi_group *m, struct comm_work *w);
    enum step (*then)(struct mpi_group *m, struct comm_work *w); /* after a sub-step */
    int k;                                                       /* peer or round */
    int64_t at, s;                                               /* element, segment */
    struct cut cut;                                              /* of the ring */
    struct chain chain;
    int rc;           /* MPI's, of a failure */
    const void **src; /* [n] where the members' data are */
    void **dst;       /* [2 * n] scratch of the sums, and of chain.part */
    int64_t seg;      /* elements in a segment of the rings */
    float *stage;     /* [2 * n * seg], made when first needed */
    MPI_Request *req; /* [4 * n] */
};

/* comm_requests.c: an MPI return code as an error value; 0 where it is MPI_SUCCESS. */
int comm_check(int rc, const char *what, struct err *err);
enum step requests_test(struct mpi_group *m, int first, int n); /* are these done? */
bool requests_stage(struct mpi_group *m); /* makes the stage; false: no memory */

/* comm_group.c: a group without anything of its backend. */
struct comm_group *group_new(struct comm *comm, const struct comm_backend *backend,
                             void *job, const int *ranks, int n, int me);

/* comm_shared.c: collective over the job; falls back to private memory. */
int shared_create(struct comm *comm, int64_t bytes, struct shared *out, struct err *err);
void shared_release(struct comm *comm, struct shared *s);

/* comm_alarm.c: the alarm. */
bool alarm_raise(struct comm *c, int owner, int status, const char *msg);
void alarm_listen(struct comm *comm); /* for failures on other nodes */
void alarm_poll(struct comm *comm);   /* takes one that has arrived */
void alarm_deaf(struct comm *comm);

/* comm_engine.c: queues, threads and waits. */
struct engine *engine_create(struct comm *comm);
struct comm *engine_comm(const struct engine *e);
void engine_destroy(struct engine *e);
/* The engine is used by one thread at a time: whoever calls MPI has entered it. */
void engine_enter(struct engine *e);
void engine_leave(struct engine *e);
void engine_stop(struct engine *e); /* the job has failed: nothing moves any more */
void engine_drop_group(struct engine *e, struct mpi_group *m);
void engine_room(struct engine *e, int groups); /* for so many more */
int engine_start(struct comm_work *w, struct err *err);
int engine_wait(struct comm_work *w, struct err *err);

/* comm_lane.c: the meeting of a group in shared memory. */
void lane_take(struct mpi_group *m); /* offers a lane for the group */
void lane_find(struct mpi_group *m); /* after all have: m->direct */
void lane_release(struct mpi_group *m);
void lane_arrive(struct mpi_group *m);
bool lane_met(struct mpi_group *m); /* all have arrived as often as this rank */
void lane_put(struct mpi_group *m, const void *in, size_t bytes); /* and arrives */
void lane_take_in(struct mpi_group *m);               /* after the meeting: m->src */
void lane_post(struct mpi_group *m, const void *buf); /* and arrives */
bool lane_read_posts(struct mpi_group *m); /* after it: m->src, if all are shared */
void lane_sleep(
    struct mpi_group *m); /* until the missing member comes, half a ms at most */

/* comm_sum.c: dst[d][i] = before[i] + src[0][i] + ... + src[n-1][i] in this order, lo <= i < hi,
 * for all d; a dst may be one of the sources itself. */
struct sum {
    enum dtype dtype;    /* of src and dst */
    const float *before; /* or NULL: what goes before */
    const void *const *src;
    int n;
    void *const *dst;
    int nd;
    float *carry; /* or NULL: the sum not rounded; may be before */
};
void sum_in_order(const struct sum *s, int64_t lo, int64_t hi);

/* Each begins a part of the first work of the queue and returns what its first step did.
 * comm_collective.c: the way that fits, from the start. */
enum step collective_begin(struct mpi_group *m, struct comm_work *w);
/* comm_direct.c: over m->src, the peers' own buffers (after lane_read_posts). */
enum step direct_begin(struct mpi_group *m, struct comm_work *w);
/* comm_ring.c: through MPI messages. */
enum step ring_begin(struct mpi_group *m, struct comm_work *w);
/* comm_small.c: shows everybody the same few bytes of each member in m->src, then goes on
 * with m->then; bytes of one rank for all. */
enum step small_gather(struct mpi_group *m, const void *in, size_t bytes);
enum step broadcast_begin(struct mpi_group *m, struct comm_work *w);
/* comm_chain.c: sums over groups that have several members on several nodes. */
enum step chain_begin(struct mpi_group *m, struct comm_work *w);
/* comm_message.c: messages. */
int message_start(struct comm *c, struct comm_work *w, struct err *err);
enum work_state message_test(struct comm_work *w); /* the state that it has come to */

/* Tags of comm.world: a group's id and what for. */
enum { TAG_PIECE, TAG_RING, TAG_SMALL, TAG_TREE, TAG_UP, TAG_DOWN, TAG_KINDS };

static inline int tag_of(const struct mpi_group *m, int kind) {
    return m->id * TAG_KINDS + kind;
}

static inline int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t size_of(const struct comm_work *w) {
    return dtype_size(w->dtype);
}

#endif
