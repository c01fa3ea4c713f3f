/* bound_chain.h - the bound of pipelines with one stage on each group.
 *
 * Where groups are on neighbouring ranks in the order of the pipeline, the least that a stage
 * takes follows from its ops and its group: lower bounds of its ops, messages with the stages around
 * it (bound_cuts.h), and its memory by prices of bytes. Before it begins, the first micro-batch
 * has gone forward through the path of the stages in front. So with
 *
 *     T(i, u) = the least time of ops i and on, on the last u devices, from when their first comes
 *     T(i, u) = min over j, d of max(work of ops i .. j-1 on d devices, their path + T(j, u - d))
 *
 * no step of a pipeline is shorter than T(0, all devices), whatever the order of what a group
 * does: all schedules but those that go round. How many stages follow counts as far as it says what a stage
 * holds.
 */
#ifndef WEFT_BOUND_CHAIN_H
#define WEFT_BOUND_CHAIN_H

#include "search/bound/bound_cuts.h"

struct chain;
/* What stages take on any number of devices; the cuts are borrowed. */
struct chain *chain_make(struct cuts *c);
void chain_free(struct chain *h);
/* Raises a bound of these pipelines on so many devices, all of them used, up to `enough_us`.
 * The gradient norm does not count. Where that is too much work, the bound is raised by less or
 * stays. */
double chain_raise(struct chain *h, int devices, double us, double enough_us);

#endif
