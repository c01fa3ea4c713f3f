/* bound_chain.h - the bound of pipelines with one stage on each group.
 *
 * Where groups are on neighbouring ranks in the order of the pipeline, the least time
 * of a stage follows from its ops and its group: the lower bounds of the ops, messages
 * to and from the stages around it (bound_cuts.h), and its memory by duals of bytes.
 * Before the stage begins, the first micro-batch has gone forward along the path
 * through the stages in front. So with
 *
 *     T(i, u) = the least time of ops i and on, on the last u devices, from when their
 *               first micro-batch arrives
 *     T(i, u) = min over j, d of max(work of ops i .. j-1 on d devices,
 *                                    their path + T(j, u - d))
 *
 * no step of a pipeline is shorter than T(0, all devices). This holds for any order in
 * which a group does its work, and so for all schedules except interleaved ones. The
 * number of stages that follow is used only to tell what a stage holds in memory.
 */
#ifndef WEFT_BOUND_CHAIN_H
#define WEFT_BOUND_CHAIN_H

#include "search/bound/bound_cuts.h"

struct chain;
/* Prepares sums for stages on any number of devices; the cuts are borrowed. */
struct chain *chain_make(struct cuts *c);
void chain_free(struct chain *h);
/* Raises a bound of pipelines that use all of this many devices, up to `enough_us`.
 * The gradient norm is not included. If raising it fully is too much work, the bound is
 * raised by less or stays as it is. */
double chain_raise(struct chain *h, int devices, double us, double enough_us);

#endif
