/* far.h - tensors that many ops read, such as what an encoder leaves to every block of a decoder.
 *
 * The sums of a prefix count an edge at its origin, with all of its readers. So the difference
 * of two sums is wrong for edges that cross the ends of a stretch: where the origin is inside
 * and readers are not, the sums save too much; where readers are inside and the origin is not,
 * too little. For edges with a reader or two that hardly matters; for those with many it may be
 * most of the memory.
 *
 *     struct far f;
 *     far_begin(&f, s, t);
 *     far_add(&f, first, end, &brief);        // of ops first .. end-1
 *     far_end(&f);
 */
#ifndef WEFT_FAR_H
#define WEFT_FAR_H

#include "search/search_impl.h"

/* What was asked under one prefix, by edge and number of readers; most questions repeat. */
struct far {
    struct search *s;
    const struct prefix *t;
    struct memo known;
};

void far_begin(struct far *f, struct search *s, const struct prefix *t);
void far_end(struct far *f);
/* Adds what the sums of a stretch lack; returns whether any such edge crosses its ends. */
bool far_add(struct far *f, int first, int end, struct brief *b);
/* Has the model such edges at all? */
bool far_any(const struct search *s);

#endif
