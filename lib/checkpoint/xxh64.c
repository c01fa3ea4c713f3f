#include "checkpoint/xxh64.h"

#include <string.h>

static const uint64_t P1 = 0x9e3779b185ebca87u, P2 = 0xc2b2ae3d27d4eb4fu,
                      P3 = 0x165667b19e3779f9u, P4 = 0x85ebca77c2b2ae63u,
                      P5 = 0x27d4eb2f165667c5u;

static inline uint64_t rotate(uint64_t x, int r) {
    return x << r | x >> (64 - r);
}

static inline uint64_t load(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t mix_in(uint64_t lane, uint64_t input) {
    return rotate(lane + input * P2, 31) * P1;
}

static void add_stripes(uint64_t lane[4], const unsigned char *p, size_t stripes) {
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (size_t i = 0; i < stripes; i++, p += 32) {
        a = mix_in(a, load(p));
        b = mix_in(b, load(p + 8));
        c = mix_in(c, load(p + 16));
        d = mix_in(d, load(p + 24));
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
}

void xxh64_begin(struct xxh64 *h) {
    *h = (struct xxh64){.lane = {P1 + P2, P2, 0, 0 - P1}};
}

void xxh64_add(struct xxh64 *h, const void *data, size_t n) {
    const unsigned char *p = data;
    size_t have = h->total % 32;
    h->total += n;
    if (have + n < 32) {
        if (n)
            memcpy(h->rest + have, p, n);
        return;
    }
    if (have) {
        memcpy(h->rest + have, p, 32 - have);
        add_stripes(h->lane, h->rest, 1);
        p += 32 - have;
        n -= 32 - have;
    }
    add_stripes(h->lane, p, n / 32);
    if (n % 32)
        memcpy(h->rest, p + n / 32 * 32, n % 32);
}

static uint64_t join_lanes(const uint64_t lane[4]) {
    uint64_t h =
        rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
    for (int i = 0; i < 4; i++)
        h = (h ^ mix_in(0, lane[i])) * P1 + P4;
    return h;
}

uint64_t xxh64_end(const struct xxh64 *s) {
    uint64_t h = s->total >= 32 ? join_lanes(s->lane) : P5;
    const unsigned char *p = s->rest;
    size_t n = s->total % 32;
    h += s->total;
    for (; n >= 8; n -= 8, p += 8)
        h = rotate(h ^ mix_in(0, load(p)), 27) * P1 + P4;
    if (n >= 4) {
        uint32_t v;
        memcpy(&v, p, sizeof v);
        h = rotate(h ^ v * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n; n--, p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
