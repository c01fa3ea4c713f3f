/* Timing one instruction.
 *
 * In a step an instruction finds some operands in the caches, for the instruction before
 * has just made them, and others in memory: weights, what the forward pass kept, sums of
 * gradients; the update finds everything there. Operands of the second sort have many
 * places here, together larger than the caches, and the bench walks round them.
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
    OLD_BYTES = 128 << 20,    /* all places of the old operands together */
    UPDATE_BYTES = 256 << 20, /* the same in the update */
    SETS_MOST = 2048,
    SAMPLES_LEAST = 7,
    SAMPLES_MOST = 400,
    BURST_MOST = 10000,
    PATTERN = 1 << 14, /* floats */
};
static const double burst_s = 10e-6, slice_s = 60e-3;

static int64_t aligned(int64_t elems) {
    return (4 * elems + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_old(const struct instr_info *info, bool out, int i) {
    return (out ? info->out[i].flags : info->in[i].flags) & OPERAND_OLD;
}

/* Of one set of the old operands, or of the others. */
static int64_t part_bytes(const struct instr_info *info, const struct instr_work *w,
                          bool old) {
    int64_t bytes = 0;
    for (int i = 0; i < info->n_in; i++)
        bytes += is_old(info, false, i) == old ? aligned(w->in[i]) : 0;
    for (int i = 0; i < info->n_out; i++)
        bytes += is_old(info, true, i) == old ? aligned(w->out[i]) : 0;
    return bytes;
}

/* The update touches everything once a step. */
static bool is_update(enum opcode code) {
    return code == I_sum_squares || code == I_adamw || code == I_sgd;
}

static int count_sets(enum opcode code, const struct instr_work *w, int64_t budget) {
    const struct instr_info *info = instr_info(code);
    int64_t old = part_bytes(info, w, true);
    int64_t room = budget - part_bytes(info, w, false) - ALIGN;
    int64_t most = is_update(code) ? UPDATE_BYTES : OLD_BYTES;
    int64_t n = old ? (most < room ? most : room) / old : 1;
    return n > SETS_MOST ? SETS_MOST : n < 1 ? 1 : (int)n;
}

/* What a copy reads: every other run of its source, as a slice of two. */
static struct instr_work work_of(const struct enum_key *key) {
    struct instr_work w;
    instr_work(key->code, &key->n, &w);
    if (key->code == I_copy)
        w.in[0] *= 2;
    return w;
}

int64_t bench_bytes(const struct enum_key *key, int64_t budget) {
    const struct instr_info *info = instr_info(key->code);
    struct instr_work w = work_of(key);
    return part_bytes(info, &w, false) +
           count_sets(key->code, &w, budget) * part_bytes(info, &w, true) + ALIGN;
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

/* Takes the operand's place from what is left of the old or of the other ones. */
static void *take(bool is_old, int64_t elems, char **fresh, char **old) {
    char **at = is_old ? old : fresh, *p = *at;
    *at += aligned(elems);
    return elems ? p : NULL;
}

/* The addresses of the operands, the old ones of this set. */
static void operands(const struct bench *b, int set, union instr_src *in,
                     union instr_dst *out) {
    const struct instr_work *w = &b->work;
    char *fresh = b->memory;
    char *old =
        b->memory + part_bytes(b->info, w, false) + set * part_bytes(b->info, w, true);
    for (int i = 0; i < b->info->n_in; i++)
        in->v[i] = take(is_old(b->info, false, i), w->in[i], &fresh, &old);
    for (int i = 0; i < b->info->n_out; i++)
        out->v[i] = take(is_old(b->info, true, i), w->out[i], &fresh, &old);
}

/* The old operands of one set; with the first, the others too. */
static void fill_set(const struct bench *b, int set) {
    const struct instr_work *w = &b->work;
    union instr_src in;
    union instr_dst out;
    operands(b, set, &in, &out);
    for (int i = 0; i < b->info->n_in; i++) {
        if (!in.v[i] || (set && !is_old(b->info, false, i)))
            continue;
        if (b->info->in[i].flags & OPERAND_IDS)
            fill_ids(in.v[i], w->in[i], w->below[i]);
        else
            fill_floats(in.v[i], w->in[i]);
    }
    for (int i = 0; i < b->info->n_out; i++)
        if (out.v[i] && (!set || is_old(b->info, true, i)))
            fill_floats(out.v[i], w->out[i]);
}

/* Rows of neighbouring columns, one matrix behind the other. */
static struct matrix dense(int64_t rows, int64_t columns, int64_t inner) {
    return (struct matrix){.outer = inner * rows * columns,
                           .inner = rows * columns,
                           .row = columns,
                           .column = 1};
}

static struct matrices dense_matrices(const struct matmul_n *n) {
    return (struct matrices){.a = dense(n->m, n->k, n->inner),
                             .b = dense(n->k, n->n, n->inner),
                             .y = dense(n->m, n->n, n->inner)};
}

int bench_prepare(struct bench *b, const struct enum_key *key, struct err *err) {
    b->work = work_of(key);
    b->info = instr_info(key->code);
    b->key = *key;
    b->sets = count_sets(key->code, &b->work, b->budget);
    b->next = 0;
    int64_t bytes = bench_bytes(key, b->budget);
    if (bytes > b->size) {
        free(b->memory);
        b->size = 0;
        b->memory = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
        if (!b->memory)
            return err_system(err, "no memory for %lld bytes of operands",
                              (long long)bytes);
        b->size = bytes;
    }
    if (key->code == I_matmul || key->code == I_matmul_dw)
        b->matrices = dense_matrices(&key->n.matmul);
    if (key->code == I_copy) {
        int64_t inner = key->n.copy.inner, rows = key->n.copy.elems / inner;
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
    union instr_src in;
    union instr_dst out;
    int64_t elems = b->key.n.v[0];
    operands(b, b->next, &in, &out);
    b->next = (b->next + 1) % b->sets;
    struct device_args args = {.eps = 1e-5f,
                               .scale = 1e-3f,
                               .rate = 0.1f,
                               .seed = 1,
                               .stream = 1,
                               .copy = &b->copy,
                               .matrices = &b->matrices,
                               .box = {.rank = 1, .size = {elems}, .whole = {elems}},
                               .grad_scale = 1e-3f,
                               .lr = 1e-4f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .opt_eps = 1e-8f,
                               .decay = 0.1f,
                               .momentum = 0.9f,
                               .step = 10};
    device_exec(b->key.code, &b->key.n, &in, &out, &args);
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
