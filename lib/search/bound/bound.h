/* bound.h - the time that no plan of the space beats.
 *
 * The relaxation by prices: ops cost their lower bounds (op_bounds.h), each with the layout, ZeRO and recompute
 * that suit it best; there are no messages and no bubbles; a stage may hold part of an op. What is
 * left is that a group of devices with s others behind it holds min(s + 1, m) micro-batches, that
 * its memory is limited, that all its work, m micro-batches and the step's end, has to be done within
 * the step, and that the groups share the devices.
 *
 * Each op has a price. A group of d devices with s behind it, within time T and memory M, takes
 * stretches of the model (one, or up to four where the schedule is interleaved) worth at most
 * V(s, d, T), for which Lagrange multipliers on time and memory give bounds from above; another
 * on the devices bounds what all groups together take. Where that is less than what the whole
 * model is worth, no plan is as fast as T. Devices of several kinds have prices in proportion to
 * what they do, and their own lower bounds and memory; a group on several kinds counts as one of that
 * which is cheapest for it. That holds for any prices; those tried are what ops cost on some
 * number of devices, with some multiplier on memory. The bound is the least over all
 * micro-batches.
 *
 * Where the parts of an instruction never take less together than the whole (cost/provider.h), the
 * devices' even share of all work on one device is a bound, too. It stands for the relaxation where that
 * does not prove a thousandth more of small groups.
 *
 * Where groups are on neighbouring ranks in the order of the pipeline, stages are whole ops and
 * it is known on which ranks each is. Then messages and the first micro-batch's way to a stage
 * count too: for pipelines with one stage on each group (bound_chain.h) and for interleaved
 * ones (bound_interleaved.h). The lower of the two raises the bound.
 */
#ifndef WEFT_BOUND_H
#define WEFT_BOUND_H

#include "search/evaluate/evaluate.h"

/* The names of what proves a bound: the relaxation without places of groups; the one with them;
 * or that an algorithm went through the whole space, and all plans within SEARCH_SLACK of the
 * best were simulated. */
#define BOUND_PRICED "dual bound"
#define BOUND_PLACED "placed dual bound"
#define BOUND_LISTED "all plans"

/* Microseconds of a step; INFINITY where no plan fits; 0 where there is no bound: when time is up,
 * and on more than 1,024 devices. micro_us: NULL, or [n_micro] the same with each micro-batch. */
double bound_us(struct evaluate *ev, double *micro_us);
/* Which of the relaxations that is. */
const char *bound_relaxation(const struct space *sp);

#endif
