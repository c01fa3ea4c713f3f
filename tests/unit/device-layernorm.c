/* Layer norm against the formula in double, whole and split over ranks. */
#include "device.h"

#define EPS 1e-5f

struct data {
    int64_t rows, n;
    bool plain;   /* there is no beta */
    float offset; /* of gamma */
    float *x, *gamma, *beta, *dy, *dgamma0, *dbeta0;
    double *y, *dx, *dgamma, *dbeta; /* expected */
};

static void expect_row(struct data *d, int64_t i) {
    const int64_t n = d->n;
    const float *x = d->x + i * n, *dy = d->dy + i * n;
    const double more = (double)d->offset;
    double mean = 0, var = 0, g = 0, gx = 0;
    for (int64_t j = 0; j < n; j++)
        mean += x[j] / (double)n;
    for (int64_t j = 0; j < n; j++)
        var += (x[j] - mean) * (x[j] - mean) / (double)n;
    const double rstd = 1 / sqrt(var + EPS);
    for (int64_t j = 0; j < n; j++) {
        double xhat = (x[j] - mean) * rstd;
        d->y[i * n + j] = xhat * (d->gamma[j] + more) + (d->plain ? 0 : d->beta[j]);
        d->dgamma[j] += dy[j] * xhat;
        d->dbeta[j] += dy[j];
        g += (double)dy[j] * (d->gamma[j] + more) / (double)n;
        gx += (double)dy[j] * (d->gamma[j] + more) * xhat / (double)n;
    }
    for (int64_t j = 0; j < n; j++) {
        double xhat = (x[j] - mean) * rstd;
        d->dx[i * n + j] = rstd * ((double)dy[j] * (d->gamma[j] + more) - g - xhat * gx);
    }
}

static struct data make(int64_t rows, int64_t n, bool plain, float offset) {
    struct data d = {rows,
                     n,
                     plain,
                     offset,
                     noise(rows * n, 2, 1),
                     noise(n, 1, 2),
                     noise(n, 1, 3),
                     noise(rows * n, 1, 4),
                     noise(n, 1, 5),
                     noise(n, 1, 6),
                     doubles(rows * n),
                     doubles(rows * n),
                     doubles(n),
                     doubles(n)};
    for (int64_t i = 0; i < rows * n; i++)
        d.x[i] += 3; /* a mean to take off */
    for (int64_t j = 0; j < n; j++) {
        d.dgamma[j] = d.dgamma0[j];
        d.dbeta[j] = d.dbeta0[j];
    }
    for (int64_t i = 0; i < rows; i++)
        expect_row(&d, i);
    return d;
}

static void release(struct data *d) {
    free(d->x), free(d->gamma), free(d->beta), free(d->dy), free(d->dgamma0),
        free(d->dbeta0);
    free(d->y), free(d->dx), free(d->dgamma), free(d->dbeta);
}

static void report(const struct data *d, const char *how, const float *y, const float *dx,
                   const float *dgamma, const float *dbeta) {
    const int64_t n = d->n, all = d->rows * n;
    /* With one column y = beta and dx = 0 exactly in theory: only finite noise remains. */
    double e[] = {nmse(all, y, d->y), n > 1 ? nmse(all, dx, d->dx) : 0,
                  nmse(n, dgamma, d->dgamma), d->plain ? 0 : nmse(n, dbeta, d->dbeta)};
    ok(e[0] < 1e-11 && e[1] < 1e-11 && e[2] < 1e-11 && e[3] < 1e-11,
       "%s %dx%d: y %.0e dx %.0e dgamma %.0e dbeta %.0e", how, (int)d->rows, (int)n, e[0],
       e[1], e[2], e[3]);
}

static void check_whole(int64_t rows, int64_t n, bool plain, float offset) {
    struct data d = make(rows, n, plain, offset);
    const struct kernel_layernorm t = {rows, n, n, EPS, offset};
    float *y = floats(rows * n), *stat = floats(2 * rows), *dx = copy(rows * n, d.dy);
    float *dgamma = copy(n, d.dgamma0), *dbeta = copy(n, d.dbeta0);
    float *const params[] = {dgamma, plain ? NULL : dbeta};
    kernel_layernorm(&t, NULL, d.x, d.gamma, plain ? NULL : d.beta, y, stat);
    kernel_layernorm_bwd(&t, NULL, d.x, d.gamma, stat, dx, dx, params);
    report(&d, plain ? "whole, without beta," : "whole", y, dx, dgamma, dbeta);
    free(y), free(stat), free(dx), free(dgamma), free(dbeta);
    release(&d);
}

/* The columns of one rank among `parts`. */
static float *columns(int64_t rows, int64_t n, int64_t parts, int64_t part,
                      const float *x) {
    const int64_t w = n / parts;
    float *y = floats(rows * w);
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * w, x + i * n + part * w, (size_t)w * sizeof *y);
    return y;
}
static void put_columns(int64_t rows, int64_t n, int64_t parts, int64_t part,
                        const float *x, float *y) {
    const int64_t w = n / parts;
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * n + part * w, x + i * w, (size_t)w * sizeof *y);
}

static void check_split(int64_t rows, int64_t n, int64_t parts, float offset) {
    struct data d = make(rows, n, false, offset);
    const int64_t w = n / parts;
    const struct kernel_layernorm t = {rows, w, n, EPS, offset};
    float *moments = floats(2 * rows * parts), *sums = noise(2 * rows, 0, 1);
    float *one = floats(2 * rows), *stat = floats(2 * rows), *y = floats(rows * n);
    float *dx = floats(rows * n), *dgamma = copy(n, d.dgamma0), *dbeta = copy(n, d.dbeta0);
    for (int64_t p = 0; p < parts; p++) {
        float *x = columns(rows, n, parts, p, d.x);
        kernel_layernorm_moments(rows, w, x, moments + 2 * rows * p);
        free(x);
    }
    for (int64_t p = 0; p < parts; p++) {
        float *x = columns(rows, n, parts, p, d.x), *dy = columns(rows, n, parts, p, d.dy);
        float *out = floats(rows * w);
        kernel_layernorm(&t, moments, x, d.gamma + p * w, d.beta + p * w, out, stat);
        put_columns(rows, n, parts, p, out, y);
        kernel_layernorm_bwd_sums(&t, x, d.gamma + p * w, stat, dy, one);
        for (int64_t i = 0; i < 2 * rows; i++)
            sums[i] += one[i];
        free(x), free(dy), free(out);
    }
    for (int64_t p = 0; p < parts; p++) {
        float *x = columns(rows, n, parts, p, d.x), *dy = columns(rows, n, parts, p, d.dy);
        kernel_layernorm_bwd(&t, sums, x, d.gamma + p * w, stat, dy, dy,
                             (float *[]){dgamma + p * w, dbeta + p * w});
        put_columns(rows, n, parts, p, dy, dx);
        free(x), free(dy);
    }
    char how[32];
    snprintf(how, sizeof how, "in %d parts", (int)parts);
    report(&d, how, y, dx, dgamma, dbeta);
    free(moments), free(sums), free(one), free(stat), free(y), free(dx), free(dgamma),
        free(dbeta);
    release(&d);
}

static void test_layernorm(void) {
    static const int64_t shape[][2] = {{1, 1},     {1, 7},     {5, 16},
                                       {3, 33},    {64, 48},   {37, 384},
                                       {257, 100}, {130, 768}, {600, 1000}};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        check_whole(shape[s][0], shape[s][1], false, 0);
    check_whole(37, 384, true, 0);
    check_whole(300, 100, true, 1);
    check_whole(37, 384, false, 1);
    check_split(1, 8, 2, 0);
    check_split(33, 60, 3, 1);
    check_split(200, 384, 4, 0);
    check_split(100, 40, 40, 0);
}

/* A row's result is its own: rows may be handed out in any blocks. */
static void test_row_blocks(void) {
    enum { ROWS = 90, N = 70, HALF = 37 };
    struct data d = make(ROWS, N, false, 0);
    float *y = floats(ROWS * N), *z = floats(ROWS * N), *stat = floats(2 * ROWS);
    const struct kernel_layernorm all = {ROWS, N, N, EPS, 0};
    const struct kernel_layernorm half = {HALF, N, N, EPS, 0};
    const struct kernel_layernorm rest = {ROWS - HALF, N, N, EPS, 0};
    kernel_layernorm(&all, NULL, d.x, d.gamma, d.beta, y, stat);
    kernel_layernorm(&half, NULL, d.x, d.gamma, d.beta, z, stat);
    kernel_layernorm(&rest, NULL, d.x + HALF * N, d.gamma, d.beta, z + HALF * N, stat);
    ok(same(ROWS * N, y, z), "blocks of rows: the same bits");
    free(y), free(z), free(stat);
    release(&d);
}

/* A large mean: the one-pass formula would have no digits left. */
static void test_cancellation(void) {
    enum { N = 512 };
    float *x = noise(N, 1, 9), *one = floats(N), *zero = floats(N), *y = floats(N), stat[2];
    double mean = 0, var = 0;
    for (int j = 0; j < N; j++) {
        x[j] += 10000;
        one[j] = 1, zero[j] = 0;
        mean += x[j] / (double)N;
    }
    for (int j = 0; j < N; j++)
        var += (x[j] - mean) * (x[j] - mean) / N;
    kernel_layernorm(&(struct kernel_layernorm){1, N, N, EPS, 0}, NULL, x, one, zero, y,
                     stat);
    ok(fabs(stat[1] * sqrt(var + EPS) - 1) < 1e-5,
       "mean 10000, deviation 1: 1/std %g for %g", stat[1], 1 / sqrt(var + EPS));
    free(x), free(one), free(zero), free(y);
}

int main(void) {
    with_threads(test_layernorm);
    with_threads(test_row_blocks);
    with_threads(test_cancellation);
    return done_testing();
}
