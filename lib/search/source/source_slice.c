/* The stages solver (lib/solve/stages/stages.h) on a source: for one micro-batch all cuts, devices and
 * layouts at once.
 *
 * As in slice.c the chain is a row of units. A column is a number of devices and of stages behind it,
 * since what is computed again, and so the time, depends on that. What a stretch of units takes on a
 * column is asked of the source under some layouts: uniform presets; and, in a chain without repeats,
 * whose ops are all told apart, the cheapest layout of every op under several prices of memory,
 * for all stretches that begin with one op in one pass. Stretches with far more or less than
 * their share of the work are left out, and those that the best plan so far beats. */
#include "search/algorithms/units.h"
#include "search/source/source.h"
#include "search/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_UNITS = 64, MOST_SINGLES = 40, FEW_DEVICES = 8 };

static const double LEAST_SHARE = 0.4, MOST_SHARE = 1.8;

struct column {
    int devices, behind;
};

struct slicer {
    struct pool *pool;
    int64_t micro_batch;
    double micro_batches;
    int n_units, bound[MOST_UNITS + 1]; /* ops */
    ARR(struct column) columns;
    /* By cell(): a stretch of units on a column. */
    double *us;
    int16_t *behind; /* stages that there may be behind it; -1: it cannot be */
    const struct layout **layouts;
};

/* ---- units and columns ------------------------------------------------------------------ */

/* 0, 1, 2, 3, 5, 7, 11, 15 ... stages behind. */
static int next_behind(int behind) {
    int step = 1;
    while (behind >= 4 * step - 1)
        step *= 2;
    return behind + step;
}

static void find_columns(struct slicer *z) {
    int devices = z->pool->space->p.devices, most = z->pool->space->max_groups - 1;
    for (int d = 1; d <= devices;
         d = d < FEW_DEVICES && devices <= FEW_DEVICES ? d + 1 : 2 * d) {
        int behind = devices - d < most ? devices - d : most;
        for (int k = 0; k < behind; k = next_behind(k))
            arr_push(&z->columns, (struct column){d, k});
        arr_push(&z->columns, (struct column){d, behind});
    }
}

static size_t cell(const struct slicer *z, int first, int last, int64_t column) {
    return units_cell(first, last, z->n_units, z->columns.n) + (size_t)column;
}

static size_t cells(const struct slicer *z) {
    return units_cells(z->n_units, z->columns.n);
}

/* ---- what stretches take ------------------------------------------------------------------ */

static struct source_ask ask_of(const struct slicer *z, const struct column *c) {
    return (struct source_ask){.graph = &z->pool->space->blocks,
                               .devices = c->devices,
                               .devices_per_node =
                                   (int)z->pool->space->p.cluster.groups[0].devices,
                               .behind = c->behind,
                               .micro_batch = z->micro_batch,
                               .memory_bytes = z->pool->space->p.memory_bytes};
}

/* Longer stages are of no use. */
static double limit_us(const struct slicer *z) {
    return z->pool->n_best ? z->pool->best[0].score.time_us / z->micro_batches : INFINITY;
}

static bool has_its_share(const struct slicer *z, const struct column *c, int first,
                          int last) {
    const struct space *sp = z->pool->space;
    double work = sp->flops[z->bound[last + 1]] - sp->flops[z->bound[first]];
    double share =
        work / sp->flops[sp->p.model->n_ops] * (double)sp->p.devices / (double)c->devices;
    return c->devices == sp->p.devices || (share >= LEAST_SHARE && share <= MOST_SHARE);
}

/* The last unit up to which a stretch from this one on has no more than its share. */
static int last_of_share(const struct slicer *z, const struct column *c, int first) {
    int last = z->n_units - 1;
    while (last > first && !has_its_share(z, c, first, last))
        last--;
    return last;
}

static void try_layouts(struct slicer *z, int64_t column, int first, int last,
                        const struct layout *layouts) {
    struct source_ask ask = ask_of(z, &z->columns.p[column]);
    struct source_cost cost;
    size_t at = cell(z, first, last, column);
    ask.first = z->bound[first];
    ask.end = z->bound[last + 1];
    ask.layouts = layouts;
    if (!layouts || !source_stage(z->pool->ev, &ask, &cost) ||
        (ask.memory_bytes && cost.bytes > (double)ask.memory_bytes) || cost.us >= z->us[at])
        return;
    z->us[at] = cost.us;
    z->layouts[at] = layouts;
}

static void try_presets(struct slicer *z, int64_t column) {
    struct search_stage st = {.end = z->pool->space->p.model->n_ops,
                              .devices = z->columns.p[column].devices};
    int axes = space_mesh_axes(z->pool->space, &st);
    for (int j = 0; j <= axes; j++)
        for (int without = -1; without < (j ? z->pool->space->n_inner : 0); without++) {
            struct preset preset = {.model_axes = j,
                                    .inner = without < 0 ? ~0u : ~(1u << without)};
            space_apply_preset(z->pool->space, &st, z->micro_batch, preset);
            for (int first = 0; first < z->n_units; first++)
                for (int last = first; last < z->n_units; last++)
                    if (has_its_share(z, &z->columns.p[column], first, last) &&
                        !budget_stopped(z->pool->budget))
                        try_layouts(z, column, first, last, st.layouts);
        }
}

/* ---- every op for itself ----------------------------------------------------------------- */

static void try_ops(struct slicer *z, int64_t column) {
    /* All of the memory is worth this share of a stage's time. */
    static const double shares[] = {0, 0.1, 0.2, 0.4, 0.8, 1.6};
    const struct column *c = &z->columns.p[column];
    struct evaluate *ev = z->pool->ev;
    struct source_ask ask = ask_of(z, c);
    ask.end = ev->space->p.model->n_ops;
    struct trellis *t = trellis_make(ev->space, &ask);
    double stage_us = trellis_walk(t, 0, ask.end, 0) * c->devices / ev->space->p.devices;
    double memory = (double)ev->space->p.memory_bytes;
    int prices = memory > 0 ? (int)(sizeof shares / sizeof *shares) : 1;
    for (int i = 0; i < prices && isfinite(stage_us); i++)
        for (int first = 0; first < z->n_units && !budget_stopped(ev->budget); first++) {
            int last = last_of_share(z, c, first), op = z->bound[first];
            trellis_walk(t, op, z->bound[last + 1],
                         memory > 0 ? shares[i] * stage_us / memory : 0);
            for (; last >= first && has_its_share(z, c, first, last); last--)
                try_layouts(z, column, first, last,
                            trellis_trace(t, op, z->bound[last + 1], limit_us(z)));
        }
    trellis_free(t);
}

/* ---- the solver ------------------------------------------------------------------------- */

/* Its tables are the slicer's. */
static void make_problem(struct slicer *z, struct stages_problem *p) {
    size_t n = (size_t)z->columns.n;
    units_problem(z->pool->space, z->n_units, z->columns.n, z->micro_batches, z->us,
                  z->behind, p);
    for (size_t c = 0; c < n; c++) {
        int devices = z->columns.p[c].devices;
        p->choices[c].size = p->choices[c].lo = devices;
        p->choices[c].hi = p->devices;
    }
    for (size_t i = 0; i < cells(z); i++) {
        bool good = isfinite(z->us[i]);
        z->us[i] = good ? z->us[i] : 0;
        z->behind[i] = (int16_t)(good ? z->columns.p[i % n].behind : -1);
    }
}

static bool solve(struct slicer *z, struct candidate *out) {
    struct stages_problem p;
    struct stages_answer a;
    struct solve_limits limits = {.gap = 1e-3, .seed = 1, .threads = 1};
    make_problem(z, &p);
    bool found = stages_solve(&p, &limits, &a, NULL) == 0;
    if (found) {
        out->n_stages = out->n_groups = a.plan.n;
        out->micro_batch = z->micro_batch;
        out->schedule = space_first_schedule(z->pool->space);
        for (int k = 0; k < a.plan.n; k++) {
            const struct stages_stage *from = &a.plan.stages[k];
            int c = p.choices[from->choice].config;
            out->stages[k] = (struct search_stage){
                .first = z->bound[from->first],
                .end = z->bound[from->last + 1],
                .devices = z->columns.p[c].devices,
                .layouts = z->layouts[cell(z, from->first, from->last, c)]};
        }
        stages_answer_release(&a);
    }
    stages_release(&p);
    return found;
}

bool source_slice(struct pool *pool, int64_t micro_batch, struct candidate *out) {
    struct slicer z = {.pool = pool,
                       .micro_batch = micro_batch,
                       .micro_batches = (double)(pool->space->p.batch / micro_batch)};
    z.n_units =
        units_find(&pool->space->blocks.s,
                   pool->space->blocks.s.n_repeats ? MOST_UNITS : MOST_SINGLES, z.bound);
    find_columns(&z);
    z.us = mem_array(cells(&z), sizeof *z.us);
    z.behind = mem_array(cells(&z), sizeof *z.behind);
    z.layouts = mem_array(cells(&z), sizeof *z.layouts);
    for (size_t i = 0; i < cells(&z); i++)
        z.us[i] = INFINITY;
    for (int64_t c = 0; c < z.columns.n; c++) {
        try_presets(&z, c);
        if (!pool->space->blocks.s.n_repeats)
            try_ops(&z, c);
    }
    bool found = !budget_stopped(pool->budget) && solve(&z, out);
    free(z.us);
    free(z.behind);
    free(z.layouts);
    arr_release(&z.columns);
    return found;
}
