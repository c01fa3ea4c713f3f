/* branch.h - branch and bound over all candidates, where the ways of stages can be listed (choices.h).
 *
 * No candidate is dropped that is estimated within SEARCH_SLACK of the best, so the simulator
 * has all of them to choose from. If the search ends by itself, its plan is proven to be the
 * best.
 *
 *     branch_to_proof(s, NULL, NULL);
 */
#ifndef WEFT_BRANCH_H
#define WEFT_BRANCH_H

#include "search/state.h"

/* The least time of a step, in microseconds, that a stage keeps its devices busy, whichever way
 * it is done; its ops and devices are set. 0 = nothing is known. Asked before its ways are
 * listed. */
typedef double branch_bound(void *ctx, const struct search_stage *st, int64_t micro_batch,
                            int first_rank, bool apart);

/* From now on the search is exact (pool_be_exact). If all of the space was gone through, the search
 * is complete and its plan proven. least_us may be NULL; ctx goes to it. */
void branch_to_proof(struct search *s, branch_bound *least_us, void *ctx);

/* Can the ways of all stages be listed, without any being left out by a bound? */
bool branch_is_small(struct search *s);
/* Does it mostly end within a second with a bound for stages, whether or not all ways can be listed? */
bool branch_may_end(const struct search *s);

#endif
