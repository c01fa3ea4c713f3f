/* estimate.h - the iteration time of a pipeline in closed form, for searches that score
 * millions of plans: O(stages), no memory, no simulation.
 *
 * A pipeline's time is its longest path of waiting. The estimate takes the maximum over a
 * family of such paths (descend to a stage, run that stage's steady state, ascend again,
 * with the detours that the ramps can force), so for a chain of stages it is a lower bound
 * of what simulate.h gives for a plan without staging stalls, and usually equal to it.
 *
 * For interleaved stages, and where weight gradients are computed apart, the actions of a
 * few rounds are laid out one after the other, with the rest of the steady state in the
 * middle. That gives the longest of all paths that stay with one group meanwhile.
 *
 *     struct estimate_stage st[2] = {{.forward_us = 10, .backward_us = 20},
 *                                    {.forward_us = 10, .backward_us = 20}};
 *     double us = estimate_us(SCHEDULE_DEFAULT, st, 2, 2, 8, 0);    // (8 - 1 + 2) * 30
 *
 * Scoring is incremental: only the changed stage's numbers are worked out again.
 */
#ifndef WEFT_ESTIMATE_H
#define WEFT_ESTIMATE_H

#include "cost/cost.h"

struct estimate_stage {
    /* For one micro-batch, including packing what is sent and moving what is received. */
    double forward_us, backward_us;
    /* gradients of weights, where the schedule computes them apart; else 0 */
    double weights_us;
    /* How long of these this stage and the one before it work on the same micro-batch at
     * the same time: messages leave in the middle of a segment, and what came from
     * elsewhere is taken meanwhile. 0 where nothing is known, and for the first stage. */
    double forward_shared_us, backward_shared_us;
    double reduce_us; /* update before the norm: gradient reductions */
    double update_us; /* update after the norm */
};

/* Iteration time in microseconds of micro_batches >= 1 through a chain of n >= 1 stages,
 * stage k on group k % groups. `groups` is n except for interleaved stages, where it
 * divides the micro-batches. norm_us is the time of the collective of all ranks. */
double estimate_us(enum schedule schedule, const struct estimate_stage *stages, int n,
                   int groups, int64_t micro_batches, double norm_us);

/* The same for a whole compiled program. */
double estimate_program_us(const struct program *g, struct cost *c);

#endif
