/* cuda_router.h - what kernels of routers share: a warp takes a token's logits, one for each expert, and
 * works out what it needs of their softmax and of the largest ones.
 */
#ifndef WEFT_CUDA_ROUTER_H
#define WEFT_CUDA_ROUTER_H

#include "cuda/cuda_block.h"

enum { ROUTER_WARPS = 4 }; /* of a block */

/* The warp's token, or row; all its lanes leave together where there is none. */
CUDA_DEVICE int64_t router_row() {
    return blockIdx.x * (int64_t)ROUTER_WARPS + threadIdx.x / WARP;
}
static inline unsigned router_blocks(int64_t rows) {
    return blocks_of(rows, ROUTER_WARPS);
}

/* p = exp(x - max) * scale are probabilities; max + log(sum) is the log-sum-exp. */
struct softmax {
    float max, sum, scale;
};
template <typename T> CUDA_DEVICE struct softmax softmax_of(int64_t n, const T *x) {
    struct softmax s;
    s.max = -INFINITY;
    s.sum = 0;
    for (int64_t j = threadIdx.x % WARP; j < n; j += WARP)
        s.max = fmaxf(s.max, get(x + j));
    s.max = warp_max(s.max);
    for (int64_t j = threadIdx.x % WARP; j < n; j += WARP)
        s.sum += expf(get(x + j) - s.max);
    s.sum = warp_sum(s.sum);
    s.scale = 1 / s.sum;
    return s;
}
template <typename T>
CUDA_DEVICE float probability(const struct softmax &s, const T *x, int64_t expert) {
    return expf(get(x + expert) - s.max) * s.scale;
}

/* A choice: an expert and its logit, or another number that it is chosen by. */
struct choice {
    float logit;
    int expert;
};

/* The largest logit, of equal ones the first, of those that come behind `last` in this order: the next
 * choice of a token whose first one comes behind {INFINITY, -1}. expert -1: only NaNs are left. */
template <typename F>
CUDA_DEVICE struct choice choose_next_by(int64_t n, const F &key, struct choice last) {
    struct choice best = {-INFINITY, -1};
    for (int j = threadIdx.x % WARP; j < n; j += WARP) {
        const float v = key(j);
        const bool behind = v < last.logit || (v == last.logit && j > last.expert);
        if (behind && (best.expert < 0 || v > best.logit))
            best.logit = v, best.expert = j;
    }
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2) {
        struct choice other;
        other.logit = __shfl_xor_sync(ALL_LANES, best.logit, by);
        other.expert = __shfl_xor_sync(ALL_LANES, best.expert, by);
        const bool larger = best.expert < 0 || other.logit > best.logit ||
                            (other.logit == best.logit && other.expert < best.expert);
        if (other.expert >= 0 && larger)
            best = other;
    }
    return best;
}
template <typename T>
CUDA_DEVICE struct choice choose_next(int64_t n, const T *x, struct choice last) {
    return choose_next_by(
        n, [&](int j) { return get(x + j); }, last);
}

#endif
