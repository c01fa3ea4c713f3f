/* Epilogues of matrix products, asked of a library that is not there (cublaslt.h): GELU and its gradient in the
 * product before them, the gradient of a bias beside that of the weights. What comes out is what the CPU's
 * instructions compute one by one; and the way that is faster is the one that is taken, and kept. */
#include "../unit/tap.h"
#include "../unit/trial_call.h"
#include "../unit/trial_pair.h"
#include "common/mem.h"
#include "cost/profile.h"
#include "cublaslt.h"
#include "cuda/cuda_pair.h"
#include "cuda/cuda_product.h"
#include "passes.h"
#include "runtime.h"

/* ---- what stands in for the CUDA runtime, and for kernels ---------------------------------- */

static double epilogue_ms; /* that an epilogue takes */

static double runtime_ms(void) {
    const int *runs = fake_cublaslt.runs;
    return 3 * runs[0] + 1 * runs[1] + 2 * runs[2] + 1 * passes +
           epilogue_ms * fake_cublaslt.epilogues;
}

static bool runtime_left_error(void) {
    const bool left = fake_cublaslt.left_error;
    fake_cublaslt.left_error = false;
    return left;
}

static struct cuda_device dev = {.arch = 90};

static void begin_device(bool tunes, struct cuda_choices *choices) {
    struct err err = {0};
    passes = 0, epilogue_ms = 0;
    memset(&fake_cublaslt, 0, sizeof fake_cublaslt);
    dev.products = cuda_products_create(&dev, tunes, &err);
    cuda_products_know(dev.products, choices);
}

static void end_device(void) {
    cuda_products_destroy(dev.products);
    dev.products = NULL;
}

/* Norms are not here. */
bool cuda_pair_norm_fits(const struct cuda_given *first, const struct cuda_given *second) {
    (void)first, (void)second;
    return false;
}
int cuda_pair_norm_give(struct cuda_call *c, const struct cuda_given *first,
                        const struct cuda_given *second) {
    (void)first, (void)second;
    return err_system(c->err, "no norms here");
}

/* ---- running ------------------------------------------------------------------------------ */

static int product_on_gpu(struct cuda_call *c, const struct cuda_given *g) {
    return g->code == I_linear
               ? cuda_linear(c, &g->n.linear, &g->in.linear, &g->out.linear)
               : cuda_linear_dx(c, &g->n.linear_dx, &g->in.linear_dx, &g->out.linear_dx);
}

/* As a captured region gives them: 1 in one, 0 one by one, -1. */
static int on_gpu(const struct trial_pair *p, struct err *err) {
    const struct cuda_given first = trial_given(&p->first),
                            second = trial_given(&p->second);
    struct cuda_call c = trial_call(&dev, &p->first, err);
    int rc = 0;
    if (cuda_pair_fits(&first, &second))
        rc = cuda_pair_give(&c, &first, &second);
    else if ((rc = product_on_gpu(&c, &first)) == 0)
        trial_on_cpu(&p->second);
    free(c.workspace);
    return rc;
}

static int gradient_on_gpu(const struct trial *t, struct err *err) {
    const struct cuda_given g = trial_given(t);
    struct cuda_call c = trial_call(&dev, t, err);
    int rc = cuda_linear_dw(&c, &g.n.linear_dw, &g.in.linear_dw, &g.out.linear_dw);
    free(c.workspace);
    return rc;
}

/* ---- right, and the faster way ------------------------------------------------------------ */

/* What the library and the clock are like, and how many epilogues must run where there is a choice. */
static const struct setting {
    const char *name;
    bool plain;
    double epilogue_ms;
    int epilogues;
} settings[] = {{"in one", false, 0.5, 1},
                {"in one is slower", false, 1.5, 0},
                {"the library lacks it", true, 0, 0}};

/* The first run is the trial, on operands that are scratch. */
static const char *try_pair(enum opcode code, enum dtype dtype, bool in_place,
                            uint64_t seed, const struct setting *s, double *worst) {
    static struct err err;
    struct trial_pair want, got, scratch;
    trial_pair_begin(&want, code, dtype, in_place, seed);
    trial_pair_begin(&got, code, dtype, in_place, seed);
    trial_pair_begin(&scratch, code, dtype, in_place, seed);
    const bool aux = code == I_linear_dx || !in_place;
    const bool fits = !aux || *trial_pair_row(&got.first) % 8 == 0;
    err = (struct err){0};
    begin_device(true, NULL);
    epilogue_ms = s->epilogue_ms, fake_cublaslt.plain = s->plain;
    int rc = on_gpu(&scratch, &err);
    const int before = fake_cublaslt.epilogues;
    const int fused = rc < 0 ? -1 : on_gpu(&got, &err);
    const int ran = fake_cublaslt.epilogues - before;
    trial_pair_on_cpu(&want);
    *worst = fmax(*worst, trial_pair_distance(&got, &want));
    end_device();
    trial_pair_end(&want), trial_pair_end(&got), trial_pair_end(&scratch);
    return fake_cublaslt.wrong                  ? fake_cublaslt.wrong
           : fused < 0                          ? err.msg
           : fused != ran                       ? "what ran is not what is told"
           : fused != (fits ? s->epilogues : 0) ? "not the way to take"
                                                : NULL;
}

static const char *try_gradient(enum dtype dtype, uint64_t seed, const struct setting *s,
                                double *worst) {
    static struct err err;
    struct trial t[3];
    for (int i = 0; i < 3; i++) {
        trial_begin(&t[i], I_linear_dw, dtype, seed);
        trial_results(&t[i], -1);
    }
    err = (struct err){0};
    begin_device(true, NULL);
    epilogue_ms = s->epilogue_ms, fake_cublaslt.plain = s->plain;
    int rc = gradient_on_gpu(&t[0], &err);
    const int before = fake_cublaslt.epilogues;
    rc = rc < 0 ? -1 : gradient_on_gpu(&t[1], &err);
    const int ran = fake_cublaslt.epilogues - before;
    const int wanted = t[0].n.linear_dw.bias ? s->epilogues : 0;
    trial_on_cpu(&t[2]);
    *worst = fmax(*worst, trial_distance(&t[1], &t[2]));
    end_device();
    for (int i = 0; i < 3; i++)
        trial_end(&t[i]);
    return fake_cublaslt.wrong ? fake_cublaslt.wrong
           : rc < 0            ? err.msg
           : ran != wanted     ? "not the way to take"
                               : NULL;
}

static double bound(enum dtype dtype) {
    return dtype == DTYPE_f32 ? 1e-5 : dtype == DTYPE_bf16 ? 2e-2 : 4e-3;
}

static void test_ways(enum dtype dtype) {
    enum { SEEDS = 24, KINDS = 4 };
    static const char *const names[KINDS] = {"linear, gelu", "linear, gelu in place",
                                             "linear_dx, gelu_dx", "linear_dw with bias"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
        for (int kind = 0; kind < KINDS; kind++) {
            double worst = 0;
            const char *bad = NULL;
            uint64_t seed = 0;
            while (!bad && worst <= bound(dtype) && ++seed <= SEEDS)
                bad = kind == 3 ? try_gradient(dtype, seed, &settings[s], &worst)
                                : try_pair(kind == 2 ? I_linear_dx : I_linear, dtype,
                                           kind == 1, seed, &settings[s], &worst);
            ok(!bad && worst <= bound(dtype), "%s %s, %s: at most %.1e apart %s",
               names[kind], dtype_name(dtype), settings[s].name, worst, bad ? bad : "");
            if (bad || worst > bound(dtype))
                printf("# seed %llu\n", (unsigned long long)seed);
        }
}

/* ---- what is no pair ---------------------------------------------------------------------- */

static void test_others(void) {
    struct trial_pair p;
    trial_pair_begin(&p, I_linear, DTYPE_f32, false, 1);
    const struct cuda_given a = trial_given(&p.first), b = trial_given(&p.second);
    struct cuda_given other = b;
    ok(cuda_pair_fits(&a, &b) && !cuda_pair_fits(&b, &a), "GELU behind the product");
    other.in.gelu.x = (float *)b.in.gelu.x + 8;
    ok(!cuda_pair_fits(&a, &other), "GELU of something else");
    other = b;
    other.n.gelu.elems -= a.n.linear.n;
    ok(!cuda_pair_fits(&a, &other), "GELU of a part");
    other = b;
    other.out.gelu.y = a.in.linear.x;
    ok(!cuda_pair_fits(&a, &other), "in the place of what the product reads");
    other.out.gelu.y = a.in.linear.w;
    ok(!cuda_pair_fits(&a, &other), "or of its weights");
    other = b;
    other.code = I_relu;
    ok(!cuda_pair_fits(&a, &other), "another function");
    trial_pair_end(&p);
    trial_pair_begin(&p, I_linear_dx, DTYPE_f32, true, 1);
    const struct cuda_given dx = trial_given(&p.first);
    other = trial_given(&p.second);
    ok(cuda_pair_fits(&dx, &other), "the gradient in its place");
    float *elsewhere = trial_bytes(trial_out_bytes(&p.second, 0));
    other.out.gelu_dx.dx = elsewhere;
    ok(!cuda_pair_fits(&dx, &other), "elsewhere: somebody may want the product's");
    free(elsewhere);
    trial_pair_end(&p);
}

/* One way, whatever it takes; where the library has no such product it is the other. */
static void test_asked(void) {
    static const struct setting cheap = {"", false, 0.5, 0}, dear = {"", false, 1.5, 1},
                                lacks = {"", true, 1.5, 0};
    double worst = 0;
    dev.epilogues = "apart";
    const char *bad = try_pair(I_linear, DTYPE_f32, false, 1, &cheap, &worst);
    ok(!bad && worst < 1e-5, "asked for apart %s", bad ? bad : "");
    dev.epilogues = "fused";
    bad = try_pair(I_linear, DTYPE_f32, false, 1, &dear, &worst);
    ok(!bad && worst < 1e-5, "asked for in one %s", bad ? bad : "");
    bad = try_pair(I_linear, DTYPE_f32, false, 1, &lacks, &worst);
    ok(!bad && worst < 1e-5, "asked for in one, which the library lacks %s",
       bad ? bad : "");
    dev.epilogues = NULL;
}

/* ---- what is known from before ------------------------------------------------------------ */

static struct profile_algorithms found;

static int keep(void *arg, const struct library_algorithm *row, struct err *err) {
    (void)arg, (void)err;
    arr_push(&found, *row);
    return 0;
}

/* The pair on a device that may try nothing; 1 in one. */
static int run_known(struct cuda_choices *c) {
    struct err err = {0};
    struct trial_pair p;
    trial_pair_begin(&p, I_linear, DTYPE_bf16, false, 1);
    dev.deterministic = true;
    begin_device(true, c);
    int rc = on_gpu(&p, &err);
    end_device();
    dev.deterministic = false;
    trial_pair_end(&p);
    return rc;
}

/* Tried once and read back: the same way, by the same algorithm, with nothing tried. */
static void test_known(double cost, int wanted) {
    struct err err = {0};
    struct trial_pair p;
    struct cuda_choices finds = {.found = keep};
    trial_pair_begin(&p, I_linear, DTYPE_bf16, false, 1);
    begin_device(true, &finds);
    epilogue_ms = cost;
    int rc = on_gpu(&p, &err);
    end_device();
    trial_pair_end(&p);
    const int64_t last = found.n - 1;
    const bool apart = found.n && !strcmp(found.p[last].algorithm, "apart");
    ok(rc == wanted && found.n == 2 && apart == !wanted,
       "%s is found and kept: %lld rows, the last one %s", wanted ? "in one" : "apart",
       (long long)found.n, found.n ? found.p[last].algorithm : err.msg);
    struct cuda_choices knows = {.known = found.p, .n_known = found.n};
    rc = run_known(&knows);
    ok(rc == wanted && fake_cublaslt.heuristics == 0 &&
           knows.of[CUDA_CUBLASLT].refused == 0 && fake_cublaslt.runs[1] == 1,
       "and taken where nothing is tried: %d refused",
       (int)knows.of[CUDA_CUBLASLT].refused);
    ok(run_known(NULL) == 0, "without it they go one by one");
    arr_release(&found);
    found = (struct profile_algorithms){0};
}

/* "apart" is no algorithm of a product that has no epilogue. */
static void test_apart_alone(void) {
    struct err err = {0};
    struct cuda_choices finds = {.found = keep};
    struct trial t;
    trial_begin(&t, I_linear_dx, DTYPE_f32, 3);
    trial_results(&t, -1);
    for (int i = 0; i < 2; i++) {
        struct cuda_choices knows = {.known = found.p, .n_known = found.n};
        const struct cuda_given g = trial_given(&t);
        struct cuda_call c = trial_call(&dev, &t, &err);
        begin_device(i == 0, i ? &knows : &finds);
        int rc = cuda_linear_dx(&c, &g.n.linear_dx, &g.in.linear_dx, &g.out.linear_dx);
        end_device();
        free(c.workspace);
        if (i)
            ok(rc == 0 && knows.of[CUDA_CUBLASLT].refused == 1,
               "a row that says so is refused");
        else if (found.n)
            snprintf(found.p[0].algorithm, sizeof found.p[0].algorithm, "apart");
    }
    trial_end(&t);
    arr_release(&found);
}

int main(void) {
    struct err err = {0};
    if (kernel_init(1, &err) < 0)
        return 4;
    test_ways(DTYPE_f32);
    test_ways(DTYPE_bf16);
    test_ways(DTYPE_f16);
    test_others();
    test_asked();
    test_known(0.5, 1);
    test_known(1.5, 0);
    test_apart_alone();
    kernel_release();
    return done_testing();
}
