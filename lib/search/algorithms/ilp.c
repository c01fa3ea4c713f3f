/* ilp - layouts by integer programs between critical ops, after TePDist (Zhang et al.,
 * 2023).
 *
 * The pipelines that dp starts from (sliced.h) are laid out here by
 * lib/solve/critical/critical.h, from tables of a stage over the layouts of its ops
 * (stage_tables.h). Variables are eliminated where the tables stay small. Elsewhere,
 * or where the memory limit leaves a gap, the stage is cut at its critical ops,
 * through which everything passes; every piece is an integer program for lp_solve,
 * once for each layout of the ops around it, and a dynamic program joins the pieces.
 * Memory enters as a multiplier and as a constraint. Branch and bound follows: before
 * the strategies of a stage are listed, its tables without memory tell how fast it can
 * be at best, and most stages need no list.
 *
 * Work is limited by counts, so that a search ends the same way on any machine; stages
 * beyond the limit are left to the layout solver. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/branch.h"
#include "search/algorithms/improve.h"
#include "search/algorithms/sliced.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROGRAMS_OF_STAGE = 60,
    PROGRAMS_OF_BOUND = 60,
    MOST_PROGRAMS = 400, /* for the layouts of all stages together */
    NONE = -1,
};

struct ilp {
    struct evaluate *ev;
    struct memo choices; /* int [variables], by tables and limit; [0] = NONE: no answer */
    struct memo bounds;  /* double, by stage */
    int64_t programs, stages;  /* programs and stages of layouts */
    int64_t bounding, bounded; /* programs and stages of bounds */
};

/* ---- layouts of a stage -------------------------------------------------------------- */

/* Returns the bytes on a device that are left for what the tables count if all else
 * stays as it is. Stages on the same group share the memory equally. */
static double bytes_left(struct evaluate *ev, const struct candidate *c, int k,
                         const struct prefix *t, const struct in_flight *f, double now) {
    struct stage_bytes bytes = {0};
    int64_t room = eval_stage_room(ev, candidate_rank(c, k), c->stages[k].devices);
    if (!room)
        return INFINITY;
    stage_bytes_add(&bytes, eval_stage_sum(ev, t, &c->stages[k]), f);
    return (double)room * c->n_groups / c->n_stages - (stage_bytes_sum(&bytes) - now);
}

/* Returns the best layouts; NULL if none fits into the limit, or if too much work is
 * needed to prove that they are within 1 % of the best. Equal stages share an answer. */
static const int *choose(struct ilp *p, const struct stage_tables *t) {
    uint64_t bits;
    memcpy(&bits, &t->p.limit, sizeof bits);
    void **slot = memo_slot(&p->choices, memo_mix(t->hash, bits));
    const int *known = *slot;
    int64_t left = MOST_PROGRAMS - p->programs;
    if (known || left <= 0)
        return known && *known != NONE ? known : NULL;
    struct critical_answer a;
    struct critical_options o = {.programs =
                                     left < PROGRAMS_OF_STAGE ? left : PROGRAMS_OF_STAGE,
                                 .closes = true,
                                 .time_budget_s = budget_left_s(p->ev->budget)};
    critical_solve(&t->p, &o, &a);
    p->programs += a.programs;
    p->stages++;
    if (a.choice && !(a.programs == o.programs && a.bound < a.cost * 0.99))
        return *slot = a.choice;
    critical_answer_release(&a);
    int *none = mem_alloc(sizeof *none);
    *none = NONE;
    *slot = none;
    return NULL;
}

/* Lays stage k out by its tables or, if these cannot be made or solved, by the layout
 * solver. Returns whether anything changed. */
static bool lay_out(struct search *s, struct candidate *c, int k, void *ctx) {
    struct ilp *p = ctx;
    struct search_stage *st = &c->stages[k];
    const struct prefix *prefix = candidate_prefix(&s->eval, c, k, candidate_rank(c, k));
    struct in_flight f = candidate_in_flight(&s->eval, c, k);
    struct stage_tables t;
    const int *choice = NULL;
    bool changed = false;
    if (stage_tables_make(&s->eval, &prefix->st, st, &f, false, &t)) {
        int *now = mem_array((size_t)t.p.n, sizeof *now);
        double us, bytes;
        stage_tables_sum(&t, now, &us, &bytes);
        t.p.limit = bytes_left(&s->eval, c, k, prefix, &f, bytes);
        choice = choose(p, &t);
        free(now);
    }
    if (choice) {
        size_t nodes = (size_t)s->space.blocks.x.n_nodes;
        struct layout *at = mem_array(nodes, sizeof *at);
        memcpy(at, st->layouts, nodes * sizeof *at);
        for (int v = 0; v < t.p.n; v++) {
            changed |= choice[v] != 0;
            at[t.node[v]] = t.layouts[v][choice[v]];
        }
        st->layouts = space_layouts(&s->space, at);
        free(at);
    }
    stage_tables_release(&t);
    return choice ? changed : search_relayout(s, c, k);
}

/* ---- bounds -------------------------------------------------------------------------- */

/* Returns the bound with one level of ZeRO; 0 if the tables are not exact. */
static double level_us(struct ilp *p, const struct setting *setting,
                       const struct search_stage *st) {
    static const struct in_flight none;
    struct stage_tables t;
    double us = 0;
    if (stage_tables_make(p->ev, setting, st, &none, true, &t) && t.exact) {
        struct critical_answer a;
        struct critical_options o = {.programs = PROGRAMS_OF_BOUND,
                                     .time_budget_s = budget_left_s(p->ev->budget)};
        critical_solve(&t.p, &o, &a);
        us = fmax(a.bound * (1 - 1e-9), 0);
        p->bounding += a.programs;
        critical_answer_release(&a);
    }
    stage_tables_release(&t);
    return us;
}

/* Returns a lower bound of a stage's time over all strategies (branch_bound). Places
 * whose links are alike share one result. */
static double least_us(void *ctx, const struct search_stage *st, int64_t micro_batch,
                       int first_rank, bool apart) {
    struct ilp *p = ctx;
    int alias = (int)cluster_alias(&p->ev->space->p.cluster, first_rank, st->devices);
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                            (uint64_t)st->devices << 1 | apart);
    key = memo_mix(memo_mix(key, (uint64_t)micro_batch), (uint64_t)alias);
    void **slot = memo_slot(&p->bounds, key);
    if (*slot)
        return *(double *)*slot;
    struct search_stage with = *st;
    /* only to set the stage's own mesh */
    space_apply_preset(p->ev->space, &with, micro_batch, (struct preset){0});
    struct setting setting = {.devices = st->devices,
                              .micro_batch = micro_batch,
                              .first_rank = alias,
                              .mesh = with.mesh,
                              .apart = apart};
    int levels = st->devices > 1 ? space_zero_levels(p->ev->space) : 1;
    double least = INFINITY;
    for (setting.zero = 0; setting.zero < levels && least > 0; setting.zero++)
        least = fmin(least, level_us(p, &setting, &with));
    p->bounded++;
    double *us = mem_alloc(sizeof *us);
    *us = least;
    *slot = us;
    return least;
}

int search_ilp(struct search *s, struct err *err) {
    (void)err;
    struct ilp p = {.ev = &s->eval};
    sliced_pipelines(s, lay_out, &p);
    branch_to_proof(s, least_us, &p);
    note_verbose(
        "ilp: %lld programs for the layouts of %lld stages, %lld to bound %lld stages",
        (long long)p.programs, (long long)p.stages, (long long)p.bounding,
        (long long)p.bounded);
    memo_release(&p.choices, free);
    memo_release(&p.bounds, free);
    return 0;
}
