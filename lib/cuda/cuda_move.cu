/* Moving: strided blocks, and zeros.
 *
 * A block is copied in units of up to 16 bytes, the largest that divides its rows, strides and
 * addresses; a thread moves one. */
#include "cuda/cuda_block.h"

/* Dims of a block, the innermost last, with sizes and strides in units. */
struct block {
    int rank;
    int64_t size[KERNEL_MAX_RANK], from[KERNEL_MAX_RANK], to[KERNEL_MAX_RANK];
};

/* Dims that are contiguous on both sides become one. */
static struct block merge(const struct device_copy *c) {
    struct block b;
    b.rank = 0;
    for (int d = 0; d < c->rank; d++) {
        const int last = b.rank - 1;
        if (c->size[d] == 1)
            continue;
        if (last >= 0 && b.from[last] == c->size[d] * c->src[d] &&
            b.to[last] == c->size[d] * c->dst[d]) {
            b.size[last] *= c->size[d];
            b.from[last] = c->src[d];
            b.to[last] = c->dst[d];
        } else {
            b.size[b.rank] = c->size[d];
            b.from[b.rank] = c->src[d];
            b.to[b.rank++] = c->dst[d];
        }
    }
    if (b.rank == 0) {
        b.rank = 1;
        b.size[0] = b.from[0] = b.to[0] = 1;
    }
    return b;
}

/* The largest unit in elements: 1 where the innermost dim has gaps on either side. */
static int64_t unit_of(const struct block *b, int64_t bytes, const void *x, const void *y) {
    const int in = b->rank - 1;
    if (b->from[in] != 1 || b->to[in] != 1)
        return 1;
    int64_t all = (int64_t)((uintptr_t)x | (uintptr_t)y | VECTOR) | b->size[in] * bytes;
    for (int d = 0; d < in; d++)
        all |= b->from[d] * bytes | b->to[d] * bytes;
    return (all & -all) / bytes; /* the lowest bit of any */
}

template <typename U> CUDA_KERNEL void copy(struct block b, int64_t n, const U *x, U *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    int64_t left = i, from = 0, to = 0;
    for (int d = b.rank - 1; d >= 0; d--) {
        const int64_t rest = d > 0 ? quotient(left, b.size[d]) : 0;
        const int64_t at = left - rest * b.size[d];
        from += at * b.from[d];
        to += at * b.to[d];
        left = rest;
    }
    y[to] = x[from];
}

template <typename U>
static void launch_copy(struct cuda_call *c, const struct block *b, const void *x,
                        void *y) {
    int64_t n = 1;
    for (int d = 0; d < b->rank; d++)
        n *= b->size[d];
    if (n > 0)
        CUDA_LAUNCH(copy<U>, blocks_of(n, BLOCK), BLOCK, 0, c->stream, *b, n, (const U *)x,
                    (U *)y);
}

CUDA_FUNCTION(copy) {
    (void)n;
    const int64_t bytes = dtype_size(c->args->dtype);
    struct block b = merge(&c->args->copy);
    const char *x = (const char *)in->x + c->args->src_offset * bytes;
    const int64_t unit = unit_of(&b, bytes, x, out->y), in_unit = b.rank - 1;
    if (unit > 1) {
        b.size[in_unit] /= unit;
        for (int d = 0; d < in_unit; d++)
            b.from[d] /= unit, b.to[d] /= unit;
    }
    switch (unit * bytes) {
    case 16: launch_copy<uint4>(c, &b, x, out->y); break;
    case 8: launch_copy<uint2>(c, &b, x, out->y); break;
    case 4: launch_copy<uint32_t>(c, &b, x, out->y); break;
    case 2: launch_copy<uint16_t>(c, &b, x, out->y); break;
    default: launch_copy<uint8_t>(c, &b, x, out->y); break;
    }
    return 0;
}

CUDA_FUNCTION(fill) {
    (void)in;
    CUDA_CLEAR(c->stream, out->y, n->elems * dtype_size(c->args->dtype));
    return 0;
}
