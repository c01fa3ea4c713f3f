/* The bounds of oneDNN 2.6 were seen, not read: dnnl_sgemm over 13 shapes, all
 * transpositions, took at most 15.6, 24.5 and 28.4 MB with 1, 2 and 4 threads; the bound
 * is 16 MiB and 8 for each thread. A convolution holds its weights padded to whole
 * vectors; for their gradient threads may hold sums of their own, while those are smaller
 * than what they are sums of; and with strides each gathers the places that it needs
 * (tests/unit/device-conv.c compares). In bf16 each also turns samples' maps, and sums in floats.
 * The product of bf16 took at most 13 MB for each of 1 to 4 threads, over 500 shapes in all
 * transpositions, with AVX512_BF16, and 2.5 MB with AMX. */
#include "program/workspace.h"

static int64_t ring_bytes(int n) {
    return dtype_size(DTYPE_f32) * 2 * n * workspace_segment(n);
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
static int64_t all_rings(const struct program *g, int stage, const struct cluster *c) {
    const struct plan *p = g->plan;
    int group = p->stages[stage].group;
    int64_t bytes = cluster_node_of(c, p->devices - 1) > 0 ? ring_bytes(p->devices) : 0;
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++)
        bytes += rings_of(g, &g->stages[p->chunks[i]], c);
    return bytes;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t workspace_convolution(const struct conv2d_n *n, enum dtype dtype, int threads) {
    enum {
        VECTOR = 16,
        OWN = 64 << 10
    }; /* floats; bytes for each thread, whatever it does */
    int64_t cin = (n->cin + VECTOR - 1) / VECTOR * VECTOR;
    int64_t cout = (n->cout + VECTOR - 1) / VECTOR * VECTOR;
    int64_t weights = n->kh * n->kw * cin * cout, gathered = cin * n->oh * n->ow;
    int64_t sample = n->ih * n->iw * cin + n->oh * n->ow * cout;
    int64_t elems = weights + min64((threads - 1) * weights, n->batch * sample) +
                    (n->stride > 1 ? threads * gathered : 0);
    if (dtype == DTYPE_bf16)
        elems += weights + 3 * threads * sample;
    return elems * dtype_size(DTYPE_f32) + (int64_t)threads * OWN;
}

static int64_t convolutions_of(const struct stage_program *sp, int threads) {
    int64_t most = 0;
    for (int i = 0; i < sp->n_instrs; i++) {
        if (sp->instrs[i].code != I_conv2d)
            continue;
        int64_t bytes =
            workspace_convolution(&sp->instrs[i].n.conv2d, sp->instrs[i].dtype, threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Those of a rank share one room, as large as the largest needs. */
static int64_t all_convolutions(const struct program *g, int stage, int threads) {
    const struct plan *p = g->plan;
    int group = p->stages[stage].group;
    int64_t most = 0;
    for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++) {
        int64_t bytes = convolutions_of(&g->stages[p->chunks[i]], threads);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Of floats, whose memory the library takes call by call, and of bf16, which share one room. */
static int64_t products_of(const struct stage_program *sp, int threads) {
    int64_t floats = 0, halves = 0;
    for (int i = 0; i < sp->n_instrs; i++)
        if (sp->instrs[i].code == I_linear && sp->instrs[i].dtype == DTYPE_bf16)
            halves = (int64_t)threads * WORKSPACE_PRODUCT_BF16;
        else if (sp->instrs[i].code == I_linear)
            floats = (int64_t)(threads + 2) * WORKSPACE_PRODUCT;
    return floats + halves;
}

struct workspace workspace_of(const struct program *g, int stage,
                              const struct cluster *cluster, int threads) {
    const struct stage_program *sp = &g->stages[stage];
    const struct cluster_group *on =
        cluster_group_of(cluster, g->plan->stages[stage].first_rank);
    if (cluster_kind_is_gpu(on->device)) {
        const int64_t room = workspace_gpu_of(g, stage);
        return (struct workspace){.kernels = room, .total = room};
    }
    int64_t node = on->devices;
    struct workspace w = {.kernels = (int64_t)threads * WORKSPACE_SCRATCH,
                          .products = products_of(sp, threads),
                          .convolutions = all_convolutions(g, stage, threads),
                          .rings = all_rings(g, stage, cluster)};
    if (node > 1 && g->plan->devices > 1)
        w.lanes = WORKSPACE_DESK;
    w.total = w.kernels + w.products + w.convolutions + w.lanes + w.rings;
    return w;
}
