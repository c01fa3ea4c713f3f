/* Recompute: what computing ops of a stage again in its backward pass costs and saves. */
#include "search/evaluate/evaluate.h"

/* Ops first .. end-1 of one instance of a repeat; all instances are as the second one. */
static const struct load *recompute_of(struct evaluate *ev, const struct prefix *t,
                                       int level, int first, int end) {
    struct graph *g = &ev->graph;
    const struct repeat *r = &g->b->s.repeats[g->b->s.repeat_of[first]];
    int back = (structure_instance(&g->b->s, first) - 1) * r->period;
    int from = g->b->x.of[first - back];
    return graph_recompute(g, &t->st, from, from + end - first, ev->space->recompute[level],
                           t->layouts);
}

/* Ops outside of repeats are recomputed where that is pinned; returns the end of the stretch. */
static int add_pinned_recompute(struct evaluate *ev, const struct prefix *t, int first,
                                int end, struct load *sum) {
    struct graph *g = &ev->graph;
    int i = first, from = g->b->x.of[first];
    bool any = false;
    for (; i < end && g->b->s.repeat_of[i] < 0; i++)
        any |= ev->space->recompute[0][g->b->x.node_of[g->b->x.of[i]]];
    if (any)
        load_add(sum,
                 graph_recompute(g, &t->st, from, from + i - first, ev->space->recompute[0],
                                 t->layouts),
                 1);
    return i;
}

struct load eval_recompute(struct evaluate *ev, const struct prefix *t,
                           const struct search_stage *st) {
    struct load sum = {0};
    int left = st->recompute_level ? st->recompute_blocks : 0;
    for (int i = st->first; i < st->end && (left > 0 || ev->space->pinned.recompute);) {
        int r = ev->space->blocks.s.repeat_of[i];
        if (r < 0) {
            i = add_pinned_recompute(ev, t, i, st->end, &sum);
            continue;
        }
        const struct repeat *repeat = &ev->space->blocks.s.repeats[r];
        int next = repeat->first +
                   (structure_instance(&ev->space->blocks.s, i) + 1) * repeat->period;
        int end = next < st->end ? next : st->end, times = 1;
        int run_end = repeat->first + repeat->period * repeat->count;
        if (end - i == repeat->period) { /* whole ones, all alike */
            times = ((run_end < st->end ? run_end : st->end) - i) / repeat->period;
            times = times < left || !left ? times : left;
        }
        load_add(&sum, recompute_of(ev, t, left ? st->recompute_level : 0, i, end), times);
        left -= left ? times : 0;
        i = times > 1 ? i + times * repeat->period : end;
    }
    return sum;
}
