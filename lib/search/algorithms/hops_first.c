/* Finds a first good plan within a few dozen candidates, so that a search that is
 * stopped early has one.
 *
 * For every depth and every width of tensor parallelism the uniform pipeline is
 * balanced, with the smallest micro-batch that its devices can split. The best of
 * these get larger micro-batches as long as that helps. The best one is also tried
 * under schedules that split weight gradients off. Then come the pipelines of the
 * stages solver for its micro-batch and, where memory is short, for the smallest one.
 * If nothing fits, uniform pipelines are tried again with the highest level of ZeRO.
 * At the end, fewer blocks are recomputed as far as memory allows. What is compiled
 * here is kept for the starts, which need most of it again. */
#include "search/algorithms/grid.h"
#include "search/algorithms/hops.h"
#include "search/algorithms/improve.h"

#include <stdlib.h>

/* A uniform pipeline. */
struct point {
    int groups, i_micro, zero;
    struct preset preset;
    struct score score;
};

enum { BEST = 3 };

struct first {
    struct search *s;
    struct grid grid; /* for grid_expert_axes */
    struct candidate c;
    struct option best;        /* of all candidates */
    struct point points[BEST]; /* best first */
    int n;
};

/* ---- candidates ---------------------------------------------------------------------- */

/* Scores the candidate f->c, which replaces *score and f->best where it is better. */
static void try_it(struct first *f, struct score *score) {
    struct score now;
    if (budget_stopped(&f->s->budget) || !eval_legal(&f->s->eval, &f->c))
        return;
    now = pool_score(&f->s->pool, &f->c);
    if (score_better(&now, score))
        *score = now;
    if (!score_better(&now, &f->best.score))
        return;
    f->best.score = now;
    candidate_copy(&f->best.c, &f->c);
}

static void recompute_all(struct first *f) {
    for (int k = 0; k < f->c.n_stages; k++) {
        struct search_stage *st = &f->c.stages[k];
        st->recompute_blocks = space_stage_blocks(&f->s->space, st);
        st->recompute_level = st->recompute_blocks ? RECOMPUTE_LEVELS - 1 : 0;
    }
}

/* Scores f->c as it is and balanced; if neither fits, with all blocks recomputed. */
static void try_balanced(struct first *f, struct score *score) {
    try_it(f, score);
    if ((f->c.n_stages > 1 || score->overflow) && search_balance(f->s, &f->c, INFINITY))
        try_it(f, score);
    if (!score->overflow)
        return;
    recompute_all(f);
    try_it(f, score);
}

static void set_zero(struct candidate *c, int zero) {
    for (int k = 0; k < c->n_stages; k++)
        c->stages[k].zero = zero;
}

/* ---- points -------------------------------------------------------------------------- */

static void score_point(struct first *f, struct point *p) {
    struct pool *pool = &f->s->pool;
    p->score = (struct score){.unknown = true};
    if (budget_stopped(pool->budget) ||
        !space_even(pool->space, p->groups, pool->space->p.micro[p->i_micro], p->preset,
                    &f->c))
        return;
    set_zero(&f->c, p->zero);
    try_balanced(f, &p->score);
}

static void insert(struct first *f, const struct point *p) {
    int at = f->n;
    while (at > 0 && score_better(&p->score, &f->points[at - 1].score))
        at--;
    if (p->score.unknown || at == BEST)
        return;
    f->n += f->n < BEST;
    for (int i = f->n - 1; i > at; i--)
        f->points[i] = f->points[i - 1];
    f->points[at] = *p;
}

/* Scores the uniform pipeline with the smallest micro-batch that its devices can
 * split. */
static void try_point(struct first *f, struct point p) {
    const struct search_problem *q = &f->s->space.p;
    int devices = q->devices / p.groups;
    p.score.unknown = true;
    for (; p.i_micro < q->n_micro && grid_is_busy(&f->s->space, p.groups, p.i_micro);
         p.i_micro++) {
        if (search_splits_batch(devices, q->micro[p.i_micro], p.preset))
            score_point(f, &p);
        if (!p.score.unknown)
            break;
    }
    insert(f, &p);
}

static void try_widths(struct first *f, int groups, int zero) {
    const struct space *sp = &f->s->space;
    struct search_stage whole = {.end = sp->p.model->n_ops,
                                 .devices = sp->p.devices / groups};
    int axes = space_mesh_axes(sp, &whole);
    for (int tp = 0; tp <= axes; tp++) {
        struct point p = {.groups = groups, .zero = zero};
        p.preset = (struct preset){
            .model_axes = tp, .inner = ~0u, .sequence = tp && space_has_sequence(sp)};
        try_point(f, p);
        p.preset.expert_axes = grid_expert_axes(&f->grid, whole.devices, p.preset);
        if (p.preset.expert_axes)
            try_point(f, p);
    }
}

static void try_depths(struct first *f, int zero) {
    const struct space *sp = &f->s->space;
    f->n = 0;
    for (int groups = 1; groups <= space_max_groups(sp); groups *= 2)
        if (space_may_have_stages(sp, groups) && sp->p.devices % groups == 0)
            try_widths(f, groups, zero);
}

/* Takes larger micro-batches as long as each is better than the one before. */
static void grow(struct first *f, struct point *p) {
    for (struct point next = *p; ++next.i_micro < f->s->space.p.n_micro;) {
        if (!grid_is_busy(&f->s->space, p->groups, next.i_micro))
            return;
        score_point(f, &next);
        if (next.score.unknown || !score_better(&next.score, &p->score))
            return;
        *p = next;
    }
}

/* ---- the best of them ---------------------------------------------------------------- */

/* Tries the best pipeline with the optimizer's state not sharded: where there are many
 * small parameters, gathering them costs more than updating all of them everywhere. */
static void unshard(struct first *f) {
    struct point whole = f->points[0];
    whole.zero = ZERO_NONE;
    score_point(f, &whole);
    if (score_better(&whole.score, &f->points[0].score))
        for (int i = 0; i < f->n; i++)
            f->points[i].zero = ZERO_NONE;
}

static void grow_best(struct first *f) {
    for (int i = 0; i < f->n; i++)
        grow(f, &f->points[i]);
}

/* Tries the best pipeline under all schedules that split weight gradients off. */
static void split_weights(struct first *f) {
    struct score any = {.unknown = true};
    for (int s = 0; s < SCHEDULE_COUNT && f->best.c.n_stages > 1; s++) {
        if (!space_has_schedule(&f->s->space, (enum schedule)s) ||
            !schedule_traits((enum schedule)s)->splits)
            continue;
        candidate_copy(&f->c, &f->best.c);
        f->c.schedule = (enum schedule)s;
        try_balanced(f, &any);
    }
}

/* Tries the stages solver's pipeline for this micro-batch, also with neighbouring
 * stages on different nodes where devices or links differ. */
static void slice_at(struct first *f, int i_micro) {
    struct search *s = f->s;
    struct score any = {.unknown = true};
    if (budget_stopped(&s->budget) ||
        !search_slice(s, s->space.p.micro[i_micro], false, &f->c))
        return;
    if (space_has_places(&s->space)) {
        struct candidate dealt = candidate_make(&s->space);
        candidate_copy(&dealt, &f->c);
        try_balanced(f, &any);
        candidate_copy(&f->c, &dealt);
        candidate_release(&dealt);
        if (!candidate_deal(&s->space, &f->c))
            return;
        any.unknown = true;
    }
    try_balanced(f, &any);
}

static bool recomputes(const struct candidate *c) {
    for (int k = 0; k < c->n_stages; k++)
        if (c->stages[k].recompute_blocks)
            return true;
    return false;
}

/* Takes the micro-batch of the best uniform pipeline and, where memory is short, also
 * the smallest one: the solver finds a use for the memory that this saves, which
 * uniform pipelines do not. */
static void slice(struct first *f) {
    if (!f->n)
        return;
    slice_at(f, f->points[0].i_micro);
    if (f->points[0].i_micro && (recomputes(&f->best.c) || f->best.score.overflow))
        slice_at(f, 0);
}

/* Balancing reserves memory for what it does not count, so stages may recompute more
 * than they must. Recomputes fewer blocks, stage by stage, as long as the plan fits. */
static void recompute_less(struct first *f) {
    candidate_copy(&f->c, &f->best.c);
    for (int k = 0; k < f->c.n_stages; k++)
        for (int n = 4; n && !budget_stopped(&f->s->budget); n /= 2)
            while (f->c.stages[k].recompute_blocks >= n) {
                struct search_stage before = f->c.stages[k];
                f->c.stages[k].recompute_blocks -= n;
                if (before.recompute_blocks == n)
                    f->c.stages[k].recompute_level = 0;
                struct score score = pool_score(&f->s->pool, &f->c);
                if (score.unknown || score.overflow ||
                    score.time_us > f->best.score.time_us) {
                    f->c.stages[k] = before;
                    break;
                }
                f->best.score = score;
            }
    candidate_copy(&f->best.c, &f->c);
}

/* Takes the steps that the head of this file describes. */
void hops_first(struct search *s) {
    int levels = space_zero_levels(&s->space);
    struct first f = {.s = s, .c = candidate_make(&s->space)};
    f.best = (struct option){.c = candidate_make(&s->space), .score = {.unknown = true}};
    grid_init(&f.grid, s);
    try_depths(&f, levels > ZERO_OPTIMIZER ? ZERO_OPTIMIZER : levels - 1);
    if (f.n)
        unshard(&f);
    grow_best(&f);
    split_weights(&f);
    slice(&f);
    if (f.best.score.overflow && levels > 1 + ZERO_OPTIMIZER) {
        try_depths(&f, levels - 1);
        grow_best(&f);
    }
    if (f.best.c.n_stages && !f.best.score.unknown && !f.best.score.overflow)
        recompute_less(&f);
    candidate_release(&f.best.c);
    candidate_release(&f.c);
    grid_release(&f.grid);
}
