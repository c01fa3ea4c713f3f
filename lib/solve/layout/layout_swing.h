/* layout_swing.h - local search by whole trees, between saving memory and spending it.
 *
 * A move sets the variables of a random tree free, which have no other edges among them
 * than the tree's, and finds the best values of all of them at once by dynamic programming,
 * while the others stay. If a memory row breaks, its use is charged in this move, and the
 * move is tried again. A swing first charges memory a fraction of the multipliers that the
 * dual has found, so that choices give up memory that is worth less than that. Then memory
 * is free, and what was gained is spent where it saves most. Oscillating about the edge of
 * what is allowed is Glover's idea (1977).
 */
#ifndef WEFT_SOLVE_LAYOUT_SWING_H
#define WEFT_SOLVE_LAYOUT_SWING_H

#include "common/rng.h"
#include "solve/layout/layout_local.h"

struct layout_swing {
    struct layout_core *core; /* its multipliers are the charges */
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
