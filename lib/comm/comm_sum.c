/* Sums in rank order: ((x0 + x1) + x2) + ... for every element.
 *
 * Floating-point sums depend on the order, so the order is part of the contract: the result
 * is the same on every rank, in every run and over every transport. Numbers of 16 bits are
 * added as f32, and only the sum is rounded. Blocks small enough for the first-level cache are
 * added up and then written to every destination, so each source is read and each destination
 * written just once.
 */
#include "comm/comm_impl.h"

#include "common/half.h"

#include <string.h>

enum { BLOCK = 2048 }; /* f32: 8 KiB */

static void add_two(float *acc, const float *a, const float *b, int64_t n) {
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

/* n elements from `at` on as f32: where they stand, or widened in `room`. */
static const float *widened(enum dtype dtype, const void *src, int64_t at, int64_t n,
                            float *restrict room) {
    const uint16_t *half = (const uint16_t *)src + at;
    if (dtype == DTYPE_f32)
        return (const float *)src + at;
    if (dtype == DTYPE_bf16)
        for (int64_t i = 0; i < n; i++)
            room[i] = bf16_widen(half[i]);
    else
        for (int64_t i = 0; i < n; i++)
            room[i] = f16_widen(half[i]);
    return room;
}

static void narrow(enum dtype dtype, const float *restrict acc, int64_t n,
                   uint16_t *restrict out) {
    if (dtype == DTYPE_bf16)
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_narrow(acc[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_narrow(acc[i]);
}

static void write_sum(const struct sum *s, float *acc, int64_t at, int64_t n) {
    uint16_t rounded[BLOCK];
    const void *sum = acc;
    size_t size = (size_t)dtype_size(s->dtype);
    if (s->carry)
        memcpy(s->carry + at, acc, (size_t)n * sizeof *acc);
    if (s->nd && s->dtype != DTYPE_f32) {
        narrow(s->dtype, acc, n, rounded);
        sum = rounded;
    }
    for (int d = 0; d < s->nd; d++)
        memcpy((char *)s->dst[d] + (size_t)at * size, sum, (size_t)n * size);
}

static void sum_block(const struct sum *s, int64_t at, int64_t n) {
    float acc[BLOCK], room[BLOCK];
    int k = 0;
    const float *first =
        s->before ? s->before + at : widened(s->dtype, s->src[k++], at, n, acc);
    if (k < s->n)
        add_two(acc, first, widened(s->dtype, s->src[k++], at, n, room), n);
    else if (first != acc)
        memcpy(acc, first, (size_t)n * sizeof *acc);
    for (; k < s->n; k++)
        add_one(acc, widened(s->dtype, s->src[k], at, n, room), n);
    write_sum(s, acc, at, n);
}

void sum_in_order(const struct sum *s, int64_t lo, int64_t hi) {
    if (s->dtype == DTYPE_f32 && !s->before && !s->carry && s->n == 2 && s->nd == 2 &&
        s->dst[0] == s->src[0] && s->dst[1] == s->src[1]) {
        add_pair_in_place((float *)s->dst[0] + lo, (float *)s->dst[1] + lo,
                          hi > lo ? hi - lo : 0);
        return;
    }
    for (int64_t at = lo; at < hi; at += BLOCK)
        sum_block(s, at, hi - at < BLOCK ? hi - at : BLOCK);
}
