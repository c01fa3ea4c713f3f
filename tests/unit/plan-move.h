/* plan-move.h - stages whose ops are not consecutive: a pipeline is a DAG.
 *
 *     struct plan *p = plan_create(m, stages, bounds);
 *     move_ops(&r, p);  // before the ops have layouts
 */
#ifndef WEFT_TEST_PLAN_MOVE_H
#define WEFT_TEST_PLAN_MOVE_H

#include "common/rng.h"
#include "plan/plan.h"

#include <stdlib.h>

/* The stages in which an op may be, as its producers and readers stand: first and last. */
static void stages_of_op(const struct plan *p, int op, int *first, int *last) {
    const struct model *m = p->model;
    *first = 0;
    *last = p->n_stages - 1;
    for (int k = 0; k < m->ops[op].n_in; k++) {
        int from = m->tensors[m->ops[op].in[k]].producer;
        if (from >= 0 && p->stage_of[from] > *first)
            *first = p->stage_of[from];
    }
    for (int i = op + 1; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++)
            if (m->tensors[m->ops[i].in[k]].producer == op && p->stage_of[i] < *last)
                *last = p->stage_of[i];
}

/* Moves some ops to another stage that may have them; none loses its last. */
static void move_ops(struct rng *r, struct plan *p) {
    int n = p->model->n_ops;
    for (int tries = 0; tries < n; tries++) {
        int op = (int)rng_below(r, n), from = p->stage_of[op], first, last;
        stages_of_op(p, op, &first, &last);
        int to = first + (int)rng_below(r, last - first + 1);
        if (to == from || p->stages[from].n_ops == 1)
            continue;
        p->stages[from].n_ops--;
        p->stages[to].n_ops++;
        p->stage_of[op] = to;
    }
    for (int s = 0; s < p->n_stages; s++) {
        struct stage *st = &p->stages[s];
        size_t count = (size_t)st->n_ops;
        int at = 0;
        st->ops = arena_array(&p->arena, count, sizeof *st->ops);
        st->layouts = arena_array(&p->arena, count, sizeof *st->layouts);
        st->recompute = arena_array(&p->arena, count, sizeof *st->recompute);
        st->zero = arena_array(&p->arena, count, sizeof *st->zero);
        st->offload = arena_array(&p->arena, count, sizeof *st->offload);
        for (int i = 0; i < n; i++)
            if (p->stage_of[i] == s)
                st->ops[at++] = i;
    }
}

#endif
