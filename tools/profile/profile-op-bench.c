/* Timing one instruction.
 *
 * In a step an instruction finds its weights cold and its activations somewhere in the
 * outer caches. The bench walks round several sets of operands, together larger than the
 * caches of a core, and never runs twice in a row on the same bytes.
 *
 * Samples are taken until the median is known well enough or the row's time is spent. Short
 * instructions are timed in bursts. Where ranks share a core, a sample must outlast the
 * scheduler's slices, or the median would be the time of a rank that happens to be alone.
 */
#include "profile-op.h"

#include "common/progress.h"
#include "common/stats.h"
#include "device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 64,
    SETS_BYTES = 64 << 20, /* of all sets together */
    SETS_MOST = 32,
    SAMPLES_LEAST = 7,
    SAMPLES_MOST = 400,
    BURST_MOST = 10000,
    PATTERN = 1 << 14, /* floats */
};
static const double burst_s = 10e-6, slice_s = 60e-3;

static int64_t aligned(int64_t elems) {
    return (4 * elems + ALIGN - 1) / ALIGN * ALIGN;
}

/* One set; the operands stand one behind the other. */
static int64_t set_bytes(const struct work *w) {
    int64_t bytes = 0;
    for (int i = 0; i < w->n_in; i++)
        bytes += aligned(w->in[i]);
    for (int i = 0; i < w->n_out; i++)
        bytes += aligned(w->out[i]);
    return bytes > ALIGN ? bytes : ALIGN;
}

static int count_sets(const struct work *w) {
    int64_t n = SETS_BYTES / set_bytes(w);
    return n > SETS_MOST ? SETS_MOST : n < 1 ? 1 : (int)n;
}

int64_t bench_bytes(const struct work *w) {
    return count_sets(w) * set_bytes(w);
}

/* ---- operands ------------------------------------------------------------ */

/* Positive numbers below one: good for any operand, and no result of them is denormal. */
static void fill_floats(float *p, int64_t n) {
    static float pattern[PATTERN];
    uint32_t state = 12345;
    for (int i = 0; i < PATTERN && pattern[PATTERN - 1] == 0; i++) {
        state = state * 1664525u + 1013904223u;
        pattern[i] = 0.05f + 0.9f * (float)(state >> 8) * 0x1p-24f;
    }
    for (int64_t i = 0; i < n; i += PATTERN)
        memcpy(p + i, pattern, sizeof *p * (size_t)(n - i < PATTERN ? n - i : PATTERN));
}

static void fill_ids(int32_t *p, int64_t n, int64_t below) {
    uint32_t state = 54321;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (int32_t)((uint64_t)state * (uint64_t)below >> 32);
    }
}

/* The addresses of one set's operands. */
static void operands(const struct bench *b, int set, float **in, float **out) {
    char *at = b->memory + set * set_bytes(&b->work);
    for (int i = 0; i < INSTR_MAX_IN; i++) {
        int64_t n = i < b->work.n_in ? b->work.in[i] : 0;
        in[i] = n ? (float *)at : NULL;
        at += aligned(n);
    }
    for (int i = 0; i < INSTR_MAX_OUT; i++) {
        int64_t n = i < b->work.n_out ? b->work.out[i] : 0;
        out[i] = n ? (float *)at : NULL;
        at += aligned(n);
    }
}

static void fill_set(const struct bench *b, int set) {
    float *in[INSTR_MAX_IN], *out[INSTR_MAX_OUT];
    operands(b, set, in, out);
    for (int i = 0; i < b->work.n_in; i++) {
        if (i == b->work.ids)
            fill_ids((int32_t *)in[i], b->work.in[i], b->work.n_ids);
        else if (in[i])
            fill_floats(in[i], b->work.in[i]);
    }
    for (int i = 0; i < b->work.n_out; i++)
        if (out[i])
            fill_floats(out[i], b->work.out[i]);
}

int bench_prepare(struct bench *b, const struct enum_key *key, struct err *err) {
    work_of(key, &b->work);
    b->key = *key;
    b->sets = count_sets(&b->work);
    b->next = 0;
    int64_t bytes = bench_bytes(&b->work);
    if (bytes > b->size) {
        free(b->memory);
        b->size = 0;
        b->memory = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
        if (!b->memory)
            return err_system(err, "no memory for %lld bytes of operands",
                              (long long)bytes);
        b->size = bytes;
    }
    if (key->code == I_copy) { /* every other run of the source, as a slice of two */
        int64_t inner = key->n[1], rows = key->n[0] / inner;
        b->copy = (struct copy){
            .rank = 2, .size = {rows, inner}, .src = {2 * inner, 1}, .dst = {inner, 1}};
    }
    for (int s = 0; s < b->sets; s++)
        fill_set(b, s);
    return 0;
}

void bench_release(struct bench *b) {
    free(b->memory);
    *b = (struct bench){0};
}

/* ---- running ------------------------------------------------------------- */

void bench_run(struct bench *b) {
    float *in[INSTR_MAX_IN], *out[INSTR_MAX_OUT];
    int64_t elems = b->key.n[0];
    operands(b, b->next, in, out);
    b->next = (b->next + 1) % b->sets;
    if (b->key.code == I_fill) {
        memset(out[0], 0, (size_t)elems * sizeof(float));
        return;
    }
    struct device_args args = {.eps = 1e-5f,
                               .scale = 1e-3f,
                               .rate = 0.1f,
                               .seed = 1,
                               .stream = 1,
                               .copy = &b->copy,
                               .box = {.rank = 1, .size = {elems}, .whole = {elems}},
                               .grad_scale = 1e-3f,
                               .lr = 1e-4f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .opt_eps = 1e-8f,
                               .decay = 0.1f,
                               .momentum = 0.9f,
                               .step = 10};
    device_exec(b->key.code, b->key.n, in, out, &args);
}

static double time_burst(struct bench *b, int burst) {
    double start = now_s();
    for (int i = 0; i < burst; i++)
        bench_run(b);
    return (now_s() - start) / burst;
}

/* The error of a median of n: 1.25 sigma / sqrt(n), and the inter-quartile range is 1.35
 * sigma of a normal distribution. */
static bool precise(const struct limits *l, double *x, int n) {
    return n >= SAMPLES_LEAST &&
           1.25 / 1.35 * 2 * stats_spread(x, n) / sqrt((double)n) < l->error;
}

int bench_measure(struct bench *b, const struct limits *l, struct measured *out) {
    double x[SAMPLES_MOST], once = time_burst(b, 1), spent = once;
    double least = l->over > 1 ? slice_s : burst_s;
    if (once < least) {
        once = time_burst(b, 3);
        spent += 3 * once;
    }
    int burst = once >= least ? 1 : (int)fmin(BURST_MOST, ceil(least / fmax(once, 1e-9)));
    int n = 0;
    while (n < SAMPLES_MOST && !precise(l, x, n) && (n < 1 || spent < l->row_s)) {
        x[n] = time_burst(b, burst);
        spent += x[n++] * burst;
        if (interrupted())
            return 1;
    }
    *out = (struct measured){.median_us = 1e6 * stats_median(x, n),
                             .spread = stats_spread(x, n),
                             .repeats = (int64_t)n * burst};
    return 0;
}
