/* Data that is narrower than what instructions take: every byte and every 16 bits, to every type, whatever
 * the number of them and the threads. */
#include "device.h"

enum { N = 1 << 16 };

static const int64_t counts[] = {0, 1, 7, 255, 256, 1023, 1025, 40001, N};

/* The number at i, as wide as can be. */
static double given(enum dtype from, const void *x, int64_t i) {
    switch (from) {
    case DTYPE_u8: return ((const uint8_t *)x)[i];
    case DTYPE_u16: return ((const uint16_t *)x)[i];
    case DTYPE_i32: return ((const int32_t *)x)[i];
    default: return ((const float *)x)[i];
    }
}

/* Whole numbers stay what they are, bytes become shares of 255 and are rounded once more to 16 bits. */
static int64_t wrong(int64_t n, enum dtype from, const void *x, enum dtype to,
                     const void *y) {
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        float want = (float)given(from, x, i) / (from == DTYPE_u8 ? 255.0f : 1.0f);
        char narrow[4];
        kernel_narrow(1, to, &want, narrow);
        if (to == DTYPE_i32)
            bad += ((const int32_t *)y)[i] != (int32_t)given(from, x, i);
        else
            bad += memcmp(narrow, (const char *)y + dtype_size(to) * i,
                          (size_t)dtype_size(to)) != 0;
    }
    return bad;
}

static void test_pair(enum dtype from, enum dtype to) {
    static int32_t words[N], y[N + 1];
    int64_t bad = 0;
    for (int64_t i = 0; i < N; i++)
        words[i] =
            from == DTYPE_f32   ? 0
            : from == DTYPE_i32 ? (int32_t)(i * 2654435761u)
            : from == DTYPE_u16
                ? (int32_t)(((uint32_t)(2 * i + 1) << 16) | (uint32_t)(2 * i & 0xffff))
                : (int32_t)(i * 0x01030507u);
    for (int64_t i = 0; from == DTYPE_f32 && i < N; i++)
        ((float *)words)[i] = rng_uniform(1, 2, (uint64_t)i);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int64_t n = counts[k];
        memset(y, 0x5a, sizeof y);
        kernel_unpack(n, from, words, to, y);
        bad += wrong(n, from, words, to, y);
        bad += ((char *)y)[dtype_size(to) * n] != 0x5a; /* nothing behind it */
    }
    ok(!bad, "%s to %s", dtype_name(from), dtype_name(to));
}

int main(void) {
    static const enum dtype floats_to[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    for (int threads = 1; threads <= 3; threads += 2) {
        kernel_init(threads, NULL);
        test_pair(DTYPE_u8, DTYPE_i32);
        test_pair(DTYPE_u16, DTYPE_i32);
        test_pair(DTYPE_i32, DTYPE_i32);
        for (int t = 0; t < 3; t++) {
            test_pair(DTYPE_u8, floats_to[t]);
            test_pair(DTYPE_f32, floats_to[t]);
        }
        kernel_release();
    }
    return done_testing();
}
