/* layout_bb.h - exact search: branch and bound with the bounds of layout_dual.h.
 *
 *     struct layout_search b = {.core = &core, .upper = LAYOUT_INF, .x = x};
 *     layout_search_run(&b);
 *     // b.upper: cheapest cost found (x holds it), b.bound: no answer is below it
 */
#ifndef WEFT_SOLVE_LAYOUT_BB_H
#define WEFT_SOLVE_LAYOUT_BB_H

#include "solve/layout/layout_dual.h"

struct layout_search {
    struct layout_core *core; /* reduced and scaled; multipliers are updated */
    int64_t upper;            /* in: only cheaper answers count; out: the best cost */
    int *x;            /* (n_vars) the best answer; untouched if none is below upper */
    int64_t max_nodes; /* 0 = no limit */
    double deadline_s; /* now_s() at which to stop; 0 = none */
    double gap;        /* relative gap at which to stop */
    int root_rounds;   /* of the dual at the root; 0 = 400 */
    int64_t bound;     /* out: min(upper, least bound of what was not searched) */
    int64_t nodes;     /* out */
    bool found;        /* out: x was set */
    bool done;         /* out: the search was complete */
};

void layout_search_run(struct layout_search *b);

#endif
