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
    OLD_BYTES = 128 << 20,    /* all places of the old operands together */
    UPDATE_BYTES = 256 << 20, /* the same in the update */
    SETS_MOST = 2048,
    SAMPLES_LEAST = 7,
    SAMPLES_MOST = 400,
    BURST_MOST = 10000,
    CAPTURED_MOST = 64, /* runs in a captured region */
};
static const double burst_s = 10e-6, slice_s = 60e-3;
/* Where launches are captured: of one region, and of replays between two looks at the clock. */
static const double region_s = 200e-6, sample_s = 4e-3;

/* The update touches everything once a step. */
static bool is_update(enum opcode code) {
    return code == I_sum_squares || code == I_adamw || code == I_sgd || code == I_lion ||
           code == I_momentum || code == I_muon;
}

static int count_sets(const struct instr_key *key, const struct instr_work *w,
                      unsigned mask, int64_t budget) {
    int64_t old = operands_bytes(key, w, mask, true);
    int64_t room = budget - operands_bytes(key, w, mask, false) - memory_aligned(1);
    int64_t most = is_update(key->code) ? UPDATE_BYTES : OLD_BYTES;
    int64_t n = old ? (most < room ? most : room) / old : 1;
    return n > SETS_MOST ? SETS_MOST : n < 1 ? 1 : (int)n;
}

/* What a copy reads: every other run of its source, as a slice of two. */
static struct instr_work work_of(const struct instr_key *key) {
    struct instr_work w;
    instr_work(key->code, &key->n, &w);
    if (key->code == I_copy)
        w.in[0] *= 2;
    return w;
}

int64_t bench_bytes(const struct cold *cold, const struct instr_key *key, int64_t budget) {
    struct instr_work w = work_of(key);
    unsigned mask = cold_operands(cold, key);
    return operands_bytes(key, &w, mask, false) +
           count_sets(key, &w, mask, budget) * operands_bytes(key, &w, mask, true) +
           memory_aligned(1);
}

/* ---- making ready --------------------------------------------------------- */

int bench_open(struct bench *b, int threads, struct err *err) {
    const struct bench_scalars now = {.now = {.lr = 1e-4f,
                                              .grad_scale = 1e-3f,
                                              .loss_scale = 1,
                                              .updates = 10,
                                              .seed = 1},
                                      .per_target = 1e-3};
    const struct device_backend *backend = b->backend ? b->backend : &device_backend_cpu;
    if (!(b->device = device_create(backend, 0, threads, err)) ||
        !(b->stream = device_stream_create(b->device, err)) ||
        !(b->scalars = device_alloc(b->device, sizeof now, err)))
        return -1;
    b->captures = device_can_capture(b->device);
    return device_upload(b->stream, b->scalars, &now, sizeof now, err);
}

/* One message, of the block's first rows or for its last; the window has as many of its own. */
static struct kernel_halo halo_of(const struct bench *b) {
    const union instr_n *n = &b->key.n;
    if (b->key.code == I_halo_pack)
        return (struct kernel_halo){
            n->halo_pack.outer, n->halo_pack.inner, {0}, &b->piece, 1, 0};
    int64_t own = n->halo_join.window - n->halo_join.got;
    own = own < n->halo_join.rows ? own : n->halo_join.rows;
    return (struct kernel_halo){
        n->halo_join.outer, n->halo_join.inner, {0, 0, own}, &b->piece, 1, 0};
}

/* Rows that a key says travel, as far as there are so many. */
static struct halo_piece piece_of(const struct instr_key *key) {
    const union instr_n *n = &key->n;
    int64_t rows = n->halo_pack.rows, window = n->halo_join.window, got = n->halo_join.got;
    if (key->code == I_halo_pack)
        return (struct halo_piece){0, n->halo_pack.sent < rows ? n->halo_pack.sent : rows};
    if (key->code == I_halo_add)
        return (struct halo_piece){0, got < rows ? got : rows};
    return (struct halo_piece){window - got, got};
}

static void drop_behind(struct bench *b) {
    if (b->beside)
        device_free(b->device, b->beside);
    b->beside = NULL;
}

int bench_prepare(struct bench *b, const struct instr_key *key, struct err *err) {
    drop_behind(b);
    b->work = work_of(key);
    b->info = instr_info(key->code);
    b->key = *key;
    b->old = cold_operands(b->cold, key);
    b->sets = count_sets(key, &b->work, b->old, b->budget);
    b->next = 0;
    int64_t bytes = bench_bytes(b->cold, key, b->budget);
    if (bytes > b->size) {
        device_free(b->device, b->memory);
        b->size = 0;
        b->memory = device_alloc(b->device, bytes, err);
        if (!b->memory)
            return err_prefix(err, "operands");
        b->size = bytes;
    }
    b->piece = piece_of(key);
    if (key->code == I_matmul || key->code == I_matmul_dw)
        b->matrices = matrices_dense(&key->n.matmul);
    if (key->code == I_copy) {
        int64_t inner = key->n.copy.inner, rows = key->n.copy.elems / inner;
        memcpy(b->copy_size, (int64_t[]){rows, inner}, sizeof b->copy_size);
        memcpy(b->copy_src, (int64_t[]){2 * inner, 1}, sizeof b->copy_src);
        memcpy(b->copy_dst, (int64_t[]){inner, 1}, sizeof b->copy_dst);
    }
    return operands_fill(b, err);
}

int bench_put_behind(struct bench *b, const struct instr_key *behind, struct err *err) {
    const int64_t old = operands_beside_bytes(behind, true);
    const int64_t fresh = operands_beside_bytes(behind, false);
    const int64_t places = old ? OLD_BYTES / old : 1;
    drop_behind(b);
    b->behind = *behind;
    b->beside_sets = places < 1 ? 1 : places < b->sets ? (int)places : b->sets;
    b->beside =
        device_alloc(b->device, fresh + b->beside_sets * old + memory_aligned(1), err);
    return b->beside ? 0 : err_prefix(err, "operands");
}

void bench_release(struct bench *b) {
    device_stream_destroy(b->stream);
    if (b->device) {
        drop_behind(b);
        device_free(b->device, b->memory);
        device_free(b->device, b->scalars);
    }
    device_destroy(b->device);
    *b = (struct bench){0};
}

/* ---- running ------------------------------------------------------------- */

/* Where causal queries are a part of the sequence, the last ones see most: of keys that come round,
 * all. */
int64_t bench_first_query(const struct instr_key *key) {
    switch (key->code) {
    case I_attention:
    case I_attention_bwd: return key->n.attention.kv_seq - key->n.attention.seq;
    case I_attention_more:
    case I_attention_more_bwd: return key->n.attention_more.kv_seq;
    default: return 0;
    }
}

/* The instruction as it is launched on this set of old operands. */
static struct cuda_given given_at(const struct bench *b, int set) {
    const int64_t elems = b->key.n.v[0];
    struct cuda_given g = {.code = b->key.code, .n = b->key.n};
    operands_at(b, set, &g.in, &g.out);
    g.args = (struct device_args){
        .dtype = b->key.dtype,
        .scalars = &b->scalars->now,
        .counts = true,
        .per_target = &b->scalars->per_target,
        .weight = 1,
        .scale = 1e-3f,
        .ignore = -1,
        .eps = 1e-5f,
        .angles = {.log2_base = 13, .turned = b->key.n.rotary.dim, .factor = 1, .gain = 1},
        .distance = 128,
        .cap = 50,
        .first = bench_first_query(&b->key),
        .rate = 0.1f,
        .copy = {2, b->copy_size, b->copy_src, b->copy_dst},
        .matrices = &b->matrices,
        .halo = halo_of(b),
        .box = {.rank = 1, .size = {elems}, .whole = {elems}},
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .opt_eps = 1e-8f,
        .decay = 0.1f,
        .momentum = 0.9f};
    return g;
}

static int next_set(struct bench *b) {
    const int set = b->next;
    b->next = (b->next + 1) % b->sets;
    return set;
}

static int launch(struct bench *b, const struct cuda_given *g, struct err *err) {
    return device_launch(b->stream, g->code, &g->n, &g->in, &g->out, &g->args, err);
}

int bench_run(struct bench *b, struct err *err) {
    const int set = next_set(b);
    const struct cuda_given g = given_at(b, set);
    struct cuda_given behind;
    if (launch(b, &g, err) < 0)
        return -1;
    if (!b->beside)
        return 0;
    operands_behind(b, set, &g, &behind);
    return launch(b, &behind, err);
}

int bench_run_pair(struct bench *b, struct err *err) {
    const int set = next_set(b);
    const struct cuda_given g = given_at(b, set);
    struct cuda_given behind;
    operands_behind(b, set, &g, &behind);
    return cuda_launch_pair(b->stream, &g, &behind, err);
}

static int time_burst(struct bench *b, int burst, double *each_s, struct err *err) {
    double start = now_s();
    for (int i = 0; i < burst; i++)
        if (bench_run(b, err) < 0)
            return -1;
    if (device_synchronize(b->stream, err) < 0)
        return -1;
    *each_s = (now_s() - start) / burst;
    return 0;
}

/* The error of a median of n: 1.25 sigma / sqrt(n), and the inter-quartile range is 1.35
 * sigma of a normal distribution. */
static bool precise(const struct limits *l, double *x, int n) {
    return n >= SAMPLES_LEAST &&
           1.25 / 1.35 * 2 * stats_spread(x, n) / sqrt((double)n) < l->error;
}

/* Of a device that captures, runs as one region after the other, at most so many in one. */
static int capture_runs(struct bench *b, int n, struct device_region **out,
                        struct err *err) {
    if (device_capture_begin(b->stream, err) < 0)
        return -1;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = bench_run(b, err);
    *out = device_capture_end(b->stream, rc < 0 ? NULL : err);
    return rc < 0 || !*out ? -1 : 0;
}

static int replay_runs(struct bench *b, struct device_region *r, int times, double *each_s,
                       struct err *err) {
    double start = now_s();
    for (int i = 0; i < times; i++)
        if (device_replay(r, b->stream, err) < 0)
            return -1;
    if (device_synchronize(b->stream, err) < 0)
        return -1;
    *each_s = (now_s() - start) / times;
    return 0;
}

/* The executor replays stretches of instructions, so these are timed that way: launches from the host
 * one by one would take longer than short instructions do. */
static int time_captured(struct bench *b, const struct limits *l, struct measured *out,
                         struct err *err) {
    double x[SAMPLES_MOST], once;
    /* The first run loads kernels, and a product's tries its algorithms: it says nothing of the next. */
    if (time_burst(b, 1, &once, err) < 0 || time_burst(b, 2, &once, err) < 0)
        return -1;
    int n = 0, runs = (int)fmin(CAPTURED_MOST, fmax(2, ceil(region_s / once)));
    struct device_region *r = NULL;
    int rc = capture_runs(b, runs, &r, err);
    if (rc == 0)
        rc = replay_runs(b, r, 1, &once, err);
    int times = (int)fmin(BURST_MOST, fmax(1, ceil(sample_s / once)));
    double spent = 0;
    while (rc == 0 && n < SAMPLES_MOST && !precise(l, x, n) &&
           (n < 1 || spent < l->row_s)) {
        rc = replay_runs(b, r, times, &x[n], err);
        spent += x[n] * times;
        x[n++] /= runs;
        if (rc == 0 && interrupted())
            rc = 1;
    }
    device_region_destroy(r);
    if (rc == 0)
        *out = (struct measured){.median_us = 1e6 * stats_median(x, n),
                                 .spread = stats_spread(x, n),
                                 .repeats = (int64_t)n * runs * times};
    return rc;
}

/* Two runs at least, some thirty at most; of regions some ten samples, behind a fresh one, and a product's
 * algorithms are tried. */
double bench_estimate_s(const struct bench *b, const struct instr_key *key,
                        const struct limits *l, double run_s) {
    enum { SAMPLES = 10, TRIALS = 40 };
    const double captured_s = 2e-3;
    if (!b->captures) {
        const double least = l->over > 1 ? slice_s : burst_s;
        return fmax(2 * run_s, fmin(l->row_s, 30 * fmax(run_s, least)));
    }
    const bool product = key->code == I_linear || key->code == I_linear_dx ||
                         key->code == I_linear_dw || key->code == I_matmul ||
                         key->code == I_matmul_dw;
    return captured_s + (product ? TRIALS * run_s : 0) +
           fmax(3 * run_s, fmin(l->row_s, SAMPLES * fmax(sample_s, run_s)));
}

int bench_measure(struct bench *b, const struct limits *l, struct measured *out,
                  struct err *err) {
    if (b->captures)
        return time_captured(b, l, out, err);
    double x[SAMPLES_MOST], once, least = l->over > 1 ? slice_s : burst_s;
    if (time_burst(b, 1, &once, err) < 0)
        return -1;
    double spent = once;
    if (once < least) {
        if (time_burst(b, 3, &once, err) < 0)
            return -1;
        spent += 3 * once;
    }
    int burst = once >= least ? 1 : (int)fmin(BURST_MOST, ceil(least / fmax(once, 1e-9)));
    int n = 0;
    while (n < SAMPLES_MOST && !precise(l, x, n) && (n < 1 || spent < l->row_s)) {
        if (time_burst(b, burst, &x[n], err) < 0)
            return -1;
        spent += x[n++] * burst;
        if (interrupted())
            return 1;
    }
    *out = (struct measured){.median_us = 1e6 * stats_median(x, n),
                             .spread = stats_spread(x, n),
                             .repeats = (int64_t)n * burst};
    return 0;
}
