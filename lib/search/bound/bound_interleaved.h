/* bound_interleaved.h - the bound of interleaved pipelines, whose stages go round the same
 * groups several times.
 *
 * Their groups all have one size (eval_legal), so the ranks of each stage are known.
 * All groups together do all ops and receive what passes all cuts. One of them does at
 * least an even share of that, after the first micro-batch has come through the stages
 * in front of its first stage, and before the last one goes back. Two stages on each
 * group give the fewest cuts. These are placed where receiving takes the least time, but
 * so that no single stage takes too long.
 */
#ifndef WEFT_BOUND_INTERLEAVED_H
#define WEFT_BOUND_INTERLEAVED_H

#include "search/bound/bound_cuts.h"

/* Like chain_raise (bound_chain.h), for interleaved pipelines. */
double interleaved_raise(struct cuts *c, int devices, double us, double enough_us);

#endif
