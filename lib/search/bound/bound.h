/* bound.h - the time that no plan of the space can beat.
 *
 * The Lagrangian relaxation: every op costs its lower bound (op_bounds.h), with the
 * layout, ZeRO and recompute that suit it best; there are no messages and no bubbles;
 * a stage may hold a part of an op. These constraints remain: a group of devices with s
 * others behind it holds min(s + 1, m) micro-batches; its memory is limited; it has to do
 * all its work, m micro-batches and the end of the step, within the step; and the groups
 * share the devices.
 *
 * Each op has a dual. A group of d devices with s groups behind it, within time T and
 * memory M, takes ranges of the model (one, or up to four where the schedule is
 * interleaved) whose duals add up to at most V(s, d, T). Lagrange multipliers on time
 * and memory bound V from above, and one on the devices bounds what all groups take
 * together. Where that is less than the sum of all duals, no plan is as fast as T.
 * Devices of several kinds have multipliers in proportion to their speed, and their
 * own lower bounds and memory; a group on several kinds counts as one on the kind that
 * is cheapest for it. Any duals give a valid bound. Those tried are the costs of ops on
 * some number of devices, with some multiplier on memory. The bound is the least over
 * all micro-batches.
 *
 * Where the parts of a divided instruction together never take less than the whole
 * (cost/provider.h), an even share of all work on one device is a bound as well. It
 * replaces the relaxation where the relaxation proves less than a thousandth more for
 * small groups.
 *
 * Where groups stand on neighbouring ranks in the order of the pipeline, stages are
 * whole ops and the ranks of each are known. Then messages and the path of the first
 * micro-batch to a stage count too: for pipelines with one stage on each group
 * (bound_chain.h) and for interleaved ones (bound_interleaved.h). The bound is raised to
 * the lower of the two.
 */
#ifndef WEFT_BOUND_H
#define WEFT_BOUND_H

#include "search/evaluate/evaluate.h"

/* The names of what proves a bound: the relaxation without the places of groups; the
 * relaxation with them; or an algorithm that searched the whole space and simulated all
 * plans within SEARCH_SLACK of the best. */
#define BOUND_DUAL   "dual bound"
#define BOUND_PLACED "placed dual bound"
#define BOUND_LISTED "all plans"

/* Microseconds of a step; INFINITY if no plan fits; 0 if there is no bound because
 * time is up or because there are more than 1,024 devices. micro_us: NULL, or
 * [n_micro] receives the bound with each micro-batch. */
double bound_us(struct evaluate *ev, double *micro_us);
/* Which relaxation gives the bound in this space. */
const char *bound_relaxation(const struct space *sp);

#endif
