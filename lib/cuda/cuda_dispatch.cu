/* Tokens to the slots of experts, and back: a block takes a token.
 *
 * A slot is position * all experts + expert. No two choices of a group have one slot, so rows are written
 * without atomics; rows of slots that nobody took are zeros, which are put everywhere first. What a token
 * gets back is added up in the order of its choices. */
#include "cuda/cuda_row.h"
#include "cuda/cuda_sum.h"

/* The local experts' rows [experts, groups, capacity, width]. */
struct slots {
    int64_t groups, tokens, choices, total, experts, capacity, width;
    int64_t first; /* expert */
    const int32_t *slot;
};

/* dispatch, combine and their gradients have the same numbers. */
#define SLOTS_OF(n, in, c)                                                                 \
    {                                                                                      \
        (n)->groups, (n)->tokens, (n)->choices, (n)->total, (n)->experts, (n)->capacity,   \
            (n)->width, (c)->args->first, (const int32_t *)(in)->slots                     \
    }

/* The row of a choice of token i, or -1: it was dropped, or its expert is another rank's. */
CUDA_DEVICE int64_t row_of(const struct slots &s, int64_t i, int64_t choice) {
    const int64_t slot = s.slot[i * s.choices + choice], position = quotient(slot, s.total);
    const int64_t expert = slot - position * s.total - s.first;
    if (expert < 0 || expert >= s.experts || position >= s.capacity)
        return -1;
    return (expert * s.groups + quotient(i, s.tokens)) * s.capacity + position;
}

static int64_t row_bytes(const struct cuda_call *c, const struct slots *s) {
    return s->experts * s->groups * s->capacity * s->width * dtype_size(c->args->dtype);
}

template <typename T>
CUDA_KERNEL void dispatch(struct slots s, int64_t head, const T *x, T *y) {
    const int64_t i = blockIdx.x, width = s.width;
    each_in_row<T>(width, head, [&](int64_t j, auto lanes) {
        float v[decltype(lanes)::N];
        load(x + i * width + j, lanes, v);
        for (int64_t k = 0; k < s.choices; k++) {
            const int64_t row = row_of(s, i, k);
            if (row >= 0)
                store(y + row * width + j, lanes, v);
        }
    });
}

CUDA_FUNCTION(dispatch) {
    const struct slots s = SLOTS_OF(n, in, c);
    const bool vectors = aligned(in->x, out->y);
    CUDA_CLEAR(c->stream, out->y, row_bytes(c, &s));
    if (n->groups * n->tokens > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(dispatch<T>, (unsigned)(n->groups * n->tokens),
                               row_threads<T>(n->width, BLOCK), 0, c->stream, s,
                               row_head<T>(n->width, vectors), (const T *)in->x,
                               (T *)out->y));
    return 0;
}

/* A token's row of y is the sum of its rows of x, times the gates if there are any. */
template <typename T>
CUDA_KERNEL void gather(struct slots s, int64_t head, const T *x, const T *gates, T *y) {
    const int64_t i = blockIdx.x, width = s.width;
    each_in_row<T>(width, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float sum[L] = {0}, v[L];
        for (int64_t k = 0; k < s.choices; k++) {
            const int64_t row = row_of(s, i, k);
            if (row < 0)
                continue;
            const float gate = gates ? get(gates + i * s.choices + k) : 1;
            load(x + row * width + j, lanes, v);
#pragma unroll
            for (int l = 0; l < L; l++)
                sum[l] = fmaf(gate, v[l], sum[l]);
        }
        store(y + i * width + j, lanes, sum);
    });
}

static int launch_gather(struct cuda_call *c, const struct slots *s, const void *x,
                         const void *gates, void *y) {
    const bool vectors = aligned(x, y);
    if (s->groups * s->tokens > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(gather<T>, (unsigned)(s->groups * s->tokens),
                               row_threads<T>(s->width, BLOCK), 0, c->stream, *s,
                               row_head<T>(s->width, vectors), (const T *)x,
                               (const T *)gates, (T *)y));
    return 0;
}

CUDA_FUNCTION(dispatch_dx) {
    const struct slots s = SLOTS_OF(n, in, c);
    return launch_gather(c, &s, in->dy, NULL, out->dx);
}

CUDA_FUNCTION(combine) {
    const struct slots s = SLOTS_OF(n, in, c);
    return launch_gather(c, &s, in->x, in->gates, out->y);
}

template <typename T>
CUDA_KERNEL void combine_bwd(struct slots s, int64_t head, const T *x, const T *gates,
                             const T *dy, T *dx, T *dgates) {
    const int64_t i = blockIdx.x, width = s.width;
    for (int64_t k = 0; k < s.choices; k++) {
        const int64_t row = row_of(s, i, k);
        const float gate = get(gates + i * s.choices + k);
        float sum = 0;
        if (row >= 0)
            each_in_row<T>(width, head, [&](int64_t j, auto lanes) {
                enum { L = decltype(lanes)::N };
                float v[L], d[L];
                load(x + row * width + j, lanes, v);
                load(dy + i * width + j, lanes, d);
#pragma unroll
                for (int l = 0; l < L; l++) {
                    sum = fmaf(v[l], d[l], sum);
                    d[l] *= gate;
                }
                store(dx + row * width + j, lanes, d);
            });
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            put(dgates + i * s.choices + k, sum);
    }
}

CUDA_FUNCTION(combine_bwd) {
    const struct slots s = SLOTS_OF(n, in, c);
    const bool vectors = aligned(in->x, in->dy, out->dx);
    CUDA_CLEAR(c->stream, out->dx, row_bytes(c, &s));
    if (n->groups * n->tokens > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(combine_bwd<T>, (unsigned)(n->groups * n->tokens),
                               row_threads<T>(n->width, BLOCK), 0, c->stream, s,
                               row_head<T>(n->width, vectors), (const T *)in->x,
                               (const T *)in->gates, (const T *)in->dy, (T *)out->dx,
                               (T *)out->dgates));
    return 0;
}

CUDA_KERNEL void dropped(int64_t n, int64_t limit, const int32_t *slots, double *part) {
    int count = 0;
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        count += slots[i] >= limit;
    count = block_sum(count);
    if (threadIdx.x == 0)
        part[blockIdx.x] = count;
}

CUDA_FUNCTION(dropped) {
    (void)out;
    if (n->elems == 0)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->elems, BLOCK * 8);
    if (!blocks)
        return -1;
    CUDA_LAUNCH(dropped, blocks, BLOCK, 0, c->stream, n->elems, n->limit,
                (const int32_t *)in->slots, (double *)c->workspace);
    return cuda_sum_finish(c, blocks, &c->args->scalars->metrics[METRIC_dropped], NULL,
                           c->args->weight);
}
