/* cuda_pair.h - two instructions that the library may do in one: a product of a linear layer, and GELU or its
 * gradient of what it makes.
 *
 * A recording is given its instructions one behind the other, so a product is held back until the next one is
 * known. Memory is as the program plans it: what GELU is of is kept in its place (the epilogue's aux).
 *
 *     if (cuda_pair_fits(&held, &next))
 *         return cuda_pair_give(call, &held, &next); // in one or one by one, whichever is faster
 */
#ifndef WEFT_CUDA_PAIR_H
#define WEFT_CUDA_PAIR_H

#include "cuda/cuda.h"
#include "cuda/cuda_impl.h"

/* May there be a second that fits? */
bool cuda_pair_begins(enum opcode code);
/* Is the second GELU or its gradient of what the first makes, may nobody else want what is no longer
 * written, and would no result lie on an operand that is read meanwhile? */
bool cuda_pair_fits(const struct cuda_given *first, const struct cuda_given *second);
/* Both, which fit: 1 in one, 0 one by one, or -1. Of the call all but the arguments counts; those are the
 * instructions' own. */
int cuda_pair_give(struct cuda_call *c, const struct cuda_given *first,
                   const struct cuda_given *second);
/* The first of a pair alone, for want of a second. */
int cuda_pair_give_first(struct cuda_call *c, const struct cuda_given *first);

#endif
