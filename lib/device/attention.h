/* attention.h - what the instructions of attention say, as the kernels of every device take it.
 *
 *     struct kernel_attention t = attention_of(n, in->lengths, in->starts, in->positions, args);
 *     if (t.positions)
 *         position_init(&p, &t);
 */
#ifndef WEFT_ATTENTION_H
#define WEFT_ATTENTION_H

#include "device/device.h"

/* Of I_attention and, as it has the same numbers, I_attention_bwd. Packed, q, k and v are slices of
 * one [batch, seq, 3, heads, dim] tensor. lengths, starts and positions are borrowed. */
struct kernel_attention attention_of(const struct attention_n *n, const int32_t *lengths,
                                     const int32_t *starts, const void *positions,
                                     const struct device_args *a);
/* Of I_attention_more and I_attention_more_bwd, which go on from the keys before. */
struct kernel_attention attention_more_of(const struct attention_more_n *n,
                                          const int32_t *lengths, const int32_t *starts,
                                          const void *positions,
                                          const struct device_args *a);

enum { POSITION_MOST = 1024, POSITION_NEAR = 2 * POSITION_MOST + 1 };

/* Which of its learned numbers a head adds to a score at which distance (kernel_position.h). */
struct positions {
    int64_t heads;
    int distance;
    uint16_t bucket[POSITION_NEAR]; /* of the distances -distance .. distance */
};
/* Needs t->positions, not what it points to. */
void position_init(struct positions *p, const struct kernel_attention *t);

#endif
