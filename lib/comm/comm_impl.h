/* comm_impl.h - what the files of lib/comm share; nobody else includes it.
 *
 * The idea in one picture. Every rank owns shared pieces (shared.h below) that its node
 * peers have mapped: the arenas with the tensors, and one piece cut into lanes. A group
 * takes one lane of each member. A lane has a counter of arrivals (the barrier), a place to
 * post where a buffer lies, and a few kilobytes for small messages; posts and small
 * messages exist twice, used in turn, so that one barrier per operation is enough to
 * publish them:
 *
 *     op k  :  write copy k&1, arrive, wait for everyone at k, read the others' copy k&1
 *     op k+2:  writes copy k&1 again, which is safe, for all have arrived at k+1 by then
 *              and so have finished reading what op k wrote
 *
 * Groups that have no lanes (members on several nodes) go through MPI instead.
 */
#ifndef WEFT_COMM_IMPL_H
#define WEFT_COMM_IMPL_H

#include "comm/comm.h"

#include <mpi.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

enum {
    COMM_ARENAS = 16,     /* comm_alloc calls per job */
    COMM_LANES = 128,     /* node groups that a rank can be a member of at one time */
    COMM_SMALL = 8192,    /* bytes that travel inside a lane */
    COMM_SEG = 65536,     /* floats in a ring segment (256 KiB) where memory allows */
    COMM_PIECE = 1 << 28, /* floats in one MPI message at most (counts are int) */
};

/* One rank's part of a group's meeting place, in memory that node peers have mapped. */
struct lane {
    alignas(128) _Atomic uint32_t seq; /* arrivals of the owner, ever; never reset */
    _Atomic uint32_t sleepers;         /* peers asleep on seq */
    struct {
        int32_t arena;  /* index into comm.arena, -1 = not in shared memory */
        int64_t offset; /* bytes from its start */
    } post[2];
    alignas(128) char data[2][COMM_SMALL];
};

/* Memory of this rank that node peers have mapped; peer == NULL when it is private. */
struct shared {
    char *own;
    int64_t bytes;
    char **peer;         /* [node_size], peer[node_rank] == own */
    int64_t *peer_bytes; /* [node_size] */
};

struct comm_request {
    MPI_Request mpi;
    struct comm_request *next; /* in the free list */
};

struct comm {
    MPI_Comm world; /* rank order of the job; creation of groups and arenas */
    MPI_Comm p2p;   /* comm_send, comm_recv */
    MPI_Comm node_comm;
    int rank, size;
    int node, nodes, node_rank, node_size;
    int *node_of;      /* [size] */
    int *node_rank_of; /* [size] */
    int spins, yields; /* how long to wait busily, see comm_lane.c */
    bool crowded;      /* more ranks than cores on this node */
    bool finalize;     /* MPI was started by comm_create */
    struct shared arena[COMM_ARENAS];
    int arenas;
    struct shared lanes; /* struct lane[COMM_LANES] */
    bool lane_used[COMM_LANES];
    struct comm_group *world_group;
    struct comm_request *free_requests;
};

struct comm_group {
    struct comm *comm;
    MPI_Comm mpi;
    int n, me;
    int *ranks;   /* [n] in the job */
    bool direct;  /* all members have lanes: meet in shared memory */
    bool several; /* spans nodes and some node has several members: chains, not rings */
    struct comm_group *local; /* of several, in blocks: the members on this node */
    int slot;                 /* own lane, -1 = none */
    struct lane **lane;       /* [n] */
    uint32_t *base;           /* [n] lane[p]->seq when the group was made */
    uint32_t seq;             /* arrivals of this rank since then */
    const float **src;        /* [n] where the members' data are, after a post */
    float **dst;              /* [n] scratch of the sums */
    int64_t seg;              /* floats in a segment of the rings */
    float *stage;             /* [2 * n * seg], made when first needed */
    MPI_Request *req;         /* [4 * n] */
};

/* comm_job.c: an MPI return code as an error value; 0 where it is MPI_SUCCESS. */
int comm_check(int rc, const char *what, struct err *err);

/* comm_shared.c: collective over the job; falls back to private memory. */
int shared_create(struct comm *comm, int64_t bytes, struct shared *out, struct err *err);
void shared_release(struct comm *comm, struct shared *s);

/* comm_lane.c: the meeting of a group in shared memory. */
void lane_sync(struct comm_group *g);
void lane_put(struct comm_group *g, const void *in, size_t bytes);
bool lane_post(struct comm_group *g, const float *buf);

/* comm_sum.c: dst[d][i] = src[0][i] + ... + src[n-1][i] in this order, lo <= i < hi, for
 * all d; a dst may be one of the sources itself. */
void sum_in_order(const float *const *src, int n, float *const *dst, int nd, int64_t lo,
                  int64_t hi);

/* comm_direct.c: collectives over g->src, the peers' own buffers (after lane_post). */
void direct_all_reduce(struct comm_group *g, int64_t count);
void direct_all_gather(struct comm_group *g, float *out, int64_t count);
void direct_reduce_scatter(struct comm_group *g, float *out, int64_t count);
void direct_all_to_all(struct comm_group *g, float *out, int64_t count);

/* comm_ring.c, comm_chain.c: the same through MPI, in place. */
int ring_stage(struct comm_group *g, struct err *err);
int ring_gather_small(struct comm_group *g, const void *in, size_t bytes, struct err *err);
int ring_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err);
int ring_all_gather(struct comm_group *g, float *out, int64_t count, struct err *err);
int ring_reduce_scatter(struct comm_group *g, float *in, float *out, int64_t count,
                        struct err *err);
int ring_all_to_all(struct comm_group *g, const float *in, float *out, int64_t count,
                    struct err *err);
int chain_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err);

#endif
