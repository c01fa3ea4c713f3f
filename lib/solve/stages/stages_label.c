/* stages_label.c - the exact pass of the stages solver, with memory.
 *
 * Memory bounds the number of successors of a stage, so a suffix is described by its sum
 * and its number of stages. Of two suffixes of the same layers on the same devices the one
 * with no smaller sum and no fewer stages is never needed: each (layer, devices left) keeps
 * a front of labels, stages rising and sums falling. A label is dropped when its sum and
 * the least sum of any prefix that completes it reach the cap.
 */
#include "solve/stages/stages_dp.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct label {
    double sum;
    int stages;
    int d;        /* devices left when its first stage begins */
    int triple;   /* its first stage, -1 for the empty suffix */
    int64_t rest; /* label of what follows */
};

struct cell {
    double sum;
    int d, triple;
    int64_t rest;
};

struct fronts {
    struct stages_dp *dp;
    ARR(struct label) pool;
    int64_t *first; /* of (layer, d) in the pool */
    int *count;
    /* the present row: [d][stages] */
    struct cell *cells;
    int *top; /* 1 + greatest number of stages touched, per d */
    int most; /* greatest number of stages */
};

static void fronts_init(struct fronts *f, struct stages_dp *dp) {
    const struct stages_problem *p = dp->p;
    size_t cells = (size_t)dp->width * (size_t)(p->layers + 1);
    *f = (struct fronts){.dp = dp, .most = p->max_stages};
    f->most = f->most < p->layers ? f->most : p->layers;
    f->most = f->most < p->devices ? f->most : p->devices;
    f->first = mem_array(cells, sizeof *f->first);
    f->count = mem_array(cells, sizeof *f->count);
    size_t row = (size_t)dp->width * (size_t)(f->most + 1);
    f->cells = mem_array(row, sizeof *f->cells);
    f->top = mem_array((size_t)dp->width, sizeof *f->top);
    for (size_t i = 0; i < row; i++)
        f->cells[i].sum = INFINITY;
}

static void fronts_release(struct fronts *f) {
    arr_release(&f->pool);
    free(f->first);
    free(f->count);
    free(f->cells);
    free(f->top);
}

static void put(struct fronts *f, int d, int stages, struct cell c) {
    struct cell *at = &f->cells[(int64_t)d * (f->most + 1) + stages];
    if (c.sum >= at->sum)
        return;
    *at = c;
    if (f->top[d] <= stages)
        f->top[d] = stages + 1;
}

/* Moves the present row into the pool as fronts, and empties it. */
static void row_close(struct fronts *f, int l) {
    struct stages_dp *dp = f->dp;
    for (int d = 0; d < dp->width; d++) {
        int64_t at = dp->width * l + d;
        struct cell *c = f->cells + (int64_t)d * (f->most + 1);
        double least = INFINITY;
        if (!dp->p->use_all && d > 0) /* a device may stay unused */
            for (int64_t i = 0; i < f->count[at - 1]; i++) {
                struct label b = f->pool.p[f->first[at - 1] + i];
                put(f, d, b.stages, (struct cell){b.sum, b.d, b.triple, b.rest});
            }
        f->first[at] = f->pool.n;
        for (int s = 0; s < f->top[d]; s++) {
            if (c[s].sum < least) {
                least = c[s].sum;
                arr_push(&f->pool,
                         (struct label){least, s, c[s].d, c[s].triple, c[s].rest});
            }
            c[s].sum = INFINITY;
        }
        f->count[at] = (int)(f->pool.n - f->first[at]);
        f->top[d] = 0;
    }
}

/* Makes all suffixes that begin with triple i at layer l. */
static void extend(struct fronts *f, int64_t i, const double *ql, const double *g,
                   double cap) {
    struct stages_dp *dp = f->dp;
    const struct stages_triple *t = &dp->triples.p[i];
    const struct stages_choice *c = &dp->p->choices[t->choice];
    for (int d = c->lo; d <= c->hi; d += stages_choice_step(c)) {
        int64_t at = dp->width * (t->k + 1) + d - c->size;
        if (ql[d] + t->time + g[at] >= cap)
            continue;
        for (int64_t b = f->first[at]; b < f->first[at] + f->count[at]; b++) {
            const struct label *rest = &f->pool.p[b];
            if (rest->stages > t->succ || rest->stages >= f->most)
                break; /* stages rise along a front */
            double sum = rest->sum + t->time;
            if (sum + ql[d] < cap)
                put(f, d, rest->stages + 1, (struct cell){sum, d, (int)i, b});
        }
    }
}

static void label_plan(const struct fronts *f, int64_t b, struct stages_plan *plan) {
    const struct stages_dp *dp = f->dp;
    int l = 0;
    plan->n = 0;
    for (; f->pool.p[b].triple >= 0; b = f->pool.p[b].rest) {
        const struct stages_triple *t = &dp->triples.p[f->pool.p[b].triple];
        plan->stages[plan->n++] =
            (struct stages_stage){.first = l,
                                  .last = t->k,
                                  .choice = t->choice,
                                  .device = dp->p->devices - f->pool.p[b].d,
                                  .time = t->time};
        l = t->k + 1;
    }
    stages_plan_finish(plan, dp->p);
}

int stages_dp_labels(struct stages_dp *dp, double limit, const double *q, const double *g,
                     double cap, struct stages_plan *plan) {
    const struct stages_problem *p = dp->p;
    struct fronts f;
    int found = 0;
    fronts_init(&f, dp);
    dp->passes++;
    for (int d = 0; d < (p->use_all ? 1 : dp->width); d++)
        put(&f, d, 0, (struct cell){0, d, -1, -1});
    row_close(&f, p->layers);
    for (int l = p->layers - 1; l >= 0 && found >= 0; l--) {
        for (int64_t i = dp->start[l]; i < dp->start[l + 1]; i++)
            if (dp->triples.p[i].time <= limit)
                extend(&f, i, q + dp->width * l, g, cap);
        row_close(&f, l);
        if (stages_dp_stopped(dp))
            found = -1;
    }
    int64_t top = p->devices;     /* row 0 */
    if (!found && f.count[top]) { /* the last label of a front has the least sum */
        label_plan(&f, f.first[top] + f.count[top] - 1, plan);
        found = 1;
    }
    fronts_release(&f);
    return found;
}
