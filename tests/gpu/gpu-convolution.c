/* gpu-convolution [bench] - cuDNN does the convolutions of ResNet-50 as weft's own kernels do
 * on the same GPU: in bf16, 2e-2 of the largest number, and one in f16 and in TF32, which have three
 * bits more, 2.5e-3. With "bench" it prints how fast each is, and how fast the one that is taken
 * unasked, as JSON lines. Without a GPU it says so. */
#include "../unit/tap.h"
#include "common/rng.h"
#include "cuda/cuda_workspace.h"
#include "side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operands, then results: y, dx and dw are those of the three passes. */
enum tensor { X, W, DY, Y, DX, DW, TENSORS };

static const struct {
    enum opcode code;
    enum tensor in[2], out;
} passes[] = {
    {I_conv2d, {X, W}, Y}, {I_conv2d_dx, {DY, W}, DX}, {I_conv2d_dw, {X, DY}, DW}};
enum { PASSES = sizeof passes / sizeof *passes };

/* batch, height and width, channels, out, taps, stride */
struct form {
    int batch, size, cin, cout, taps, stride;
};

static struct err err;
static bool tf32; /* floats are rounded to it */

static union instr_n numbers(const struct form *f) {
    const int pad = f->taps / 2, out = (f->size + 2 * pad - f->taps) / f->stride + 1;
    return (union instr_n){.v = {f->batch, f->size, f->size, f->cin, out, out, f->cout,
                                 f->taps, f->taps, f->stride, pad, pad}};
}

static int64_t elements(const union instr_n *n, int tensor) {
    const struct conv2d_n *c = &n->conv2d;
    switch (tensor) {
    case X:
    case DX: return c->batch * c->ih * c->iw * c->cin;
    case Y:
    case DY: return c->batch * c->oh * c->ow * c->cout;
    default: return c->kh * c->kw * c->cin * c->cout;
    }
}

static enum dtype type_of(const struct side *s, int tensor) {
    return tensor == DW ? DTYPE_f32 : s->args.dtype;
}

static int64_t bytes_of(const struct side *s, int tensor) {
    return elements(&s->n, tensor) * dtype_size(type_of(s, tensor));
}

/* Noise. */
static int fill(struct side *s, int tensor) {
    const int64_t n = elements(&s->n, tensor);
    float *wide = malloc((size_t)n * sizeof *wide);
    void *typed = malloc((size_t)n * sizeof *wide);
    int rc = wide && typed ? 0 : err_system(&err, "no memory");
    for (int64_t i = 0; i < n && rc == 0; i++)
        wide[i] = rng_normal(1, (uint64_t)tensor, (uint64_t)i);
    if (rc == 0)
        kernel_narrow(n, s->args.dtype, wide, typed);
    if (rc == 0)
        rc = device_upload(s->stream, s->at[tensor], typed, bytes_of(s, tensor), &err);
    free(wide);
    free(typed);
    return rc;
}

static int open_side(struct side *s, const char *which, const struct form *f,
                     enum dtype dtype) {
    *s = (struct side){.args = {.dtype = dtype}, .n = numbers(f)};
    int64_t room = 0;
    for (int k = 0; k < PASSES; k++) {
        const int64_t bytes = cuda_workspace_instr(passes[k].code, &s->n, dtype);
        room = bytes > room ? bytes : room;
    }
    s->cuda = cuda_backend(&(struct cuda_options){
        .workspace_bytes = room, .tf32 = tf32, .convolution = which, .tunes = true});
    int rc = side_open(s, &err);
    for (int i = 0; i < TENSORS && rc == 0; i++)
        rc = (s->at[i] = device_alloc(s->dev, bytes_of(s, i), &err)) ? 0 : -1;
    for (int i = X; i <= DY && rc == 0; i++)
        rc = fill(s, i);
    return rc;
}

static int pass(struct side *s, int k) {
    const union instr_src in = {.v = {s->at[passes[k].in[0]], s->at[passes[k].in[1]]}};
    const union instr_dst out = {.v = {s->at[passes[k].out]}};
    return device_launch(s->stream, passes[k].code, &s->n, &in, &out, &s->args, &err);
}

/* ---- comparing ------------------------------------------------------------------------------------ */

/* The result of a pass, in floats; of dw what one run adds, for the first may have tried
 * several. */
static float *result(struct side *s, int k) {
    const int tensor = passes[k].out;
    const int64_t n = elements(&s->n, tensor), bytes = bytes_of(s, tensor);
    float *wide = malloc((size_t)n * sizeof *wide);
    void *typed = calloc(1, (size_t)bytes);
    if (!wide || !typed || pass(s, k) < 0 ||
        device_upload(s->stream, s->at[tensor], typed, bytes, &err) < 0 || pass(s, k) < 0 ||
        device_download(s->stream, typed, s->at[tensor], bytes, &err) < 0) {
        free(wide);
        wide = NULL;
    } else {
        kernel_widen(n, type_of(s, tensor), typed, wide);
    }
    free(typed);
    return wide;
}

/* The largest difference, as a part of the largest number; NaN is as far as can be. */
static double apart(struct side *a, struct side *b, int k) {
    float *got = result(a, k), *want = result(b, k);
    double most = 0, far = got && want ? 0 : (double)INFINITY;
    for (int64_t i = 0; got && want && i < elements(&a->n, passes[k].out); i++) {
        const double e = fabs((double)got[i] - (double)want[i]);
        most = fmax(most, fabs((double)want[i]));
        far = e <= far ? far : e == e ? e : (double)INFINITY;
    }
    free(got);
    free(want);
    return far > 0 ? far / most : 0;
}

static void compare(const struct form *f, enum dtype dtype) {
    const double most = dtype == DTYPE_bf16 ? 2e-2 : 2.5e-3;
    struct side a = {0}, b = {0};
    const bool opened =
        open_side(&a, "cudnn", f, dtype) == 0 && open_side(&b, "own", f, dtype) == 0;
    for (int k = 0; k < PASSES && opened; k++) {
        const double far = apart(&a, &b, k);
        ok(far <= most, "%s %s: %d x %d x %d x %d -> %d, %d taps, stride %d: %.1e %s",
           opcode_name(passes[k].code), tf32 ? "TF32" : dtype_name(dtype), f->batch,
           f->size, f->size, f->cin, f->cout, f->taps, f->stride, far, err.msg);
    }
    if (!opened)
        ok(false, "devices: %s", err.msg);
    side_close(&a);
    if (opened)
        side_close(&b);
}

/* ---- speed ---------------------------------------------------------------------------------------- */

/* Microseconds of a pass: the best of three times twenty. The first round chooses and warms
 * up. */
static double time_pass(struct side *s, struct cuda_timer *timer, int k) {
    double best = (double)INFINITY, us;
    for (int round = 0; round < 4; round++) {
        if (cuda_timer_begin(timer, s->stream, &err) < 0)
            return best;
        for (int i = 0; i < 20; i++)
            if (pass(s, k) < 0)
                return (double)INFINITY;
        if (cuda_timer_end(timer, s->stream, &us, &err) < 0)
            return best;
        best = round && us / 20 < best ? us / 20 : best;
    }
    return best;
}

static void bench(const char *which, const struct form *f, enum dtype dtype,
                  struct cuda_timer *timer) {
    struct side s;
    const int rc = open_side(&s, which, f, dtype);
    if (rc < 0)
        printf("# %s: %s\n", which ? which : "faster", err.msg);
    for (int k = 0; k < PASSES && rc == 0; k++) {
        struct instr_work work;
        instr_work(passes[k].code, &s.n, &work);
        const double us = time_pass(&s, timer, k);
        printf("{\"kernels\": \"%s\", \"dtype\": \"%s\", \"pass\": \"%s\", \"batch\": %d, "
               "\"size\": %d, \"cin\": %d, \"cout\": %d, \"taps\": %d, \"stride\": %d, "
               "\"us\": %.1f, \"tflops\": %.1f}\n",
               which ? which : "faster", tf32 ? "tf32" : dtype_name(dtype),
               opcode_name(passes[k].code), f->batch, f->size, f->cin, f->cout, f->taps,
               f->stride, us, 1e-6 * work.flops / us);
        fflush(stdout); /* what stands here is there whatever comes next */
    }
    side_close(&s);
}

static const struct form compared[] = {{8, 56, 64, 64, 3, 1},
                                       {8, 28, 128, 512, 1, 1},
                                       {8, 56, 128, 128, 3, 2},
                                       {4, 224, 3, 64, 7, 2}};
static const struct form measured[] = {{64, 56, 64, 64, 3, 1},   {64, 28, 128, 128, 3, 1},
                                       {64, 14, 256, 256, 3, 1}, {64, 7, 512, 512, 3, 1},
                                       {64, 56, 64, 256, 1, 1},  {64, 56, 128, 128, 3, 2},
                                       {64, 224, 3, 64, 7, 2}};

int main(int argc, char **argv) {
    static const char *const ways[] = {"own", "cudnn", NULL};
    struct cuda_timer *timer = side_timer(&err);
    if (!timer)
        return 0;
    const bool benches = argc > 1 && !strcmp(argv[1], "bench");
    for (size_t i = 0; !benches && i < sizeof compared / sizeof *compared; i++)
        compare(compared + i, DTYPE_bf16);
    if (!benches)
        compare(compared, DTYPE_f16);
    for (size_t i = 0; benches && i < sizeof measured / sizeof *measured; i++)
        for (int k = 0; k < 3; k++)
            bench(ways[k], measured + i, DTYPE_bf16, timer);
    for (int k = 0; benches && k < 2; k++) {
        bench(ways[k], measured, DTYPE_f16, timer);
        bench(ways[k], measured, DTYPE_f32, timer);
    }
    tf32 = true;
    if (!benches)
        compare(compared, DTYPE_f32);
    for (int k = 0; benches && k < 2; k++)
        bench(ways[k], measured, DTYPE_f32, timer);
    cuda_timer_destroy(timer);
    return benches ? 0 : done_testing();
}
