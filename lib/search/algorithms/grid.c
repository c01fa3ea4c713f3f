/* grid - what a person would try, after Megatron-LM (Narayanan et al. 2021): every depth that
 * divides the devices, every split of a stage's devices among tensor, context, expert and data
 * parallelism, every micro-batch, schedule and level of ZeRO, blocks recomputed or not, all stages
 * alike. dp-only: one stage whose devices all split the batch. */
#include "search/algorithms/grid.h"
#include "search/algorithms/algorithms.h"

#include <stdlib.h>
#include <string.h>

/* ---- cuts ------------------------------------------------------------------------------ */

static int outer_block(const struct model *m, int op) {
    int b = m->ops[op].block;
    while (b >= 0 && m->blocks[b].parent >= 0)
        b = m->blocks[b].parent;
    return b;
}

/* Blocks as the model's file has them, or, where it has none, as they are found in the graph. */
static void find_blocks(struct grid *g) {
    const struct search *s = g->s;
    const struct model *m = s->p.model;
    g->blocks = mem_array((size_t)m->n_ops + 1, sizeof *g->blocks);
    for (int i = 0, before = -1; i < m->n_ops; i++) {
        int b = m->n_blocks                             ? outer_block(m, i)
                : structure_begins_unit(&s->graph.s, i) ? i
                                                        : before;
        if (b >= 0 && b != before)
            g->blocks[g->n_blocks++] = i;
        before = b >= 0 ? b : before;
    }
}

/* The first stages get one more where the blocks do not divide. */
bool grid_cut_blocks(const struct grid *g, struct candidate *c) {
    int n = c->n_stages, n_ops = g->s->p.model->n_ops, block = 0;
    bool changed = false;
    if (g->s->p.pins || n > g->n_blocks)
        return false;
    for (int k = 0; k < n; k++) {
        struct search_stage *st = &c->stages[k];
        block += g->n_blocks / n + (k < g->n_blocks % n);
        int end = k + 1 < n ? g->blocks[block] : n_ops;
        changed |= st->end != end;
        st->first = k ? c->stages[k - 1].end : 0;
        st->end = end;
    }
    return changed;
}

/* ---- plans ----------------------------------------------------------------------------- */

/* Does it fit? */
static bool try_plan(struct grid *g, int zero, int again_level) {
    struct candidate *c = &g->next;
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *st = &c->stages[k];
        int blocks = again_level ? search_stage_blocks(g->s, st) : 0;
        st->zero = zero;
        st->again_level = blocks ? again_level : 0;
        st->again_blocks = blocks;
    }
    if (search_stopped(g->s) || !search_legal(g->s, c))
        return false;
    struct score score = search_score(g->s, c);
    if (g->take)
        g->take(g->arg, c, score);
    return !score.unknown && !score.overflow;
}

static void walk_memory(struct grid *g) {
    int levels = search_zero_levels(g->s);
    int cheap = levels < 1 + ZERO_OPTIMIZER ? levels : 1 + ZERO_OPTIMIZER;
    bool fits = false;
    for (int zero = 0; zero < cheap; zero++)
        fits |= try_plan(g, zero, 0);
    if (fits || !g->s->p.memory_bytes)
        return;
    for (int zero = cheap; zero < levels; zero++)
        try_plan(g, zero, 0);
    for (int again = 1; again < AGAIN_LEVELS; again++)
        for (int zero = 0; zero < levels; zero++)
            try_plan(g, zero, again);
}

static void walk_cuts(struct grid *g) {
    walk_memory(g);
    if (grid_cut_blocks(g, &g->next))
        walk_memory(g);
}

static void walk_schedules(struct grid *g) {
    struct search *s = g->s;
    const struct candidate *even = &g->even;
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        bool choice = g->wide && even->n_groups > 1 && f != SCHEDULE_interleaved &&
                      search_has_schedule(s, (enum schedule)f);
        if (!choice && f != (int)even->schedule)
            continue;
        candidate_copy(&g->next, even);
        g->next.schedule = (enum schedule)f;
        walk_cuts(g);
    }
    for (int v = 2; g->wide && v <= MOST_CHUNKS; v++)
        if (search_has_schedule(s, SCHEDULE_interleaved) &&
            search_chunk(s, even, v, &g->next))
            walk_cuts(g);
}

/* ---- styles ---------------------------------------------------------------------------- */

static void walk_style(struct grid *g, int groups, int64_t micro_batch,
                       struct style style) {
    struct search *s = g->s;
    int devices = s->p.devices;
    bool splits = search_splits_batch(devices / groups, micro_batch, style) ||
                  search_splits_batch((devices + groups - 1) / groups, micro_batch, style);
    if (splits && !search_stopped(s) &&
        search_even(s, groups, micro_batch, style, &g->even))
        walk_schedules(g);
}

/* The most axes, outwards from the model's, whose devices divide the experts. */
static int most_expert_axes(const struct grid *g, const struct mesh *mesh, int inside) {
    int n = 0;
    int64_t devices = 1, experts = search_has_experts(g->s)
                                       ? g->s->p.model->dims[g->s->experts[0]].size
                                       : 1;
    while (inside + n < mesh->n_axes) {
        devices *= mesh->size[mesh->n_axes - 1 - inside - n];
        if (experts % devices)
            break;
        n++;
    }
    return n;
}

int grid_expert_axes(const struct grid *g, int devices, struct style style) {
    struct mesh mesh;
    (style.ascending ? graph_mesh_ascending : graph_mesh_descending)(devices, &mesh);
    return most_expert_axes(g, &mesh, style.model_axes + style.context_axes);
}

/* Everything that is neither the model's nor the sequence's splits the batch, and experts too. */
static void walk_experts(struct grid *g, int groups, int64_t micro_batch,
                         const struct mesh *mesh, struct style style) {
    int inside = style.model_axes + style.context_axes;
    int most = most_expert_axes(g, mesh, inside);
    for (int e = 0; e <= most; e++) {
        style.expert_axes = e;
        /* Of two meshes with the same parts one will do. */
        bool same = style.ascending && (inside + e == 0 || inside + e == mesh->n_axes);
        if (!same && (g->wide || !e || e == most))
            walk_style(g, groups, micro_batch, style);
    }
}

/* The sequence is split by as many axes as there may be, or as few as leave a micro-batch that the
 * others can split. */
static void walk_context(struct grid *g, int groups, int64_t micro_batch,
                         const struct mesh *mesh, struct style style) {
    int most = search_has_sequence(g->s) ? mesh->n_axes - style.model_axes : 0;
    for (int cp = 0; cp <= most; cp++) {
        style.context_axes = cp;
        walk_experts(g, groups, micro_batch, mesh, style);
        if (!g->wide && search_splits_batch(mesh_devices(mesh), micro_batch, style))
            break;
    }
}

static void walk_mesh(struct grid *g, int groups, int64_t micro_batch,
                      const struct mesh *mesh, bool ascending) {
    bool sequence = search_has_sequence(g->s);
    for (int tp = 0; tp <= mesh->n_axes; tp++)
        for (int sp = !g->wide && tp && sequence; sp <= (tp && sequence); sp++)
            walk_context(g, groups, micro_batch, mesh,
                         (struct style){.model_axes = tp,
                                        .inner = ~0u,
                                        .sequence = sp,
                                        .ascending = ascending});
}

void grid_walk(struct grid *g, int groups, int64_t micro_batch) {
    int devices = (g->s->p.devices + groups - 1) / groups;
    struct mesh mesh;
    if (g->data_only) {
        walk_style(g, groups, micro_batch, (struct style){.inner = ~0u});
        return;
    }
    graph_mesh_descending(devices, &mesh);
    walk_mesh(g, groups, micro_batch, &mesh, false);
    graph_mesh_ascending(devices, &mesh);
    if (search_mesh_has_orders(devices))
        walk_mesh(g, groups, micro_batch, &mesh, true);
}

bool grid_is_busy(const struct search *s, int groups, int i_micro) {
    return !i_micro || s->p.batch / s->p.micro[i_micro] >= groups;
}

void grid_init(struct grid *g, struct search *s) {
    *g = (struct grid){.s = s, .even = candidate_make(s), .next = candidate_make(s)};
    find_blocks(g);
}

void grid_release(struct grid *g) {
    candidate_release(&g->even);
    candidate_release(&g->next);
    free(g->blocks);
}

/* ---- the algorithms -------------------------------------------------------------------- */

static void walk_all(struct grid *g, int most_groups) {
    const struct search *s = g->s;
    for (int n = 1; n <= most_groups; n++)
        for (int i = 0; i < s->p.n_micro && s->p.devices % n == 0; i++)
            if (search_may_have_stages(s, n) && grid_is_busy(s, n, i))
                grid_walk(g, n, s->p.micro[i]);
    if (!search_stopped(g->s))
        search_mark_complete(g->s, 0);
}

int search_grid(struct search *s, struct err *err) {
    (void)err;
    struct grid g;
    grid_init(&g, s);
    g.wide = true;
    int most = search_max_groups(s), blocks = g.n_blocks > 1 ? g.n_blocks : 1;
    walk_all(&g, s->p.pins || most < blocks ? most : blocks);
    grid_release(&g);
    return 0;
}

int search_dp_only(struct search *s, struct err *err) {
    (void)err;
    struct grid g;
    grid_init(&g, s);
    g.data_only = true;
    walk_all(&g, 1);
    grid_release(&g);
    return 0;
}
