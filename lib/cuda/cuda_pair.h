/* cuda_pair.h - two instructions that may be done in one: a product of a linear layer, and GELU or its gradient of
 * what it makes, by the library; a norm with the sum before it, or its gradient with the sum behind it, by a
 * kernel.
 *
 * A captured region is given its instructions one behind the other, so what may be the first of a pair is held back until
 * the next one is known. Memory is as the program plans it: what is between the two is kept in its place.
 *
 *     if (cuda_pair_fits(&held, &next))
 *         return cuda_pair_give(call, &held, &next);
 */
#ifndef WEFT_CUDA_PAIR_H
#define WEFT_CUDA_PAIR_H

#include "cuda/cuda.h"
#include "cuda/cuda_impl.h"

/* May there be a second that fits? */
bool cuda_pair_begins(enum opcode code);
/* Is the second made of what the first makes, may nobody else want what is no longer
 * written, and would no result lie on an operand that is read meanwhile? */
bool cuda_pair_fits(const struct cuda_given *first, const struct cuda_given *second);
/* Both, which fit: 1 in one, 0 one by one, or -1. Of the call all but the arguments counts; those are the
 * instructions' own. */
int cuda_pair_give(struct cuda_call *c, const struct cuda_given *first,
                   const struct cuda_given *second);

/* ---- the sorts of pairs; what they are asked for is one by its opcodes and of one type ---------- */

/* cuda_pair_gelu.c: in one where the library has that and it is faster. */
bool cuda_pair_gelu_fits(const struct cuda_given *first, const struct cuda_given *second);
int cuda_pair_gelu_give(struct cuda_call *c, const struct cuda_given *first,
                        const struct cuda_given *second);
/* cuda_pair_norm.c: always in one. */
bool cuda_pair_norm_fits(const struct cuda_given *first, const struct cuda_given *second);
int cuda_pair_norm_give(struct cuda_call *c, const struct cuda_given *first,
                        const struct cuda_given *second);

/* Have so many bytes from a and from b on none in common? */
static inline bool cuda_disjoint(const void *a, int64_t a_bytes, const void *b,
                                 int64_t b_bytes) {
    const uintptr_t p = (uintptr_t)a, q = (uintptr_t)b;
    return p + (uintptr_t)a_bytes <= q || q + (uintptr_t)b_bytes <= p;
}

#endif
