/* cpu_workspace.h - what computing on CPUs takes beside the arena (program/workspace.h).
 *
 *     int64_t bytes = cpu_workspace(&(struct workspace_site){program, stage, &cluster, 4});
 */
#ifndef WEFT_CPU_WORKSPACE_H
#define WEFT_CPU_WORKSPACE_H

#include "program/workspace.h"

enum {
    CPU_WORKSPACE_SCRATCH = 4 << 20, /* bytes of kernel scratch, per thread */
};

workspace_query cpu_workspace;

/* Of a convolution in its three passes, one at a time: bytes. */
int64_t cpu_workspace_convolution(const struct conv2d_n *n, enum dtype dtype, int threads);

#endif
