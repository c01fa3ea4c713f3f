/* Convolutions of GPUs, asked of a library that is not there (cudnn.h): what comes out is
 * what the CPU computes, and who does them is as cuda_conv_pick.c says. So descriptions, the
 * turning of weights, sums in floats, promises about workspace and alignment are seen to be
 * right without a GPU. Weft's own kernels are the CPU's here; those of GPUs are tried in
 * tests/emulate. */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "cuda/cuda.h"
#include "cuda/cuda_convolution.h"
#include "cudnn.h"
#include "device/cpu.h"
#include "runtime.h"

/* ---- what stands in for the libraries ------------------------------------------------------ */

#define ENTRY(name) {#name, (void (*)(void))fake_##name},
static const struct {
    const char *name;
    void (*p)(void);
} functions[] = {DNN_LIBRARY(ENTRY)};

static struct {
    bool missing, captured; /* the library; the stream */
    int looked_for;
    int own;       /* runs of weft's own kernels */
    int products;  /* of matrices */
    double own_ms; /* that one takes */
} world;

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    world.looked_for++;
    if (world.missing)
        return err_system(err, "%s: cannot be opened", file);
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], functions[i].name) != 0)
            return err_system(err, "%s: has no %s", file, names[i]);
        memcpy((char *)table + i * sizeof functions[i].p, &functions[i].p,
               sizeof functions[i].p);
    }
    return 0;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
    (void)s;
    *status = world.captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Time goes by as engines and own kernels run. */
static double runtime_ms(void) {
    return fake_cudnn_ms() + world.own_ms * world.own + world.products;
}

static bool runtime_left_error(void) {
    return false;
}

/* Products of matrices are the CPU's, too, and take a millisecond. */
#define PRODUCT(id)                                                                        \
    CUDA_FUNCTION(id) {                                                                    \
        const union instr_n all = {.id = *n};                                              \
        const union instr_src src = {.id = *in};                                           \
        const union instr_dst dst = {.id = *out};                                          \
        world.products++;                                                                  \
        cpu_exec(I_##id, &all, &src, &dst, c->args);                                       \
        return 0;                                                                          \
    }
PRODUCT(linear)
PRODUCT(linear_dx)
PRODUCT(linear_dw)

int cuda_convolution_own(struct cuda_call *c, const struct convolution *v) {
    static const enum opcode codes[] = {I_conv2d, I_conv2d_dx, I_conv2d_dw};
    const struct kernel_conv *s = &v->s;
    const union instr_n n = {.v = {s->batch, s->ih, s->iw, s->cin, s->oh, s->ow, s->cout,
                                   s->kh, s->kw, s->stride, s->ph, s->pw}};
    const union instr_src src = {
        .v = {(void *)(uintptr_t)v->from[0], (void *)(uintptr_t)v->from[1]}};
    const union instr_dst dst = {.v = {v->to}};
    world.own++;
    cpu_exec(codes[v->pass], &n, &src, &dst, c->args);
    return 0;
}

/* ---- trials ------------------------------------------------------------------------------- */

static struct cuda_device dev;
static cudaStream_t stream = (cudaStream_t)&dev; /* any address */
static char lacks[256];

static void device(bool asked, bool tunes, bool deterministic) {
    *lacks = 0;
    world.own = world.products = world.looked_for = 0;
    world.own_ms = 100;
    world.missing = world.captured = false;
    fake_cudnn = (struct fake_cudnn){.live = fake_cudnn.live};
    dev = (struct cuda_device){.arch = 90, .deterministic = deterministic};
    dev.convolutions = cuda_convolutions_create(asked, tunes, lacks, sizeof lacks);
}

static int launch(struct cuda_call *c, const struct trial *t) {
    const struct cuda_given g = trial_given(t);
    switch ((int)g.code) {
    case I_conv2d: return cuda_conv2d(c, &g.n.conv2d, &g.in.conv2d, &g.out.conv2d);
    case I_conv2d_dx:
        return cuda_conv2d_dx(c, &g.n.conv2d_dx, &g.in.conv2d_dx, &g.out.conv2d_dx);
    default: return cuda_conv2d_dw(c, &g.n.conv2d_dw, &g.in.conv2d_dw, &g.out.conv2d_dw);
    }
}

/* With exactly the workspace that is planned. */
static int on_gpu(const struct trial *t, struct err *err) {
    struct cuda_call c = trial_call(&dev, t, err);
    c.stream = stream;
    int rc = launch(&c, t);
    free(c.workspace);
    return rc;
}

static int runs(void) {
    int n = 0;
    for (int i = 0; i < FAKE_ENGINES; i++)
        n += fake_cudnn.runs[i];
    return n;
}

static double compare(enum opcode code, enum dtype dtype, uint64_t seed, struct err *err) {
    struct trial want, got;
    trial_begin(&want, code, dtype, seed);
    trial_begin(&got, code, dtype, seed);
    trial_results(&want, -1);
    trial_results(&got, -1);
    trial_on_cpu(&want);
    const int rc = on_gpu(&got, err);
    const double apart = rc < 0 ? (double)INFINITY : trial_distance(&got, &want);
    trial_end(&want);
    trial_end(&got);
    return apart;
}

static void test_opcode(enum opcode code, enum dtype dtype, double most) {
    struct err err = {0};
    double worst = 0;
    uint64_t bad = 0;
    device(true, false, true);
    for (uint64_t seed = 1; seed <= 12 && !bad; seed++) {
        const double apart = compare(code, dtype, seed, &err);
        worst = fmax(worst, apart);
        bad = apart <= most && !fake_cudnn.wrong ? 0 : seed;
    }
    ok(!bad && runs() == 12 && !world.own, "%s %s: at most %.1e apart%s%s %s",
       opcode_name(code), dtype_name(dtype), worst, bad ? ": " : "",
       fake_cudnn.wrong ? fake_cudnn.wrong : "", err.msg);
    ok(fake_cudnn.stream == stream && !fake_cudnn.runs[FAKE_ANY_ORDER],
       "%s %s: on the call's stream, by deterministic engines", opcode_name(code),
       dtype_name(dtype));
    cuda_convolutions_destroy(dev.convolutions);
}

/* Runs of an engine, or of weft's own kernels, among three; the first may have tried others. */
static int settled(int engine, enum opcode code, enum dtype dtype, struct err *err) {
    double apart = 0;
    int before = 0;
    for (int i = 0; i < 4; i++) {
        before = i == 1 ? (engine < 0 ? world.own : fake_cudnn.runs[engine]) : before;
        struct trial t;
        trial_begin(&t, code, dtype, 5);
        trial_results(&t, -1);
        apart += on_gpu(&t, err) < 0;
        trial_end(&t);
    }
    return apart > 0 || fake_cudnn.wrong
               ? -1
               : (engine < 0 ? world.own : fake_cudnn.runs[engine]) - before;
}

enum { OWN = -1 };

static void test_choice(const char *name, bool tunes, bool deterministic, bool tf32,
                        double own_ms, enum dtype dtype, int engine) {
    struct err err = {0};
    device(false, tunes, deterministic);
    dev.tf32 = tf32;
    world.own_ms = own_ms;
    int n = settled(engine, I_conv2d_dw, dtype, &err);
    ok(n == 3, "%s: %d of 3 runs %s %s", name, n, fake_cudnn.wrong ? fake_cudnn.wrong : "",
       err.msg);
    ok(!fake_cudnn.runs[FAKE_WINOGRAD] && !fake_cudnn.runs[FAKE_LARGE] &&
           !fake_cudnn.runs[FAKE_COMPILED_TOO],
       "%s: no engine that does not suit", name);
    cuda_convolutions_destroy(dev.convolutions);
}

static void test_choices(void) {
    test_choice("untried", false, false, false, 100, DTYPE_bf16, FAKE_TENSOR_CORE);
    test_choice("untried, in floats", false, false, false, 100, DTYPE_f32, FAKE_ANY_ORDER);
    test_choice("in floats by TF32", false, false, true, 100, DTYPE_f32, FAKE_TENSOR_CORE);
    test_choice("tried", true, false, false, 100, DTYPE_bf16, FAKE_ANY_ORDER);
    test_choice("tried, own kernels are faster", true, false, false, 0.5, DTYPE_bf16, OWN);
    test_choice("deterministic", true, true, false, 0.5, DTYPE_bf16, FAKE_TENSOR_CORE);
    test_choice("deterministic, in floats", true, true, false, 0.5, DTYPE_f32, FAKE_PLAIN);
}

/* Where cuDNN cannot, weft's own kernels do it. */
static void test_without(void) {
    struct err err = {0};
    device(false, true, false);
    fake_cudnn.none = true;
    ok(settled(OWN, I_conv2d, DTYPE_bf16, &err) == 3 && !runs(), "no engine %s", err.msg);
    cuda_convolutions_destroy(dev.convolutions);
    device(false, false, false);
    fake_cudnn.only_failing = true;
    ok(settled(OWN, I_conv2d, DTYPE_bf16, &err) == 3 && runs() == 1,
       "an engine that fails is tried once %s", err.msg);
    cuda_convolutions_destroy(dev.convolutions);
    device(true, false, false);
    fake_cudnn.only_failing = true;
    ok(settled(OWN, I_conv2d, DTYPE_bf16, &err) < 0 && strstr(err.msg, "does not run"),
       "and said where cuDNN was asked for: %s", err.msg);
    cuda_convolutions_destroy(dev.convolutions);
    device(false, true, false);
    world.missing = true;
    ok(settled(OWN, I_conv2d, DTYPE_bf16, &err) == 3 && world.looked_for == 1 &&
           strstr(lacks, "libcudnn"),
       "no library: %s", lacks);
    cuda_convolutions_destroy(dev.convolutions);
    device(true, true, false);
    world.missing = true;
    ok(settled(OWN, I_conv2d, DTYPE_bf16, &err) < 0 && strstr(err.msg, "libcudnn"),
       "no library, where it was asked for: %s", err.msg);
    cuda_convolutions_destroy(dev.convolutions);
}

/* Gradients of weights that cuDNN has in 16 bits alone. */
static void test_rounded(void) {
    struct err err = {0};
    device(true, false, true);
    fake_cudnn.no_mixed = true;
    double apart = fmax(compare(I_conv2d_dw, DTYPE_bf16, 3, &err),
                        compare(I_conv2d_dw, DTYPE_bf16, 4, &err));
    ok(apart <= 1e-2 && runs() == 2, "rounded, where cuDNN is asked for: %.1e apart %s",
       apart, err.msg);
    apart = compare(I_conv2d_dw, DTYPE_f16, 5, &err);
    ok(apart <= 2e-3 && runs() == 3, "of f16: %.1e apart %s", apart, err.msg);
    cuda_convolutions_destroy(dev.convolutions);
    device(false, false, false);
    fake_cudnn.no_mixed = true;
    ok(settled(OWN, I_conv2d_dw, DTYPE_bf16, &err) == 3 && !runs(),
       "untried they are weft's own kernels' %s", err.msg);
    cuda_convolutions_destroy(dev.convolutions);
    device(false, true, false);
    fake_cudnn.no_mixed = true;
    ok(settled(FAKE_ANY_ORDER, I_conv2d_dw, DTYPE_bf16, &err) == 3, "tried they compete %s",
       err.msg);
    cuda_convolutions_destroy(dev.convolutions);
}

/* Windows of one tap are products of matrices, which are the CPU's where cuDNN has nothing. */
static void test_products(void) {
    static const enum opcode codes[] = {I_conv2d, I_conv2d_dx, I_conv2d_dw};
    struct err err = {0};
    for (int i = 0; i < 3; i++) {
        struct trial want, got;
        device(false, false, i == 1);
        fake_cudnn.none = true;
        for (int side = 0; side < 2; side++) {
            struct trial *t = side ? &got : &want;
            trial_begin(t, codes[i], DTYPE_f32, 1);
            for (int k = 0; k < t->info->n_in; k++)
                free(t->in[k]);
            union instr_n n = {.v = {2, 5, 3, 7, 5, 3, 6, 1, 1, 1, 0, 0}};
            t->n = n;
            instr_work(t->code, &t->n, &t->work);
            for (int k = 0; k < t->info->n_in; k++)
                if ((t->in[k] = trial_bytes(trial_in_bytes(t, k))))
                    trial_fill(t, k);
            trial_results(t, -1);
        }
        trial_on_cpu(&want);
        int rc = on_gpu(&got, &err);
        const double apart = trial_distance(&got, &want);
        ok(rc == 0 && world.products == 1 && !world.own && apart <= 1e-5,
           "%s of one tap, a product of matrices: %.1e apart", opcode_name(codes[i]),
           apart);
        trial_end(&want);
        trial_end(&got);
        cuda_convolutions_destroy(dev.convolutions);
    }
}

/* What is first seen while a stream is captured is settled later. */
static void test_capture(void) {
    struct err err = {0};
    device(false, false, false);
    world.captured = true;
    ok(settled(OWN, I_conv2d_dx, DTYPE_bf16, &err) == 3 && !fake_cudnn.opened,
       "captured before it is settled: own kernels %s", err.msg);
    world.captured = false;
    ok(settled(FAKE_TENSOR_CORE, I_conv2d_dx, DTYPE_bf16, &err) == 3, "then cuDNN %s",
       err.msg);
    world.captured = true;
    ok(settled(FAKE_TENSOR_CORE, I_conv2d_dx, DTYPE_bf16, &err) == 3 &&
           fake_cudnn.plans == 1,
       "and captured too: one plan was made");
    cuda_convolutions_destroy(dev.convolutions);
}

/* ---- what is known from before ------------------------------------------------------------ */

/* What was heard last. */
static struct library_algorithm heard;

static int hear(void *arg, const struct library_algorithm *found, struct err *err) {
    (void)arg, (void)err;
    heard = *found;
    return 0;
}

/* A device that knows this algorithm for what was heard last (NULL: nothing), and runs it three times beside
 * the first one. */
static struct cuda_choices settle_known(const char *algorithm, bool tunes,
                                        bool deterministic, int engine) {
    static struct library_algorithm known;
    struct err err = {0};
    known = heard;
    snprintf(known.algorithm, sizeof known.algorithm, "%s", algorithm ? algorithm : "");
    struct cuda_choices c = {.found = hear, .known = &known, .n_known = algorithm != NULL};
    const size_t version = fake_cudnn.version;
    device(false, tunes, deterministic);
    fake_cudnn.version = version;
    cuda_convolutions_know(dev.convolutions, &c);
    if (settled(engine, I_conv2d_dw, DTYPE_bf16, &err) != 3)
        c.of[CUDA_CUDNN].taken = -1;
    c.found = NULL;
    cuda_convolutions_destroy(dev.convolutions);
    return c;
}

static bool counts(const struct cuda_choices *c, int taken, int refused, int other) {
    return c->of[CUDA_CUDNN].taken == taken && c->of[CUDA_CUDNN].refused == refused &&
           c->of[CUDA_CUDNN].other_version == other;
}

static void test_kept(void) {
    struct cuda_choices c = settle_known(NULL, true, false, FAKE_ANY_ORDER);
    ok(counts(&c, 0, 0, 0) && !strcmp(heard.problem, "conv2d_dw") &&
           heard.library == FAKE_CUDNN_VERSION && !strcmp(heard.dtype, "bf16") &&
           !strcmp(heard.dtype_y, "f32") && !strcmp(heard.algorithm, "cudnn f32 101 2=8") &&
           heard.workspace_bytes == 1 << 20 && heard.least_us > 0,
       "what was found by trying: %s %s: %s", heard.problem, heard.shape, heard.algorithm);
    c = settle_known("cudnn f32 101 2=8", true, false, FAKE_ANY_ORDER);
    ok(counts(&c, 1, 0, 0) && !fake_cudnn.heuristics && fake_cudnn.plans == 1 &&
           fake_cudnn.runs[FAKE_ANY_ORDER] == 4 && !world.own,
       "is taken, and nothing is asked for or tried");
    c = settle_known("cudnn f32 101 2=8", true, true, FAKE_TENSOR_CORE);
    ok(counts(&c, 0, 0, 0) && !fake_cudnn.runs[FAKE_ANY_ORDER],
       "deterministic: not where it adds in any order");
    c = settle_known("cudnn f32 105 2=12", true, true, FAKE_PLAIN);
    ok(counts(&c, 1, 0, 0) && !fake_cudnn.heuristics, "but one of a fixed order is");
    c = settle_known("own", true, true, OWN);
    ok(counts(&c, 1, 0, 0) && !runs(), "and weft's own kernels");
}

static void test_refused(void) {
    static const char *const bad[] = {
        "cudnn f32 199 2=8",
        "cudnn f32 101 2=9",
        "cudnn f32 101 2=",
        "cudnn f32 x",
        "cudnn f32 104 2=11",
        "cudnn i32 101 2=8",
        "cudnn f32 106 2=13",
        "product",
        "other",
    };
    struct cuda_choices c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        c = settle_known(bad[i], false, false, FAKE_TENSOR_CORE);
        ok(counts(&c, 0, 1, 0), "chosen anew: \"%s\" is no engine, knob or way here",
           bad[i]);
    }
    fake_cudnn.version = 92000;
    c = settle_known("own", false, false, FAKE_TENSOR_CORE);
    ok(counts(&c, 0, 0, 1) && c.of[CUDA_CUDNN].other == FAKE_CUDNN_VERSION &&
           c.of[CUDA_CUDNN].library == 92000,
       "what another version of the library was");
    fake_cudnn.version = 0;
}

int main(void) {
    static const enum opcode codes[] = {I_conv2d, I_conv2d_dx, I_conv2d_dw};
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        test_opcode(codes[i], DTYPE_f32, 1e-5);
        test_opcode(codes[i], DTYPE_bf16, 1e-2);
        test_opcode(codes[i], DTYPE_f16, 2e-3);
    }
    test_choices();
    test_without();
    test_rounded();
    test_products();
    test_capture();
    test_kept();
    test_refused();
    ok(fake_cudnn.live == 0, "all descriptions are given back: %d are left",
       fake_cudnn.live);
    kernel_release();
    return done_testing();
}
