/* gpu-attention [bench] - the kernels for tensor cores do what the plain ones do on the same GPU, in
 * bf16, f16 and TF32, and cuDNN's, and on sequences that a CPU takes too long for: 2e-2 of the largest number in bf16,
 * 2.5e-3 in the others, which have three bits more. With "bench" it prints how fast each is instead: JSON
 * lines, with the operations of instr.def (a causal mask halves them; what a backward pass makes again
 * does not count). Without a GPU it says so. */
#include "../unit/tap.h"
#include "common/rng.h"
#include "cuda/cuda_workspace.h"
#include "side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct form {
    int batch, heads, group, kv_heads, seq, dim;
    bool causal;
    int buckets, window, document; /* tokens of a document; 0 = no documents */
};

/* Operands, then results, of both passes; o and lse are of the first and for the second. Whole numbers
 * last. */
enum tensor { Q, K, V, POSITIONS, DY, O, LSE, DQ, DK, DV, DPOSITIONS, STARTS, TENSORS };
static const char *const names[STARTS] = {"q",   "k",  "v",  "positions", "dy",        "o",
                                          "lse", "dq", "dk", "dv",        "dpositions"};

static struct err err;
enum { PLAIN, MMA, WGMMA, WGMMA_128, CUDNN, TF32 };
static const char *const kernels[] = {"plain",     "mma",   "wgmma",
                                      "wgmma-128", "cudnn", "tf32"};

static struct attention_n numbers(const struct form *x) {
    return (struct attention_n){.batch = x->batch,
                                .heads = x->heads,
                                .group = x->group,
                                .kv_heads = x->kv_heads,
                                .seq = x->seq,
                                .kv_seq = x->seq,
                                .dim = x->dim,
                                .causal = x->causal,
                                .buckets = x->buckets,
                                .window = x->window,
                                .starts = x->document > 0};
}

static bool is_float(int tensor) {
    return tensor == LSE || tensor == DPOSITIONS;
}

static int64_t elements(const struct form *x, int tensor) {
    const int64_t rows = (int64_t)x->batch * x->seq;
    switch (tensor) {
    case Q:
    case DY:
    case O:
    case DQ: return rows * x->heads * x->dim;
    case LSE: return rows * x->heads;
    case STARTS: return x->document ? rows : 0;
    case POSITIONS:
    case DPOSITIONS: return (int64_t)x->buckets * x->heads;
    default: return rows * x->kv_heads * x->dim;
    }
}

static int64_t bytes_of(const struct form *x, int tensor, enum dtype dtype) {
    return elements(x, tensor) * dtype_size(tensor == STARTS   ? DTYPE_i32
                                            : is_float(tensor) ? DTYPE_f32
                                                               : dtype);
}

/* One kind of kernels, with the tensors of one shape on the device. */
/* Noise in an operand, zeros in a result. */
static int fill(struct side *s, const struct form *x, int tensor) {
    const int64_t n = elements(x, tensor);
    float *wide = calloc((size_t)n + 1, sizeof *wide);
    void *typed = malloc((size_t)n * sizeof *wide + 1);
    const enum dtype dtype = is_float(tensor) ? DTYPE_f32 : s->args.dtype;
    int rc = wide && typed ? 0 : err_system(&err, "no memory");
    for (int64_t i = 0; i < n && tensor <= DY && rc == 0; i++)
        wide[i] = 2 * rng_normal(1, (uint64_t)tensor, (uint64_t)i);
    if (rc == 0)
        kernel_narrow(n, dtype, wide, typed);
    if (rc == 0 && n)
        rc = device_upload(s->stream, s->at[tensor], typed, bytes_of(x, tensor, dtype),
                           &err);
    free(wide);
    free(typed);
    return rc;
}

/* Documents of one length, of which the first of a sample lacks as much as the sample's number. */
static int fill_starts(struct side *s, const struct form *x) {
    const int64_t n = elements(x, STARTS);
    int32_t *starts = malloc((size_t)n * sizeof *starts + 1);
    if (!starts)
        return err_system(&err, "no memory");
    for (int64_t i = 0; i < n; i++) {
        const int32_t sample = (int32_t)(i / x->seq), at = (int32_t)(i % x->seq) + sample;
        const int32_t start = at / x->document * x->document - sample;
        starts[i] = start > 0 ? start : 0;
    }
    int rc = n ? device_upload(s->stream, s->at[STARTS], starts, n * 4, &err) : 0;
    free(starts);
    return rc;
}

static int open_side(struct side *s, const char *which, const struct form *x,
                     enum dtype dtype) {
    const union instr_n n = {.attention = numbers(x)};
    const int64_t forth = cuda_workspace_instr(I_attention, &n, dtype),
                  back = cuda_workspace_instr(I_attention_bwd, &n, dtype),
                  room = forth > back ? forth : back;
    *s = (struct side){
        .cuda = cuda_backend(&(struct cuda_options){.workspace_bytes = room,
                                                    .tf32 = !strcmp(which, "tf32"),
                                                    .tunes = !strcmp(which, "cudnn"),
                                                    .attention = which}),
        .args = {.dtype = dtype, .distance = 128, .scale = 1.0f / sqrtf((float)x->dim)},
        .n = n};
    if (side_open(s, &err) < 0)
        return -1;
    for (int i = 0; i < TENSORS; i++) {
        const int64_t bytes = bytes_of(x, i, dtype);
        s->at[i] = bytes ? device_alloc(s->dev, bytes, &err) : NULL;
        if ((bytes && !s->at[i]) || (i < STARTS && fill(s, x, i) < 0))
            return -1;
    }
    return fill_starts(s, x);
}

static int pass(struct side *s, bool backward) {
    const union instr_src forth = {.attention = {.q = s->at[Q],
                                                 .k = s->at[K],
                                                 .v = s->at[V],
                                                 .starts = s->at[STARTS],
                                                 .positions = s->at[POSITIONS]}};
    const union instr_dst done = {.attention = {.o = s->at[O], .lse = s->at[LSE]}};
    const union instr_src back = {.attention_bwd = {.q = s->at[Q],
                                                    .k = s->at[K],
                                                    .v = s->at[V],
                                                    .starts = s->at[STARTS],
                                                    .positions = s->at[POSITIONS],
                                                    .o = s->at[O],
                                                    .lse = s->at[LSE],
                                                    .dy = s->at[DY]}};
    const union instr_dst slopes = {.attention_bwd = {.dq = s->at[DQ],
                                                      .dk = s->at[DK],
                                                      .dv = s->at[DV],
                                                      .dpositions = s->at[DPOSITIONS]}};
    return backward ? device_launch(s->stream, I_attention_bwd, &s->n, &back, &slopes,
                                    &s->args, &err)
                    : device_launch(s->stream, I_attention, &s->n, &forth, &done, &s->args,
                                    &err);
}

/* ---- beside each other ------------------------------------------------------------------------- */

static float *down(struct side *s, const struct form *x, int tensor) {
    const int64_t n = elements(x, tensor);
    const enum dtype dtype = is_float(tensor) ? DTYPE_f32 : s->args.dtype;
    void *typed = malloc((size_t)n * sizeof(float) + 1);
    float *wide = malloc((size_t)n * sizeof(float) + 1);
    if (!typed || !wide ||
        device_download(s->stream, typed, s->at[tensor], n * dtype_size(dtype), &err) < 0)
        exit(4);
    kernel_widen(n, dtype, typed, wide);
    free(typed);
    return wide;
}

/* The largest difference, as a part of the largest number; NaN is as far as can be. */
static double apart(struct side *a, struct side *b, const struct form *x, int tensor) {
    float *got = down(a, x, tensor), *want = down(b, x, tensor);
    double most = 0, far = 0;
    for (int64_t i = 0; i < elements(x, tensor); i++) {
        const double e = fabs((double)got[i] - want[i]);
        most = fmax(most, fabs(want[i]));
        far = e <= far ? far : e == e ? e : INFINITY;
    }
    free(got);
    free(want);
    return far > 0 ? far / most : 0;
}

static void compare(const char *which, const struct form *x, enum dtype dtype) {
    const double most = dtype == DTYPE_bf16 ? 2e-2 : 2.5e-3;
    struct side a = {0}, b = {0};
    char bad[256] = "";
    double worst = 0;
    const bool runs = open_side(&a, which, x, dtype) == 0 &&
                      open_side(&b, "plain", x, dtype) == 0 && pass(&a, false) == 0 &&
                      pass(&b, false) == 0 && pass(&a, true) == 0 && pass(&b, true) == 0;
    if (!runs && strstr(err.msg, "libcudnn")) {
        ok(true, "%s %s # SKIP %s", which, dtype_name(dtype), err.msg);
        err = (struct err){0};
        side_close(&a);
        side_close(&b);
        return;
    }
    for (int i = O; i < STARTS && runs; i++) {
        const double e = elements(x, i) ? apart(&a, &b, x, i) : 0;
        worst = fmax(worst, e);
        if (!(e <= most))
            snprintf(bad, sizeof bad, "; %s is %.1e off", names[i], e);
    }
    ok(runs && !*bad, "%s %s: %d x %d/%d heads, %d keys, dim %d%s%s%s%s: %.1e%s%s", which,
       dtype_name(dtype), x->batch, x->heads, x->group, x->seq, x->dim,
       x->causal ? ", causal" : "", x->buckets ? ", positions" : "",
       x->window ? ", a window" : "", x->document ? ", documents" : "", worst, bad,
       err.msg);
    side_close(&a);
    side_close(&b);
}

/* ---- speed ---------------------------------------------------------------------------------------- */

/* Microseconds of a pass: the best of three times twenty. */
static double time_pass(struct side *s, struct cuda_timer *timer, bool backward) {
    double best = INFINITY, us;
    for (int round = 0; round < 4; round++) {
        if (cuda_timer_begin(timer, s->stream, &err) < 0)
            return INFINITY;
        for (int i = 0; i < 20; i++)
            if (pass(s, backward) < 0)
                return INFINITY;
        if (cuda_timer_end(timer, s->stream, &us, &err) < 0)
            return INFINITY;
        best = round && us / 20 < best ? us / 20 : best; /* the first warms up */
    }
    return best;
}

static void bench(const char *which, const struct form *x, enum dtype dtype,
                  struct cuda_timer *timer) {
    struct side s;
    if (open_side(&s, which, x, dtype) < 0)
        printf("# %s: %s\n", which, err.msg);
    else
        for (int backward = 0; backward < 2; backward++) {
            struct instr_work work;
            instr_work(backward ? I_attention_bwd : I_attention, &s.n, &work);
            const double us = time_pass(&s, timer, backward);
            printf(
                "{\"kernels\": \"%s\", \"dtype\": \"%s\", \"pass\": \"%s\", \"batch\": %d, "
                "\"heads\": %d, \"seq\": %d, \"dim\": %d, \"us\": %.1f, \"tflops\": %.1f}\n",
                which, dtype_name(dtype), backward ? "backward" : "forward", x->batch,
                x->heads, x->seq, x->dim, us, 1e-6 * work.flops / us);
        }
    side_close(&s);
}

static const struct form compared[] = {
    {2, 4, 1, 4, 1000, 64, true, 0, 0, 0},     {1, 4, 2, 2, 777, 128, false, 0, 0, 0},
    {2, 2, 1, 2, 1025, 96, true, 0, 0, 0},     {1, 4, 4, 1, 2048, 128, true, 0, 0, 0},
    {2, 4, 1, 4, 512, 64, false, 32, 0, 0},    {2, 2, 1, 2, 700, 64, true, 0, 0, 150},
    {1, 4, 2, 2, 515, 128, true, 0, 300, 0},   {2, 2, 1, 2, 600, 128, true, 0, 0, 201},
    {1, 2, 2, 1, 400, 256, true, 0, 260, 130},
};
static const struct form measured[] = {{16, 12, 1, 12, 1024, 64, true, 0, 0, 0},
                                       {16, 16, 1, 16, 1024, 64, true, 0, 0, 0},
                                       {8, 16, 1, 16, 1024, 128, true, 0, 0, 0},
                                       {2, 16, 1, 16, 8192, 128, true, 0, 0, 0},
                                       {1, 16, 1, 16, 32768, 128, true, 0, 0, 0}};

static const enum dtype halves[] = {DTYPE_bf16, DTYPE_f16};

static bool is_of_library(const struct form *x) {
    return !x->buckets && !x->window && !x->document;
}

int main(int argc, char **argv) {
    struct cuda_timer *timer = side_timer(&err);
    if (!timer)
        return 0;
    const bool benches = argc > 1 && !strcmp(argv[1], "bench");
    for (size_t i = 0; !benches && i < sizeof compared / sizeof *compared; i++) {
        for (size_t j = 0; j < sizeof halves / sizeof *halves; j++)
            for (int k = MMA; k <= CUDNN; k++)
                if (k != CUDNN || is_of_library(&compared[i]))
                    compare(kernels[k], compared + i, halves[j]);
        compare(kernels[TF32], compared + i, DTYPE_f32);
    }
    for (int k = PLAIN; benches && k <= CUDNN; k++) {
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
            if (k || i == 0) /* plain ones are slow: one is enough, in floats */
                bench(kernels[k], measured + i, k ? DTYPE_bf16 : DTYPE_f32, timer);
        for (size_t i = 0; k && i < sizeof measured / sizeof *measured; i += 2)
            bench(kernels[k], measured + i, DTYPE_f16, timer); /* one of 64, one of 128 */
    }
    for (size_t i = 0; benches && i < sizeof measured / sizeof *measured; i += 2)
        bench(kernels[TF32], measured + i, DTYPE_f32, timer);
    cuda_timer_destroy(timer);
    return benches ? 0 : done_testing();
}
