/* gpu-epilogues [SEEDS | bench] - GELU and its gradient in the product before them, gradients of biases beside
 * those of weights: on a GPU, in one and one by one, as on the CPU (1e-5 for f32, 2e-2 for bf16, 4e-3 for f16).
 * With "bench" it prints how fast each way is on layers of GPT-2, as JSON lines. Without a GPU it says so. */
#include "../unit/tap.h"
#include "cuda/cuda_workspace.h"
#include "given.h"
#include "side.h"

static struct err err;

static int open_side(struct side *s, const char *way, bool tunes) {
    *s = (struct side){.cuda = cuda_backend(&(struct cuda_options){
                           .workspace_bytes = 64 << 20, .tunes = tunes, .epilogues = way})};
    return side_open(s, &err);
}

/* ---- beside the CPU ----------------------------------------------------------------------- */

static struct given_at at(const struct side *s) {
    return (struct given_at){s->dev, s->stream};
}

static int gradient_on_gpu(const struct side *s, struct trial *t) {
    const struct given_at here = at(s);
    struct cuda_given g;
    int rc = given_up(&here, t, -1, &g, &err);
    if (rc == 0)
        rc = given_launch(s->stream, &g, &err);
    if (rc == 0)
        rc = given_down(&here, t, -1, &g, &err);
    given_release(&here, t, -1, &g);
    return rc;
}

static int pair_on_gpu(const struct side *s, struct trial_pair *p, enum given_how how) {
    const struct given_at here = at(s);
    return given_pair(&here, p, how, &err);
}

/* Rows of aux as the library wants them have odd seeds (trial_pair.h). */
static double try_pair(struct side *s, enum opcode code, enum dtype dtype, bool in_place,
                       uint64_t seed, int *fused) {
    struct trial_pair want, got;
    trial_pair_begin(&want, code, dtype, in_place, 2 * seed + 1);
    trial_pair_begin(&got, code, dtype, in_place, 2 * seed + 1);
    trial_pair_on_cpu(&want);
    const int rc = pair_on_gpu(s, &got, GIVEN_PAIR);
    *fused += rc > 0;
    const double far = rc < 0 ? (double)INFINITY : trial_pair_distance(&got, &want);
    trial_pair_end(&want), trial_pair_end(&got);
    return far;
}

static double try_gradient(struct side *s, enum dtype dtype, uint64_t seed) {
    struct trial want, got;
    trial_begin(&want, I_linear_dw, dtype, seed), trial_results(&want, -1);
    trial_begin(&got, I_linear_dw, dtype, seed), trial_results(&got, -1);
    trial_on_cpu(&want);
    const double far =
        gradient_on_gpu(s, &got) < 0 ? (double)INFINITY : trial_distance(&got, &want);
    trial_end(&want), trial_end(&got);
    return far;
}

static void test_way(const char *way, enum dtype dtype, int seeds) {
    enum { FORWARD, IN_PLACE, BACKWARD, GRADIENT, KINDS };
    static const char *const names[KINDS] = {"linear, gelu", "linear, gelu in place",
                                             "linear_dx, gelu_dx", "linear_dw with bias"};
    const double most = dtype == DTYPE_f32 ? 1e-5 : dtype == DTYPE_bf16 ? 2e-2 : 4e-3;
    struct side s;
    const int rc = open_side(&s, way, false);
    for (int kind = 0; kind < KINDS; kind++) {
        double worst = rc < 0 ? (double)INFINITY : 0;
        int fused = 0;
        for (int seed = 1; seed <= seeds && worst <= most; seed++)
            worst = fmax(worst,
                         kind == GRADIENT
                             ? try_gradient(&s, dtype, (uint64_t)seed)
                             : try_pair(&s, kind == BACKWARD ? I_linear_dx : I_linear,
                                        dtype, kind == IN_PLACE, (uint64_t)seed, &fused));
        char count[40] = "";
        if (kind != GRADIENT)
            snprintf(count, sizeof count, ", %d of %d in one", fused, seeds);
        ok(worst <= most, "%s %s, %s: at most %.1e apart%s %s", names[kind],
           dtype_name(dtype), way, worst, count, err.msg);
    }
    side_close(&s);
}

/* The second's results, to be freed; NULL on failure. */
static void *bits_of(const char *way, enum given_how how, int64_t *bytes, int *fused) {
    struct side s;
    struct trial_pair p;
    trial_pair_begin(&p, I_linear, DTYPE_bf16, false, 5);
    int rc = open_side(&s, way, false);
    if (rc == 0)
        rc = *fused = pair_on_gpu(&s, &p, how);
    *bytes = trial_out_bytes(&p.second, 0);
    void *bits = rc < 0 ? NULL : malloc((size_t)*bytes);
    if (bits)
        memcpy(bits, p.second.out[0], (size_t)*bytes);
    side_close(&s);
    trial_pair_end(&p);
    return bits;
}

/* In one what GELU is of is not rounded before, so the bits tell. */
static void test_captured(void) {
    int64_t n = 0;
    int fused = 0, ignored;
    void *one = bits_of("fused", GIVEN_PAIR, &n, &fused);
    void *two = bits_of("apart", GIVEN_PAIR, &n, &ignored);
    void *recorded = bits_of("fused", GIVEN_CAPTURED, &n, &ignored);
    void *interrupted = bits_of("fused", GIVEN_APART, &n, &ignored);
    const bool all = one && two && recorded && interrupted;
    ok(all && (fused > 0) == (memcmp(one, two, (size_t)n) != 0), "%s %s",
       fused ? "the ways differ in their bits" : "# the library has no such product",
       err.msg);
    ok(all && !memcmp(one, recorded, (size_t)n), "a captured region takes them in one");
    ok(all && !memcmp(two, interrupted, (size_t)n), "but not with something between them");
    free(one), free(two), free(recorded), free(interrupted);
}

/* ---- speed -------------------------------------------------------------------------------- */

/* A layer's products around GELU: rows, columns of its input and of GELU. */
struct form {
    int64_t rows, hidden, inner;
};
enum { X, W, B, Y, G, D, DW, DB, TENSORS };

static int64_t elements(const struct form *f, int tensor) {
    switch (tensor) {
    case X: return f->rows * f->hidden;
    case W:
    case DW: return f->hidden * f->inner;
    case B:
    case DB: return f->inner;
    default: return f->rows * f->inner;
    }
}

/* Noise, again and again. */
static int fill(struct side *s, void *at, int64_t n) {
    enum { NOISE = 1 << 20 };
    static uint16_t noise[NOISE];
    for (int i = 0; i < NOISE && !noise[0]; i++) {
        const float x = rng_normal(1, 2, (uint64_t)i);
        kernel_narrow(1, DTYPE_bf16, &x, noise + i);
    }
    int rc = 0;
    for (int64_t i = 0; i < n && rc == 0; i += NOISE)
        rc = device_upload(s->stream, (uint16_t *)at + i, noise,
                           2 * (n - i < NOISE ? n - i : NOISE), &err);
    return rc;
}

static int prepare(struct side *s, const struct form *f) {
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = elements(f, i), size = i >= DW ? 4 : 2;
        if (!(s->at[i] = device_alloc(s->dev, n * size, &err)) ||
            (i < DW && fill(s, s->at[i], n) < 0))
            return -1;
    }
    return 0;
}

/* Pass 0: fc1 and GELU; 1: fc2's gradient and GELU's; 2: gradients of fc1's weights and bias. */
static int pass(struct side *s, const struct form *f, int k) {
    void **at = s->at;
    struct cuda_given a = {.args = {.dtype = DTYPE_bf16}}, b = a;
    const int64_t m = f->rows, h = f->hidden, n = f->inner;
    if (k == 2) {
        a.n.linear_dw = (struct linear_dw_n){.m = m, .n = n, .k = h, .bias = 1};
        a.in.linear_dw = (struct linear_dw_src){.x = at[X], .dy = at[G]};
        a.out.linear_dw = (struct linear_dw_dst){.dw = at[DW], .db = at[DB]};
        return device_launch(s->stream, I_linear_dw, &a.n, &a.in, &a.out, &a.args, &err);
    }
    if (k == 0) {
        a.code = I_linear, b.code = I_gelu;
        a.n.linear = (struct linear_n){.m = m, .n = n, .k = h, .bias = 1};
        a.in.linear = (struct linear_src){.x = at[X], .w = at[W], .b = at[B]};
        a.out.linear.y = b.in.gelu.x = at[Y];
        b.out.gelu.y = at[G];
    } else {
        a.code = I_linear_dx, b.code = I_gelu_dx;
        a.n.linear_dx = (struct linear_dx_n){.m = m, .n = h, .k = n};
        a.in.linear_dx = (struct linear_dx_src){.dy = at[X], .w = at[W]};
        a.out.linear_dx.dx = b.in.gelu_dx.dy = b.out.gelu_dx.dx = at[D];
        b.in.gelu_dx.x = at[Y];
    }
    b.n.gelu.elems = m * n;
    return cuda_launch_pair(s->stream, &a, &b, &err) < 0 ? -1 : 0;
}

/* Microseconds: the best of three times twenty. The first round chooses and warms up. */
static double time_pass(struct side *s, const struct form *f, struct cuda_timer *timer,
                        int k) {
    enum { RUNS = 20 };
    double best = (double)INFINITY, us;
    for (int round = 0; round < 4; round++) {
        if (cuda_timer_begin(timer, s->stream, &err) < 0)
            return best;
        for (int i = 0; i < RUNS; i++)
            if (pass(s, f, k) < 0)
                return (double)INFINITY;
        if (cuda_timer_end(timer, s->stream, &us, &err) < 0)
            return best;
        best = round && us / RUNS < best ? us / RUNS : best;
    }
    return best;
}

static void bench(const char *way, const struct form *f, struct cuda_timer *timer) {
    static const char *const names[] = {"forward", "backward", "gradient"};
    struct side s;
    int rc = open_side(&s, way, true);
    if (rc == 0)
        rc = prepare(&s, f);
    for (int k = 0; k < 3 && rc == 0; k++)
        printf("{\"way\": \"%s\", \"pass\": \"%s\", \"rows\": %lld, \"hidden\": %lld, "
               "\"us\": %.1f}\n",
               way ? way : "faster", names[k], (long long)f->rows, (long long)f->hidden,
               time_pass(&s, f, timer, k));
    if (rc < 0)
        printf("# %s: %s\n", way ? way : "faster", err.msg);
    side_close(&s);
}

int main(int argc, char **argv) {
    static const enum dtype types[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    static const char *const ways[] = {"apart", "fused", NULL};
    static const struct form forms[] = {
        {16384, 768, 3072}, {8192, 1024, 4096}, {4096, 2048, 8192}};
    struct cuda_timer *timer = side_timer(&err);
    if (!timer)
        return 0;
    const bool benches = argc > 1 && !strcmp(argv[1], "bench");
    const int seeds = argc > 1 && !benches ? atoi(argv[1]) : 10;
    if (kernel_init(2, &err) < 0)
        return 4;
    for (int way = 0; !benches && way < 2; way++)
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            test_way(ways[way], types[i], seeds);
    if (!benches)
        test_captured();
    for (size_t i = 0; benches && i < sizeof forms / sizeof *forms; i++)
        for (int way = 0; way < 3; way++)
            bench(ways[way], forms + i, timer);
    kernel_release();
    cuda_timer_destroy(timer);
    return benches ? 0 : done_testing();
}
