/* layout_swing.h - local search by whole trees, between saving memory and spending it.
 *
 * A move sets the variables of a random tree free, whose edges are the only ones between them,
 * and takes the best values for all of them at once (dynamic programming), the others staying
 * where they are. If a memory row breaks, its use gets a price in this move, and again. In a
 * swing, memory first has a share of the price that the dual gives it, so that choices give up
 * memory that is worth less than that; then it is free, and what was gained goes where it
 * saves most. The idea of oscillating about the edge of what is allowed is Glover's (1977).
 */
#ifndef WEFT_SOLVE_LAYOUT_SWING_H
#define WEFT_SOLVE_LAYOUT_SWING_H

#include "common/rng.h"
#include "solve/layout/layout_local.h"

struct layout_swing {
    struct layout_core *core; /* its multipliers are the prices */
    uint64_t seed;
    int swings;
    double deadline_s;
    const int *from; /* (n_vars) an allowed choice */
    int *x;          /* (n_vars) out: the best found; made by the run, free() it */
    int64_t value;   /* out: its cost */
    int *end; /* (n_vars) out: where the last swing ended, better or not; free() it */
};

void layout_swing_run(struct layout_swing *w);

#endif
