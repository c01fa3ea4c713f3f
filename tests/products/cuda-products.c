/* Products of GPUs, asked of a library that is not there (cublaslt.h): whatever way matrices lie, what
 * comes out is what the CPU computes. So the exchange of operands, leading dimensions, batches, sums in
 * one place and promises about alignment are seen to be right without a GPU. */
#include "../unit/tap.h"
#include "../unit/trial.h"
#include "cublaslt.h"
#include "cuda/cuda_library.h"
#include "cuda/cuda_product.h"
#include "device/cpu.h"

#include <cuda_runtime_api.h>

/* ---- what stands in for the libraries ------------------------------------------------------ */

#define ENTRY(name) {#name, (void (*)(void))fake_##name},
static const struct {
    const char *name;
    void (*p)(void);
} functions[] = {PRODUCT_LIBRARY(ENTRY)};

int cuda_library_open(const char *file, const char *const *names, void *table,
                      struct err *err) {
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], functions[i].name) != 0)
            return err_system(err, "%s: has no %s", file, names[i]);
        memcpy((char *)table + i * sizeof functions[i].p, &functions[i].p,
               sizeof functions[i].p);
    }
    return 0;
}

/* Time goes by as algorithms run: the second is the fastest. */
static float clock_ms;

cudaError_t cudaEventCreate(cudaEvent_t *e) {
    *e = malloc(sizeof(float));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    (void)s;
    clock_ms = (float)(3 * fake_cublaslt.runs[0] + 1 * fake_cublaslt.runs[1] +
                       2 * fake_cublaslt.runs[2]);
    memcpy(e, &clock_ms, sizeof clock_ms);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    (void)e;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    float from, to;
    memcpy(&from, a, sizeof from);
    memcpy(&to, b, sizeof to);
    *ms = to - from;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    const bool left = fake_cublaslt.left_error;
    fake_cublaslt.left_error = false;
    return left ? cudaErrorInvalidValue : cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t rc) {
    (void)rc;
    return "";
}

const char *cudaGetErrorName(cudaError_t rc) {
    (void)rc;
    return "";
}

CUDA_FUNCTION(bias) {
    const union instr_n all = {.bias = *n};
    const union instr_src src = {.bias = *in};
    const union instr_dst dst = {.bias = *out};
    cpu_exec(I_bias, &all, &src, &dst, c->args);
    return 0;
}

CUDA_FUNCTION(bias_dw) {
    const union instr_n all = {.bias_dw = *n};
    const union instr_src src = {.bias_dw = *in};
    const union instr_dst dst = {.bias_dw = *out};
    cpu_exec(I_bias_dw, &all, &src, &dst, c->args);
    return 0;
}

/* ---- trials ------------------------------------------------------------------------------- */

static struct cuda_device dev = {.arch = 90};

static int launch(struct cuda_call *c, const struct trial *t) {
    union instr_src src = {{NULL}};
    union instr_dst dst = {{NULL}};
    memcpy(src.v, t->in, sizeof src.v);
    memcpy(dst.v, t->out, sizeof dst.v);
    switch (t->code) {
    case I_linear: return cuda_linear(c, &t->n.linear, &src.linear, &dst.linear);
    case I_linear_dx:
        return cuda_linear_dx(c, &t->n.linear_dx, &src.linear_dx, &dst.linear_dx);
    case I_linear_dw:
        return cuda_linear_dw(c, &t->n.linear_dw, &src.linear_dw, &dst.linear_dw);
    case I_matmul: return cuda_matmul(c, &t->n.matmul, &src.matmul, &dst.matmul);
    default: return cuda_matmul_dw(c, &t->n.matmul_dw, &src.matmul_dw, &dst.matmul_dw);
    }
}

static int on_gpu(const struct trial *t, struct err *err) {
    const int64_t bytes = workspace_gpu(t->code, &t->n, t->dtype);
    struct cuda_call c = {.dev = &dev,
                          .args = &t->args,
                          .workspace = malloc((size_t)bytes),
                          .workspace_bytes = bytes,
                          .err = err};
    int rc = launch(&c, t);
    free(c.workspace);
    return rc;
}

static void on_cpu(const struct trial *t) {
    union instr_src src = {{NULL}};
    union instr_dst dst = {{NULL}};
    memcpy(src.v, t->in, sizeof src.v);
    memcpy(dst.v, t->out, sizeof dst.v);
    cpu_exec(t->code, &t->n, &src, &dst, &t->args);
}

/* A matrix of rows x columns that lies one way or the other, behind `each` others of its like, whose
 * order is drawn: outer and inner may be exchanged, as heads and samples are. */
static void lay(struct trial *t, struct matrix *m, int64_t rows, int64_t columns) {
    const struct matmul_n *n = &t->n.matmul;
    const bool turned = rng_below(&t->rng, 2), among = rng_below(&t->rng, 2);
    const int64_t run = turned ? rows : columns, others = turned ? columns : rows;
    if (among) { /* rows of the inner ones stand beside each other, as heads do */
        const int64_t step = run * n->inner;
        *m = (struct matrix){.outer = step * others,
                             .inner = run,
                             .row = turned ? 1 : step,
                             .column = turned ? step : 1};
        return;
    }
    const bool inner_first = rng_below(&t->rng, 2);
    *m = (struct matrix){.outer = rows * columns * (inner_first ? 1 : n->inner),
                         .inner = rows * columns * (inner_first ? n->outer : 1),
                         .row = turned ? 1 : run,
                         .column = turned ? run : 1};
}

/* Of a gradient, all may be summed in one place. */
static void lay_all(struct trial *t) {
    const struct matmul_n *n = &t->n.matmul;
    struct matrices *s = &t->matrices;
    lay(t, &s->a, n->m, n->k);
    lay(t, &s->b, n->k, n->n);
    lay(t, &s->y, n->m, n->n);
    if (t->code == I_matmul_dw && rng_below(&t->rng, 2)) {
        s->y = (struct matrix){.row = n->n, .column = 1};
        s->y.inner = rng_below(&t->rng, 2) ? 0 : n->n * n->m;
        s->y.outer = s->y.inner || rng_below(&t->rng, 2) ? 0 : n->n * n->m * n->inner;
    }
}

static void begin(struct trial *t, enum opcode code, enum dtype dtype, uint64_t seed) {
    trial_begin(t, code, dtype, seed);
    if (code == I_linear)
        t->args.skip_bias = rng_below(&t->rng, 4) == 0;
    if (code == I_matmul || code == I_matmul_dw)
        lay_all(t);
    trial_results(t, -1);
}

static void test_opcode(enum opcode code, enum dtype dtype, double most) {
    double worst = 0;
    uint64_t bad = 0;
    struct err err = {0};
    for (uint64_t seed = 1; seed <= 30 && !bad; seed++) {
        struct trial want, got;
        begin(&want, code, dtype, seed);
        begin(&got, code, dtype, seed);
        fake_cublaslt.no_bias = seed % 3 == 0;
        on_cpu(&want);
        int rc = on_gpu(&got, &err);
        double apart =
            rc < 0 || fake_cublaslt.wrong ? INFINITY : trial_distance(&got, &want);
        worst = fmax(worst, apart);
        bad = apart <= most ? 0 : seed;
        trial_end(&want);
        trial_end(&got);
    }
    ok(!bad, "%s %s: at most %.1e apart%s%s %s", opcode_name(code), dtype_name(dtype),
       worst, bad ? ": " : "", fake_cublaslt.wrong ? fake_cublaslt.wrong : "", err.msg);
    if (bad)
        printf("# seed %llu\n", (unsigned long long)bad);
}

/* The heuristic is asked once for a product, and the fastest algorithm is taken where it may be tried. */
static void test_choice(void) {
    struct err err = {0};
    for (int tunes = 0; tunes < 2; tunes++) {
        struct trial t;
        dev.deterministic = false;
        dev.products = cuda_products_create(&dev, tunes, &err);
        memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
        begin(&t, I_linear_dx, DTYPE_f32, 7);
        int rc = on_gpu(&t, &err);
        int before[FAKE_ALGORITHMS];
        memcpy(before, fake_cublaslt.runs, sizeof before);
        for (int i = 0; i < 5 && rc == 0; i++)
            rc = on_gpu(&t, &err);
        int taken = fake_cublaslt.runs[tunes] - before[tunes];
        ok(rc == 0 && taken == 5 && fake_cublaslt.heuristics == 1,
           "%s: algorithm %d ran %d of 5 times, %d question", tunes ? "tried" : "untried",
           tunes, taken, fake_cublaslt.heuristics);
        ok(tunes == (before[2] > 0), "%s: the others ran %d times",
           tunes ? "tried" : "untried", before[2]);
        trial_end(&t);
        cuda_products_destroy(dev.products);
    }
    dev.deterministic = true;
    dev.products = cuda_products_create(&dev, true, &err);
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    struct trial t;
    begin(&t, I_linear_dx, DTYPE_f32, 7);
    int rc = on_gpu(&t, &err);
    ok(rc == 0 && fake_cublaslt.runs[0] == 1 && fake_cublaslt.runs[1] == 0,
       "deterministic: nothing is tried");
    trial_end(&t);
    cuda_products_destroy(dev.products);
}

/* One algorithm fails when it is tried: another is taken, and nothing of the failure is left. */
static void test_failing(void) {
    struct err err = {0};
    struct trial t;
    dev.deterministic = false;
    dev.products = cuda_products_create(&dev, true, &err);
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    fake_cublaslt.failing = 2;
    begin(&t, I_linear_dx, DTYPE_f32, 7);
    int rc = on_gpu(&t, &err);
    ok(rc == 0 && fake_cublaslt.runs[1] == 0 && fake_cublaslt.runs[2] > 0,
       "the fastest fails: another ran %d times %s", fake_cublaslt.runs[2], err.msg);
    ok(cudaGetLastError() == cudaSuccess, "and no error is left behind");
    trial_end(&t);
    cuda_products_destroy(dev.products);
}

/* A bias that lies on an odd place: the library must know when it chooses, and no choice that was made for
 * one that lies better may be taken. */
static void test_bias(void) {
    struct err err = {0};
    enum { M = 3, N = 5, K = 4 };
    static uint16_t x[M * K], w[K * N], y[M * N], bias[N + 8];
    const struct linear_n n = {.m = M, .n = N, .k = K, .bias = 1};
    const struct device_args args = {.dtype = DTYPE_bf16};
    struct cuda_call c = {.dev = &dev, .args = &args, .err = &err};
    dev.products = cuda_products_create(&dev, false, &err);
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    for (int at = 0; at < 8; at++) {
        const struct linear_src in = {.x = x, .w = w, .b = bias + at};
        const struct linear_dst out = {.y = y};
        if (cuda_linear(&c, &n, &in, &out) < 0 && !fake_cublaslt.wrong)
            fake_cublaslt.wrong = err.msg;
    }
    ok(!fake_cublaslt.wrong, "a bias anywhere %s",
       fake_cublaslt.wrong ? fake_cublaslt.wrong : "");
    cuda_products_destroy(dev.products);
}

int main(void) {
    static const enum opcode codes[] = {I_linear, I_linear_dx, I_linear_dw, I_matmul,
                                        I_matmul_dw};
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    dev.products = cuda_products_create(&dev, false, &err);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        test_opcode(codes[i], DTYPE_f32, 1e-5);
        test_opcode(codes[i], DTYPE_bf16, 1e-2);
        test_opcode(codes[i], DTYPE_f16, 2e-3);
    }
    cuda_products_destroy(dev.products);
    test_choice();
    test_failing();
    test_bias();
    kernel_release();
    return done_testing();
}
