/* What searches that consist of several searches share (see runs.h). */
#include "search/run/runs.h"

#include "search/algorithms/hops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void search_result_release(struct search_result *r) {
    for (int i = 0; i < r->n; i++)
        plan_destroy(r->plans[i].plan);
    plan_destroy(r->fastest.plan);
    free(r->plans);
    *r = (struct search_result){0};
}

double search_first_estimate_us(const struct search_problem *p, int least_stages) {
    struct search s;
    search_begin(&s, p);
    if (space_check_pins(&s.space, NULL) == 0)
        hops_first(&s);
    double us = pool_first_us(&s.pool, least_stages);
    search_end(&s);
    return us;
}

/* Returns whether a plan before this one has its class and equally many devices. If only
 * one plan is wanted, classes do not matter. */
static bool is_twin(const struct search_plan *all, int n, const struct search_plan *plan,
                    int most) {
    for (int i = 0; i < n && most > 1; i++)
        if (all[i].class == plan->class && all[i].plan->devices == plan->plan->devices)
            return true;
    return false;
}

int search_simplest(const struct search_plan *plans, int n, double slack) {
    int best = 0;
    for (int i = 1; i < n && slack > 0; i++)
        if (plans[i].time_us <= plans[0].time_us * (1 + slack) &&
            plans[i].words < plans[best].words)
            best = i;
    return best;
}

/* Merges the plans of both by time into `all`; returns how many there are. */
static int join_plans(struct search_result *to, struct search_result *from,
                      struct search_plan *all) {
    int n = 0, i = 0, k = 0;
    while (i < to->n || k < from->n) {
        bool other = i == to->n || (k < from->n && from->plans[k].time_us <
                                                       to->plans[i].time_us * (1 - 1e-9));
        all[n++] = other ? from->plans[k++] : to->plans[i++];
    }
    return n;
}

/* Keeps as many plans as are wanted, and the simplest. */
static void merge_plans(struct search_result *to, struct search_result *from,
                        const struct search_problem *p) {
    struct search_plan *all = mem_array((size_t)(to->n + from->n) + 1, sizeof *all);
    int joined = join_plans(to, from, all), n = 0;
    int simplest = search_simplest(all, joined, p->slack);
    for (int i = 0; i < joined; i++) {
        bool wanted = n < p->top && !is_twin(all, n, &all[i], p->top);
        if (wanted || (p->slack > 0 && i == simplest))
            all[n++] = all[i];
        else
            plan_destroy(all[i].plan);
    }
    free(to->plans);
    to->plans = all;
    to->n = n;
    from->n = 0;
}

void search_result_merge(struct search_result *to, struct search_result *from,
                         const struct search_problem *p) {
    to->complete = from->complete && (to->complete || !to->n);
    to->scored += from->scored;
    to->compiled += from->compiled;
    to->seconds += from->seconds;
    to->space += from->space;
    to->orders = from->orders > to->orders ? from->orders : to->orders;
    if (from->lost[0])
        memcpy(to->lost, from->lost, sizeof to->lost);
    if (from->n)
        merge_plans(to, from, p);
    search_result_release(from);
}
