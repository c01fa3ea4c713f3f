/* sliced.h - pipelines as the stages solver cuts them, and uniform ones, laid out by a solver:
 * the starts of dp and ilp.
 *
 *     sliced_pipelines(s, lay_out, NULL);        // what is found is remembered by the search
 */
#ifndef WEFT_SLICED_H
#define WEFT_SLICED_H

#include "search/state.h"

/* Lays stage k out anew; false where nothing changed. */
typedef bool sliced_layouter(struct search *s, struct candidate *c, int k, void *ctx);

/* For every micro-batch the pipelines of search_slice, with the highest level of ZeRO and
 * without, under every schedule. The best of each, and the best starts of hops, get their
 * stages laid out and their cuts balanced as long as that helps; at the end the best of all is
 * tried with other levels of ZeRO. ctx goes to the layouter. */
void sliced_pipelines(struct search *s, sliced_layouter *lay_out, void *ctx);

#endif
