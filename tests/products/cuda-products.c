/* Products of GPUs, asked of a library that is not there (cublaslt.h): whatever way matrices lie, what
 * comes out is what the CPU computes. So the exchange of operands, leading dimensions, batches, sums in
 * one place and promises about alignment are seen to be right without a GPU. */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "common/mem.h"
#include "cost/profile.h"
#include "cublaslt.h"
#include "cuda/cuda.h"
#include "cuda/cuda_product.h"
#include "passes.h"
#include "runtime.h"

#include <unistd.h>

/* ---- what stands in for the CUDA runtime -------------------------------------------------- */

/* Time goes by as algorithms run: the second is the fastest. */
static double runtime_ms(void) {
    return 3 * fake_cublaslt.runs[0] + 1 * fake_cublaslt.runs[1] +
           2 * fake_cublaslt.runs[2];
}

static bool runtime_left_error(void) {
    const bool left = fake_cublaslt.left_error;
    fake_cublaslt.left_error = false;
    return left;
}

/* ---- trials ------------------------------------------------------------------------------- */

static struct cuda_device dev = {.arch = 90};

static int launch(struct cuda_call *c, const struct cuda_given *g) {
    const union instr_n *n = &g->n;
    const union instr_src *in = &g->in;
    const union instr_dst *out = &g->out;
    switch (g->code) {
    case I_linear: return cuda_linear(c, &n->linear, &in->linear, &out->linear);
    case I_linear_dx:
        return cuda_linear_dx(c, &n->linear_dx, &in->linear_dx, &out->linear_dx);
    case I_linear_dw:
        return cuda_linear_dw(c, &n->linear_dw, &in->linear_dw, &out->linear_dw);
    case I_matmul: return cuda_matmul(c, &n->matmul, &in->matmul, &out->matmul);
    default: return cuda_matmul_dw(c, &n->matmul_dw, &in->matmul_dw, &out->matmul_dw);
    }
}

static int on_gpu(const struct trial *t, struct err *err) {
    struct cuda_call c = trial_call(&dev, t, err);
    const struct cuda_given g = trial_given(t);
    int rc = launch(&c, &g);
    free(c.workspace);
    return rc;
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
        trial_on_cpu(&want);
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

/* What the library answers to one product on a fresh device; linear layers have a bias. */
static const char *answer(enum opcode code) {
    static struct err err;
    struct trial t;
    err = (struct err){0};
    dev.products = cuda_products_create(&dev, false, &err);
    uint64_t seed = 1;
    for (begin(&t, code, DTYPE_bf16, seed); code == I_linear && !t.n.linear.bias;) {
        trial_end(&t);
        begin(&t, code, DTYPE_bf16, ++seed);
    }
    t.args.skip_bias = false;
    const int rc = on_gpu(&t, &err);
    trial_end(&t);
    cuda_products_destroy(dev.products);
    return rc == 0 ? "done" : err.msg;
}

static void test_answer(enum opcode code, const char *wanted, const char *about) {
    const char *got = answer(code);
    ok(strstr(got, wanted) != NULL, "%s: %s", about, got);
}

/* That an epilogue has no algorithm is no error, whichever way the library says it. A product alone has
 * one, and what describes it is weft's to get right: there a wrong value is not taken for a no. */
static void test_refusals(void) {
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    fake_cublaslt.no_bias = true, fake_cublaslt.no = CUBLAS_STATUS_INVALID_VALUE;
    test_answer(I_linear, "done", "a wrong value of a bias");
    ok(fake_cublaslt.heuristics == 2, "then the product is asked for alone: %d questions",
       fake_cublaslt.heuristics);
    fake_cublaslt.none = true;
    test_answer(I_linear_dx, "choosing an algorithm: a wrong value", "of a product alone");
    fake_cublaslt.no = CUBLAS_STATUS_NOT_SUPPORTED;
    test_answer(I_linear_dx, "cuBLASLt has no algorithm", "one that the library has not");
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    fake_cublaslt.no_preference = true;
    test_answer(I_linear, "choosing an algorithm: a wrong value", "of a preference");
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
}

/* ---- what is known from before ------------------------------------------------------------ */

static int keep(void *arg, const struct library_algorithm *found, struct err *err) {
    struct library_algorithm row = *found;
    snprintf(row.device, sizeof row.device, "fake");
    return profile_put_algorithm(arg, &row, err);
}

/* A product on a fresh device, with what is known; the fake counts from 0. */
static int run_once(struct cuda_choices *choices, bool tunes, enum dtype dtype,
                    struct err *err) {
    struct trial t;
    dev.deterministic = !tunes;
    dev.products = cuda_products_create(&dev, tunes, err);
    cuda_products_know(dev.products, choices);
    memset(fake_cublaslt.runs, 0, sizeof fake_cublaslt.runs);
    fake_cublaslt.heuristics = fake_cublaslt.checks = 0;
    begin(&t, I_linear_dx, dtype, 7);
    int rc = on_gpu(&t, err);
    trial_end(&t);
    cuda_products_destroy(dev.products);
    dev.products = NULL;
    return rc;
}

/* Found by trying, and read back out of a file. */
static void find(struct profile_algorithms *out) {
    char path[] = "/tmp/weft-products-XXXXXX";
    struct err err = {0};
    close(mkstemp(path));
    unlink(path);
    struct profile *p = profile_open(path, true, &err);
    struct cuda_choices c = {.found = keep, .arg = p};
    int rc = p ? run_once(&c, true, DTYPE_f32, &err) : -1;
    ok(rc == 0 && fake_cublaslt.heuristics == 1 && c.of[CUDA_CUBLASLT].taken == 0,
       "an unknown product is tried: %s", err.msg);
    rc = profile_load_algorithms(p, out, &err);
    ok(rc == 0 && out->n == 1 && out->p[0].library == FAKE_VERSION &&
           !strcmp(out->p[0].dtype, "f32") && out->p[0].workspace_bytes > 0,
       "what was found is in the profile: %s", out->n ? out->p[0].shape : err.msg);
    profile_close(p);
    unlink(path);
}

/* The row with these words in place of the algorithm's; what became of it. */
static struct cuda_choices try_row(const struct library_algorithm *row, const char *words,
                                   enum dtype dtype) {
    static struct library_algorithm changed;
    struct err err = {0};
    changed = *row;
    if (words)
        snprintf(changed.algorithm, sizeof changed.algorithm, "%s", words);
    struct cuda_choices c = {.known = &changed, .n_known = 1};
    if (run_once(&c, false, dtype, &err) < 0)
        printf("# %s\n", err.msg);
    return c;
}

/* Not taken: the heuristic's first choice is. */
static bool is_anew(const struct cuda_choices *c) {
    return c->of[CUDA_CUBLASLT].taken == 0 && fake_cublaslt.heuristics == 1 &&
           fake_cublaslt.runs[0] == 1;
}

static void test_known(void) {
    struct profile_algorithms found = {0};
    find(&found);
    if (!found.n)
        return;
    const struct library_algorithm *row = &found.p[0];
    struct cuda_choices c = try_row(row, NULL, DTYPE_f32);
    ok(c.of[CUDA_CUBLASLT].taken == 1 && fake_cublaslt.heuristics == 0 &&
           fake_cublaslt.checks == 1 && fake_cublaslt.runs[1] == 1 &&
           fake_cublaslt.runs[0] == 0,
       "deterministic: the known algorithm is taken, and nothing else is asked for");
    c = try_row(row, NULL, DTYPE_bf16);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].refused == 0 &&
           c.of[CUDA_CUBLASLT].other_version == 0,
       "of another type it is another product");
    c = try_row(row, "9,0,0,0,0,0,0,0", DTYPE_f32);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].refused == 1,
       "an algorithm that the library has not");
    c = try_row(row, "1,ffffffff,0,0,0,0,0,0", DTYPE_f32);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].refused == 1,
       "one that takes more workspace than there is");
    c = try_row(row, "1,0,0", DTYPE_f32);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].refused == 1 && fake_cublaslt.checks == 0,
       "words that are none");
    fake_cublaslt.failing = 2;
    c = try_row(row, NULL, DTYPE_f32);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].refused == 1,
       "one that checks well and does not run");
    fake_cublaslt.failing = 0;
    fake_cublaslt.version = 130200;
    c = try_row(row, NULL, DTYPE_f32);
    ok(is_anew(&c) && c.of[CUDA_CUBLASLT].other_version == 1 &&
           c.of[CUDA_CUBLASLT].other == FAKE_VERSION &&
           c.of[CUDA_CUBLASLT].library == 130200 && fake_cublaslt.checks == 0,
       "one of another version of the library");
    fake_cublaslt.version = 0;
    arr_release(&found);
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
    test_refusals();
    test_known();
    kernel_release();
    return done_testing();
}
