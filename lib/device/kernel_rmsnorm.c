/* RMS norm over the last dimension, whole or split over ranks: y = gamma x r, r = 1/rms(x).
 *
 * With g = dy gamma: dx = r g - x r^3 / n sum(x g), dgamma += dy x r. A thread keeps its own sums
 * for gamma in its scratch; they are added in the order of the threads. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <math.h>
#include <string.h>

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
VEC float row_products(int64_t n, const T *x, const T *gamma, const T *dy) {
    vf a = v_set(0);
    for (int64_t j = 0; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        a = v_fma(v_load_n(x + j, lanes) * v_load_n(gamma + j, lanes),
                  v_load_n(dy + j, lanes), a);
    }
    return v_sum(a);
}

static void write_row(int64_t n, const T *x, const T *gamma, float r, T *y) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        v_store(y + j, v_load(x + j) * v_load(gamma + j) * r);
    if (j < n)
        v_store_n(y + j, n - j, v_load_n(x + j, n - j) * v_load_n(gamma + j, n - j) * r);
}

/* Rows first..end-1; squares: their sums over all `total` columns, or NULL to take them here. */
static void forward_rows(int64_t first, int64_t end, int64_t n, int64_t total, const T *x,
                         const T *gamma, const float *squares, float eps, T *y,
                         float *stat) {
    for (int64_t i = first; i < end; i++) {
        float sum = squares ? squares[i] : row_squares(n, x + i * n);
        stat[i] = 1.0f / sqrtf(sum / (float)total + eps);
        write_row(n, x + i * n, gamma, stat[i], y + i * n);
    }
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
    KERNEL_SPLIT(n->rows, 1, n->rows * n->n,
                 forward_rows(first, end, n->n, n->total, in->x, in->gamma, in->squares,
                              a->eps, out->y, out->stat));
}

/* ---- backward ----------------------------------------------------------------------------- */

struct bwd {
    int64_t n, total;
    const T *x, *gamma, *dy;
    const float *stat;
    const float *sums; /* of x gamma dy, or NULL: rows are whole, take them here */
    T *dx;
};

/* Columns j..j+lanes-1 of a row. */
VEC void bwd_columns(int64_t j, int64_t lanes, float r, float c, const T *x, const T *gamma,
                     const T *dy, T *dx, float *dgamma) {
    vf d = v_load_n(dy + j, lanes), u = v_load_n(x + j, lanes);
    v_store_n(dgamma + j, lanes, v_fma(d * r, u, v_load_n(dgamma + j, lanes)));
    v_store_n(dx + j, lanes, v_fma(u, v_set(-c), d * v_load_n(gamma + j, lanes) * r));
}

static void bwd_rows(const struct bwd *b, int64_t first, int64_t end, float *dgamma) {
    const int64_t n = b->n;
    for (int64_t i = first; i < end; i++) {
        const T *x = b->x + i * n, *dy = b->dy + i * n;
        float sum = b->sums ? b->sums[i] : row_products(n, x, b->gamma, dy);
        float r = b->stat[i], c = r * r * r / (float)b->total * sum;
        int64_t j = 0;
        for (; j + VL <= n; j += VL)
            bwd_columns(j, VL, r, c, x, b->gamma, dy, b->dx + i * n, dgamma);
        if (j < n)
            bwd_columns(j, n - j, r, c, x, b->gamma, dy, b->dx + i * n, dgamma);
    }
}

/* Each thread adds into its scratch; rows too long for that take one thread. */
static void bwd_split(const struct bwd *b, int64_t rows, float *dgamma) {
    const int64_t n = b->n;
    const bool fits = n * (int64_t)sizeof(float) <= KERNEL_SCRATCH_BYTES;
    const int share = fits ? kernel_share(rows * n) : 1;
    if (share == 1) {
        bwd_rows(b, 0, rows, dgamma);
        return;
    }
#pragma omp parallel num_threads(share)
    {
        const int thread = omp_get_thread_num(), parts = omp_get_num_threads();
        float *own = kernel_scratch(thread);
        memset(own, 0, (size_t)n * sizeof *own);
        bwd_rows(b, kernel_cut(rows, 1, thread, parts),
                 kernel_cut(rows, 1, thread + 1, parts), own);
    }
    for (int t = 0; t < share; t++)
        for (int64_t j = 0; j < n; j++)
            dgamma[j] += kernel_scratch(t)[j];
}

CPU_FUNCTION(rmsnorm_bwd_sums) {
    const T *x = in->x, *dy = in->dy;
    float *sums = out->sums;
    (void)a;
    KERNEL_SPLIT(n->rows, 1, n->rows * n->n, {
        for (int64_t i = first; i < end; i++)
            sums[i] = row_products(n->n, x + i * n->n, in->gamma, dy + i * n->n);
    });
}

CPU_FUNCTION(rmsnorm_bwd) {
    const struct bwd b = {n->n,   n->total, in->x,    in->gamma,
                          in->dy, in->stat, in->sums, out->dx};
    (void)a;
    bwd_split(&b, n->rows, out->dgamma);
}
