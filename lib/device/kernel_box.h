/* kernel_box.h - which random number an element of a block has: the arithmetic that all devices share.
 *
 * Numbers follow from the index in the whole tensor. A block is walked in rows that are contiguous
 * both in the block and in the whole, so that the index grows by one along a row; trailing dimensions
 * that the block holds entirely make one long row.
 *
 *     struct box_rows r = box_rows(&box);
 *     uint64_t index = box_row_index(&r, i) + j; // of element j of row i
 *     bool kept = rng_mix(key + index * RNG_STEP) >> 40 >= dropout_bound(p);
 */
#ifndef WEFT_KERNEL_BOX_H
#define WEFT_KERNEL_BOX_H

#include "common/both.h"
#include "common/rng.h"
#include "device/kernel.h"

#include <assert.h>
#include <math.h>

/* A box as rows of `inner` elements, each contiguous in the block and in the whole. */
struct box_rows {
    int64_t outer, inner;
    int32_t rank;                  /* dimensions that number the rows */
    int64_t size[KERNEL_MAX_RANK]; /* of those dimensions */
    int64_t step[KERNEL_MAX_RANK]; /* index in the whole tensor per step of each */
    int64_t base;                  /* index in the whole of the block's first element */
};

static inline struct box_rows box_rows(const struct kernel_box *box) {
    struct box_rows r;
    int32_t d = box->rank;
    int64_t step = 1;
    assert(d >= 0 && d <= KERNEL_MAX_RANK);
    r.outer = r.inner = 1;
    r.base = 0;
    /* Take dimensions from the last while everything behind is held entirely. */
    for (bool open = true; open && d > 0; d--) {
        open = box->size[d - 1] == box->whole[d - 1];
        r.inner *= box->size[d - 1];
        r.base += box->first[d - 1] * step;
        step *= box->whole[d - 1];
    }
    r.rank = d;
    for (; d > 0; d--) {
        r.size[d - 1] = box->size[d - 1];
        r.step[d - 1] = step;
        r.outer *= box->size[d - 1];
        r.base += box->first[d - 1] * step;
        step *= box->whole[d - 1];
    }
    return r;
}

/* Index in the whole tensor of the first element of row i. */
BOTH uint64_t box_row_index(const struct box_rows *r, int64_t i) {
    int64_t at = r->base;
    for (int32_t d = r->rank; d > 0; d--) {
        at += i % r->size[d - 1] * r->step[d - 1];
        i /= r->size[d - 1];
    }
    return (uint64_t)at;
}

/* An element is kept where the top 24 bits of its number reach the bound: then rng_uniform >= p. */
BOTH int32_t dropout_bound(float p) {
    return (int32_t)ceil((double)p * 0x1p24);
}
BOTH float dropout_scale(float p) {
    return p < 1 ? 1.0f / (1.0f - p) : 0.0f;
}
/* The stream of numbers of an op in a step. */
BOTH uint64_t dropout_stream(int64_t step, int op) {
    return rng_mix(((uint64_t)step << 24) + (uint64_t)op + 1);
}

#endif
