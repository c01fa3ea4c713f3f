/* incumbents.h - the best candidate so far at fixed points of the work, so that a
 * longer budget never gives a slower plan.
 *
 * The plan that a stopped search prints must be among those that a longer search chooses
 * from. The best candidate by estimate need not be: a later one may have a better
 * estimate and a worse simulated time, and push it out of the list of the best. So the
 * best candidate is noted whenever the work done, counted in scored stages, has grown by
 * half since the last time, and at the end of each phase. Up to the point where it is
 * stopped, a search always notes the same ones. Some runners-up are noted with each, in
 * case it turns out too large. Under a budget each incumbent is simulated at once, and
 * the fastest is printed when the budget is used up. A search that ends by itself
 * simulates them along with its finalists.
 *
 *     pool_note_incumbent_if_due(pool);    // after each change of the list of the best
 *     pool_note_incumbent(pool);           // at the end of a phase
 */
#ifndef WEFT_INCUMBENTS_H
#define WEFT_INCUMBENTS_H

#include "search/pool/pool.h"

/* Notes the best candidate so far, unless it was the last one noted or the search is
 * stopped. */
void pool_note_incumbent(struct pool *pool);
void pool_note_incumbent_if_due(struct pool *pool);
/* Adds a candidate that another search for the same problem noted, translated to this
 * search's space (auto.c). */
void pool_add_incumbent(struct pool *pool, const struct candidate *c,
                        const struct score *score);
void pool_forget_incumbents(struct pool *pool);

#endif
