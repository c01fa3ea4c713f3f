#include "data/synthetic.h"

#include "common/rng.h"

/* Streams of random numbers, kept apart by these. */
enum {
    DRAW_CHAIN = 0x636861,
    DRAW_WALK = 0x77616c,
    DRAW_CLASS = 0x636c61,
    DRAW_PIXEL = 0x706978
};

void synthetic_init(struct synthetic *syn, uint64_t seed, int64_t vocab) {
    *syn = (struct synthetic){.seed = seed};
    syn->states = vocab < SYNTHETIC_STATES ? (int)vocab : SYNTHETIC_STATES;
    for (int s = 0; s < syn->states; s++) {
        syn->token[s] = (int32_t)(s * vocab / syn->states);
        for (int j = 0; j < SYNTHETIC_NEXT; j++)
            syn->next[s][j] = (uint8_t)(rng_bits(seed, DRAW_CHAIN, 4 * (uint64_t)s + j) %
                                        (uint64_t)syn->states);
    }
}

void synthetic_tokens(const struct synthetic *syn, uint64_t stream, int64_t first,
                      int64_t count, int32_t *out) {
    static const uint8_t choice[8] = {0, 0, 0, 0, 1, 1, 2, 3}; /* 1/2, 1/4, 1/8, 1/8 */
    uint64_t walk = rng_bits(syn->seed, DRAW_WALK, stream);
    int state = (int)(rng_bits(walk, 0, 0) % (uint64_t)syn->states);
    for (int64_t i = 0; i < first + count; i++) {
        if (i >= first)
            out[i - first] = syn->token[state];
        state = syn->next[state][choice[rng_bits(walk, 1, (uint64_t)i) >> 61]];
    }
}

/* About normal, variance 1/3: the sum of four uniforms out of one draw. */
static float noise(uint64_t bits) {
    uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (float)sum * 0x1p-16f - 2.0f;
}

void synthetic_image(const struct synthetic *syn, uint64_t stream, int64_t classes,
                     int64_t first, int64_t count, float *values, int32_t *label) {
    uint64_t image = rng_bits(syn->seed, DRAW_PIXEL, stream);
    int64_t class = (int64_t)(image % (uint64_t)classes);
    if (label)
        *label = (int32_t) class;
    uint64_t prototype = rng_bits(syn->seed, DRAW_CLASS, (uint64_t) class);
    for (int64_t i = 0; values && i < count; i++) {
        uint64_t pixel = (uint64_t)(first + i);
        float v = 0.25f + 0.5f * rng_uniform(prototype, 0, pixel) +
                  0.25f * noise(rng_bits(image, 0, pixel));
        values[i] = v < 0 ? 0 : v > 1 ? 1 : v;
    }
}
