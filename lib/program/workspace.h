/* workspace.h - memory that a rank takes beside its arena: scratch of kernels, what libraries
 * allocate for themselves, meeting places and staging of collectives.
 *
 * Only the floors that take it know how much that is. Each says it in FLOOR_workspace.c, a
 * file that knows programs and nothing of what the floor is made of, so that a tool that
 * only predicts links these files and no device. They are all asked in one way:
 *
 *     workspace_query *const floors[] = {cpu_workspace, comm_workspace, cuda_workspace, NULL};
 *     struct workspace_site at = {program, stage, &cluster, threads};
 *     int64_t bytes = workspace_total(&at, floors);
 *
 * For the CPU and MPI these are upper bounds; what MPI itself and the program's text take is not in
 * them. On a GPU it is exactly what a rank takes.
 */
#ifndef WEFT_WORKSPACE_H
#define WEFT_WORKSPACE_H

#include "program/program.h"

/* Each rank of a stage, on the devices that the cluster has there, with so many threads. */
struct workspace_site {
    const struct program *program;
    int stage;
    const struct cluster *cluster;
    int threads;
};
bool workspace_on_gpu(const struct workspace_site *at);

/* The most bytes that a floor takes for a rank there; 0 where it has no part. */
typedef int64_t workspace_query(const struct workspace_site *at);
/* The sum over all that are asked; NULL ends the list. */
int64_t workspace_total(const struct workspace_site *at, workspace_query *const *asked);

#endif
