/* stages_cost.c - what one stage costs. */
#include "solve/stages/stages.h"

#include <math.h>
#include <stdlib.h>

/* Returns the greatest number of successors s for which state + workspace + (s + 1) *
 * activation stays within the capacity, capped at `layers`, or -1 when not even s = 0
 * does. */
static int successors(double state, double activation, double workspace, double capacity,
                      int layers) {
    double left = capacity - state - workspace;
    if (!(left >= activation))
        return -1;
    if (activation <= 0 || left / activation > layers)
        return layers;
    return (int)floor(left / activation) - 1;
}

static int additive_row(const struct stages_problem *p, int first,
                        const struct stages_config *c, double limit, double *t, int *succ) {
    double time = c->fixed_time, state = 0, act = 0;
    for (int k = first; k < p->layers; k++) {
        time += c->time[k];
        if (time > limit)
            return k;
        state += c->state[k];
        act += c->activation[k];
        succ[k] = successors(state, act, c->workspace, c->capacity, p->layers);
        t[k] = succ[k] < 0 ? INFINITY : time;
    }
    return p->layers;
}

int stages_row(const struct stages_problem *p, int first, int c, double limit, double *t,
               int *succ) {
    if (!p->dense_time)
        return additive_row(p, first, &p->configs[c], limit, t, succ);
    for (int k = first; k < p->layers; k++) {
        int64_t at = stages_table_cell(p->layers, first, k) * p->num_configs + c;
        succ[k] = !p->dense_succ                  ? p->layers
                  : p->dense_succ[at] > p->layers ? p->layers
                                                  : p->dense_succ[at];
        t[k] = succ[k] < 0 ? INFINITY : p->dense_time[at];
    }
    return p->layers;
}
