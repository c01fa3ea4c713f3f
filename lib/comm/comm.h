/* comm.h - collectives and point-to-point between the ranks of a job (MPI backend).
 *
 * Buffers are float32 unless bytes are named. Every call is made by all ranks of the group in
 * the same order. Collectives on one node read the peers' memory directly when the buffers
 * come from comm_alloc (shared memory); otherwise, and between nodes, they are segmented rings.
 * The two give the same sums: contributions are added in rank order for every element.
 * No call allocates after the first with its group.
 *
 *     struct comm *comm = comm_create(&argc, &argv, &err);
 *     float *arena = comm_alloc(comm, bytes, &err);
 *     struct comm_group *dp = comm_group_create(comm, ranks, n, &err);
 *     comm_all_reduce(dp, arena, count);
 */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct comm_group;
struct comm_request; /* a send or receive under way */

/* Joins the job (a lone process is a job of one). NULL on failure. */
struct comm *comm_create(int *argc, char ***argv, struct err *err);
void comm_destroy(struct comm *comm);
/* Ends every rank at once with this exit status; never returns. */
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

/* A group of ranks (distinct, in the order given); called by its members only. */
struct comm_group *comm_group_create(struct comm *comm, const int *ranks, int n,
                                     struct err *err);
void comm_group_destroy(struct comm_group *group);
int comm_group_size(const struct comm_group *group);
int comm_group_rank(const struct comm_group *group);

/* Sum over the group, in place. count floats. */
int comm_all_reduce(struct comm_group *group, float *buf, int64_t count, struct err *err);
/* out[size * count] = concatenation of every rank's in[count]; in may be its place in out. */
int comm_all_gather(struct comm_group *group, const float *in, float *out, int64_t count,
                    struct err *err);
/* out[count] = sum over ranks of in[rank * count ...]; in has size * count floats and may be
 * overwritten; out may be its place in in. */
int comm_reduce_scatter(struct comm_group *group, float *in, float *out, int64_t count,
                        struct err *err);
/* out[r * count ...] = what rank r has at in[me * count ...]; in and out do not overlap. */
int comm_all_to_all(struct comm_group *group, const float *in, float *out, int64_t count,
                    struct err *err);
int comm_barrier(struct comm_group *group, struct err *err);
struct comm_group *comm_world(struct comm *comm);

/* Sum and maximum of a few doubles over the group (metrics); sums are in rank order. */
int comm_sum_double(struct comm_group *group, double *x, int n, struct err *err);
int comm_max_double(struct comm_group *group, double *x, int n, struct err *err);
int comm_broadcast(struct comm_group *group, void *buf, int64_t bytes, int root,
                   struct err *err);

/* Point-to-point between ranks of the job. Messages of one (source, destination, tag) arrive in
 * order. comm_send returns at once; the buffer must stay untouched until comm_wait. */
struct comm_request *comm_send(struct comm *comm, const void *buf, int64_t bytes, int dst,
                               int tag, struct err *err);
struct comm_request *comm_recv(struct comm *comm, void *buf, int64_t bytes, int src,
                               int tag, struct err *err);
/* Completes and releases the request; NULL is done already. */
int comm_wait(struct comm *comm, struct comm_request *request, struct err *err);

#endif
