/* sliced.h - the starts of dp and ilp: pipelines of the stages solver and uniform
 * ones, laid out by a solver.
 *
 * sliced_pipelines(s, lay_out, NULL);        // the pool remembers what is found
 */
#ifndef WEFT_SLICED_H
#define WEFT_SLICED_H

#include "search/state.h"

/* Lays stage k out anew; returns false if nothing changed. */
typedef bool sliced_layouter(struct search *s, struct candidate *c, int k, void *ctx);

/* For every micro-batch, takes the pipelines of search_slice with and without the highest
 * level of ZeRO, under every schedule. The best one for each micro-batch, and the best
 * starts of hops, are laid out and balanced as long as that helps. At the end, the best
 * of all is tried with other levels of ZeRO. ctx is passed to the layouter. */
void sliced_pipelines(struct search *s, sliced_layouter *lay_out, void *ctx);

#endif
