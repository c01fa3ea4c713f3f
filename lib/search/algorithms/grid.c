/* grid - what a person would try, after Megatron-LM (Narayanan et al. 2021): every
 * depth that divides the devices, every split of a stage's devices among tensor,
 * context, expert and data parallelism, every micro-batch, schedule and level of ZeRO,
 * with and without recompute, all stages alike.
 *
 * dp-only - one stage whose devices all split the batch. */
#include "search/algorithms/grid.h"
#include "search/algorithms/algorithms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- cuts ------------------------------------------------------------------------------ */

/* The first stages get one block more where the blocks do not divide evenly. */
bool grid_cut_blocks(const struct grid *g, struct candidate *c) {
    int n = c->n_stages, n_ops = g->s->space.p.model->n_ops, block = 0;
    bool changed = false;
    if (g->s->space.p.pins || n > g->n_blocks)
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

/* A wide grid goes no further from plans that are slower than the best by this factor. The
 * plans of 50 settings (scripts/same-plans.sh) are those of trying everything; with t5:22B
 * on 256 and mixtral:8x22B on 512 devices the whole search takes half the time. */
static const double HOPELESS = 1.1;

/* Returns whether plans that take at least `us` are too slow for a wide grid to try. Where
 * several plans are wanted none is, since slow ones may be among them. */
static bool is_hopeless(const struct grid *g, double us) {
    const struct pool *pool = &g->s->pool;
    return g->wide && pool->space->p.top <= 1 && us > HOPELESS * pool_first_us(pool, 1);
}

/* Scores the plan with this ZeRO and recompute in all stages. Returns its time, 0 if that
 * is not known, INFINITY if the plan is not legal or the search is stopped. Sets *fits if
 * the plan fits. */
static double try_plan(struct grid *g, int zero, int recompute_level, bool *fits) {
    struct candidate *c = &g->next;
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *st = &c->stages[k];
        int blocks = recompute_level ? space_stage_blocks(&g->s->space, st) : 0;
        st->zero = zero;
        st->recompute_level = blocks ? recompute_level : 0;
        st->recompute_blocks = blocks;
    }
    if (budget_stopped(&g->s->budget) || !eval_legal(&g->s->eval, c))
        return INFINITY;
    struct score score = pool_score(&g->s->pool, c);
    if (g->take)
        g->take(g->arg, c, score);
    *fits |= !score.unknown && !score.overflow;
    return score.unknown ? 0 : score.time_us;
}

/* Tries levels of ZeRO and recompute, the expensive ones only if nothing fits without them.
 * Returns the least time of the others, since the expensive ones save only memory. */
static double walk_memory(struct grid *g) {
    int levels = space_zero_levels(&g->s->space);
    int cheap = levels < 1 + ZERO_OPTIMIZER ? levels : 1 + ZERO_OPTIMIZER;
    bool fits = false;
    double us = INFINITY;
    for (int zero = 0; zero < cheap; zero++)
        us = fmin(us, try_plan(g, zero, 0, &fits));
    if (fits || !g->s->space.p.memory_bytes || is_hopeless(g, us))
        return us;
    for (int zero = cheap; zero < levels; zero++)
        try_plan(g, zero, 0, &fits);
    for (int recompute = 1; recompute < RECOMPUTE_LEVELS; recompute++)
        for (int zero = 0; zero < levels; zero++)
            try_plan(g, zero, recompute, &fits);
    return us;
}

static double walk_cuts(struct grid *g) {
    double us = walk_memory(g);
    return grid_cut_blocks(g, &g->next) ? fmin(us, walk_memory(g)) : us;
}

/* A narrow grid keeps the schedule of the even pipeline. A wide one tries all of them, and
 * several stages on each group, unless the plan is hopeless even without its bubble, which
 * is the most that they can save. */
static void walk_schedules(struct grid *g) {
    const struct space *sp = &g->s->space;
    const struct candidate *even = &g->even;
    double turns = (double)sp->p.batch / (double)even->micro_batch;
    candidate_copy(&g->next, even);
    double us = walk_cuts(g);
    if (!g->wide || is_hopeless(g, us * turns / (turns + even->n_groups - 1)))
        return;
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        if (f == (int)even->schedule || even->n_groups == 1 || schedules_round(1u << f) ||
            !space_has_schedule(sp, (enum schedule)f))
            continue;
        candidate_copy(&g->next, even);
        g->next.schedule = (enum schedule)f;
        walk_cuts(g);
    }
    for (int v = 2; v <= MOST_CHUNKS; v++)
        if (space_goes_round(sp) && space_chunk(sp, even, v, &g->next))
            walk_cuts(g);
}

/* ---- presets ---------------------------------------------------------------------------- */

static void walk_preset(struct grid *g, int groups, int64_t micro_batch,
                        struct preset preset) {
    struct pool *pool = &g->s->pool;
    int devices = pool->space->p.devices;
    bool splits = search_splits_batch(devices / groups, micro_batch, preset) ||
                  search_splits_batch((devices + groups - 1) / groups, micro_batch, preset);
    if (splits && !budget_stopped(pool->budget) &&
        space_even(pool->space, groups, micro_batch, preset, &g->even))
        walk_schedules(g);
}

/* Returns the largest number of axes, counted outwards from the `inside` innermost ones,
 * whose devices divide the experts evenly. */
static int most_expert_axes(const struct grid *g, const struct mesh *mesh, int inside) {
    int n = 0;
    int64_t devices = 1,
            experts = space_has_experts(&g->s->space)
                          ? g->s->space.p.model->dims[g->s->space.experts[0]].size
                          : 1;
    while (inside + n < mesh->n_axes) {
        devices *= mesh->size[mesh->n_axes - 1 - inside - n];
        if (experts % devices)
            break;
        n++;
    }
    return n;
}

int grid_expert_axes(const struct grid *g, int devices, struct preset preset) {
    struct mesh mesh;
    (preset.ascending ? stage_mesh_ascending : stage_mesh_descending)(devices, &mesh);
    return most_expert_axes(g, &mesh, preset.model_axes + preset.context_axes);
}

/* All axes that split neither the model nor the sequence split the batch; some of them
 * split the experts as well. */
static void walk_experts(struct grid *g, int groups, int64_t micro_batch,
                         const struct mesh *mesh, struct preset preset) {
    int inside = preset.model_axes + preset.context_axes;
    int most = most_expert_axes(g, mesh, inside);
    for (int e = 0; e <= most; e++) {
        preset.expert_axes = e;
        /* If all axes are inside or all outside, those of both meshes are the same, so
         * one mesh is enough. */
        bool same = preset.ascending && (inside + e == 0 || inside + e == mesh->n_axes);
        if (!same && (g->wide || !e || e == most))
            walk_preset(g, groups, micro_batch, preset);
    }
}

/* Tries every number of axes for the sequence; in a narrow grid only up to the first
 * number whose remaining axes can split the micro-batch. */
static void walk_context(struct grid *g, int groups, int64_t micro_batch,
                         const struct mesh *mesh, struct preset preset) {
    int most = space_has_sequence(&g->s->space) ? mesh->n_axes - preset.model_axes : 0;
    for (int cp = 0; cp <= most; cp++) {
        preset.context_axes = cp;
        walk_experts(g, groups, micro_batch, mesh, preset);
        if (!g->wide && search_splits_batch(mesh_devices(mesh), micro_batch, preset))
            break;
    }
}

static void walk_mesh(struct grid *g, int groups, int64_t micro_batch,
                      const struct mesh *mesh, bool ascending) {
    bool sequence = space_has_sequence(&g->s->space);
    for (int tp = 0; tp <= mesh->n_axes; tp++)
        for (int sp = !g->wide && tp && sequence; sp <= (tp && sequence); sp++)
            walk_context(g, groups, micro_batch, mesh,
                         (struct preset){.model_axes = tp,
                                         .inner = ~0u,
                                         .sequence = sp,
                                         .ascending = ascending});
}

void grid_walk(struct grid *g, int groups, int64_t micro_batch) {
    int devices = (g->s->space.p.devices + groups - 1) / groups;
    struct mesh mesh;
    if (g->data_only) {
        walk_preset(g, groups, micro_batch, (struct preset){.inner = ~0u});
        return;
    }
    stage_mesh_descending(devices, &mesh);
    walk_mesh(g, groups, micro_batch, &mesh, false);
    stage_mesh_ascending(devices, &mesh);
    if (search_mesh_has_orders(devices))
        walk_mesh(g, groups, micro_batch, &mesh, true);
}

bool grid_is_busy(const struct space *sp, int groups, int i_micro) {
    return !i_micro || sp->p.batch / sp->p.micro[i_micro] >= groups;
}

void grid_init(struct grid *g, struct search *s) {
    *g = (struct grid){
        .s = s, .even = candidate_make(&s->space), .next = candidate_make(&s->space)};
    g->blocks = g->s->space.block_first;
    g->n_blocks = g->s->space.n_blocks;
}

void grid_release(struct grid *g) {
    candidate_release(&g->even);
    candidate_release(&g->next);
}

/* ---- the algorithms -------------------------------------------------------------------- */

static void walk_all(struct grid *g, int most_groups) {
    const struct space *sp = &g->s->space;
    for (int n = 1; n <= most_groups; n++)
        for (int i = 0; i < sp->p.n_micro && sp->p.devices % n == 0; i++)
            if (space_may_have_stages(sp, n) && grid_is_busy(sp, n, i))
                grid_walk(g, n, sp->p.micro[i]);
    if (!budget_stopped(&g->s->budget))
        search_mark_complete(g->s, 0);
}

enum { BEST = 3 };

/* The fastest plans of a walk that fit, and the fastest that nearly fit. */
struct best {
    const struct evaluate *ev;
    int n_fit, n_nearly;
    struct option fit[BEST], nearly[BEST];
};

static void keep_best(void *arg, const struct candidate *c, struct score score) {
    struct best *b = arg;
    if (eval_nearly_fits(b->ev, &score)) {
        score.overflow = 0; /* keep the fastest of them, not the smallest */
        options_insert(b->nearly, &b->n_nearly, BEST, c, score);
    } else if (!score.overflow)
        options_insert(b->fit, &b->n_fit, BEST, c, score);
}

static void keep_as_winners(struct pool *pool, struct option *o, int n) {
    for (int i = 0; i < n; i++)
        pool_keep_winner(pool, &o[i].c, &o[i].score);
    for (int i = 0; i < BEST; i++)
        candidate_release(&o[i].c);
}

/* The best plans are compiled at the end, even if other algorithms find lower estimates:
 * with t5:3B on 64 devices, plans whose ops are laid out one by one are estimated 2.3 %
 * too low, those of the grid 0.3 %. */
int search_grid(struct search *s, struct err *err) {
    (void)err;
    struct grid g;
    struct best best = {.ev = &s->eval};
    for (int i = 0; i < BEST; i++) {
        best.fit[i].c = candidate_make(&s->space);
        best.nearly[i].c = candidate_make(&s->space);
    }
    grid_init(&g, s);
    g.wide = true;
    g.take = keep_best;
    g.arg = &best;
    int most = space_max_groups(&s->space), blocks = g.n_blocks > 1 ? g.n_blocks : 1;
    walk_all(&g, s->space.p.pins || most < blocks ? most : blocks);
    keep_as_winners(&s->pool, best.fit, best.n_fit);
    keep_as_winners(&s->pool, best.nearly, best.n_nearly);
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
