#include "program/workspace.h"

bool workspace_on_gpu(const struct workspace_site *at) {
    const struct stage *st = &at->program->plan->stages[at->stage];
    return cluster_kind_is_gpu(cluster_group_of(at->cluster, st->first_rank)->device);
}

int64_t workspace_total(const struct workspace_site *at, workspace_query *const *asked) {
    int64_t bytes = 0;
    for (; *asked; asked++)
        bytes += (*asked)(at);
    return bytes;
}
