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

/* Columns j..j+lanes-1 of `rows` rows. */
VEC void write_columns(int rows, int64_t n, int64_t j, int64_t lanes, const T *x,
                       const T *gamma, const T *beta, const float *stat, T *y) {
    const vf gam = v_load_n(gamma + j, lanes), bet = v_load_n(beta + j, lanes);
    for (int r = 0; r < rows; r++) {
        vf xhat = (v_load_n(x + r * n + j, lanes) - stat[2 * r]) * stat[2 * r + 1];
        v_store_n(y + r * n + j, lanes, v_fma(xhat, gam, bet));
    }
}

VEC void write_block(int rows, int64_t n, const T *x, const T *gamma, const T *beta,
                     const float *stat, T *y) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        write_columns(rows, n, j, VL, x, gamma, beta, stat, y);
    if (j < n)
        write_columns(rows, n, j, n - j, x, gamma, beta, stat, y);
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
static void combine_moments(int64_t rows, int64_t n, int64_t parts, const float *moments,
                            float eps, int64_t i, float *stat) {
    double mean = 0, squares = 0;
    for (int64_t p = 0; p < parts; p++)
        mean += moments[2 * (p * rows + i)];
    mean /= (double)parts;
    for (int64_t p = 0; p < parts; p++) {
        double apart = moments[2 * (p * rows + i)] - mean;
        squares += moments[2 * (p * rows + i) + 1] + (double)n * apart * apart;
    }
    stat[0] = (float)mean;
    stat[1] = (float)(1.0 / sqrt(squares / (double)(n * parts) + eps));
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
    int64_t rows, n, parts;
    const float *moments; /* NULL: rows are whole, work them out here */
    const T *x, *gamma, *beta;
    float eps;
    T *y;
    float *stat;
};

VEC void forward_block(const struct forward *f, int rows, int64_t i) {
    const T *x = f->x + i * f->n;
    float *stat = f->stat + 2 * i;
    if (f->moments)
        for (int r = 0; r < rows; r++)
            combine_moments(f->rows, f->n, f->parts, f->moments, f->eps, i + r,
                            stat + 2 * r);
    else
        own_moments(rows, f->n, x, f->eps, stat);
    write_block(rows, f->n, x, f->gamma, f->beta, stat, f->y + i * f->n);
}

void kernel_layernorm(int64_t rows, int64_t n, int64_t parts, const float *moments,
                      const T *x, const T *gamma, const T *beta, float eps, T *y,
                      float *stat) {
    const struct forward f = {rows, n, parts, moments, x, gamma, beta, eps, y, stat};
    KERNEL_SPLIT(rows, NORM_ROWS, rows * n,
                 NORM_BLOCKS(NORM_ROWS, first, end, forward_block(&f, count, row)));
}

/* ---- backward ---------------------------------------------------------------------------
 * With g = dy * gamma: dx = rstd (g - mean(g) - xhat mean(g xhat)). */

/* sums = (sum g, sum g xhat) of one row. */
VEC void row_bwd_sums(int64_t n, const T *x, const T *gamma, const float *stat, const T *dy,
                      float *sums) {
    const vf mean = v_set(stat[0]);
    vf a = v_set(0), b = a, c = a, d = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        vf g = v_load(dy + j) * v_load(gamma + j);
        vf h = v_load(dy + j + VL) * v_load(gamma + j + VL);
        a += g;
        b += h;
        c = v_fma(g, v_load(x + j) - mean, c);
        d = v_fma(h, v_load(x + j + VL) - mean, d);
    }
    for (; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        vf g = v_load_n(dy + j, lanes) * v_load_n(gamma + j, lanes);
        a += g;
        c = v_fma(g, v_load_n(x + j, lanes) - mean, c);
    }
    sums[0] = v_sum(a + b);
    sums[1] = v_sum(c + d) * stat[1];
}

void kernel_layernorm_bwd_sums(int64_t rows, int64_t n, const T *x, const T *gamma,
                               const float *stat, const T *dy, float *sums) {
    KERNEL_SPLIT(rows, 1, rows * n, {
        for (int64_t i = first; i < end; i++)
            row_bwd_sums(n, x + i * n, gamma, stat + 2 * i, dy + i * n, sums + 2 * i);
    });
}

/* Columns j..j+lanes-1 of `rows` rows: dx, and the sums for gamma and beta. */
VEC void bwd_columns(int rows, int64_t n, int64_t j, int64_t lanes, const float *sums,
                     float share, const T *x, const T *gamma, const float *stat,
                     const T *dy, T *dx, float *dgamma, float *dbeta) {
    const vf gam = v_load_n(gamma + j, lanes);
    vf dg = v_load_n(dgamma + j, lanes), db = v_load_n(dbeta + j, lanes);
    for (int r = 0; r < rows; r++) {
        const float mean = stat[2 * r], rstd = stat[2 * r + 1];
        vf xhat = (v_load_n(x + r * n + j, lanes) - mean) * rstd;
        vf d = v_load_n(dy + r * n + j, lanes);
        vf out = v_fma(d, gam, v_set(-share * sums[2 * r]));
        out = v_fma(xhat, v_set(-share * sums[2 * r + 1]), out) * rstd;
        dg = v_fma(d, xhat, dg);
        db += d;
        v_store_n(dx + r * n + j, lanes, out);
    }
    v_store_n(dgamma + j, lanes, dg);
    v_store_n(dbeta + j, lanes, db);
}

/* share = 1 / (length of the whole row). */
VEC void bwd_block(int rows, int64_t n, const float *sums, float share, const T *x,
                   const T *gamma, const float *stat, const T *dy, T *dx, float *dgamma,
                   float *dbeta) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        bwd_columns(rows, n, j, VL, sums, share, x, gamma, stat, dy, dx, dgamma, dbeta);
    if (j < n)
        bwd_columns(rows, n, j, n - j, sums, share, x, gamma, stat, dy, dx, dgamma, dbeta);
}

struct bwd {
    int64_t n;
    float share;
    const T *x, *gamma, *dy;
    const float *stat;
    const float *sums; /* NULL: rows are whole, work them out here */
    T *dx;
};

enum { BWD_ROWS = 4 };

/* Of rows i..i+rows-1. */
VEC void bwd_some(const struct bwd *b, int rows, int64_t i, float *dgamma, float *dbeta) {
    const int64_t n = b->n;
    const T *x = b->x + i * n, *dy = b->dy + i * n;
    const float *stat = b->stat + 2 * i;
    float own[2 * BWD_ROWS];
    const float *sums = b->sums ? b->sums + 2 * i : own;
    for (int r = 0; r < rows && !b->sums; r++)
        row_bwd_sums(n, x + r * n, b->gamma, stat + 2 * r, dy + r * n, own + 2 * r);
    bwd_block(rows, n, sums, b->share, x, b->gamma, stat, dy, b->dx + i * n, dgamma, dbeta);
}

static void bwd_rows(const void *arg, int64_t first, int64_t end, float *dgamma,
                     float *dbeta) {
    NORM_BLOCKS(BWD_ROWS, first, end, bwd_some(arg, count, row, dgamma, dbeta));
}

void kernel_layernorm_bwd(int64_t rows, int64_t n, int64_t total, const float *sums,
                          const T *x, const T *gamma, const float *stat, const T *dy, T *dx,
                          float *dgamma, float *dbeta) {
    const struct bwd b = {n, 1.0f / (float)total, x, gamma, dy, stat, sums, dx};
    norm_gradients(rows, n, BWD_ROWS, bwd_rows, &b, dgamma, dbeta);
}
