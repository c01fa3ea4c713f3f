/* layout_ilp.h - the layout problem as an integer program for lp_solve (solve/lp.h). */
#ifndef WEFT_SOLVE_LAYOUT_ILP_H
#define WEFT_SOLVE_LAYOUT_ILP_H

#include "solve/layout_core.h"

/* Number of variables that the program has. */
int64_t lay_ilp_size(const struct lay_core *c);

/* Looks for a choice cheaper than *value (LAY_INF: any), for at most budget_s seconds. A
 * better one goes to x and *value; *bound is raised to what was proven. True if the search
 * was complete: *bound == *value, and LAY_INF if there is no choice at all. */
bool lay_ilp(const struct lay_core *c, double budget_s, double gap, int *x, int64_t *value,
             int64_t *bound);

#endif
