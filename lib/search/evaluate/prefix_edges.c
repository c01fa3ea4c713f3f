/* What edges cost under the layouts of a prefix, and what they carry. */
#include "search/evaluate/evaluate.h"

bool prefix_op_is_legal(const struct prefix *t, int op) {
    return t->illegal[op + 1] == t->illegal[op];
}

const struct load *prefix_edge(struct evaluate *ev, const struct prefix *t,
                               const struct edge *e) {
    for (int i = 0; i < e->n; i++)
        if (!prefix_op_is_legal(t, ev->space->blocks.x.of[e->readers[i]]))
            return NULL;
    if (!prefix_op_is_legal(t, ev->space->blocks.x.of[e->origin]))
        return NULL;
    return graph_edge(&ev->graph, &t->st, e, 0, ev->space->blocks.s.n_ops, t->layouts);
}

/* Returns how the origin or a reader maps the axes of the edge's tensor or parameter. */
static const struct axis_map *map_of(const struct model *m, const struct edge *e, int op) {
    const struct model_op *o = &m->ops[op];
    for (int k = 0; k < o->n_out; k++)
        if (o->out[k] == e->tensor)
            return &o->out_map[k];
    for (int k = 0; k < o->n_in; k++)
        if (o->in[k] == e->tensor)
            return &o->in_map[k];
    int k = 0;
    while (o->param[k] != e->param)
        k++;
    return &o->param_map[k];
}

static struct extents extents_of(const struct space *sp, const struct prefix *t,
                                 const struct edge *e) {
    const struct model *m = sp->blocks.x.model;
    return model_extents(
        m, e->tensor >= 0 ? &m->tensors[e->tensor].shape : &m->params[e->param].shape,
        t->st.micro_batch);
}

static void count_parts(const struct mesh *mesh, struct placement p, int rank,
                        uint16_t *parts) {
    for (int i = 0; i < rank; i++)
        parts[i] = (uint16_t)mesh_group_size(mesh, placement_axes(mesh, p, i));
}

struct shard_size prefix_shard_of(const struct space *sp, const struct prefix *t,
                                  const struct edge *e, int op) {
    struct extents x = extents_of(sp, t, e);
    const struct axis_map *map = map_of(sp->blocks.x.model, e, op);
    const struct layout *l = &t->layouts[sp->blocks.x.node_of[op]];
    const struct mesh *mesh = &t->mesh;
    struct placement want = placement_operand(mesh, l, map);
    struct placement held = placement_resolve(mesh, &x, placement_result(mesh, l, map));
    /* ZeRO's shards of a parameter: the op that updates it wants the gradient for the
     * optimizer and sends the new value; the other users of the parameter do the
     * reverse. */
    bool param = e->param >= 0, home = op == e->origin;
    int zero = blocks_zero(&sp->blocks, op, t->st.zero);
    if (param && zero >= (home ? ZERO_OPTIMIZER : ZERO_PARAMETERS))
        want = placement_scatter(mesh, &x, want);
    if (param && zero >= (home ? ZERO_PARAMETERS : ZERO_GRADIENTS))
        held = placement_scatter(mesh, &x, held);
    struct shard_size out = {.want = (double)placement_elements(mesh, &x, want),
                             .held = (double)placement_elements(mesh, &x, held)};
    count_parts(mesh, want, x.rank, out.want_parts);
    count_parts(mesh, held, x.rank, out.held_parts);
    return out;
}

/* A piece is one run of the wanted box if it has all of the box on the axes behind some
 * axis, and one element on those in front of it (transfer.c). */
double prefix_staged(const struct space *sp, const struct prefix *t, const struct edge *e,
                     const struct shard_size *from, const struct shard_size *to) {
    struct extents x = extents_of(sp, t, blocks_small_edge(&sp->blocks, e));
    int i = x.rank - 1;
    while (i > 0 && from->held_parts[i] <= to->want_parts[i])
        i--;
    for (i--; i >= 0; i--) {
        int parts = from->held_parts[i] > to->want_parts[i] ? from->held_parts[i]
                                                            : to->want_parts[i];
        if (x.size[i] > parts)
            return to->want;
    }
    return 0;
}

double prefix_all(const struct space *sp, const struct prefix *t, const struct edge *e) {
    struct extents x = extents_of(sp, t, blocks_small_edge(&sp->blocks, e));
    return (double)extents_count(&x);
}

struct shard_size prefix_shard(const struct space *sp, const struct prefix *t,
                               const struct edge *e, int i) {
    const struct blocks *g = &sp->blocks;
    const struct edge *small = blocks_small_edge(g, e);
    struct shard_size *known = &t->given[small - g->xs.edges];
    int op = small->origin, k = 0;
    if (i >= 0) {
        /* the op of the deduplicated model may be in another instance than the reader */
        while (k + 1 < small->n &&
               g->x.node_of[small->readers[k]] != g->x.node_of[g->x.of[e->readers[i]]])
            k++;
        op = small->readers[k];
        known = &t->taken[small->readers + k - g->xs.readers];
    }
    if (known->want <= 0)
        *known = prefix_shard_of(sp, t, small, op);
    return *known;
}
