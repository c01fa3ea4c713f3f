/* comm.h - collectives and messages between the ranks of a job.
 *
 * Everything happens in a group of ranks. A collective or a message is *work*: it is started
 * on a handle that the caller owns, goes on while the caller computes, and is waited for.
 *
 *     struct comm_options options = COMM_OPTIONS_DEFAULT;
 *     struct comm *comm = comm_create(&argc, &argv, &options, &err);
 *     float *arena = comm_alloc(comm, bytes, &err);
 *     comm_groups_create(comm, sets, n_sets, groups, &err);    // all ranks, the same list
 *
 *     struct comm_work work = {0};
 *     comm_start_all_reduce(groups[0], arena, n, DTYPE_f32, &work, &err);
 *     compute();
 *     comm_wait(&work, &err);
 *
 * The members of a group start its collectives in the same order, and they complete in that
 * order; works of different groups, and messages, overtake each other freely. Until its wait
 * returns, a work's buffers and its handle stay where they are, and nobody else writes
 * there. Contributions to a sum are added in the order of the group's ranks for every
 * element, so every run, every rank and every way of transport gives the same bits.
 * Nothing is allocated after the first work of each kind with its group.
 *
 * No wait is endless. It fails when the time-out of the options is over, and soon after some
 * rank has called comm_fail; after either the job can only be ended (comm_abort).
 *
 * One thread of a process calls these functions.
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct comm_group;
struct device_stream; /* device/device.h */
struct comm_backend;  /* comm_backend.h */

/* Whether started work goes on by itself, on a thread of its own, while its rank computes.
 * Without, it moves only while its rank is in a function of this header. */
enum comm_progress {
    COMM_PROGRESS_AUTO, /* in groups (and between peers) on several nodes */
    COMM_PROGRESS_OFF,
    COMM_PROGRESS_ON,
};

struct comm_options {
    double timeout_s;                   /* the longest wait; 0 = no limit */
    enum comm_progress progress;        /* of works that do not choose for themselves */
    const struct comm_backend *backend; /* of the groups in lists; NULL = MPI */
    void *backend_arg;                  /* what that backend needs to know */
};
#define COMM_OPTIONS_DEFAULT                                                               \
    { .timeout_s = 600 }

/* Joins the job (a lone process is a job of one). options: NULL = default. NULL on failure. */
struct comm *comm_create(int *argc, char ***argv, const struct comm_options *options,
                         struct err *err);
/* From here on groups of lists are this backend's, which is opened; by all ranks at once, while no such
 * group is there. For those who learn only from the others what the job is to run on. */
int comm_use(struct comm *comm, const struct comm_backend *backend, void *arg,
             struct err *err);
/* Leaves the job; waits for all the others to do the same. */
void comm_destroy(struct comm *comm);

/* Tells every other rank why this one cannot go on: their waits fail with this message, unless
 * the job has failed already. Works under way stay where they are from here on, so their
 * buffers and handles may go. True if it is this rank's message that the others get, now or
 * by an earlier call: then this rank is the one to print it. */
bool comm_fail(struct comm *comm, const struct err *err);
/* Ends every rank at once with this exit status; never returns. A rank that was told of
 * another's failure first gives that one a few seconds to print its message and do this. */
void comm_abort(struct comm *comm, int status) __attribute__((noreturn));

int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
int comm_node(const struct comm *comm); /* index of this rank's node, from 0 */
int comm_nodes(const struct comm *comm);
int comm_node_rank(const struct comm *comm); /* rank inside the node */
int comm_node_size(const struct comm *comm);
int comm_node_of(const struct comm *comm, int rank);

/* Memory that peers on the node can read; collective over the job (sizes may differ), zeroed,
 * 64-byte aligned, touched by its owner first. One arena per job is enough; freed with comm. */
float *comm_alloc(struct comm *comm, int64_t bytes, struct err *err);

/* The ranks of a group, distinct, in the order that sums take. */
struct comm_ranks {
    const int *ranks;
    int n;
};

/* Makes the groups of a list that is the same on all ranks of the job, who call this together;
 * lists that differ are an error everywhere. groups[i] becomes NULL where this rank is not in
 * sets[i]. */
int comm_groups_create(struct comm *comm, const struct comm_ranks *sets, int n_sets,
                       struct comm_group **groups, struct err *err);
/* At once and by each rank for itself; no work of the group may be under way. */
void comm_group_destroy(struct comm_group *group);
/* Do its works happen in the order of a device's stream (the caller's events say when they are
 * complete), or in that of the host, complete when comm_wait returns? */
bool comm_on_streams(const struct comm_group *group);
int comm_group_rank(const struct comm_group *group);
/* The group of all ranks; its buffers are host memory whatever the backend of the others. */
struct comm_group *comm_world(struct comm *comm);

enum comm_op {
    COMM_all_reduce,
    COMM_all_gather,
    COMM_reduce_scatter,
    COMM_all_to_all,
    COMM_broadcast,
    COMM_barrier,
    COMM_sum_double,
    COMM_max_double,
    COMM_send,
    COMM_recv,
};

/* A collective or message under way. Zeroed: none, and comm_wait returns at once. */
struct comm_work {
    /* Set by the caller before it starts something; stream: in groups on streams (comm_on_streams),
     * behind what it was given before the work is done, there or on a stream that the start puts
     * here instead. */
    enum comm_progress progress;
    struct device_stream *stream;
    /* The rest is comm's. */
    enum comm_op op;
    enum dtype dtype;
    _Atomic int state;        /* enum work_state in comm_backend.h */
    struct comm_group *group; /* who takes part */
    const void *in;
    void *out;
    int64_t count;          /* elements, as the function that started it counts them */
    int peer, tag;          /* rank in the group; of a broadcast, the root */
    struct comm_work *next; /* in the backend's queue */
    bool helped;            /* the progress thread sees to it */
    int64_t scratch[4];     /* the backend's */
};

/* Sum over the group, in place. count elements; MPI sums f32, bf16 and f16, these two
 * as f32 that is rounded once. */
int comm_start_all_reduce(struct comm_group *group, void *buf, int64_t count,
                          enum dtype dtype, struct comm_work *work, struct err *err);
/* out[size * count] = concatenation of every rank's in[count]; in may be its place in out. */
int comm_start_all_gather(struct comm_group *group, const void *in, void *out,
                          int64_t count, enum dtype dtype, struct comm_work *work,
                          struct err *err);
/* out[count] = sum over ranks of in[rank * count ...]; in has size * count elements and may be
 * overwritten; out may be its place in in. */
int comm_start_reduce_scatter(struct comm_group *group, void *in, void *out, int64_t count,
                              enum dtype dtype, struct comm_work *work, struct err *err);
/* out[r * count ...] = what rank r has at in[me * count ...]; in and out do not overlap. */
int comm_start_all_to_all(struct comm_group *group, const void *in, void *out,
                          int64_t count, enum dtype dtype, struct comm_work *work,
                          struct err *err);
/* A message to, from a rank of the group. Those of one (source, destination, tag) arrive in
 * order; tags are the job's, whatever the group. */
int comm_start_send(struct comm_group *group, const void *buf, int64_t count,
                    enum dtype dtype, int peer, int tag, struct comm_work *work,
                    struct err *err);
int comm_start_recv(struct comm_group *group, void *buf, int64_t count, enum dtype dtype,
                    int peer, int tag, struct comm_work *work, struct err *err);
/* Returns when the work is complete; the handle may serve again. */
int comm_wait(struct comm_work *work, struct err *err);

/* Some of them, waited for. */
int comm_all_gather(struct comm_group *group, const void *in, void *out, int64_t count,
                    enum dtype dtype, struct err *err);
int comm_send(struct comm_group *group, const void *buf, int64_t count, enum dtype dtype,
              int peer, int tag, struct err *err);
int comm_recv(struct comm_group *group, void *buf, int64_t count, enum dtype dtype,
              int peer, int tag, struct err *err);

/* For the host: sum and maximum of a few doubles (metrics), sums in rank order; bytes of one
 * rank for all; and nobody leaves before all have come. */
int comm_sum_double(struct comm_group *group, double *x, int n, struct err *err);
int comm_max_double(struct comm_group *group, double *x, int n, struct err *err);
int comm_broadcast(struct comm_group *group, void *buf, int64_t bytes, int root,
                   struct err *err);
int comm_barrier(struct comm_group *group, struct err *err);

#endif
