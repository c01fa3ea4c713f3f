/* Meeting places where a node has several ranks, and staging of each group that stands on several
 * nodes. */
#include "comm/comm_workspace.h"

static int64_t ring_bytes(int n) {
    return dtype_size(DTYPE_f32) * 2 * n * comm_workspace_segment(n);
}

/* Does some group of the stage along these axes stand on several nodes? */
static bool crosses(const struct cluster *c, const struct stage *st, unsigned axes) {
    for (int r = 0; r < mesh_devices(&st->mesh); r++) {
        int coord[MESH_MAX_AXES];
        mesh_coords(&st->mesh, r, coord);
        for (int a = 0; a < st->mesh.n_axes; a++)
            if (axes >> a & 1)
                coord[a] = 0;
        if (cluster_node_of(c, st->first_rank + mesh_rank(&st->mesh, coord)) !=
            cluster_node_of(c, st->first_rank + r))
            return true;
    }
    return false;
}

/* Each group along axes stages once, whatever its collectives. */
static int64_t rings_of(const struct program *g, const struct stage_program *sp,
                        const struct cluster *c) {
    const struct stage *st = &g->plan->stages[sp->stage];
    bool seen[1 << MESH_MAX_AXES] = {false};
    int64_t bytes = 0;
    for (int i = 0; i < sp->n_instrs; i++) {
        unsigned axes = sp->instrs[i].axes;
        if (!opcode_is_collective(sp->instrs[i].code) || seen[axes])
            continue;
        seen[axes] = true;
        if (crosses(c, st, axes))
            bytes += ring_bytes(mesh_group_size(sp->mesh, axes));
    }
    return bytes;
}

/* So does the whole job for the norm. */
static int64_t all_rings(const struct workspace_site *at) {
    const struct program *g = at->program;
    const struct plan *p = g->plan;
    int group = p->stages[at->stage].group;
    bool several = cluster_node_of(at->cluster, p->devices - 1) > 0;
    int64_t bytes = several ? ring_bytes(p->devices) : 0;
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++)
        bytes += rings_of(g, &g->stages[p->chunks[i]], at->cluster);
    return bytes;
}

int64_t comm_workspace(const struct workspace_site *at) {
    const struct plan *p = at->program->plan;
    if (workspace_on_gpu(at))
        return 0;
    const struct cluster_group *on =
        cluster_group_of(at->cluster, p->stages[at->stage].first_rank);
    const int64_t lanes = on->devices > 1 && p->devices > 1 ? COMM_WORKSPACE_DESK : 0;
    return lanes + all_rings(at);
}
