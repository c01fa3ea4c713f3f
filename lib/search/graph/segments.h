/* segments.h - what is recomputed together: the ranges into which activation
 * checkpointing cuts a model (Chen et al. 2016, "Training deep nets with sublinear
 * memory cost").
 *
 * A segment is an innermost block of the model's file or, where ops repeat without
 * being in one, a unit of structure.h. Other ops are in no segment. A block that the
 * deduplicated model does not have in one piece, because layers repeat inside it, is
 * cut into units as well.
 *
 *     struct recompute_segments s;
 *     segments_find(&blocks, &s);
 *     int k = segments_from(&s, stage_first), n = segments_in(&s, stage_first, stage_end);
 *     segments_release(&s);
 */
#ifndef WEFT_SEGMENTS_H
#define WEFT_SEGMENTS_H

#include "search/graph/blocks.h"

struct recompute_segment {
    int first, end; /* ops of the whole model */
    /* the op of the deduplicated model that stands for the first op; the others follow
     * it */
    int from;
    /* Segments lead .. last-1 lie in one repeat; those a multiple of `stride` apart
     * are equal. */
    int stride, lead, last;
};

struct recompute_segments {
    int n;
    struct recompute_segment *list; /* [n] in order */
    int *of;                        /* [ops] the segment of an op, or -1 */
    int *before; /* [ops + 1] number of segments that begin in front of an op */
};

void segments_find(const struct blocks *b, struct recompute_segments *s);
void segments_release(struct recompute_segments *s);

/* Returns the first segment that has an op at or behind this one; s->n if there is
 * none. */
int segments_from(const struct recompute_segments *s, int op);
/* Returns how many segments have ops among first .. end-1. */
int segments_in(const struct recompute_segments *s, int first, int end);

/* Returns whether an op behind this op's segment reads this op's result. */
bool segments_leaves(const struct blocks *b, const struct recompute_segments *s, int op);
/* Returns whether the op is in a segment that does not pass its result on. Then it is
 * recomputed where the whole segment is. */
bool segments_inner(const struct blocks *b, const struct recompute_segments *s, int op);

#endif
