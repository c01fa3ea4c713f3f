/* Searches that follow another one, for plans that were not in its space. */
#include "search/run/runs.h"

#include "search/algorithms/algorithms.h"
#include "search/state.h"

struct search_problem search_following(const struct search_problem *p,
                                       const struct plan *from) {
    struct search_problem q = *p;
    q.from = from;
    q.may_idle = false;
    q.as_listed = true;
    q.no_bound = true;
    q.gap = 0;
    return q;
}

/* What runs in place of auto in a search that follows one by auto: its first two rounds,
 * whatever the gap. Without grid, t5:770M on 16 devices with 3.2 GB each was 0.3 % behind
 * it. */
static int hops_and_grid(struct search *s, struct err *err) {
    if (search_hops(s, err) < 0)
        return -1;
    pool_give_back(&s->pool);
    return search_grid(s, err);
}

bool search_follow(const struct search_problem *p, const struct search_problem *following,
                   search_algorithm *algorithm, struct search_result *out) {
    struct search_problem q = *following;
    struct search_result r;
    if (!search_in_time(&q))
        return false;
    bool found = search_resident(&q, algorithm == search_auto ? hops_and_grid : algorithm,
                                 &r, NULL) == 0 &&
                 r.n > 0;
    r.complete |= !found && search_in_time(&q); /* no plan exists */
    search_result_merge(out, &r, p);
    return found;
}
