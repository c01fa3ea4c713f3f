/* Batch norm: values in double, gradients by central differences, split groups against
 * whole ones. */
#include "device.h"

static const double eps = 1e-5;

struct sizes {
    int64_t samples, places, c, group;
};

static int64_t size(const struct sizes *s) {
    return s->samples * s->places * s->c;
}

/* Mean and variance of the group and channel of element i. */
static void moments(const struct sizes *s, const double *x, int64_t i, double *mean,
                    double *variance) {
    int64_t n = s->group * s->places, first = i / (n * s->c) * n * s->c + i % s->c;
    *mean = *variance = 0;
    for (int64_t k = 0; k < n; k++)
        *mean += x[first + k * s->c] / (double)n;
    for (int64_t k = 0; k < n; k++)
        *variance +=
            (x[first + k * s->c] - *mean) * (x[first + k * s->c] - *mean) / (double)n;
}

static double value(const struct sizes *s, const double *x, const double *gamma,
                    const double *beta, int64_t i) {
    double mean, variance;
    moments(s, x, i, &mean, &variance);
    return gamma[i % s->c] * (x[i] - mean) / sqrt(variance + eps) + beta[i % s->c];
}

static double loss(const struct sizes *s, const double *x, const double *gamma,
                   const double *beta, const float *dy) {
    double sum = 0;
    for (int64_t i = 0; i < size(s); i++)
        sum += value(s, x, gamma, beta, i) * dy[i];
    return sum;
}

struct run {
    float *x, *gamma, *beta, *dy, *y, *stat, *sums, *dx, *dgamma, *dbeta;
};

static struct kernel_batchnorm whole(const struct sizes *s) {
    return (struct kernel_batchnorm){
        s->samples, s->places, s->c, s->samples / s->group, s->group, 0, (float)eps};
}

static struct run run_whole(const struct sizes *s) {
    struct kernel_batchnorm t = whole(s);
    int64_t n = size(s), k = t.groups * s->c, total = s->group * s->places;
    struct run r = {noise(n, 2, 1),    noise(s->c, 1, 2), noise(s->c, 1, 3), noise(n, 1, 4),
                    floats(n),         floats(2 * k),     floats(2 * k),     floats(n),
                    noise(s->c, 1, 5), noise(s->c, 1, 6)};
    for (int64_t i = 0; i < n; i++)
        r.x[i] += 3; /* far from 0 */
    float *sums = floats(k), *squares = floats(k);
    kernel_batchnorm_moments(&t, r.x, sums, squares);
    kernel_batchnorm_stat(s->c, t.groups, total, sums, squares, r.stat);
    kernel_batchnorm(&t, r.x, r.gamma, r.beta, r.stat, r.y);
    kernel_batchnorm_bwd_sums(&t, r.x, r.stat, r.dy, r.sums, r.dgamma, r.dbeta);
    kernel_batchnorm_bwd(&t, total, r.x, r.gamma, r.stat, r.dy, r.sums, r.dx);
    free(sums), free(squares);
    return r;
}

static void release(struct run *r) {
    free(r->x), free(r->gamma), free(r->beta), free(r->dy), free(r->y);
    free(r->stat), free(r->sums), free(r->dx), free(r->dgamma), free(r->dbeta);
}

/* The slope of the loss in number i of p, one of x, gamma, beta. */
static double slope(const struct sizes *s, const double *x, const double *gamma,
                    const double *beta, const float *dy, double *p) {
    const double h = 1e-5, at = *p;
    *p = at + h;
    double above = loss(s, x, gamma, beta, dy);
    *p = at - h;
    double below = loss(s, x, gamma, beta, dy);
    *p = at;
    return (above - below) / (2 * h);
}

static double *widened(int64_t n, const float *x) {
    double *y = doubles(n);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static void check(struct sizes s) {
    struct run r = run_whole(&s);
    int64_t n = size(&s);
    double *x = widened(n, r.x), *gamma = widened(s.c, r.gamma),
           *beta = widened(s.c, r.beta);
    double *y = doubles(n), *dx = doubles(n);
    float *g0 = noise(s.c, 1, 5), *b0 = noise(s.c, 1, 6);
    double *dgamma = widened(s.c, g0), *dbeta = widened(s.c, b0);
    for (int64_t i = 0; i < n; i++) {
        y[i] = value(&s, x, gamma, beta, i);
        dx[i] = slope(&s, x, gamma, beta, r.dy, &x[i]);
    }
    for (int64_t k = 0; k < s.c; k++) {
        dgamma[k] += slope(&s, x, gamma, beta, r.dy, &gamma[k]);
        dbeta[k] += slope(&s, x, gamma, beta, r.dy, &beta[k]);
    }
    double e = nmse(n, r.y, y), f = nmse(n, r.dx, dx), g = nmse(s.c, r.dgamma, dgamma);
    double b = nmse(s.c, r.dbeta, dbeta);
    ok(e < TIGHT && f < 1e-9 && g < 1e-9 && b < 1e-9,
       "%d samples of %d places in groups of %d, %d channels: y %.0e dx %.0e dgamma %.0e",
       (int)s.samples, (int)s.places, (int)s.group, (int)s.c, e, f, g);
    release(&r);
    free(x), free(gamma), free(beta), free(y), free(dx), free(dgamma), free(dbeta);
    free(g0), free(b0);
}

/* ---- split ------------------------------------------------------------------------- */

/* The samples of rank `at` of those that split them, some of the places of each. */
static float *part(const struct sizes *s, const struct kernel_batchnorm *t, int64_t place,
                   const float *x) {
    float *out = floats(t->samples * t->places * t->c);
    for (int64_t i = 0; i < t->samples; i++)
        memcpy(out + i * t->places * t->c, x + ((t->first + i) * s->places + place) * t->c,
               sizeof *out * (size_t)(t->places * t->c));
    return out;
}

static void add_to(int64_t n, float *sum, const float *x) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/* `by` ranks split the samples, `across` the places of each. All know all groups. */
static void check_split(struct sizes s, int64_t by, int64_t across) {
    struct run r = run_whole(&s);
    int64_t groups = s.samples / s.group, k = groups * s.c, total = s.group * s.places;
    int64_t ranks = by * across, n = size(&s) / ranks;
    float *x[16], *dy[16], *sums[16], *squares[16];
    struct kernel_batchnorm t[16];
    float *all = floats(k), *centered = floats(k), *stat = floats(2 * k),
          *back = floats(2 * k);
    float *one = floats(2 * k), *y = floats(n), *dgamma = noise(s.c, 1, 5),
          *dbeta = noise(s.c, 1, 6);
    double worst = 0;
    kernel_fill(k, 0, all), kernel_fill(k, 0, centered), kernel_fill(2 * k, 0, back);
    for (int64_t i = 0; i < ranks; i++) {
        t[i] = (struct kernel_batchnorm){
            s.samples / by, s.places / across, s.c,
            groups,         s.group,           i / across * (s.samples / by),
            (float)eps};
        x[i] = part(&s, &t[i], i % across * t[i].places, r.x);
        dy[i] = part(&s, &t[i], i % across * t[i].places, r.dy);
        sums[i] = floats(k), squares[i] = floats(k);
        kernel_batchnorm_moments(&t[i], x[i], sums[i], squares[i]);
        add_to(k, all, sums[i]);
    }
    for (int64_t i = 0; i < ranks; i++) {
        kernel_batchnorm_center(&t[i], total, sums[i], all, squares[i], one);
        add_to(k, centered, one);
    }
    kernel_batchnorm_stat(s.c, groups, total, all, centered, stat);
    for (int64_t i = 0; i < ranks; i++) {
        kernel_batchnorm_bwd_sums(&t[i], x[i], stat, dy[i], one, dgamma, dbeta);
        add_to(2 * k, back, one);
    }
    for (int64_t i = 0; i < ranks; i++) {
        float *want = part(&s, &t[i], i % across * t[i].places, r.y);
        kernel_batchnorm(&t[i], x[i], r.gamma, r.beta, stat, y);
        for (int64_t j = 0; j < n; j++)
            worst = fmax(worst, fabs(y[j] - want[j]));
        free(want);
        want = part(&s, &t[i], i % across * t[i].places, r.dx);
        kernel_batchnorm_bwd(&t[i], total, x[i], r.gamma, stat, dy[i], back, dy[i]);
        for (int64_t j = 0; j < n; j++)
            worst = fmax(worst, fabs(dy[i][j] - want[j]));
        free(want), free(x[i]), free(dy[i]), free(sums[i]), free(squares[i]);
    }
    for (int64_t j = 0; j < s.c; j++)
        worst = fmax(worst,
                     fmax(fabs(dgamma[j] - r.dgamma[j]), fabs(dbeta[j] - r.dbeta[j])) / 10);
    ok(worst < 1e-5, "%d samples in groups of %d over %d x %d ranks: as whole, to %.0e",
       (int)s.samples, (int)s.group, (int)by, (int)across, worst);
    release(&r);
    free(all), free(centered), free(stat), free(back), free(one), free(y), free(dgamma);
    free(dbeta);
}

/* What the step adds to running statistics: the mean over groups; the variance of all
 * data, which is n / (n - 1) of that of n places. */
static void check_running(void) {
    float stat[8] = {1, 2, 4, 8, 3, 4, 6, 10}, mean[2] = {0.5f, 0}, variance[2] = {0, 0};
    kernel_batchnorm_running(2, 2, 5, 0.25f, stat, mean, variance);
    ok(mean[0] == 1.5f && mean[1] == 1.5f && fabs(variance[0] - 3.125) < 1e-6 &&
           fabs(variance[1] - 5.625) < 1e-6,
       "shares of mean and variance: %g %g, %g %g", mean[0], mean[1], variance[0],
       variance[1]);
    float p[2] = {10, 20}, step[2] = {20, 0};
    kernel_running(2, 0.25f, step, p);
    ok(p[0] == 12.5f && p[1] == 15, "running statistics move by the momentum's proportion");
}

static void all(void) {
    check((struct sizes){2, 3, 5, 2});
    check((struct sizes){6, 4, 17, 2});
    check((struct sizes){4, 1, 3, 4});
    check((struct sizes){3, 50, 4, 1});
    check((struct sizes){2, 9, 70, 2});
    check_split((struct sizes){8, 6, 33, 4}, 2, 1);
    check_split((struct sizes){8, 6, 33, 8}, 4, 2);
    check_split((struct sizes){6, 6, 20, 2}, 2,
                3); /* a group on two ranks, others on one */
    check_split((struct sizes){4, 8, 64, 4}, 1, 8);
    check_running();
}

int main(void) {
    with_threads(all);
    return done_testing();
}
