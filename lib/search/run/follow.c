/* Searches that follow another one, for plans that it did not have. */
#include "search/run/runs.h"

#include "search/algorithms/algorithms.h"

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

bool search_follow(const struct search_problem *p, const struct search_problem *following,
                   search_algorithm *algorithm, struct search_result *out) {
    struct search_problem q = *following;
    struct search_result r;
    if (!search_in_time(&q))
        return false;
    bool found = search_resident(&q, algorithm == search_auto ? search_hops : algorithm, &r,
                                 NULL) == 0 &&
                 r.n > 0;
    r.complete |= !found && search_in_time(&q); /* no plan exists */
    search_result_merge(out, &r, p);
    return found;
}
