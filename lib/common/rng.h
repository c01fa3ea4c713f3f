/* rng.h - random numbers as a function of (seed, stream, index), and hashing.
 *
 * Counter-based, so a number does not depend on who draws it or in which order: initial
 * weights, dropout masks and data order are the same under every plan. The mixer is the
 * finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) applied twice.
 */
#ifndef WEFT_RNG_H
#define WEFT_RNG_H

#include "common/both.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

BOTH uint64_t rng_mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 64 random bits for (seed, stream, index). */
#define RNG_STEP 0xd1342543de82ef95u /* from an index's counter to that of the next */
BOTH uint64_t rng_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    return rng_mix(rng_mix(seed ^ rng_mix(stream)) + index * RNG_STEP);
}

/* Uniform in [0, 1) with 24 bits, exact in float. */
BOTH float rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (float)(rng_bits(seed, stream, index) >> 40) * 0x1p-24f;
}

/* Standard normal (Box-Muller on one 64-bit draw). */
BOTH float rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t bits = rng_bits(seed, stream, index);
    double u = ((double)(bits >> 32) + 0.5) * 0x1p-32;
    double v = (double)(bits & 0xffffffffu) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

/* A sequential generator for searches and tests. */
struct rng {
    uint64_t seed, counter;
};
static inline uint64_t rng_next(struct rng *r) {
    return rng_bits(r->seed, 0, r->counter++);
}
/* Uniform in 0..n-1 (n > 0). */
static inline int64_t rng_below(struct rng *r, int64_t n) {
    __extension__ typedef unsigned __int128 u128;
    return (int64_t)(((u128)rng_next(r) * (uint64_t)n) >> 64);
}
static inline double rng_real(struct rng *r) {
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* FNV-1a over bytes, finished with the mixer; chain by passing the last value as h. */
static inline uint64_t hash_bytes(const void *p, size_t n, uint64_t h) {
    const unsigned char *c = (const unsigned char *)p;
    h ^= 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 0x100000001b3u;
    return rng_mix(h);
}

#endif
