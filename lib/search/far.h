/* far.h - tensors that many ops read, such as what an encoder leaves to every block of a decoder.
 *
 * The sums of a prefix have an edge where its origin stands, with all of its readers. So a
 * stretch of ops is the difference of two of them but for edges that cross its ends: where the
 * origin is inside and readers are not, the sums save too much, where readers are inside and the
 * origin is not, too little. For edges with a reader or two that hardly matters; of those with
 * many it may be most of the memory.
 *
 *     struct far f;
 *     far_begin(&f, s, t);
 *     far_add(&f, first, end, &brief);        // of ops first .. end-1
 *     far_end(&f);
 */
#ifndef WEFT_FAR_H
#define WEFT_FAR_H

#include "search/search_impl.h"

/* What was asked under one prefix, by edge and number of readers: these are mostly alike. */
struct far {
    struct search *s;
    const struct prefix *t;
    struct memo known;
};

void far_begin(struct far *f, struct search *s, const struct prefix *t);
void far_end(struct far *f);
/* Does any such edge cross the ends of a stretch? Adds what its sums lack, and says so. */
bool far_add(struct far *f, int first, int end, struct brief *b);
/* Has the model such edges at all? */
bool far_any(const struct search *s);

#endif
