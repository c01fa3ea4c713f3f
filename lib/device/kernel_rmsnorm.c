/* RMS norm over the last dimension, whole or split over ranks: y = gamma x r, r = 1/rms(x). What is
 * called gamma here is the weight and, where that begins at 0, the offset 1.
 *
 * With g = dy gamma: dx = r g - x r^3 / n sum(x g), dgamma += dy x r. */
#include "device/cpu.h"
#include "kernel_norm.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <math.h>

VEC float row_squares(int64_t n, const T *x) {
    vf a = v_set(0), b = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        vf u = v_load(x + j), v = v_load(x + j + VL);
        a = v_fma(u, u, a);
        b = v_fma(v, v, b);
    }
    for (; j < n; j += VL) {
        vf u = v_load_n(x + j, n - j < VL ? n - j : VL);
        a = v_fma(u, u, a);
    }
    return v_sum(a + b);
}

/* Sum of x gamma dy. */
VEC float row_products(int64_t n, const T *x, const T *gamma, vf offset, const T *dy) {
    vf a = v_set(0), b = a;
    int64_t j = 0;
    for (; j + 2 * VL <= n; j += 2 * VL) {
        a = v_fma(v_load(x + j) * (v_load(gamma + j) + offset), v_load(dy + j), a);
        b = v_fma(v_load(x + j + VL) * (v_load(gamma + j + VL) + offset),
                  v_load(dy + j + VL), b);
    }
    for (; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        a = v_fma(v_load_n(x + j, lanes) * (v_load_n(gamma + j, lanes) + offset),
                  v_load_n(dy + j, lanes), a);
    }
    return v_sum(a + b);
}

/* Columns j..j+lanes-1 of `rows` rows. */
VEC void write_columns(int rows, int64_t n, int64_t j, int64_t lanes, const T *x, vf gam,
                       const float *stat, T *y) {
    for (int r = 0; r < rows; r++)
        v_store_n(y + r * n + j, lanes, v_load_n(x + r * n + j, lanes) * gam * stat[r]);
}

struct forward {
    int64_t n, total;
    const T *x, *gamma;
    const float *squares; /* sums over all `total` columns, or NULL: take them here */
    float eps, offset;
    T *y;
    float *stat;
};

VEC vf gamma_of(const struct forward *f, int64_t j, int64_t lanes) {
    return v_load_n(f->gamma + j, lanes) + f->offset;
}

VEC void forward_block(const struct forward *f, int rows, int64_t i) {
    const int64_t n = f->n;
    const T *x = f->x + i * n;
    float *stat = f->stat + i;
    int64_t j = 0;
    for (int r = 0; r < rows; r++) {
        float sum = f->squares ? f->squares[i + r] : row_squares(n, x + r * n);
        stat[r] = 1.0f / sqrtf(sum / (float)f->total + f->eps);
    }
    for (; j + VL <= n; j += VL)
        write_columns(rows, n, j, VL, x, gamma_of(f, j, VL), stat, f->y + i * n);
    if (j < n)
        write_columns(rows, n, j, n - j, x, gamma_of(f, j, n - j), stat, f->y + i * n);
}

CPU_FUNCTION(rmsnorm_squares) {
    const T *x = in->x;
    float *squares = out->squares;
    (void)a;
    KERNEL_SPLIT(n->rows, 1, n->rows * n->n, {
        for (int64_t i = first; i < end; i++)
            squares[i] = row_squares(n->n, x + i * n->n);
    });
}

CPU_FUNCTION(rmsnorm) {
    const struct forward f = {n->n,   n->total,  in->x,  in->gamma, in->squares,
                              a->eps, a->offset, out->y, out->stat};
    KERNEL_SPLIT(n->rows, NORM_ROWS, n->rows * n->n,
                 NORM_BLOCKS(NORM_ROWS, first, end, forward_block(&f, count, row)));
}

/* ---- backward ----------------------------------------------------------------------------- */

struct bwd {
    int64_t n, total;
    const T *x, *gamma, *dy;
    const float *stat;
    const float *sums; /* of x gamma dy, or NULL: rows are whole, take them here */
    float offset;
    T *dx;
};

/* Columns j..j+lanes-1 of `rows` rows; c[r] = r^3 / n sum(x g). */
VEC void bwd_columns(const struct bwd *b, int rows, int64_t i, int64_t j, int64_t lanes,
                     const float *c, float *dgamma) {
    const T *x = b->x + i * b->n + j, *dy = b->dy + i * b->n + j;
    const vf gam = v_load_n(b->gamma + j, lanes) + b->offset;
    vf dg = v_load_n(dgamma + j, lanes);
    for (int r = 0; r < rows; r++) {
        const float inverse = b->stat[i + r];
        vf d = v_load_n(dy + r * b->n, lanes), u = v_load_n(x + r * b->n, lanes);
        dg = v_fma(d * inverse, u, dg);
        v_store_n(b->dx + (i + r) * b->n + j, lanes,
                  v_fma(u, v_set(-c[r]), d * gam * inverse));
    }
    v_store_n(dgamma + j, lanes, dg);
}

VEC void bwd_block(const struct bwd *b, int rows, int64_t i, float *dgamma) {
    const int64_t n = b->n;
    float c[NORM_ROWS];
    for (int r = 0; r < rows; r++) {
        const int64_t at = (i + r) * n;
        float sum =
            b->sums ? b->sums[i + r]
                    : row_products(n, b->x + at, b->gamma, v_set(b->offset), b->dy + at);
        float inverse = b->stat[i + r];
        c[r] = inverse * inverse * inverse / (float)b->total * sum;
    }
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        bwd_columns(b, rows, i, j, VL, c, dgamma);
    if (j < n)
        bwd_columns(b, rows, i, j, n - j, c, dgamma);
}

static void bwd_rows(const void *arg, int64_t first, int64_t end, float *dgamma,
                     float *no_beta) {
    (void)no_beta;
    NORM_BLOCKS(NORM_ROWS, first, end, bwd_block(arg, count, row, dgamma));
}

CPU_FUNCTION(rmsnorm_bwd_sums) {
    const T *x = in->x, *dy = in->dy;
    float *sums = out->sums;
    KERNEL_SPLIT(n->rows, 1, n->rows * n->n, {
        for (int64_t i = first; i < end; i++)
            sums[i] = row_products(n->n, x + i * n->n, in->gamma, v_set(a->offset),
                                   dy + i * n->n);
    });
}

CPU_FUNCTION(rmsnorm_bwd) {
    const struct bwd b = {n->n,     n->total, in->x,     in->gamma, in->dy,
                          in->stat, in->sums, a->offset, out->dx};
    if (a->fresh)
        memset(out->dgamma, 0, (size_t)n->n * sizeof(float));
    norm_gradients(n->rows, n->n, 1, bwd_rows, &b, out->dgamma, NULL);
}
