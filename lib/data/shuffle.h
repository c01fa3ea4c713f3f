/* shuffle.h - a random order of 0..n-1 with random access and no memory.
 *
 * shuffle_at(seed, epoch, n, i) is the i-th element of a permutation of 0..n-1 drawn from
 * (seed, epoch). A Feistel network permutes the numbers of 2k bits, the smallest such
 * range that holds n (so at most 4n for n > 1); a result outside 0..n-1 is fed in again
 * until it is inside ("cycle walking": a permutation of the larger set followed along its
 * cycle stays a permutation).
 *
 *     for (int64_t i = 0; i < n; i++) visit(shuffle_at(seed, epoch, n, i));
 */
#ifndef WEFT_SHUFFLE_H
#define WEFT_SHUFFLE_H

#include "common/rng.h"

#include <stdint.h>

enum { SHUFFLE_ROUNDS = 6 };

/* The i-th element (0 <= i < n <= 2^62). */
static inline int64_t shuffle_at(uint64_t seed, uint64_t epoch, int64_t n, int64_t i) {
    int half = 1;
    while (half < 31 && (INT64_C(1) << 2 * half) < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t key = rng_bits(seed, 0x73687566666c65u /* "shuffle" */, epoch);
    uint64_t x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < SHUFFLE_ROUNDS; round++) {
            uint64_t next = left ^ (rng_bits(key, round, right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

#endif
