/* layout_ilp.h - the layout problem as an integer program for lp_solve (solve/lp/lp.h). */
#ifndef WEFT_SOLVE_LAYOUT_ILP_H
#define WEFT_SOLVE_LAYOUT_ILP_H

#include "solve/layout/layout_core.h"

/* Number of variables that the program has. */
int64_t layout_ilp_size(const struct layout_core *c);

/* Looks for a choice cheaper than *value (LAYOUT_INF: any), for at most budget_s seconds. A
 * better one goes to x and *value; *bound is raised to what was proven. True if the search
 * was complete: *bound == *value, and LAYOUT_INF if there is no choice at all. */
bool layout_ilp(const struct layout_core *c, double budget_s, double gap, int *x,
                int64_t *value, int64_t *bound);

#endif
