/* Routers of experts: which experts a token goes to, and in which slot.
 *
 * A warp finds a token's choices. Then a block for each expert and group goes over the group's choices in
 * the order in which positions are given out, all first choices before any second one, and counts:
 * a choice's position is how many came before it. */
#include "cuda/cuda_router.h"

/* What gates of the probabilities of a token's choices are divided by. */
template <typename T>
CUDA_DEVICE float divisor(const struct softmax &s, const T *x, int64_t experts,
                          int64_t choices, bool normalize, const int32_t *slots) {
    float sum = 0;
    for (int64_t k = 0; k < choices; k++)
        sum += probability(s, x, slots[k] % experts);
    return normalize ? sum : 1;
}

/* Gates of a token, and its experts in the place of slots. */
template <typename T>
CUDA_KERNEL void choose(int64_t rows, int64_t experts, int64_t choices, bool normalize,
                        const T *logits, T *gates, int32_t *slots) {
    const int64_t row = router_row();
    if (row >= rows)
        return;
    const T *x = logits + row * experts;
    const struct softmax s = softmax_of(experts, x);
    int32_t *chosen = slots + row * choices;
    struct choice next = {INFINITY, -1};
    for (int64_t k = 0; k < choices; k++) {
        next = choose_next(experts, x, next);
        if (threadIdx.x % WARP == 0)
            chosen[k] = next.expert < 0 ? (int32_t)k : next.expert;
    }
    if (threadIdx.x % WARP == 0) {
        const float scale = 1 / divisor(s, x, experts, choices, normalize, chosen);
        for (int64_t k = 0; k < choices; k++)
            put(gates + row * choices + k, probability(s, x, chosen[k]) * scale);
    }
}

/* Positions of expert blockIdx.x in group blockIdx.y. Blocks of other experts change their slots
 * meanwhile, from an expert to position * experts + expert, which is the same expert's: volatile, for
 * what is read while others write it. */
CUDA_KERNEL void take_slots(int64_t tokens, int64_t choices, int32_t experts,
                            int32_t *slots) {
    __shared__ int32_t found[BLOCK / WARP];
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int32_t expert = (int32_t)blockIdx.x;
    int32_t *mine = slots + blockIdx.y * tokens * choices, taken = 0;
    for (int64_t from = 0; from < tokens * choices; from += BLOCK) {
        const int64_t at = from + threadIdx.x, choice = quotient(at, tokens);
        volatile int32_t *slot = mine + (at - choice * tokens) * choices + choice;
        const bool here = at < tokens * choices && *slot % experts == expert;
        const unsigned votes = __ballot_sync(ALL_LANES, here);
        if (lane == 0)
            found[warp] = __popc(votes);
        __syncthreads();
        int32_t position = taken + __popc(votes & ((1u << lane) - 1));
        for (unsigned w = 0; w < BLOCK / WARP; w++) {
            position += w < warp ? found[w] : 0;
            taken += found[w];
        }
        if (here)
            *slot = position * experts + expert;
        __syncthreads();
    }
}

CUDA_FUNCTION(route) {
    const int64_t rows = n->groups * n->tokens;
    if (rows == 0)
        return 0;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(choose<T>, router_blocks(rows), ROUTER_WARPS * WARP, 0,
                           c->stream, rows, n->experts, n->choices, n->normalize != 0,
                           (const T *)in->logits, (T *)out->gates, (int32_t *)out->slots));
    CUDA_LAUNCH(take_slots, dim3((unsigned)n->experts, (unsigned)n->groups), BLOCK, 0,
                c->stream, n->tokens, n->choices, (int32_t)n->experts,
                (int32_t *)out->slots);
    return 0;
}

/* Gates are g = p / s of the chosen, s = 1 or their sum: dx = p (dp - sum p dp), dp = dg of the
 * chosen, and with the sum, whose other terms have no gradient, the same of g among them. */
template <typename T>
CUDA_KERNEL void route_dx(int64_t rows, int64_t experts, int64_t choices, bool normalize,
                          const T *logits, const int32_t *slots, const T *dgates,
                          T *dlogits) {
    const int64_t row = router_row();
    if (row >= rows)
        return;
    const T *x = logits + row * experts, *dg = dgates + row * choices;
    const int32_t *slot = slots + row * choices;
    const struct softmax s = softmax_of(experts, x);
    const float scale = 1 / divisor(s, x, experts, choices, normalize, slot);
    float sum = 0;
    for (int64_t k = 0; k < choices; k++)
        sum += probability(s, x, slot[k] % experts) * scale * get(dg + k);
    for (int64_t j = threadIdx.x % WARP; j < experts; j += WARP) {
        const float p = probability(s, x, j);
        float slope = normalize ? 0 : -p * sum;
        for (int64_t k = 0; k < choices; k++)
            if (slot[k] % experts == j)
                slope += p * scale * (normalize ? get(dg + k) - sum : get(dg + k));
        put(dlogits + row * experts + j, slope);
    }
}

CUDA_FUNCTION(route_dx) {
    const int64_t rows = n->groups * n->tokens;
    if (rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(route_dx<T>, router_blocks(rows), ROUTER_WARPS * WARP, 0,
                               c->stream, rows, n->experts, n->choices, n->normalize != 0,
                               (const T *)in->logits, (const int32_t *)in->slots,
                               (const T *)in->dgates, (T *)out->dlogits));
    return 0;
}
