/* improve.h - what algorithms share: changes of a whole candidate, each by a solver.
 *
 *     if (search_slice(s, micro_batch, false, &c) && search_balance(s, &c))
 *         pool_score(&s->pool, &c);
 */
#ifndef WEFT_IMPROVE_H
#define WEFT_IMPROVE_H

#include "search/state.h"

/* The best pipeline with this micro-batch of uniform stages cut between blocks
 * (lib/solve/stages/stages.h); false when none fits. shard: with ZeRO's highest level; else with the
 * optimizer's state sharded or nothing. */
bool search_slice(struct search *s, int64_t micro_batch, bool shard, struct candidate *out);

/* Cuts the ops anew so that the slowest stage is as fast as it can be within the memory, with
 * as few blocks recomputed as possible; devices and layouts stay. False when nothing fits. */
bool search_balance(struct search *s, struct candidate *c);

/* Lays stage k out anew, all ops at once, so that it is as fast as it can be within the memory
 * (lib/solve/layout/layout.h); false where nothing changed. */
bool search_relayout(struct search *s, struct candidate *c, int k);

#endif
