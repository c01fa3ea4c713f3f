/* device.h - what the tests of kernels share: data, references' distance, both thread
 * counts.
 *
 * A kernel is compared with the same formula written plainly in double: the normalized mean
 * square error must stay at the level of float rounding.
 */
#ifndef WEFT_TEST_DEVICE_H
#define WEFT_TEST_DEVICE_H

#include "common/rng.h"
#include "device/kernel.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))

/* n floats, normal times std; free() them. Never NULL, also for n = 0. */
UNUSED static float *noise(int64_t n, float std, uint64_t stream) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = std * rng_normal(7, stream, (uint64_t)i);
    return x;
}

UNUSED static float *floats(int64_t n) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN; /* a kernel that forgets an element is seen */
    return x;
}

UNUSED static double *doubles(int64_t n) {
    return calloc((size_t)(n + 1), sizeof(double));
}

UNUSED static float *copy(int64_t n, const float *x) {
    float *y = floats(n);
    memcpy(y, x, (size_t)n * sizeof *x);
    return y;
}

/* sum (got - want)^2 / sum want^2; NaN where got has one. */
UNUSED static double nmse(int64_t n, const float *got, const double *want) {
    double apart = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        apart += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return apart == 0 ? 0 : apart / (all > 0 ? all : 1);
}

UNUSED static int close_to(int64_t n, const float *got, const double *want, double most,
                           const char *what) {
    double e = nmse(n, got, want);
    return ok(e <= most, "%s: error %.1e of at most %.0e", what, e, most);
}

UNUSED static int same(int64_t n, const float *a, const float *b) {
    return !memcmp(a, b, (size_t)n * sizeof *a);
}

/* Largest error of a float sum of a few hundred terms, squared and relative. */
#define TIGHT 1e-12

/* Runs a test with one and with two threads. */
UNUSED static void with_threads(void (*test)(void)) {
    for (int threads = 1; threads <= 2; threads++) {
        struct err err = {0};
        if (kernel_init(threads, &err) < 0)
            ok(0, "kernel_init: %s", err.msg);
        printf("# %d thread%s\n", threads, threads > 1 ? "s" : "");
        test();
        kernel_release();
    }
}

#endif
