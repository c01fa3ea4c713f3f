/* long_lived.h - tensors that many ops read, such as the encoder's result, which every
 * block of a decoder reads.
 *
 * The sums of a prefix count an edge at its origin, with all of its readers. So the
 * difference of two sums is wrong for edges that cross the ends of a range: if the
 * origin is inside and readers are outside, the sums save too much; if readers are
 * inside and the origin is outside, too little. For edges with one or two readers this
 * hardly matters; for edges with many readers it may be most of the memory.
 *
 *     struct long_lived f;
 *     long_lived_begin(&f, ev, t);
 *     long_lived_add(&f, first, end, &brief);        // of ops first .. end-1
 *     long_lived_end(&f);
 */
#ifndef WEFT_LONG_LIVED_H
#define WEFT_LONG_LIVED_H

#include "search/evaluate/evaluate.h"

/* Corrections under one prefix. They are kept by edge and number of readers, because
 * they are asked for again and again. */
struct long_lived {
    struct evaluate *ev;
    const struct prefix *t;
    struct memo known;
};

void long_lived_begin(struct long_lived *f, struct evaluate *ev, const struct prefix *t);
void long_lived_end(struct long_lived *f);
/* Corrects the sums of a range; returns whether long-lived edges cross its ends. */
bool long_lived_add(struct long_lived *f, int first, int end, struct brief *b);

#endif
