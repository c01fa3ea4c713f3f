/* beside.h - what the ranks of a stage take of their devices' memory beside the arena, where a
 * cluster says that something is reserved (plan/reserve.h): workspace, and NCCL's communicators.
 *
 * A plan fits where, for each of its stages, the arena and this together are at most what
 * the cluster has left (cluster_memory). Where nothing is reserved, as on CPUs, the arena
 * alone is compared.
 *
 *     workspace_query *const floors[] = {cuda_workspace, NULL};
 *     int64_t bytes = beside_arena(&(struct workspace_site){g, k, &cluster, 1}, floors);
 */
#ifndef WEFT_BESIDE_H
#define WEFT_BESIDE_H

#include "program/workspace.h"

/* Communicators that NCCL makes for a rank of a stage's group. */
struct communicators {
    /* one for the whole job, and one for each other group along axes */
    int64_t collectives;
    int64_t messages; /* one for each partner, direction and transfer */
};
struct communicators program_communicators(const struct program *g, int stage);

/* Bytes beside the arena: the workspace that is asked for, and communicators as
 * reserved. */
int64_t beside_arena(const struct workspace_site *at, workspace_query *const *asked);
int64_t beside_communicators(const struct workspace_site *at);

#endif
