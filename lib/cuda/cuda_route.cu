/* Routers of experts: which experts a token goes to, and in which slot.
 *
 * A warp finds a token's choices. Then a block for each expert and group goes over the group's choices in
 * the order in which positions are given out, all first choices before any second one, and counts:
 * a choice's position is how many came before it. */
#include "cuda/cuda_router.h"

/* What a token's gates are made of: the softmax of its logits, or the sigmoid of each. */
template <typename T> struct scores {
    struct softmax s;
    const T *x;
    bool sigmoid;
};
template <typename T>
CUDA_DEVICE struct scores<T> scores_of(int64_t experts, const T *x, bool sigmoid) {
    struct scores<T> s;
    s.s = sigmoid ? softmax() : softmax_of(experts, x);
    s.x = x;
    s.sigmoid = sigmoid;
    return s;
}

template <typename T>
CUDA_DEVICE float score(const struct scores<T> &s, int64_t expert) {
    return s.sigmoid ? 1 / (1 + expf(-get(s.x + expert))) : probability(s.s, s.x, expert);
}

/* What gates of the scores of a token's choices are divided by. Sigmoids may all vanish. */
template <typename T>
CUDA_DEVICE float divisor(const struct scores<T> &s, int64_t experts, int64_t choices,
                          bool normalize, const int32_t *slots) {
    float sum = s.sigmoid ? 1e-20f : 0;
    for (int64_t k = 0; k < choices; k++)
        sum += score(s, slots[k] % experts);
    return normalize ? sum : 1;
}

/* The groups of experts that a token keeps, as bits: lane g knows the score of group g. */
template <typename F>
CUDA_DEVICE unsigned keep_groups(const struct route_n &n, const F &key) {
    const int lane = threadIdx.x % WARP, each = (int)(n.experts / n.parts);
    float first = -INFINITY, second = -INFINITY;
    for (int j = lane * each; lane < n.parts && j < (lane + 1) * each; j++) {
        const float v = key(j);
        second = v > first ? first : fmaxf(v, second);
        first = fmaxf(v, first);
    }
    const float mine = n.best > 1 ? first + second : first;
    struct choice next = {INFINITY, -1};
    unsigned kept = 0;
    for (int64_t k = 0; k < n.kept; k++) {
        next = choose_next_by(
            n.parts, [&](int) { return mine; }, next);
        kept |= next.expert < 0 ? 0 : 1u << next.expert;
    }
    return kept;
}

/* A token's choices by the keys of experts. */
template <typename F>
CUDA_DEVICE void choose_by(const struct route_n &n, const F &key, int32_t *chosen) {
    struct choice next = {INFINITY, -1};
    for (int64_t k = 0; k < n.choices; k++) {
        next = choose_next_by(n.experts, key, next);
        if (threadIdx.x % WARP == 0)
            chosen[k] = next.expert < 0 ? (int32_t)k : next.expert;
    }
}

/* Gates of a token, and its experts in the place of slots: by its logits, or where more counts by scores. */
template <typename T>
CUDA_KERNEL void choose(struct route_n n, float gain, const T *logits, const T *bias,
                        T *gates, int32_t *slots) {
    const int64_t row = router_row();
    if (row >= n.groups * n.tokens)
        return;
    const T *x = logits + row * n.experts;
    const struct scores<T> s = scores_of(n.experts, x, n.sigmoid != 0);
    int32_t *chosen = slots + row * n.choices;
    const auto key = [&](int j) { return score(s, j) + (bias ? get(bias + j) : 0.0f); };
    if (n.parts) {
        const unsigned kept = keep_groups(n, key);
        const int each = (int)(n.experts / n.parts);
        choose_by(
            n, [&](int j) { return kept >> j / each & 1 ? key(j) : -INFINITY; }, chosen);
    } else if (n.sigmoid || bias)
        choose_by(n, key, chosen);
    else
        choose_by(
            n, [&](int j) { return get(x + j); }, chosen);
    if (threadIdx.x % WARP == 0) {
        const float scale =
            gain / divisor(s, n.experts, n.choices, n.normalize != 0, chosen);
        for (int64_t k = 0; k < n.choices; k++)
            put(gates + row * n.choices + k, score(s, chosen[k]) * scale);
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
                           c->stream, *n, c->args->scale, (const T *)in->logits,
                           (const T *)in->bias, (T *)out->gates, (int32_t *)out->slots));
    CUDA_LAUNCH(take_slots, dim3((unsigned)n->experts, (unsigned)n->groups), BLOCK, 0,
                c->stream, n->tokens, n->choices, (int32_t)n->experts,
                (int32_t *)out->slots);
    return 0;
}

/* Gates are g = p / s of the chosen, s = 1 or their sum: dx = p (dp - sum p dp), dp = dg of the
 * chosen, and with the sum, whose other terms have no gradient, the same of g among them. Of sigmoids dx =
 * p (1 - p) dp. All is multiplied by the gain. */
template <typename T>
CUDA_KERNEL void route_dx(struct route_dx_n n, float gain, const T *logits,
                          const int32_t *slots, const T *dgates, T *dlogits) {
    const int64_t row = router_row(), experts = n.experts, choices = n.choices;
    if (row >= n.groups * n.tokens)
        return;
    const T *dg = dgates + row * choices;
    const int32_t *slot = slots + row * choices;
    const struct scores<T> s = scores_of(experts, logits + row * experts, n.sigmoid != 0);
    const float scale = 1 / divisor(s, experts, choices, n.normalize != 0, slot);
    float sum = 0;
    for (int64_t k = 0; k < choices; k++)
        sum += score(s, slot[k] % experts) * scale * get(dg + k);
    for (int64_t j = threadIdx.x % WARP; j < experts; j += WARP) {
        const float p = score(s, j), inner = n.sigmoid ? 1 - p : 1;
        float slope = n.normalize || n.sigmoid ? 0 : -p * sum;
        for (int64_t k = 0; k < choices; k++)
            if (slot[k] % experts == j)
                slope +=
                    p * inner * scale * (n.normalize ? get(dg + k) - sum : get(dg + k));
        put(dlogits + row * experts + j, gain * slope);
    }
}

CUDA_FUNCTION(route_dx) {
    const int64_t rows = n->groups * n->tokens;
    if (rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(route_dx<T>, router_blocks(rows), ROUTER_WARPS * WARP, 0,
                               c->stream, *n, c->args->scale, (const T *)in->logits,
                               (const int32_t *)in->slots, (const T *)in->dgates,
                               (T *)out->dlogits));
    return 0;
}
