/* stages_even.c - the even plans that give a first incumbent. */
#include "solve/stages/stages_dp.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

/* Even plans have all stages on submeshes of one size: stages are filled greedily up to a
 * limit on their time, and the limit is bisected. This is a heuristic where costs do not
 * grow with the layers, but it only has to give a fair first incumbent. */

struct even {
    const struct stages_dp *dp;
    const struct stages_problem *p;
    int size, stages;
    double *t;
    int *succ, *end; /* rows from the present layer on, and where they end */
    struct stages_plan *plan;
};

/* Finds the fastest stage first..last over choices of this size, with d devices left. */
static bool even_stage(struct even *e, int first, int last, int d,
                       struct stages_stage *st) {
    bool any = false;
    const struct stages_problem *p = e->p;
    int need = (d - 1) / e->size; /* stages behind it */
    for (int j = 0; j < p->num_choices; j++) {
        const struct stages_choice *c = &p->choices[j];
        int64_t at = (int64_t)c->config * p->layers + last;
        if (c->size != e->size || !stages_choice_allows(c, d) ||
            last >= e->end[c->config] || isinf(e->t[at]) || e->succ[at] < need)
            continue;
        if (!any || e->t[at] < st->time)
            *st = (struct stages_stage){first, last, j, p->devices - d, e->t[at]};
        any = true;
    }
    return any;
}

/* Fills the plan with stages of at most `limit` each. Returns false when layers are left
 * over. */
static bool even_fill(struct even *e, double limit) {
    const struct stages_problem *p = e->p;
    int l = 0;
    e->plan->n = 0;
    for (int s = 0; s < e->stages; s++) {
        if (stages_dp_stopped(e->dp))
            return false;
        int d = p->devices - s * e->size, last = p->layers - (e->stages - s);
        bool any = false;
        struct stages_stage st;
        for (int c = 0; c < p->num_configs; c++)
            e->end[c] = stages_row(p, l, c, limit, e->t + (int64_t)c * p->layers,
                                   e->succ + (int64_t)c * p->layers);
        for (int k = s == e->stages - 1 ? last : l; k <= last; k++) {
            bool good = even_stage(e, l, k, d, &st) && st.time <= limit;
            if (good)
                e->plan->stages[e->plan->n] = st;
            else if (any)
                break; /* costs mostly grow, so longer stages are not tried */
            any |= good;
        }
        if (!any)
            return false;
        l = e->plan->stages[e->plan->n++].last + 1;
    }
    return true;
}

static void even_size(struct even *e, struct stages_plan *best) {
    double low = 0, high = INFINITY, limit = INFINITY;
    for (int step = 0; step < 40 && !stages_dp_stopped(e->dp); step++) {
        if (even_fill(e, limit)) {
            stages_plan_finish(e->plan, e->p);
            if (e->plan->value < best->value)
                stages_plan_copy(best, e->plan);
            high = e->plan->max;
        } else {
            low = limit;
        }
        if (isinf(high) || high - low < 1e-4 * high)
            return;
        limit = low + (high - low) / 2;
    }
}

void stages_even(const struct stages_dp *dp, struct stages_plan *best) {
    const struct stages_problem *p = dp->p;
    size_t n = (size_t)p->num_configs * (size_t)p->layers;
    struct stages_plan plan;
    stages_plan_init(&plan, p);
    struct even e = {.dp = dp,
                     .p = p,
                     .t = mem_array(n, sizeof *e.t),
                     .succ = mem_array(n, sizeof *e.succ),
                     .end = mem_array((size_t)p->num_configs, sizeof *e.end),
                     .plan = &plan};
    for (int j = 0; j < p->num_choices; j++) {
        bool seen = false;
        for (int i = 0; i < j; i++)
            seen |= p->choices[i].size == p->choices[j].size;
        e.size = p->choices[j].size;
        e.stages = p->devices / e.size;
        if (!seen && p->devices % e.size == 0 && e.stages <= p->layers &&
            e.stages <= p->max_stages)
            even_size(&e, best);
    }
    free(e.t);
    free(e.succ);
    free(e.end);
    free(plan.stages);
}
