/* kernel_position.h - relative positions in attention (Raffel et al., T5, 2020): a query adds to its
 * score of a key a learned number, one per head, that the distance between the two chooses.
 *
 * Near keys have a number each, farther ones share one with ever more of their neighbours, and
 * beyond `distance` all are alike. So what a head adds is a row of 2 distance + 1 numbers, and
 * what a block of scores gets lies on its diagonals. Nothing has the size of the scores.
 */
#ifndef WEFT_KERNEL_POSITION_H
#define WEFT_KERNEL_POSITION_H

#include "device/attention.h"
#include "kernel_vec.h"

/* near[i] = factor times what the head adds at distance i - p->distance; the table's elements are of
 * `type`. */
void position_near(const struct positions *p, enum dtype type, const void *table,
                   int64_t head, float factor, float *near);
/* diagonal[i] = what is added at distance first + step i, i < n; 16 zeros behind. */
void position_diagonal(const struct positions *p, const float *near, int64_t first,
                       int64_t step, int64_t n, float *diagonal);
/* near[..] += diagonal[i], the gradients in the same places. */
void position_collect(const struct positions *p, const float *diagonal, int64_t first,
                      int64_t step, int64_t n, float *near);
/* The head's gradients: table[..] += near[i]. */
void position_gather(const struct positions *p, const float *near, int64_t head,
                     float *table);

/* ALiBi's, of a query for keys from this position of the sequence on. */
VEC void position_slope(float *s, int64_t seen, const struct alibi_head *h, int64_t key,
                        int64_t query) {
    const vf lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (h->rounded)
        for (int64_t j = 0; j < seen; j++)
            s[j] += alibi_between(h, key + j, query);
    else
        for (int64_t j = 0; j < seen; j += VL)
            v_store(s + j,
                    v_fma(lane + (float)(key - query + j), v_set(h->slope), v_load(s + j)));
}

#endif
