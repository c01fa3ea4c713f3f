/* weft-profile-op - times every instruction that plans of a model can need, on this device.
 *
 *     weft-profile-op -m gpt:1.3B -p profile.db --max-devices 8 --micro-batch 1,2,4
 *
 * Rows are written as soon as they are measured, one transaction each, and rows that are
 * there are left alone: the tool may be stopped at any time and started again. --roofline
 * writes computed rows instead. */
#include "device_kind.h"
#include "profile-op.h"

#include "common/file.h"
#include "common/mem.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/rng.h"
#include "device/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t FAIR = INT64_MIN; /* threads: of the cores, by ranks */
enum { MAX_MICRO_BATCHES = 32, MAX_DEVICES = 1 << 16, MAX_THREADS = 4096, MAX_OVER = 64 };

static const double WIDE = 0.1; /* spread of a row that is worth measuring again */

struct options {
    const char *model, *path, *device, *micro_batch, *roofline, *links, *dtype, *like,
        *from;
    char *set, *plan; /* plan: names with commas between them */
    int64_t max_devices, threads, over, ranks, memory, probes;
    double row_s, error;
    bool tf32, dry_run;
};

enum state { TO_MEASURE, KNOWN, TOO_LARGE, TO_ESTIMATE };

struct row {
    struct instr_key key;
    enum state state;
    double run_us, row_s; /* estimates */
};

struct tool {
    struct options o;
    int64_t micro_batches[MAX_MICRO_BATCHES];
    int n_micro_batches, n_links;
    struct roofline roofline;
    struct link links[MAX_LINKS];
    char device[64];
    struct limits limits;
    struct enumeration keys;
    double *uses; /* of each of them in a step of the plans; NULL: no plan is given */
    struct probes *probes;   /* NULL: all are measured */
    struct pairs pairs;      /* on a GPU */
    struct cold cold;        /* on a CPU; rows of it: none, the opcodes' tables hold */
    struct profile *profile; /* NULL in a dry run without a database */
    struct row *rows;
    int64_t todo, known, too_large, largest; /* largest: bytes of the largest left out */
    int64_t unsteady;                        /* rows measured with a wide spread */
    double todo_s;
    struct ranks *ranks;
    struct bench bench;
    struct gpu gpu;
};

/* ---- the command line ---------------------------------------------------- */

static int parse_options(struct options *o, int argc, char **argv, struct err *err) {
    const struct opt options[] = {
        {'m', "model", OPT_STR, "MODEL", "the model: gpt:1.3B, mlp or a file", &o->model},
        {0, "plan", OPT_LIST, "PLAN", "instead of a model: only what this plan needs",
         &o->plan},
        {0, "set", OPT_LIST, "LIST", "sizes changed: layers=4,hidden=512", &o->set},
        {'p', "profile", OPT_STR, "FILE", "the profile database, created if missing",
         &o->path},
        {0, "dtype", OPT_STR, "NAME", "of plans: " PLAN_DTYPES " (fp32)", &o->dtype},
        {0, "max-devices", OPT_INT, "N", "devices that plans may use (8)", &o->max_devices},
        {0, "micro-batch", OPT_STR, "LIST", "micro-batches that plans may use (1,2,4,8)",
         &o->micro_batch},
        {0, "threads", OPT_INT, "N", "threads of a rank (a fair share of the cores)",
         &o->threads},
        {0, "over", OPT_INT, "K", "ranks that share each core (1)", &o->over},
        {0, "ranks", OPT_INT, "N",
         "ranks that share this node (--max-devices, at most one a core)", &o->ranks},
        {0, "device", OPT_STR, "KIND",
         "name of the device kind (cpu-1t); cuda, cuda:NAME: times a GPU", &o->device},
        {0, "tf32", OPT_FLAG, NULL, "on a GPU: round operands of fp32 products to 10 bits",
         &o->tf32},
        {0, "time", OPT_TIME, "TIME", "longest time spent on one row (300ms)", &o->row_s},
        {0, "error", OPT_REAL, "FRACTION", "error of the median that is good enough (0.01)",
         &o->error},
        {0, "memory", OPT_BYTES, "BYTES", "leave out what needs more (3/4 of the node's)",
         &o->memory},
        {0, "roofline", OPT_STR, "PEAKS", "compute rows from FLOPS:BYTES_PER_S[:LATENCY]",
         &o->roofline},
        {0, "links", OPT_STR, "LINKS",
         "compute collectives too: \"node:200G:5us cross:25G:10us\"", &o->links},
        {0, "probes", OPT_INT, "K",
         "measure the K rows that tell most, estimate the others", &o->probes},
        {0, "like", OPT_STR, "FILE", "with --probes: the profile of a like device",
         &o->like},
        {0, "from", OPT_STR, "FILE", "take rows from this profile instead of measuring",
         &o->from},
        {0, "dry-run", OPT_FLAG, NULL, "only list what would be measured", &o->dry_run},
        {0},
    };
    const struct opt_tool tool = {
        "weft-profile-op", "-m MODEL | --plan PLAN -p FILE [options]",
        "Time the instructions that plans of a model can need on this device.", options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n > 0)
        return opt_no_operand(argv[0], err);
    return n;
}

static int check_device(const struct options *o, struct err *err) {
    const bool gpu = device_kind_is_gpu(o->device);
    if (o->from)
        return o->device && !gpu ? 0 : err_usage(err, "--from: expected --device KIND too");
    if (o->tf32 && (!gpu || o->roofline))
        return err_usage(err, "--tf32: only with --device cuda, which times a GPU");
    if (gpu && !o->roofline && (o->over != 1 || o->ranks > 1))
        return err_usage(err, "--over and --ranks: a GPU is timed with one rank on it");
    return o->roofline ? 0 : device_kind_check(o->device, err);
}

/* "1,2,4": positive, in any order. */
static int parse_micro_batches(struct tool *t, struct err *err) {
    const char *p = t->o.micro_batch;
    do {
        char *end;
        long long v = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : 0;
        if (v < 1 || v > 1 << 24 || (*end && *end != ',') ||
            t->n_micro_batches == MAX_MICRO_BATCHES)
            return err_usage(err,
                             "--micro-batch: expected numbers such as 1,2,4, got \"%.64s\"",
                             t->o.micro_batch);
        t->micro_batches[t->n_micro_batches++] = v;
        p = end;
    } while (*p++);
    return 0;
}

static int in_range(const char *option, int64_t v, int64_t most, struct err *err) {
    if (v >= 1 && v <= most)
        return 0;
    return err_usage(err, "--%s: expected 1 to %lld", option, (long long)most);
}

static int check_probes(const struct options *o, struct err *err) {
    if (o->probes < 0 && (o->like || o->from))
        return err_usage(err, "--like and --from: only with --probes K");
    if (o->probes >= 0 && !o->like)
        return opt_missing("--like FILE", err);
    if (o->probes >= 0 && o->roofline)
        return err_usage(err, "--probes: not with --roofline, which computes all");
    return 0;
}

static int check_what(struct options *o, struct err *err) {
    if (!o->model && !o->plan)
        return opt_missing("-m MODEL or --plan PLAN", err);
    if (o->model && o->plan)
        return err_usage(err, "-m and --plan: expected one of them");
    if (o->plan && o->set)
        return err_usage(err, "--set: a plan has its own sizes");
    if (o->plan && o->dtype)
        return err_usage(err, "--dtype: a plan has its own");
    if (!o->dtype)
        o->dtype = "fp32";
    if (plan_dtype_find(o->dtype) < 0)
        return err_usage(err, "--dtype: expected " PLAN_DTYPES ", got \"%s\"", o->dtype);
    return 0;
}

static int check_options(struct tool *t, struct err *err) {
    struct options *o = &t->o;
    if (check_what(o, err) < 0 || check_probes(o, err) < 0)
        return -1;
    if (!o->path)
        return opt_missing("-p FILE", err);
    if (in_range("max-devices", o->max_devices, MAX_DEVICES, err) < 0 ||
        (o->threads != FAIR && in_range("threads", o->threads, MAX_THREADS, err) < 0) ||
        in_range("over", o->over, MAX_OVER, err) < 0 ||
        (o->ranks && in_range("ranks", o->ranks, MAX_THREADS, err) < 0) ||
        parse_micro_batches(t, err) < 0)
        return -1;
    if (!(o->error > 0) || !(o->row_s >= 0))
        return err_usage(err, "--error and --time: expected positive numbers");
    if (o->roofline && roofline_parse(o->roofline, &t->roofline, err) < 0)
        return -1;
    if (o->roofline && !o->device)
        return err_usage(
            err, "--roofline: expected --device KIND too, to name what is computed");
    if (check_device(o, err) < 0)
        return -1;
    if (o->links && !o->roofline)
        return err_usage(err, "--links: only with --roofline (weft-profile-comm measures)");
    if (o->links && (t->n_links = links_parse(o->links, t->links, err)) < 0)
        return -1;
    return 0;
}

static int choose_gpu(struct tool *t, struct err *err) {
    struct options *o = &t->o;
    if (!device_kind_is_gpu(o->device) || o->roofline)
        return 0;
    if (gpu_choose(&t->gpu, o->device, o->tf32, t->device, sizeof t->device, err) < 0)
        return -1;
    o->device = t->device;
    o->ranks = 1;
    if (!o->memory)
        o->memory = t->gpu.left / 4 * 3;
    return 0;
}

/* Who shares the node, and how the rows are named. What is not said follows from the rest, so
 * that the ranks of a job that fills the node with --max-devices ranks, whose threads
 * weft-profile-comm and weft-run choose by the same division, are of the same kind. */
static void choose_ranks(struct tool *t) {
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct options *o = &t->o;
    if (!o->ranks && o->threads == FAIR && o->over == 1)
        o->ranks = o->max_devices < cores ? o->max_devices : cores;
    if (o->threads == FAIR) {
        o->threads = o->ranks ? o->over * cores / o->ranks : 1;
        o->threads = o->threads > 1 ? o->threads : 1;
    }
    if (!o->ranks) {
        int64_t fill = o->over * cores / o->threads;
        o->ranks = fill > 1 ? fill : 1;
    }
    if (o->device && o->device != t->device)
        snprintf(t->device, sizeof t->device, "%s", o->device);
    else if (!o->device)
        profile_device_kind((int)o->threads, (int)o->ranks, cores, t->device,
                            sizeof t->device);
    int over = (int)((o->threads * o->ranks + cores - 1) / cores);
    if (o->row_s == 0)
        o->row_s = over > 1 ? 1 : 0.3;
    t->limits = (struct limits){.row_s = o->row_s, .error = o->error, .over = over};
    if (!o->memory)
        o->memory = (int64_t)sysconf(_SC_PHYS_PAGES) / 4 * 3 * sysconf(_SC_PAGESIZE);
    t->bench.budget = o->memory / o->ranks;
}

/* ---- rows ---------------------------------------------------------------- */

static char *key_shape(const struct instr_key *key, char *buf, size_t n) {
    return instr_shape_format(key->code, &key->n, buf, n);
}

static int enumerate(struct tool *t, struct err *err) {
    if (t->o.plan)
        return plans_enumerate(t->o.plan, &t->keys, &t->uses, &t->o.max_devices,
                               t->gpu.on ? &t->pairs : NULL, t->gpu.on ? NULL : &t->cold,
                               err);
    struct model *m = model_load(t->o.model, t->o.set, err);
    if (!m)
        return -1;
    enumerate_model(m, t->micro_batches, t->n_micro_batches, t->o.max_devices,
                    (enum dtype)plan_dtype_find(t->o.dtype), &t->keys);
    int rc = t->gpu.on ? pairs_of_model(m, (enum dtype)plan_dtype_find(t->o.dtype),
                                        &t->pairs, err)
                       : cold_of_model(m, (enum dtype)plan_dtype_find(t->o.dtype),
                                       t->micro_batches[t->n_micro_batches - 1],
                                       cold_cache_bytes(), &t->cold, err);
    model_destroy(m);
    return rc;
}

static int try_speed(struct tool *t, const struct instr_key *key, double *us,
                     struct err *err) {
    const struct limits quick = {.row_s = 0.02, .error = 0.1, .over = 1};
    struct measured m;
    if (bench_prepare(&t->bench, key, err) < 0 ||
        bench_measure(&t->bench, &quick, &m, err) < 0)
        return -1;
    *us = m.median_us * t->limits.over;
    return 0;
}

/* The speed of this device, roughly: a short measurement or two. Tensor cores do some hundred operations for
 * each byte that memory gives, others of GPUs some twenty: which rows come after which need not be known
 * better. */
static int calibrate(struct tool *t, struct err *err) {
    static const struct instr_key product = {
        I_linear, DTYPE_f32, {.linear = {.m = 256, .n = 512, .k = 512}}};
    struct instr_key add = {I_add, DTYPE_f32, {.add = {.elems = 1 << 20}}};
    double us, flops = 0;
    if (t->gpu.on)
        add.n.add.elems = 1 << 24;
    else if (try_speed(t, &product, &us, err) < 0)
        return -1;
    else
        flops = 1e6 * t->bench.work.flops / us;
    if (try_speed(t, &add, &us, err) < 0)
        return -1;
    const double bytes = 1e6 * instr_bytes(&t->bench.work, DTYPE_f32) / us;
    const bool half = dtype_is_half((enum dtype)plan_dtype_find(t->o.dtype));
    t->roofline = (struct roofline){.flops = t->gpu.on ? (half ? 200 : 20) * bytes : flops,
                                    .bytes = bytes,
                                    .latency_us = t->gpu.on ? 2 : 0.5};
    return 0;
}

/* What one row will take: filling the operands, then running. */
static double estimate_row_s(const struct tool *t, const struct instr_key *key,
                             double run_us) {
    double fill =
        4.0 * (double)bench_bytes(&t->cold, key, t->bench.budget) / t->roofline.bytes;
    return fill + bench_estimate_s(&t->bench, key, &t->limits, 1e-6 * run_us);
}

static void add_row(struct tool *t, struct row *r) {
    char shape[160];
    r->run_us = roofline_us(&t->roofline, &r->key);
    bool runs = !t->o.roofline && !t->o.from;
    r->row_s = runs ? estimate_row_s(t, &r->key, r->run_us) : 0;
    int64_t bytes = runs ? bench_bytes(&t->cold, &r->key, 0) : 0;
    if (t->profile &&
        profile_has_op(t->profile, t->device, opcode_name(r->key.code),
                       key_shape(&r->key, shape, sizeof shape), dtype_name(r->key.dtype))) {
        r->state = KNOWN;
        t->known++;
    } else if (t->probes && !probes_wants(t->probes, &r->key)) {
        r->state = TO_ESTIMATE;
    } else if (bytes > t->bench.budget) {
        r->state = TOO_LARGE;
        t->too_large++;
        t->largest = bytes > t->largest ? bytes : t->largest;
    } else {
        t->todo++;
        t->todo_s += r->row_s;
    }
}

/* In an order that mixes cheap and dear ones, so that the time left can be told. */
static void make_rows(struct tool *t) {
    struct rng r = {.seed = 1};
    t->rows = mem_array((size_t)t->keys.n + 1, sizeof *t->rows);
    for (int64_t i = 0; i < t->keys.n; i++)
        t->rows[i].key = t->keys.p[i];
    for (int64_t i = t->keys.n - 1; i > 0 && !t->o.dry_run; i--) {
        int64_t k = rng_below(&r, i + 1);
        struct row swap = t->rows[i];
        t->rows[i] = t->rows[k];
        t->rows[k] = swap;
    }
    for (int64_t i = 0; i < t->keys.n; i++)
        add_row(t, &t->rows[i]);
}

static void list_rows(const struct tool *t) {
    static const char *const states[] = {"to measure", "known", "too large", "to estimate"};
    char name[40], shape[160];
    printf("# device %s: instruction, shape, state, estimated us of one run\n", t->device);
    for (int64_t i = 0; i < t->keys.n; i++) {
        const struct row *r = &t->rows[i];
        printf("%s\t%s\t%s\t%.3g\n",
               instr_name_format(r->key.code, r->key.dtype, name, sizeof name),
               key_shape(&r->key, shape, sizeof shape),
               t->o.roofline && r->state == TO_MEASURE ? "to compute" : states[r->state],
               r->run_us);
    }
    printf("# %lld of %lld rows to %s, about %.0f s\n", (long long)t->todo,
           (long long)t->keys.n, t->o.roofline ? "compute" : "measure", t->todo_s);
}

/* ---- measuring ----------------------------------------------------------- */

/* 0, 1 when interrupted, -1. */
static int time_row(struct tool *t, const struct instr_key *key, struct measured *m,
                    struct err *err) {
    if (t->o.from) {
        *m = (struct measured){.median_us = probes_given_us(t->probes, key), .repeats = 1};
        return 0;
    }
    int rc = pairs_measure(&t->bench, &t->pairs, key, &t->limits, m, err);
    if (rc != PAIRS_APART)
        return rc;
    if (bench_prepare(&t->bench, key, err) < 0 || ranks_run(t->ranks, key, err) < 0)
        return -1;
    return bench_measure(&t->bench, &t->limits, m, err);
}

static int measure_row(struct tool *t, const struct row *r, struct err *err) {
    char shape[160];
    struct measured m;
    int rc = time_row(t, &r->key, &m, err);
    if (rc)
        return rc;
    t->unsteady += m.spread > WIDE;
    struct profile_op row = {.device = t->device,
                             .instr = opcode_name(r->key.code),
                             .shape = key_shape(&r->key, shape, sizeof shape),
                             .dtype = dtype_name(r->key.dtype),
                             .median_us = m.median_us,
                             .spread = m.spread,
                             .repeats = m.repeats,
                             .source = "measured"};
    return profile_put_op(t->profile, &row, err);
}

static int measure_rows(struct tool *t, int64_t *done, struct err *err) {
    struct progress progress;
    int rc = 0;
    interrupt_catch();
    progress_start(&progress, "profiling", t->todo);
    for (int64_t i = 0; i < t->keys.n && rc == 0; i++) {
        const struct row *r = &t->rows[i];
        char shape[160], detail[200];
        if (r->state != TO_MEASURE)
            continue;
        snprintf(detail, sizeof detail, "%s %s", opcode_name(r->key.code),
                 key_shape(&r->key, shape, sizeof shape));
        progress_step(&progress, *done, detail);
        rc = interrupted() ? 1 : measure_row(t, r, err);
        *done += rc == 0;
    }
    progress_end(&progress);
    return rc;
}

/* Algorithms of libraries for what programs ask of them. A plan's instructions say all; what a model's
 * programs have besides one instruction for each row, and which rows are parts of pairs, is gathered. */
static int try_libraries(struct tool *t, struct err *err) {
    if (!t->gpu.on)
        return 0;
    if (cuda_try(t->bench.device, t->keys.forms, t->keys.n_forms, t->bench.budget, err) < 0)
        return -1;
    return t->o.plan ? 0 : pairs_try(&t->pairs, t->keys.p, t->keys.n, &t->bench, err);
}

static int measure(struct tool *t, struct err *err) {
    int64_t done = 0;
    gpu_note_clocks(&t->gpu, t->device, "before");
    if (try_libraries(t, err) < 0)
        return -1;
    int rc = measure_rows(t, &done, err);
    if (rc < 0)
        return -1;
    gpu_note_clocks(&t->gpu, t->device, "just after");
    note("%lld rows measured on %s, %lld were known", (long long)done, t->device,
         (long long)t->known);
    if (t->unsteady * 10 > done)
        note("%lld rows have a spread above %g: is something else running?",
             (long long)t->unsteady, WIDE);
    if (*t->gpu.report.no_cudnn)
        note("without cuDNN weft's own kernels did convolutions (%s)",
             t->gpu.report.no_cudnn);
    if (t->too_large)
        note("%lld rows left out: they need up to %.1f GiB for each rank (--memory)",
             (long long)t->too_large, (double)t->largest / (1 << 30));
    return rc ? err_system(err, "interrupted; what was measured is kept") : 0;
}

/* What the rows that were measured say of the others. */
static int estimate(struct tool *t, struct err *err) {
    int64_t n = probes_put(t->probes, t->profile, t->device, err);
    if (n < 0)
        return -1;
    note("%lld rows estimated from those of %s", (long long)n, t->o.like);
    return 0;
}

static int open_probes(struct tool *t, struct err *err) {
    if (t->o.probes < 0)
        return 0;
    t->probes = probes_open(t->o.like, t->o.from, t->device, err);
    if (!t->probes)
        return -1;
    if (!probes_know_sheet(t->probes))
        note("no device model of %s: the probes alone tell how it differs", t->device);
    return 0;
}

static int compute(struct tool *t, struct err *err) {
    int64_t ops = 0, comms = 0;
    if (profile_begin(t->profile, err) < 0 ||
        roofline_put_ops(t->profile, t->device, &t->roofline, &t->keys, &ops, err) < 0 ||
        links_put(t->profile, t->device, t->links, t->n_links, t->o.max_devices, &t->keys,
                  &comms, err) < 0 ||
        profile_commit(t->profile, err) < 0)
        return -1;
    note("%lld instructions and %lld collectives computed for %s", (long long)ops,
         (long long)comms, t->device);
    return 0;
}

/* Siblings are forked before this process has threads or an open database. */
static int start_ranks(struct tool *t, struct err *err) {
    if (t->o.dry_run || t->o.roofline || t->o.from)
        return 0;
    t->bench.cold = &t->cold;
    t->ranks =
        ranks_start((int)t->o.ranks - 1, (int)t->o.threads, t->bench.budget, &t->cold, err);
    return t->ranks ? 0 : -1;
}

static int open_profile(struct tool *t, struct err *err) {
    if (t->o.dry_run && access(t->o.path, F_OK) != 0)
        return 0;
    t->profile = profile_open(t->o.path, !t->o.dry_run, err);
    return t->profile ? 0 : -1;
}

static int start_device(struct tool *t, struct err *err) {
    if (t->gpu.on && gpu_prepare(&t->gpu, &t->bench, &t->keys, t->o.tf32, t->profile,
                                 !t->o.dry_run, err) < 0)
        return -1;
    if (bench_open(&t->bench, (int)t->o.threads, err) < 0 || calibrate(t, err) < 0)
        return -1;
    note_verbose("%s: %lld ranks on this node, products by %s", t->device,
                 (long long)t->o.ranks, t->gpu.on ? "cuBLASLt" : kernel_gemm_library());
    return 0;
}

static int run(struct tool *t, struct err *err) {
    if (choose_gpu(t, err) < 0)
        return -1;
    choose_ranks(t);
    if (enumerate(t, err) < 0 || start_ranks(t, err) < 0 || open_probes(t, err) < 0 ||
        open_profile(t, err) < 0)
        return -1;
    if (!t->o.roofline && !t->o.from && start_device(t, err) < 0)
        return -1;
    if (t->probes)
        probes_choose(t->probes, &t->keys, t->uses, t->o.probes, t->profile, t->device);
    make_rows(t);
    if (t->o.dry_run)
        list_rows(t);
    else if (t->o.roofline)
        return compute(t, err);
    else if (measure(t, err) < 0 || (t->probes && estimate(t, err) < 0))
        return -1;
    return 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct tool t = {.o = {.max_devices = 8,
                           .threads = FAIR,
                           .over = 1,
                           .error = 0.01,
                           .probes = -1,
                           .micro_batch = "1,2,4,8"}};
    int rc = parse_options(&t.o, argc, argv, &err);
    if (rc == 0)
        rc = check_options(&t, &err);
    if (rc == 0)
        rc = run(&t, &err);
    ranks_stop(t.ranks);
    bench_release(&t.bench);
    gpu_release(&t.gpu);
    profile_close(t.profile);
    enumeration_release(&t.keys);
    pairs_release(&t.pairs);
    cold_release(&t.cold);
    probes_close(t.probes);
    free(t.rows);
    free(t.uses);
    free(t.o.set);
    free(t.o.plan);
    if (rc == 0)
        rc = file_stdout_check(&err);
    return rc < 0 ? err_report(&err, "weft-profile-op") : EXIT_DONE;
}
