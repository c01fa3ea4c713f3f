/* bound_interleaved.h - the bound of pipelines that go round on the same groups (interleaved).
 *
 * Their groups are all of one size (search_legal), so it is known on which ranks each stage
 * stands. All groups together do all ops and take what passes all cuts; one of them does its even
 * share or more, behind the first micro-batch's way through the stages in front of its first one,
 * and in front of the last one's way back. With two stages on each group there are the fewest
 * cuts. They are put where what passes them takes the least, but so that no stage alone takes too
 * long.
 */
#ifndef WEFT_BOUND_INTERLEAVED_H
#define WEFT_BOUND_INTERLEAVED_H

#include "search/bound/bound_cuts.h"

/* As chain_raise (bound_chain.h). */
double interleaved_raise(struct cuts *c, int devices, double us, double enough_us);

#endif
