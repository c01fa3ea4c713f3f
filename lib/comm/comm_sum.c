/* Sums in rank order: ((x0 + x1) + x2) + ... for every element.
 *
 * Floating-point sums depend on the order, so the order is part of the contract: the result
 * is the same on every rank, in every run and over every transport. Blocks small enough for
 * the first-level cache are added up and then written to every destination, so each source
 * is read and each destination written just once.
 */
#include "comm/comm_impl.h"

#include <string.h>

enum { BLOCK = 2048 }; /* floats: 8 KiB */

static void add_two(float *restrict acc, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        acc[i] = a[i] + b[i];
}

static void add_one(float *restrict acc, const float *restrict a, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        acc[i] += a[i];
}

/* Both members' copies become their sum: no block is needed between. */
static void add_pair_in_place(float *restrict a, float *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        b[i] = a[i] = a[i] + b[i];
}

static void sum_block(const float *const *src, int n, float *const *dst, int nd, int64_t at,
                      int64_t len) {
    float acc[BLOCK];
    add_two(acc, src[0] + at, src[1] + at, len);
    for (int s = 2; s < n; s++)
        add_one(acc, src[s] + at, len);
    for (int d = 0; d < nd; d++)
        memcpy(dst[d] + at, acc, (size_t)len * sizeof *acc);
}

void sum_in_order(const float *const *src, int n, float *const *dst, int nd, int64_t lo,
                  int64_t hi) {
    if (n == 2 && nd == 2 && dst[0] == src[0] && dst[1] == src[1]) {
        add_pair_in_place(dst[0] + lo, dst[1] + lo, hi > lo ? hi - lo : 0);
        return;
    }
    for (int64_t at = lo; at < hi; at += BLOCK)
        sum_block(src, n, dst, nd, at, hi - at < BLOCK ? hi - at : BLOCK);
}
