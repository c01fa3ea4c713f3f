/* Layer norm over the last dimension, whole or split over ranks.
 *
 * Each row is read twice while it is in the nearest cache: the mean first, then the squared
 * deviations from it, which is exact where the one-pass formula cancels. Backward takes
 * four rows at a time so that the sums for gamma and beta make one pass over memory with
 * dx.
 */
#include "kernel_norm.h"
#include "kernel_type.h"
#include "kernel_vec.h"

VEC float row_sum(int64_t n, const T *x) {
    vf a = v_set(0), b = a, c = a, d = a;
    int64_t j = 0;
    for (; j + 4 * VL <= n; j += 4 * VL) {
        a += v_load(x + j);
        b += v_load(x + j + VL);
        c += v_load(x + j + 2 * VL);
        d += v_load(x + j + 3 * VL);
    }
    for (; j < n; j += VL)
        a += v_load_n(x + j, n - j < VL ? n - j : VL);
    return v_sum((a + b) + (c + d));
}

/* Sum of (x - mean)^2. */
VEC float row_deviation(int64_t n, const T *x, float mean) {
    const vf mu = v_set(mean);
    vf a = v_set(0), b = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        vf u = v_load(x + j) - mu, v = v_load(x + j + VL) - mu;
        a = v_fma(u, u, a);
        b = v_fma(v, v, b);
    }
    for (; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        vf u = v_load_or(x + j, lanes, mean) - mu;
        a = v_fma(u, u, a);
    }
    return v_sum(a + b);
}

static void moments_rows(int64_t rows, int64_t n, const T *x, float *part) {
    for (int64_t i = 0; i < rows; i++) {
        float mean = row_sum(n, x + i * n) / (float)n;
        part[2 * i] = mean;
        part[2 * i + 1] = row_deviation(n, x + i * n, mean);
    }
}

void kernel_layernorm_moments(int64_t rows, int64_t n, const T *x, float *part) {
    KERNEL_SPLIT(rows, 1, rows * n,
                 moments_rows(end - first, n, x + first * n, part + 2 * first));
}

/* Mean and 1/std of row i from the parts' moments, all of n elements. */
static void combine_moments(const struct kernel_layernorm *t, const float *moments,
                            int64_t i, float *stat) {
    double mean = 0, squares = 0;
    const int64_t parts = t->total / t->n;
    for (int64_t p = 0; p < parts; p++)
        mean += moments[2 * (p * t->rows + i)];
    mean /= (double)parts;
    for (int64_t p = 0; p < parts; p++) {
        double apart = moments[2 * (p * t->rows + i)] - mean;
        squares += moments[2 * (p * t->rows + i) + 1] + (double)t->n * apart * apart;
    }
    stat[0] = (float)mean;
    stat[1] = (float)(1.0 / sqrt(squares / (double)t->total + t->eps));
}

/* The same of `rows` rows that are whole. */
VEC void own_moments(int rows, int64_t n, const T *x, float eps, float *stat) {
    for (int r = 0; r < rows; r++)
        stat[2 * r] = row_sum(n, x + r * n) / (float)n;
    for (int r = 0; r < rows; r++) {
        float squares = row_deviation(n, x + r * n, stat[2 * r]);
        stat[2 * r + 1] = 1.0f / sqrtf(squares / (float)n + eps);
    }
}

struct forward {
    struct kernel_layernorm t;
    const float *moments;      /* NULL: rows are whole, work them out here */
    const T *x, *gamma, *beta; /* beta may be NULL */
    T *y;
    float *stat;
};

/* Columns j..j+lanes-1 of rows i..i+rows-1. */
VEC void write_columns(const struct forward *f, int rows, int64_t i, int64_t j,
                       int64_t lanes) {
    const vf gam = v_load_n(f->gamma + j, lanes) + f->t.offset;
    const vf bet = f->beta ? v_load_n(f->beta + j, lanes) : v_set(0);
    const float *stat = f->stat + 2 * i;
    for (int r = 0; r < rows; r++) {
        const int64_t at = (i + r) * f->t.n + j;
        vf xhat = (v_load_n(f->x + at, lanes) - stat[2 * r]) * stat[2 * r + 1];
        v_store_n(f->y + at, lanes, v_fma(xhat, gam, bet));
    }
}

/* f is a copy, which stores to y cannot change: its pointers stay in registers. */
VEC void forward_block(struct forward copy, int rows, int64_t i) {
    const struct forward *f = &copy;
    const struct kernel_layernorm *t = &f->t;
    float *stat = f->stat + 2 * i;
    if (f->moments)
        for (int r = 0; r < rows; r++)
            combine_moments(t, f->moments, i + r, stat + 2 * r);
    else
        own_moments(rows, t->n, f->x + i * t->n, t->eps, stat);
    int64_t j = 0;
    for (; j + VL <= t->n; j += VL)
        write_columns(f, rows, i, j, VL);
    if (j < t->n)
        write_columns(f, rows, i, j, t->n - j);
}

void kernel_layernorm(const struct kernel_layernorm *t, const float *moments, const T *x,
                      const T *gamma, const T *beta, T *y, float *stat) {
    const struct forward f = {*t, moments, x, gamma, beta, y, stat};
    KERNEL_SPLIT(t->rows, NORM_ROWS, t->rows * t->n,
                 NORM_BLOCKS(NORM_ROWS, first, end, forward_block(f, count, row)));
}

/* ---- backward ---------------------------------------------------------------------------
 * With g = dy * gamma: dx = rstd (g - mean(g) - xhat mean(g xhat)). */

/* sums = (sum g, sum g xhat) of one row. */
VEC void row_bwd_sums(int64_t n, float offset, const T *x, const T *gamma,
                      const float *stat, const T *dy, float *sums) {
    const vf mean = v_set(stat[0]);
    vf a = v_set(0), b = a, c = a, d = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        vf g = v_load(dy + j) * (v_load(gamma + j) + offset);
        vf h = v_load(dy + j + VL) * (v_load(gamma + j + VL) + offset);
        a += g;
        b += h;
        c = v_fma(g, v_load(x + j) - mean, c);
        d = v_fma(h, v_load(x + j + VL) - mean, d);
    }
    for (; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        vf g = v_load_n(dy + j, lanes) * (v_load_n(gamma + j, lanes) + offset);
        a += g;
        c = v_fma(g, v_load_n(x + j, lanes) - mean, c);
    }
    sums[0] = v_sum(a + b);
    sums[1] = v_sum(c + d) * stat[1];
}

void kernel_layernorm_bwd_sums(const struct kernel_layernorm *t, const T *x, const T *gamma,
                               const float *stat, const T *dy, float *sums) {
    const int64_t n = t->n;
    KERNEL_SPLIT(t->rows, 1, t->rows * n, {
        for (int64_t i = first; i < end; i++)
            row_bwd_sums(n, t->offset, x + i * n, gamma, stat + 2 * i, dy + i * n,
                         sums + 2 * i);
    });
}

struct bwd {
    int64_t n;
    float share; /* 1 / (length of the whole row) */
    float offset;
    const T *x, *gamma, *dy;
    const float *stat;
    const float *sums; /* NULL: rows are whole, work them out here */
    T *dx;
};

/* Some rows: their operands, and what they add to the gradients of gamma and beta. */
struct bwd_rows {
    int n;
    const T *x, *dy;
    const float *stat, *sums;
    T *dx;
    float *dgamma, *dbeta;
};

enum { BWD_ROWS = 4 };

/* Columns j..j+lanes-1 of `rows` rows: dx, and the sums for gamma and beta. */
VEC void bwd_columns(const struct bwd *b, const struct bwd_rows *s, int64_t j,
                     int64_t lanes) {
    const vf gam = v_load_n(b->gamma + j, lanes) + b->offset;
    vf dg = v_load_n(s->dgamma + j, lanes);
    vf db = s->dbeta ? v_load_n(s->dbeta + j, lanes) : v_set(0);
    for (int r = 0; r < s->n; r++) {
        const int64_t at = r * b->n + j;
        const float mean = s->stat[2 * r], rstd = s->stat[2 * r + 1];
        vf xhat = (v_load_n(s->x + at, lanes) - mean) * rstd;
        vf d = v_load_n(s->dy + at, lanes);
        vf out = v_fma(d, gam, v_set(-b->share * s->sums[2 * r]));
        out = v_fma(xhat, v_set(-b->share * s->sums[2 * r + 1]), out) * rstd;
        dg = v_fma(d, xhat, dg);
        db += d;
        v_store_n(s->dx + at, lanes, out);
    }
    v_store_n(s->dgamma + j, lanes, dg);
    if (s->dbeta)
        v_store_n(s->dbeta + j, lanes, db);
}

/* Of rows i..i+rows-1. */
VEC void bwd_some(struct bwd copy, int rows, int64_t i, float *dgamma, float *dbeta) {
    const struct bwd *b = &copy;
    const int64_t n = b->n;
    float own[2 * BWD_ROWS];
    const struct bwd_rows s = {rows,
                               b->x + i * n,
                               b->dy + i * n,
                               b->stat + 2 * i,
                               b->sums ? b->sums + 2 * i : own,
                               b->dx + i * n,
                               dgamma,
                               dbeta};
    for (int r = 0; r < rows && !b->sums; r++)
        row_bwd_sums(n, b->offset, s.x + r * n, b->gamma, s.stat + 2 * r, s.dy + r * n,
                     own + 2 * r);
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        bwd_columns(b, &s, j, VL);
    if (j < n)
        bwd_columns(b, &s, j, n - j);
}

static void bwd_share(const void *arg, int64_t first, int64_t end, float *dgamma,
                      float *dbeta) {
    NORM_BLOCKS(BWD_ROWS, first, end,
                bwd_some(*(const struct bwd *)arg, count, row, dgamma, dbeta));
}

void kernel_layernorm_bwd(const struct kernel_layernorm *t, const float *sums, const T *x,
                          const T *gamma, const float *stat, const T *dy, T *dx,
                          float *const params[2]) {
    const float share = 1.0f / (float)t->total;
    const struct bwd b = {t->n, share, t->offset, x, gamma, dy, stat, sums, dx};
    norm_gradients(t->rows, t->n, BWD_ROWS, bwd_share, &b, params[0], params[1]);
}
