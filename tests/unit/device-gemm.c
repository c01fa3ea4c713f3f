/* Matrix products and linear layers against sums in double. */
#include "device.h"

#include "device/kernel_impl.h"

/* C[m,n] = op(A) op(B) + beta C of floats with row strides. */
static void gemm(const int64_t mnk[3], struct kernel_operand a, struct kernel_operand b,
                 float beta, float *c, int64_t ldc) {
    kernel_product(&(struct kernel_product){.m = mnk[0],
                                            .n = mnk[1],
                                            .k = mnk[2],
                                            .a = a,
                                            .b = b,
                                            .beta = beta,
                                            .c = c,
                                            .ldc = ldc});
}

/* want[m,n] = op(a) op(b) + beta c, all dense. */
static void product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                    const float *b, double beta, const float *c, double *want) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = beta == 0 ? 0 : beta * c[i * n + j];
            for (int64_t l = 0; l < k; l++)
                sum +=
                    (double)a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
            want[i * n + j] = sum;
        }
}

static void check_gemm(int64_t m, int64_t n, int64_t k, int form) {
    const bool ta = form & 1, tb = form & 2;
    const float beta = form & 4 ? 1.0f : 0.0f;
    float *a = noise(m * k, 1, 1), *b = noise(k * n, 1, 2), *c0 = noise(m * n, 1, 3);
    float *c = beta == 0 ? floats(m * n) : copy(m * n, c0), *d = copy(m * n, c);
    double *want = doubles(m * n);
    char what[64];
    snprintf(what, sizeof what, "%dx%dx%d %c%c beta %g", (int)m, (int)n, (int)k,
             ta ? 'T' : 'N', tb ? 'T' : 'N', beta);
    product(ta, tb, m, n, k, a, b, beta, c0, want);
    const int64_t mnk[] = {m, n, k};
    const struct kernel_operand left = {a, ta ? m : k, ta}, right = {b, tb ? k : n, tb};
    gemm(mnk, left, right, beta, c, n);
    gemm(mnk, left, right, beta, d, n);
    close_to(m * n, c, want, 1e-12, what);
    if (!same(m * n, c, d))
        ok(0, "%s: repeated, other bits", what);
    free(a), free(b), free(c0), free(c), free(d), free(want);
}

static void test_gemm(void) {
    static const int64_t shape[][3] = {
        {1, 1, 1},    {3, 5, 7},    {17, 33, 65},   {64, 64, 64},
        {1, 100, 50}, {129, 1, 31}, {200, 96, 300}, {40, 24, 1700},
    };
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int form = 0; form < 8; form++)
            check_gemm(shape[s][0], shape[s][1], shape[s][2], form);
}

/* Blocks of larger matrices, and nothing to sum over. */
static void test_strides(void) {
    enum { M = 9, N = 20, K = 11, LDA = 15, LDB = 23, LDC = 31 };
    float *a = noise(M * LDA, 1, 1), *b = noise(K * LDB, 1, 2), *c = noise(M * LDC, 1, 3);
    float *old = copy(M * LDC, c);
    gemm((int64_t[]){M, N, K}, (struct kernel_operand){a, LDA, false},
         (struct kernel_operand){b, LDB, false}, 1.0f, c, LDC);
    double worst = 0;
    int outside = 1;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < LDC; j++) {
            double want = old[i * LDC + j];
            for (int l = 0; l < K && j < N; l++)
                want += (double)a[i * LDA + l] * b[l * LDB + j];
            worst = fmax(worst, fabs(c[i * LDC + j] - want));
            outside &= j < N || c[i * LDC + j] == old[i * LDC + j];
        }
    ok(worst < 1e-5, "strided blocks: error %.1e", worst);
    ok(outside, "nothing beside the block is written");
    const struct kernel_operand left = {a, LDA, false}, right = {b, LDB, false};
    gemm((int64_t[]){0, N, K}, left, right, 0, NULL, LDC);
    memcpy(old, c, sizeof *c * M * LDC);
    gemm((int64_t[]){M, N, 0}, left, right, 1, c, LDC);
    ok(same(M * LDC, c, old), "k = 0 and beta = 1 leave C");
    gemm((int64_t[]){M, N, 0}, left, right, 0, c, LDC);
    double most = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            most = fmax(most, fabs(c[i * LDC + j]));
    ok(most == 0 && c[N] == old[N], "k = 0 and beta = 0 clear C and nothing beside it");
    free(a), free(b), free(c), free(old);
}

static void check_linear(int64_t m, int64_t n, int64_t k, bool wt, bool with_bias) {
    float *x = noise(m * k, 1, 1), *w = noise(k * n, 1, 2), *bias = noise(n, 1, 3);
    float *dy = noise(m * n, 1, 4), *dw0 = noise(k * n, 1, 5), *db0 = noise(n, 1, 6);
    float *y = floats(m * n), *dx = floats(m * k), *dw = copy(k * n, dw0),
          *db = copy(n, db0);
    double *y_want = doubles(m * n), *dx_want = doubles(m * k), *dw_want = doubles(k * n);
    double *db_want = doubles(n);
    product(false, wt, m, n, k, x, w, 0, NULL, y_want);
    product(false, !wt, m, k, n, dy, w, 0, NULL, dx_want);
    if (wt)
        product(true, false, n, k, m, dy, x, 1, dw0, dw_want);
    else
        product(true, false, k, n, m, x, dy, 1, dw0, dw_want);
    for (int64_t j = 0; j < n; j++)
        db_want[j] = db0[j];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            y_want[i * n + j] += with_bias ? bias[j] : 0;
            db_want[j] += dy[i * n + j];
        }
    kernel_linear(m, n, k, x, w, wt, with_bias ? bias : NULL, y);
    kernel_linear_dx(m, n, k, dy, w, wt, dx);
    kernel_linear_dw(m, n, k, x, dy, wt, 1, dw);
    kernel_add_param_dw(m, n, dy, db);
    double e[] = {nmse(m * n, y, y_want), nmse(m * k, dx, dx_want),
                  nmse(k * n, dw, dw_want), nmse(n, db, db_want)};
    ok(e[0] < 1e-12 && e[1] < 1e-12 && e[2] < 1e-12 && e[3] < 1e-12,
       "linear %dx%dx%d%s%s: y %.0e dx %.0e dw %.0e db %.0e", (int)m, (int)n, (int)k,
       wt ? " transposed" : "", with_bias ? " with bias" : "", e[0], e[1], e[2], e[3]);
    free(x), free(w), free(bias), free(dy), free(dw0), free(db0), free(y), free(dx),
        free(dw);
    free(db), free(y_want), free(dx_want), free(dw_want), free(db_want);
}

static void test_linear(void) {
    for (int form = 0; form < 4; form++) {
        check_linear(1, 1, 1, form & 1, form & 2);
        check_linear(13, 37, 21, form & 1, form & 2);
        check_linear(256, 96, 48, form & 1, form & 2);
        check_linear(301, 130, 70, form & 1, form & 2);
    }
}

/* More shapes than a cache of prepared products could hold, then the first again. */
static void test_many_shapes(void) {
    enum { MOST = 80 };
    float *x = noise(MOST * MOST, 1, 1), *w = noise(MOST * MOST, 1, 2),
          *bias = noise(MOST, 1, 3);
    float *a = floats(MOST * MOST), *b = floats(MOST * MOST);
    kernel_linear(MOST, 1, MOST, x, w, false, bias, a);
    for (int n = 1; n <= MOST; n++)
        for (int wt = 0; wt < 2; wt++)
            kernel_linear(MOST, n, MOST, x, w, wt, bias, b);
    kernel_linear(MOST, 1, MOST, x, w, false, bias, b);
    ok(same(MOST, a, b), "after 160 other shapes: the same bits");
    free(x), free(w), free(bias), free(a), free(b);
}

int main(void) {
    struct err err = {0};
    ok(kernel_init(0, &err) < 0, "no threads are refused: %s", err.msg);
    printf("# %s\n", kernel_gemm_library());
    with_threads(test_gemm);
    with_threads(test_strides);
    with_threads(test_linear);
    with_threads(test_many_shapes);
    return done_testing();
}
