/* half.h - numbers of 16 bits: bf16, the upper half of an f32, and f16, that of IEEE 754.
 *
 *     uint16_t h = bf16_narrow(3.14f);    // to the nearest, ties to even
 *     float f = bf16_widen(h);            // exact
 *
 * Loops over the elements of an array are vectorized by compilers.
 */
#ifndef WEFT_HALF_H
#define WEFT_HALF_H

#include "common/both.h"

#include <stdint.h>
#include <string.h>

BOTH uint32_t half_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

BOTH float half_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

BOTH float bf16_widen(uint16_t h) {
    return half_float((uint32_t)h << 16);
}

BOTH uint16_t bf16_narrow(float f) {
    uint32_t u = half_bits(f), rounded = u + 0x7fff + (u >> 16 & 1);
    return (uint16_t)((f != f ? u | 1u << 22 : rounded) >> 16); /* NaN stays NaN, quiet */
}

/* The nearest number that bf16 has. */
BOTH float bf16_round(float f) {
    return bf16_widen(bf16_narrow(f));
}

/* The bits moved to their places are the number times 2^-112, subnormal ones too. */
static inline float f16_widen(uint16_t h) {
    float f = half_float((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;
    uint32_t infinite = f >= 0x1p16f ? 0xffu << 23 : 0;
    return half_float(half_bits(f) | infinite | (uint32_t)(h & 0x8000) << 16);
}

/* Of what is subnormal in f16 an addition rounds the bits that are too many. */
static inline uint16_t f16_narrow(float f) {
    const uint32_t one = 1u << 23, nan = 0x7e00, infinite = 0x7c00;
    uint32_t u = half_bits(f), sign = u & 1u << 31, h;
    u ^= sign;
    if (u >= (127 + 16) * one)
        h = u > 0xff * one ? nan : infinite;
    else if (u < (127 - 14) * one)
        h = half_bits(half_float(u) + 0.5f) - half_bits(0.5f);
    else
        h = (u - (127 - 15) * one + 0xfff + (u >> 13 & 1)) >> 13;
    return (uint16_t)(h | sign >> 16);
}

#endif
