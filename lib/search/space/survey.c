/* The survey: what a model offers to split, to cut and to recompute, found once before
 * a search. */
#include "search/graph/graph.h"
#include "search/space/space.h"

#include <stdlib.h>

static void mark_dims(const struct shape *s, bool *marked) {
    for (int i = 0; i < s->rank; i++)
        marked[s->dim[i]] = true;
}

/* Marks the dims of tensors that pass from segment to segment or, if nothing repeats,
 * of the first result. */
static void mark_passing(const struct space *sp, bool *passing) {
    const struct model *m = sp->p.model;
    if (!sp->blocks.s.n_repeats || !sp->segments.n)
        mark_dims(&m->tensors[m->ops[0].out[0]].shape, passing);
    for (int i = 0; i < m->n_ops && sp->blocks.s.n_repeats; i++)
        for (int k = 0; k < m->ops[i].n_out && sp->segments.of[i] >= 0 &&
                        segments_leaves(&sp->blocks, &sp->segments, i);
             k++)
            mark_dims(&m->tensors[m->ops[i].out[k]].shape, passing);
}

/* Returns whether every op that has the dim can be split on it; false if no op has it. */
static bool always_splittable(const struct model *m, int dim) {
    bool any = false;
    for (int i = 0; i < m->n_ops; i++) {
        int k = op_space_find(&m->ops[i].space, dim);
        if (k >= 0 && !role_splits(m->ops[i].space.role[k]))
            return false;
        any |= k >= 0;
    }
    return any;
}

/* A dim that the operand, the weight and the result of a product share enumerates
 * separate products: experts. */
static void mark_experts(const struct model_op *op, bool *marked) {
    bool product = false;
    for (int pass = 0; pass < 2 && op->n_param > 0 && op->param[0] >= 0; pass++)
        for (int k = 0; k < op->space.n; k++) {
            bool both = op->in_map[0].axis[k] >= 0 && op->param_map[0].axis[k] >= 0;
            product |= both && op->space.role[k] == ROLE_contracted;
            if (pass && product && both && op->out_map[0].axis[k] >= 0 &&
                role_splits(op->space.role[k]))
                marked[op->space.dim[k]] = true;
        }
}

static void add_dim(int *dims, int *n, int dim) {
    for (int i = 0; i < *n; i++)
        if (dims[i] == dim)
            return;
    dims[(*n)++] = dim;
}

/* Heights and widths of images: the dims along which windows of the first kind of halo
 * slide, then those of the second. Tensors between windows have dims of the same
 * names. */
static void find_images(struct space *sp) {
    const struct model *x = sp->blocks.x.model;
    sp->images = mem_array((size_t)x->n_dims, sizeof *sp->images);
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < x->n_ops; i++) {
            const struct op_space *space = &x->ops[i].space;
            for (int k = 0, n = 0; k < space->n; k++) {
                if (space->role[k] != ROLE_halo || n++ != which)
                    continue;
                add_dim(sp->images, &sp->n_images, space->dim[k]);
                if (space->alias[k] >= 0)
                    add_dim(sp->images, &sp->n_images, space->alias[k]);
            }
        }
}

/* Inner dims: in no passing tensor, splittable wherever they occur, and larger than
 * one. */
static void find_dims(struct space *sp) {
    const struct model *m = sp->p.model, *x = sp->blocks.x.model;
    size_t n = (size_t)m->n_dims;
    bool *passing = mem_array(n, sizeof *passing), *data = mem_array(n, sizeof *data);
    bool *experts = mem_array(n, sizeof *experts);
    mark_passing(sp, passing);
    for (int i = 0; i < x->n_ops; i++)
        mark_experts(&x->ops[i], experts);
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0)
            mark_dims(&m->tensors[t].shape, data);
    sp->inner = mem_array(n, sizeof *sp->inner);
    sp->sequences = mem_array(n, sizeof *sp->sequences);
    sp->experts = mem_array(n, sizeof *sp->experts);
    for (int d = 0; d < m->n_dims; d++) {
        if (!passing[d] && !data[d] && m->dims[d].size > 1 && always_splittable(x, d))
            sp->inner[sp->n_inner++] = d;
        if (passing[d] && data[d] && d != m->batch)
            sp->sequences[sp->n_sequences++] = d;
        else if (experts[d] && !data[d] && m->dims[d].size > 1)
            sp->experts[sp->n_experts++] = d;
    }
    find_images(sp);
    free(passing);
    free(data);
    free(experts);
}

/* Lists the edges that pass each cut of the list of ops. */
static void find_crossings(struct space *sp) {
    const struct structure *st = &sp->blocks.s;
    sp->crossings = mem_array((size_t)st->n_ops + 1, sizeof *sp->crossings);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < st->n_edges; i++) {
            const struct edge *e = &st->edges[i];
            for (int cut = e->origin + 1; cut <= edge_last(e); cut++) {
                struct crossing *x = &sp->crossings[cut];
                if (pass)
                    ((int *)x->edges)[x->n] = i;
                x->n++;
            }
        }
        int64_t n = 0;
        for (int cut = 0; cut <= st->n_ops && pass == 0; cut++)
            n += sp->crossings[cut].n;
        if (pass)
            break;
        sp->crossing_edges = mem_array((size_t)n + 1, sizeof *sp->crossing_edges);
        n = 0;
        for (int cut = 0; cut <= st->n_ops; cut++) {
            sp->crossings[cut].edges = sp->crossing_edges + n;
            n += sp->crossings[cut].n;
            sp->crossings[cut].n = 0;
        }
    }
}

static void sum_flops(struct space *sp) {
    const struct model *m = sp->p.model;
    sp->flops = mem_array((size_t)m->n_ops + 1, sizeof *sp->flops);
    for (int i = 0; i < m->n_ops; i++)
        sp->flops[i + 1] = sp->flops[i] + model_op_flops(m, &m->ops[i], 1);
}

static int outer_block(const struct model *m, int op) {
    int b = m->ops[op].block;
    while (b >= 0 && m->blocks[b].parent >= 0)
        b = m->blocks[b].parent;
    return b;
}

/* Blocks as the model's file has them or, if it has none, as they are found in the
 * graph. Ops between blocks belong to none. */
static void find_blocks(struct space *sp) {
    const struct model *m = sp->p.model;
    sp->block_first = mem_array((size_t)m->n_ops + 1, sizeof *sp->block_first);
    for (int i = 0, before = -1; i < m->n_ops; i++) {
        int b = m->n_blocks                               ? outer_block(m, i)
                : structure_begins_unit(&sp->blocks.s, i) ? i
                                                          : before;
        if (b >= 0 && b != before)
            sp->block_first[sp->n_blocks++] = i;
        before = b >= 0 ? b : before;
    }
    sp->block_first[sp->n_blocks] = m->n_ops;
}

/* Marks the nodes that each level recomputes; a pinned op is recomputed at every level
 * or at none. */
static void find_recompute(struct space *sp) {
    const struct blocks *g = &sp->blocks;
    for (int level = 0; level < RECOMPUTE_LEVELS; level++)
        sp->recompute[level] = mem_array((size_t)g->x.n_nodes, sizeof(bool));
    for (int i = 0; i < g->x.model->n_ops; i++) {
        int op = g->x.from[i], node = g->x.node_of[i];
        if (sp->segments.of[op] < 0)
            continue;
        sp->recompute[1][node] |= op_is(&g->whole->ops[op], KIND_CHEAP);
        sp->recompute[2][node] |= segments_inner(g, &sp->segments, op);
    }
    for (int i = 0; g->pins && i < g->x.model->n_ops; i++) {
        int64_t pinned = pins_value(g->pins, PIN_recompute, g->x.from[i]);
        for (int level = 0; pinned != PIN_FREE && level < RECOMPUTE_LEVELS; level++)
            sp->recompute[level][g->x.node_of[i]] = pinned;
        sp->pinned.recompute |= pinned == 1;
    }
}

/* A group has up to MOST_CHUNKS stages. */
static void count_stages(struct space *sp) {
    int n_ops = sp->p.model->n_ops, limit = sp->p.max_stages ? sp->p.max_stages : n_ops;
    limit = limit < n_ops ? limit : n_ops;
    sp->max_groups = sp->p.devices < limit ? sp->p.devices : limit;
    sp->max_stages = sp->max_groups;
    if (space_goes_round(sp) && sp->max_groups > 1 && !sp->p.pins)
        sp->max_stages =
            limit / MOST_CHUNKS < sp->p.devices ? limit : MOST_CHUNKS * sp->p.devices;
}

/* Returns whether memory may be too small, by a generous upper limit: every tensor twice
 * and every parameter with four numbers of state, all of the batch on each device. Even
 * with temporaries and copies under other placements no device ever holds `multiple` times
 * as much. */
static bool is_tight(const struct space *sp) {
    const struct model *m = sp->p.model;
    double elems = 0, multiple = 4 * MOST_CHUNKS;
    int64_t least = search_memory(&sp->p, 0, sp->p.devices);
    for (int t = 0; t < m->n_tensors; t++) {
        struct extents x = model_extents(m, &m->tensors[t].shape, sp->p.batch);
        elems += 2 * (double)extents_count(&x);
    }
    for (int k = 0; k < m->n_params; k++) {
        struct extents x = model_extents(m, &m->params[k].shape, 1);
        elems += 4 * (double)extents_count(&x);
    }
    return least && multiple * elems * (double)dtype_size(DTYPE_f32) > (double)least;
}

static bool has_long_lived(const struct structure *s) {
    for (int i = 0; i < s->n_edges; i++)
        if (edge_is_long_lived(&s->edges[i]))
            return true;
    return false;
}

/* Schedules that differ from another one only in waiting for messages, which no score
 * knows, are left to simulation, unless there are no others or pins want one of them. */
static void set_aside(struct space *sp) {
    unsigned further = 0, round = schedules_round(sp->p.schedules);
    int64_t pinned = space_pinned(sp, PIN_schedule);
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (schedule_traits((enum schedule)s)->further > 1 && pinned != s)
            further |= sp->p.schedules & 1u << s;
    if (!(sp->p.schedules & ~round & ~further))
        return;
    sp->further = further;
    sp->p.schedules &= ~further;
}

/* Each step uses what the steps before it found. */
void space_survey(struct space *sp, const struct search_problem *p) {
    *sp = (struct space){.p = *p, .store = mem_alloc(sizeof *sp->store)};
    if (p->pins && !p->pins->list.n)
        sp->p.pins = NULL; /* an empty list leaves the whole space */
    blocks_init(&sp->blocks, p->model, sp->p.pins);
    segments_find(&sp->blocks, &sp->segments);
    set_aside(sp);
    sp->blocks.offload = p->offload;
    sp->hides = space_may_hide(sp);
    sp->tight = is_tight(sp);
    count_stages(sp);
    sum_flops(sp);
    find_dims(sp);
    find_crossings(sp);
    space_find_cuts(sp);
    find_blocks(sp);
    find_recompute(sp);
    sp->has_long_lived = has_long_lived(&sp->blocks.s);
}

void space_release(struct space *sp) {
    memo_release(&sp->store->presets, NULL);
    memo_release(&sp->store->made_in, free);
    memo_release(&sp->store->meshes, free);
    memo_release(&sp->store->layouts, free);
    free(sp->store);
    for (int level = 0; level < RECOMPUTE_LEVELS; level++)
        free(sp->recompute[level]);
    segments_release(&sp->segments);
    free(sp->block_first);
    free(sp->crossings);
    free(sp->crossing_edges);
    free(sp->cuts);
    free(sp->cut_before);
    free(sp->inner);
    free(sp->sequences);
    free(sp->images);
    free(sp->experts);
    free(sp->flops);
    space_forget_pins(sp);
    blocks_release(&sp->blocks);
}
