/* layout_improve.h - large problems: better bounds and better choices, batch by batch
 * and on all cores. A batch consists of jobs in a fixed order: one raises the bound, the
 * others improve the present choice. Threads take jobs as they become free, and what the
 * jobs found is merged in their order, so the result depends on the seed and not on the
 * threads, unless the deadline strikes. */
#ifndef WEFT_SOLVE_LAYOUT_IMPROVE_H
#define WEFT_SOLVE_LAYOUT_IMPROVE_H

#include "solve/layout/layout_bb.h"

struct layout_improve {
    struct layout_core *core; /* reduced and scaled */
    uint64_t seed;
    int threads;
    double deadline_s; /* 0 = none */
    double gap;
    int *x;         /* (n_vars) in: a choice if value < LAYOUT_INF; out: the best */
    int64_t value;  /* of x */
    int64_t bound;  /* in and out */
    bool by_search; /* out: the bound was proven by branch and bound */
};

void layout_improve_run(struct layout_improve *m);

#endif
