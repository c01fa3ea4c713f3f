/* layout_elim.h - exact answers without memory rows, by elimination of variables. */
#ifndef WEFT_SOLVE_LAYOUT_ELIM_H
#define WEFT_SOLVE_LAYOUT_ELIM_H

#include "solve/layout/layout_core.h"

/* Solves a core without rows if no table needs more than `most` entries. Returns whether it
 * did; then x (n_vars) is the best choice and *value its cost, LAYOUT_INF when there is
 * none. */
bool layout_eliminate(const struct layout_core *c, int64_t most, int *x, int64_t *value);

#endif
