/* What a rank takes beside its arena: all that have a part in it are asked. */
#include "run.h"

#include "comm/comm_workspace.h"
#include "cuda/cuda_workspace.h"
#include "device/cpu_workspace.h"

int64_t run_workspace(const struct program *g, int stage, const struct cluster *c,
                      int threads) {
    static workspace_query *const floors[] = {cpu_workspace, comm_workspace, cuda_workspace,
                                              NULL};
    return workspace_total(&(struct workspace_site){g, stage, c, threads}, floors);
}
