/* improve.h - changes of a whole candidate that several algorithms share, each made by
 * a solver.
 *
 *     if (search_slice(s, micro_batch, false, &c) && search_balance(s, &c, INFINITY))
 *         pool_score(&s->pool, &c);
 */
#ifndef WEFT_IMPROVE_H
#define WEFT_IMPROVE_H

#include "search/state.h"

#include <math.h>

/* Finds the best pipeline for this micro-batch whose stages are uniform and cut
 * between units (lib/solve/stages/stages.h); false if none fits. shard: with the
 * highest level of ZeRO; otherwise nothing or only the optimizer's state is sharded. */
bool search_slice(struct search *s, int64_t micro_batch, bool shard, struct candidate *out);

/* Cuts the ops anew so that the slowest stage is as fast as it can be within the
 * memory, with as few blocks recomputed as possible. Devices and layouts stay. Returns
 * false if nothing fits, or if the score would be above most_us (INFINITY: any will do),
 * which often shows without balancing. */
bool search_balance(struct search *s, struct candidate *c, double most_us);

/* Lays all ops of stage k out anew so that it is as fast as it can be within the
 * memory (lib/solve/layout/layout.h). Returns false if nothing changed. */
bool search_relayout(struct search *s, struct candidate *c, int k);

#endif
