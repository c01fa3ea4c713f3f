/* beside.h - what the ranks of a stage take of their devices' memory beside the arena, where a
 * cluster says that something is reserved (plan/reserve.h): workspace, and NCCL's communicators.
 *
 * A plan fits where, for each of its stages, arena and this are at most what the cluster has left
 * (cluster_memory). Where nothing is reserved the arena alone is compared, as on CPUs.
 *
 *     workspace_query *const floors[] = {cuda_workspace, NULL};
 *     int64_t bytes = beside_arena(&(struct workspace_site){g, k, &cluster, 1}, floors);
 */
#ifndef WEFT_BESIDE_H
#define WEFT_BESIDE_H

#include "program/workspace.h"

/* Communicators that NCCL makes for a rank of a stage's group. */
struct communicators {
    int64_t collectives; /* of the whole job, and for each group along axes another */
    int64_t messages;    /* one for each partner, direction and transfer */
};
struct communicators program_communicators(const struct program *g, int stage);

/* Bytes beside the arena: of what is asked, and of communicators as the cluster reserves them. */
int64_t beside_arena(const struct workspace_site *at, workspace_query *const *asked);
int64_t beside_communicators(const struct workspace_site *at);

#endif
