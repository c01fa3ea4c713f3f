/* layout_check.c - the independent evaluator of layouts.
 *
 * It shares nothing with the solver: costs are added up from the problem as it was read,
 * and usage is swept over the times at which something begins or ends, in the order of
 * time.
 */
#include "solve/layout/layout.h"

#include "common/mem.h"

#include <stdlib.h>

struct event {
    int64_t t;      /* when */
    int64_t change; /* of the usage */
};

/* Ends come before beginnings at the same time: intervals are half open. */
static int by_time(const void *pa, const void *pb) {
    const struct event *a = pa, *b = pb;
    if (a->t != b->t)
        return a->t < b->t ? -1 : 1;
    return (a->change > b->change) - (a->change < b->change);
}

static int check_costs(const struct layout_problem *p, const int32_t *choice,
                       int64_t *value, struct err *err) {
    int64_t sum = 0;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        if (choice[i] < 0 || choice[i] >= p->first[i + 1] - p->first[i])
            return err_no(err, "node %d: strategy %d does not exist", (int)i,
                          (int)choice[i]);
        int64_t c = p->cost[p->first[i] + choice[i]];
        if (c >= LAYOUT_FORBIDDEN)
            return err_no(err, "node %d: strategy %d is forbidden", (int)i, (int)choice[i]);
        sum += c;
    }
    for (int64_t e = 0; e < p->n_edges; e++) {
        int32_t u = p->ends[e][0], v = p->ends[e][1];
        int64_t width = p->first[v + 1] - p->first[v];
        int64_t c = p->edge_cost[p->entry[e] + choice[u] * width + choice[v]];
        if (c >= LAYOUT_FORBIDDEN)
            return err_no(
                err, "edge %lld (nodes %d, %d): strategies %d and %d exclude each other",
                (long long)e, (int)u, (int)v, (int)choice[u], (int)choice[v]);
        sum += c;
    }
    *value = sum;
    return 0;
}

int layout_evaluate(const struct layout_problem *p, const int32_t *choice, int64_t *value,
                    int64_t *peak_usage, int64_t *peak_time, struct err *err) {
    if (check_costs(p, choice, value, err) < 0)
        return -1;
    struct event *ev = mem_array((size_t)p->n_live * 2 + 1, sizeof *ev);
    int64_t n = 0, now = 0, peak = 0, when = 0;
    for (int64_t s = 0; s < p->n_live; s++) {
        const struct layout_live *l = &p->live[s];
        int64_t use = p->usage[p->first[l->node] + choice[l->node]];
        if (l->lo >= l->hi)
            continue;
        ev[n++] = (struct event){l->lo, use};
        ev[n++] = (struct event){l->hi, -use};
    }
    qsort(ev, (size_t)n, sizeof *ev, by_time);
    for (int64_t s = 0; s < n; s++) {
        now += ev[s].change;
        if (now > peak) {
            peak = now;
            when = ev[s].t;
        }
    }
    free(ev);
    *peak_usage = peak;
    *peak_time = when;
    if (peak > p->usage_limit)
        return err_no(err, "usage %.17g at time %lld is above the limit %.17g",
                      (double)peak * p->usage_unit, (long long)when,
                      (double)p->usage_limit * p->usage_unit);
    return 0;
}
