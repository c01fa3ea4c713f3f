/* Activations, sums, optimizers and block copies, at sizes around the vector's length. */
#include "device.h"

static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 100, 1000, 40001};
enum { SIZES = sizeof sizes / sizeof *sizes };

static double act(enum kernel_act a, double x) {
    if (a == KERNEL_RELU)
        return x > 0 ? x : 0;
    if (a == KERNEL_SILU)
        return x / (1 + exp(-x));
    if (a == KERNEL_TANH)
        return tanh(x);
    if (a == KERNEL_GELU_ERF)
        return 0.5 * x * erfc(-x / sqrt(2));
    if (a == KERNEL_RELU2)
        return x > 0 ? x * x : 0;
    if (a == KERNEL_SIGMOID)
        return 1 / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* By central differences: good to about 1e-9 in double. */
static double slope(enum kernel_act a, double x) {
    const double h = 1e-5;
    return (act(a, x + h) - act(a, x - h)) / (2 * h);
}

static void check_act(enum kernel_act a, const char *name) {
    double y_error = 0, dx_error = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *x = noise(n, 3, 1), *y = copy(n, x), *dy = noise(n, 1, 2), *dx = copy(n, dy);
        double *y_want = doubles(n), *dx_want = doubles(n);
        for (int64_t i = 0; i < n; i++) {
            y_want[i] = act(a, x[i]);
            dx_want[i] = slope(a, x[i]) * dy[i];
        }
        kernel_act(a, n, y, y);
        kernel_act_dx(a, n, x, dx, dx);
        y_error = fmax(y_error, nmse(n, y, y_want));
        dx_error = fmax(dx_error, nmse(n, dx, dx_want));
        free(x), free(y), free(dy), free(dx), free(y_want), free(dx_want);
    }
    ok(y_error < 1e-13 && dx_error < 1e-13, "%s: y %.0e dx %.0e", name, y_error, dx_error);
}

/* Far out, and relative to the value itself where the tail is small. */
static void check_act_tails(enum kernel_act a, const char *name) {
    static const float far[] = {-1e30f, -1000, -88, -30, 30, 88, 1000, 1e30f, 0};
    enum { N = sizeof far / sizeof *far };
    float y[N], dx[N], one[N], x[400], near[400];
    int good = 1;
    for (int i = 0; i < N; i++)
        one[i] = 1;
    kernel_act(a, N, far, y);
    kernel_act_dx(a, N, far, one, dx);
    for (int i = 0; i < N; i++) {
        const double at = far[i], flat = a == KERNEL_TANH ? 1 : 0.25;
        good &= a == KERNEL_TANH || a == KERNEL_SIGMOID
                    ? fabs(y[i] - act(a, at)) <= 1e-6 &&
                          fabs(dx[i] - (at == 0 ? flat : 0)) <= 1e-6
                    : fabs(y[i] - (at > 0 ? at : 0)) <= 1e-6 &&
                          (at == 0 || fabs(dx[i] - (at > 0)) <= 1e-6);
    }
    ok(good, "%s: finite and right far out", name);
    double worst = 0;
    for (int i = 0; i < 400; i++)
        x[i] = -4 + (float)i * 0.02f;
    kernel_act(a, 400, x, near);
    for (int i = 0; i < 400; i++)
        if (fabsf(x[i]) > 1e-3f)
            worst =
                fmax(worst, fabs(near[i] - act(a, x[i])) / (fabs(act(a, x[i])) + 1e-30));
    ok(worst < 2e-6, "%s: relative error %.1e in -4..4", name, worst);
}

static void test_act(void) {
    static const char *const name[] = {"gelu",     "relu",  "silu",   "tanh",
                                       "gelu-erf", "relu2", "sigmoid"};
    for (int a = KERNEL_GELU; a <= KERNEL_SIGMOID; a++) {
        check_act((enum kernel_act)a, name[a]);
        if (a != KERNEL_RELU2)
            check_act_tails((enum kernel_act)a, name[a]);
    }
}

static void test_softcap(void) {
    const double cap = 2.5;
    double y_error = 0, dx_error = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *x = noise(n, 6, 1), *y = copy(n, x), *dy = noise(n, 1, 2), *dx = copy(n, dy);
        double *y_want = doubles(n), *dx_want = doubles(n);
        for (int64_t i = 0; i < n; i++) {
            y_want[i] = cap * tanh(x[i] / cap);
            dx_want[i] = dy[i] / pow(cosh(x[i] / cap), 2);
        }
        kernel_softcap(n, (float)cap, y, y);
        kernel_softcap_dx(n, (float)cap, x, dx, dx);
        y_error = fmax(y_error, nmse(n, y, y_want));
        dx_error = fmax(dx_error, nmse(n, dx, dx_want));
        free(x), free(y), free(dy), free(dx), free(y_want), free(dx_want);
    }
    ok(y_error < 1e-13 && dx_error < 1e-13, "softcap: y %.0e dx %.0e", y_error, dx_error);
}

typedef void gate_kernel(int64_t n, const float *x, const float *z, float *y);
typedef void gate_bwd_kernel(int64_t n, const float *x, const float *z, const float *dy,
                             float *dx, float *dz);

static void check_gate(enum kernel_act a, const char *name, gate_kernel *kernel,
                       gate_bwd_kernel *kernel_bwd) {
    double y_error = 0, dx_error = 0, dz_error = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *x = noise(n, 3, 1), *z = noise(n, 1, 2), *dy = noise(n, 1, 3);
        float *y = copy(n, z), *dx = copy(n, dy), *dz = floats(n);
        double *y_want = doubles(n), *dx_want = doubles(n), *dz_want = doubles(n);
        const double h = 1e-5;
        for (int64_t i = 0; i < n; i++) {
            y_want[i] = act(a, x[i]) * z[i];
            dx_want[i] = dy[i] * (act(a, x[i] + h) - act(a, x[i] - h)) / (2 * h) * z[i];
            dz_want[i] = dy[i] * act(a, x[i]);
        }
        kernel(n, x, y, y);
        kernel_bwd(n, x, z, dx, dx, dz);
        y_error = fmax(y_error, nmse(n, y, y_want));
        dx_error = fmax(dx_error, nmse(n, dx, dx_want));
        dz_error = fmax(dz_error, nmse(n, dz, dz_want));
        free(x), free(z), free(dy), free(y), free(dx), free(dz);
        free(y_want), free(dx_want), free(dz_want);
    }
    ok(y_error < 1e-13 && dx_error < 1e-13 && dz_error < 1e-13,
       "%s: y %.0e dx %.0e dz %.0e", name, y_error, dx_error, dz_error);
}

static void test_gates(void) {
    check_gate(KERNEL_SILU, "swiglu", kernel_swiglu, kernel_swiglu_bwd);
    check_gate(KERNEL_GELU, "geglu", kernel_geglu, kernel_geglu_bwd);
}

static void test_sums(void) {
    int good = 1;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *a = noise(n, 1, 1), *b = noise(n, 1, 2), *y = floats(n), *z = copy(n, a);
        kernel_add(n, a, b, y);
        kernel_add(n, z, b, z);
        good &= same(n, y, z);
        for (int64_t i = 0; i < n; i++)
            good &= y[i] == a[i] + b[i];
        kernel_fill(n, 0, y);
        kernel_fill(n, 1.5f, z);
        for (int64_t i = 0; i < n; i++)
            good &= y[i] == 0 && z[i] == 1.5f;
        free(a), free(b), free(y), free(z);
    }
    ok(good, "add, in place too, and fill");
}

static void check_param(int64_t outer, int64_t inner) {
    float *x = noise(outer * inner, 1, 1), *p = noise(inner, 1, 2),
          *y = copy(outer * inner, x);
    float *dp0 = noise(inner, 1, 3), *dp = copy(inner, dp0);
    double *want = doubles(inner);
    int good = 1;
    kernel_add_param(outer, inner, y, p, y);
    kernel_add_param_dw(outer, inner, x, dp);
    for (int64_t i = 0; i < inner; i++)
        want[i] = dp0[i];
    for (int64_t i = 0; i < outer * inner; i++) {
        good &= y[i] == x[i] + p[i % inner];
        want[i % inner] += x[i];
    }
    double e = nmse(inner, dp, want);
    ok(good && e < TIGHT, "parameter of %d under %d: gradient %.0e", (int)inner, (int)outer,
       e);
    free(x), free(p), free(y), free(dp0), free(dp), free(want);
}

static void test_param(void) {
    check_param(1, 1);
    check_param(7, 33);
    check_param(3000, 24);
    check_param(8, 20000);
    check_param(1003, 130);
}

static void test_adamw(void) {
    double worst = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *p = noise(n, 1, 1), *g = noise(n, 2, 2), *m = noise(n, 0, 3),
              *v = noise(n, 0, 4);
        double *pw = doubles(n), *mw = doubles(n), *vw = doubles(n);
        for (int64_t i = 0; i < n; i++)
            pw[i] = p[i];
        for (int t = 1; t <= 4; t++) {
            kernel_adamw(&(struct kernel_adamw){0.5f, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, t},
                         n, p, g, m, v);
            for (int64_t i = 0; i < n; i++) {
                double gi = 0.5 * g[i];
                mw[i] = 0.9 * mw[i] + 0.1 * gi;
                vw[i] = 0.95 * vw[i] + 0.05 * gi * gi;
                double mh = mw[i] / (1 - pow(0.9, t)), vh = vw[i] / (1 - pow(0.95, t));
                pw[i] -= 0.01 * (mh / (sqrt(vh) + 1e-8) + 0.1 * pw[i]);
            }
        }
        worst = fmax(worst, fmax(nmse(n, p, pw), fmax(nmse(n, m, mw), nmse(n, v, vw))));
        free(p), free(g), free(m), free(v), free(pw), free(mw), free(vw);
    }
    ok(worst < 1e-12, "adamw, four steps: %.0e", worst);
}

static void test_sgd(void) {
    double worst = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *p = noise(n, 1, 1), *g = noise(n, 2, 2), *b = noise(n, 0, 3);
        double *pw = doubles(n), *bw = doubles(n);
        for (int64_t i = 0; i < n; i++)
            pw[i] = p[i];
        for (int t = 1; t <= 3; t++) {
            kernel_sgd(n, p, g, b, 0.5f, 0.01f, 0.9f, 0.1f);
            for (int64_t i = 0; i < n; i++) {
                bw[i] = 0.9 * bw[i] + 0.5 * g[i] + 0.1 * pw[i];
                pw[i] -= 0.01 * bw[i];
            }
        }
        worst = fmax(worst, fmax(nmse(n, p, pw), nmse(n, b, bw)));
        free(p), free(g), free(b), free(pw), free(bw);
    }
    ok(worst < 1e-12, "sgd, three steps: %.0e", worst);
}

/* Each step's sign is of what came out in float: where it is that of noise, both may be right. */
static void test_lion(void) {
    const struct kernel_adamw how = {0.5f, 0.01f, 0.9f, 0.99f, 0, 0.1f, 0};
    double worst = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *p = noise(n, 1, 1), *g = noise(n, 2, 2), *m = noise(n, 0, 3);
        double *pw = doubles(n), *mw = doubles(n);
        for (int64_t i = 0; i < n; i++)
            pw[i] = p[i];
        g[0] = 0; /* as of an id that no token has: no step but the decay */
        for (int t = 1; t <= 3; t++) {
            kernel_lion(&how, n, p, g, m);
            for (int64_t i = 0; i < n; i++) {
                const double d = 0.5 * g[i], c = 0.9 * mw[i] + 0.1 * d;
                pw[i] -= 0.01 * ((c > 0 ? 1 : c < 0 ? -1 : 0) + 0.1 * pw[i]);
                mw[i] = 0.99 * mw[i] + 0.01 * d;
            }
        }
        worst = fmax(worst, fmax(nmse(n, p, pw), nmse(n, m, mw)));
        free(p), free(g), free(m), free(pw), free(mw);
    }
    ok(worst < 1e-12, "lion, three steps: %.0e", worst);
}

static void test_sum_squares(void) {
    double worst = 0, by_threads[2];
    for (int s = 0; s < SIZES; s++) {
        float *x = noise(sizes[s], 1, 1);
        double want = 0;
        for (int64_t i = 0; i < sizes[s]; i++)
            want += (double)x[i] * x[i];
        worst = fmax(worst, fabs(kernel_sum_squares(sizes[s], x) / want - 1));
        free(x);
    }
    ok(worst < 1e-12, "sum of squares: %.0e", worst);
    ok(kernel_sum_squares(0, NULL) == 0, "of nothing");
    float *x = noise(100003, 1, 1);
    for (int t = 0; t < 2; t++) {
        kernel_init(1 + 2 * t, NULL);
        by_threads[t] = kernel_sum_squares(100003, x);
    }
    ok(by_threads[0] == by_threads[1], "1 and 3 threads: the same sum");
    free(x);
}

/* A permutation, a slice into a slice, and a column. */
static void test_copy(void) {
    enum { A = 5, B = 7, C = 19, ALL = A * B * C };
    float *x = noise(ALL, 1, 1), *y = floats(ALL), *z = noise(ALL, 1, 2),
          *z0 = copy(ALL, z);
    kernel_copy(3, (int64_t[]){A, B, C}, 4, x, (int64_t[]){B * C, C, 1}, y,
                (int64_t[]){C, A * C, 1});
    int good = 1;
    for (int a = 0; a < A; a++)
        for (int b = 0; b < B; b++)
            for (int c = 0; c < C; c++)
                good &= y[(b * A + a) * C + c] == x[(a * B + b) * C + c];
    ok(good, "copy: permuted");
    kernel_copy(4, (int64_t[]){A, 2, 1, 6}, 4, x + 3, (int64_t[]){B * C, C, 99, 1}, z + 2,
                (int64_t[]){B * C, C, 1, 1});
    good = 1;
    for (int i = 0; i < ALL; i++) {
        int b = i / C % B, c = i % C;
        bool in = b < 2 && c >= 2 && c < 8;
        good &= z[i] == (in ? x[i + 1] : z0[i]);
    }
    ok(good, "copy: a slice into a slice");
    kernel_copy(2, (int64_t[]){C, B}, 4, x, (int64_t[]){1, C}, y, (int64_t[]){B, 1});
    good = 1;
    for (int b = 0; b < B; b++)
        for (int c = 0; c < C; c++)
            good &= y[c * B + b] == x[b * C + c];
    ok(good, "copy: transposed");
    kernel_copy(0, NULL, 4, x, NULL, y, NULL);
    kernel_copy(2, (int64_t[]){0, B}, 4, x, (int64_t[]){C, 1}, z, (int64_t[]){C, 1});
    ok(y[0] == x[0], "copy: a scalar, and nothing");
    free(x), free(y), free(z), free(z0);
    enum { ROWS = 200, N = 333 };
    x = noise(ROWS * N, 1, 1), y = floats(ROWS * N);
    kernel_copy(2, (int64_t[]){ROWS, N}, 4, x, (int64_t[]){N, 1}, y, (int64_t[]){N, 1});
    ok(same(ROWS * N, x, y), "copy: dense");
    const uint16_t *from = (const uint16_t *)x;
    uint16_t *to = (uint16_t *)y;
    kernel_copy(2, (int64_t[]){N, ROWS}, 2, from, (int64_t[]){1, N}, to,
                (int64_t[]){ROWS, 1});
    good = 1;
    for (int i = 0; i < N * ROWS; i++)
        good &= to[i] == from[i % ROWS * N + i / ROWS];
    ok(good, "copy: elements of two bytes, transposed");
    free(x), free(y);
}

int main(void) {
    with_threads(test_act);
    with_threads(test_softcap);
    with_threads(test_gates);
    with_threads(test_sums);
    with_threads(test_param);
    with_threads(test_adamw);
    with_threads(test_sgd);
    with_threads(test_lion);
    with_threads(test_sum_squares);
    with_threads(test_copy);
    return done_testing();
}
