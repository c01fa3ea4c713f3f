/* What searches that are made of several searches share: see repeats.h. */
#include "search/run/runs.h"

#include "search/algorithms/hops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double search_first_estimate_us(const struct search_problem *p, int least_stages) {
    struct search s;
    search_begin(&s, p);
    if (space_check_pins(&s.space, NULL) == 0)
        hops_first(&s);
    double us = pool_first_us(&s.pool, least_stages);
    search_end(&s);
    return us;
}

/* Is there one like it before it? Where one plan is wanted, none is held against another. */
static bool is_twin(const struct search_plan *all, int n, const struct search_plan *plan,
                    int most) {
    for (int i = 0; i < n && most > 1; i++)
        if (all[i].class == plan->class && all[i].plan->devices == plan->plan->devices)
            return true;
    return false;
}

static void merge_plans(struct search_result *to, struct search_result *from, int most) {
    int n = 0, i = 0, k = 0;
    struct search_plan *all = mem_array((size_t)(to->n + from->n) + 1, sizeof *all);
    while (i < to->n || k < from->n) {
        bool other = i == to->n || (k < from->n && from->plans[k].time_us <
                                                       to->plans[i].time_us * (1 - 1e-9));
        struct search_plan *next = other ? &from->plans[k++] : &to->plans[i++];
        if (n < most && !is_twin(all, n, next, most))
            all[n++] = *next;
        else
            plan_destroy(next->plan);
    }
    free(to->plans);
    to->plans = all;
    to->n = n;
    from->n = 0;
}

void search_result_merge(struct search_result *to, struct search_result *from, int most) {
    to->complete = from->complete && (to->complete || !to->n);
    to->scored += from->scored;
    to->compiled += from->compiled;
    to->seconds += from->seconds;
    to->space += from->space;
    to->orders = from->orders > to->orders ? from->orders : to->orders;
    if (from->lost[0])
        memcpy(to->lost, from->lost, sizeof to->lost);
    if (from->n)
        merge_plans(to, from, most);
    search_result_release(from);
}
