/* estimate_turns.h - the part of estimate.h for pipelines of which no closed form is known: the
 * actions of a few rounds, one after the other.
 *
 *     double us = turns_us(SCHEDULE_interleaved, stages, 8, 4, 16);
 */
#ifndef WEFT_ESTIMATE_TURNS_H
#define WEFT_ESTIMATE_TURNS_H

#include "cost/estimate.h"

/* Microseconds until all groups have reduced their gradients. `groups` divides n; it is
 * less than n for interleaved stages, and n where only backward passes are split. */
double turns_us(enum schedule schedule, const struct estimate_stage *stages, int n,
                int groups, int64_t micro_batches);

#endif
