/* branch.h - branch and bound over all candidates, for spaces in which the strategies
 * of stages can be listed (strategies.h).
 *
 * No candidate is dropped whose estimate is within SEARCH_SLACK of the best, so that
 * the simulator can choose among all of them. If the search ends by itself, its plan
 * is proven to be the best.
 *
 *     branch_to_proof(s, NULL, NULL);
 */
#ifndef WEFT_BRANCH_H
#define WEFT_BRANCH_H

#include "search/state.h"

/* Returns the least time in microseconds for which the stage keeps its devices busy in
 * a step, whichever strategy it takes; 0 if nothing is known. The ops and devices of
 * the stage are set. It is called before the strategies of the stage are listed. */
typedef double branch_bound(void *ctx, const struct search_stage *st, int64_t micro_batch,
                            int first_rank, bool apart);

/* Makes the search exact (pool_be_exact) and searches the whole space. Unless the budget
 * ends it, the search is complete, and if nothing cut it short, its plan is proven.
 * least_us may be NULL; ctx is passed to it. */
void branch_to_proof(struct search *s, branch_bound *least_us, void *ctx);

/* Returns whether the strategies of all stages can be listed without a branch_bound that
 * leaves some out. */
bool branch_is_small(struct search *s);
/* Returns whether the search usually ends within a second if it has a branch_bound, even
 * where not all strategies can be listed. */
bool branch_may_end(const struct search *s);

#endif
