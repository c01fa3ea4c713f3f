/* Batch norm of [samples, places, channels] over groups of samples.
 *
 * Threads take channels of their own, so that no sum depends on how many there are. Rows
 * are taken in blocks that stay in the caches: sums of a block are floats, sums of blocks
 * doubles, and squared deviations are combined as Chan, Golub and LeVeque (1979) do, in
 * one pass over memory. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <math.h>
#include <string.h>

enum {
    UNIT = 16,  /* channels: what threads are given multiples of */
    TILE = 64,  /* channels whose sums stand in registers */
    BLOCK = 64, /* rows */
    WIDE = 8192 /* channels whose sums stand in the scratch at a time */
};

/* The rows of a group that are here. */
struct rows {
    int64_t first, n;
};
static struct rows rows_of(const struct kernel_batchnorm *t, int64_t group) {
    int64_t from = group * t->group - t->first, to = from + t->group;
    from = from > 0 ? from : 0;
    to = to < t->samples ? to : t->samples;
    return (struct rows){from * t->places, to > from ? (to - from) * t->places : 0};
}

static int64_t volume(const struct kernel_batchnorm *t) {
    return t->samples * t->places * t->c;
}

/* Runs the call for `wide` channels from `at` on, thread by thread, and pieces that fit
 * the scratch. */
#define FOR_CHANNELS(t, work, call)                                                        \
    KERNEL_SPLIT((t)->c, UNIT, work, {                                                     \
        for (int64_t at = first; at < end; at += WIDE) {                                   \
            const int64_t wide = end - at < WIDE ? end - at : WIDE;                        \
            call;                                                                          \
        }                                                                                  \
    })

/* Runs it for tiles of n channels from j on; n is constant where the tile is full. */
#define FOR_TILES(wide, call)                                                              \
    do {                                                                                   \
        int64_t j = 0;                                                                     \
        for (; j + TILE <= (wide); j += TILE) {                                            \
            const int n = TILE;                                                            \
            call;                                                                          \
        }                                                                                  \
        if (j < (wide)) {                                                                  \
            const int n = (int)((wide)-j);                                                 \
            call;                                                                          \
        }                                                                                  \
    } while (0)

#define TILED static inline __attribute__((always_inline))

/* ---- moments ----------------------------------------------------------------------- */

/* Joins the sums and squared deviations of a block of rows to those of the `before` ones. */
TILED void tile_moments(int n, int64_t rows, int64_t c, const T *x, int64_t before,
                        double *sum, double *square) {
    float s[TILE] = {0}, q[TILE] = {0}, mean[TILE];
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < n; k++)
            s[k] += get(x + i * c + k);
    for (int k = 0; k < n; k++)
        mean[k] = s[k] / (float)rows;
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < n; k++)
            q[k] += (get(x + i * c + k) - mean[k]) * (get(x + i * c + k) - mean[k]);
    /* The deviations are from `mean`, which is s / rows but for rounding. */
    for (int k = 0; k < n; k++) {
        double apart = before ? sum[k] / (double)before - s[k] / (double)rows : 0;
        double weight = (double)before * (double)rows / (double)(before + rows);
        square[k] += q[k] + apart * apart * weight;
        sum[k] += s[k];
    }
}

static void moments(const struct kernel_batchnorm *t, int64_t at, int64_t wide, const T *x,
                    double *scratch, float *sums, float *squares) {
    double *sum = scratch, *square = scratch + wide;
    for (int64_t g = 0; g < t->groups; g++) {
        struct rows r = rows_of(t, g);
        memset(sum, 0, sizeof *sum * (size_t)(2 * wide));
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            const int64_t rows = r.n - i < BLOCK ? r.n - i : BLOCK;
            const T *from = x + (r.first + i) * t->c + at;
            FOR_TILES(wide, tile_moments(n, rows, t->c, from + j, i, sum + j, square + j));
        }
        for (int64_t j = 0; j < wide; j++) {
            sums[g * t->c + at + j] = (float)sum[j];
            squares[g * t->c + at + j] = (float)square[j];
        }
    }
}

void kernel_batchnorm_moments(const struct kernel_batchnorm *t, const T *x, float *sums,
                              float *squares) {
    FOR_CHANNELS(t, volume(t),
                 moments(t, at, wide, x, (double *)kernel_scratch(thread), sums, squares));
}

void kernel_batchnorm_center(const struct kernel_batchnorm *t, int64_t total,
                             const float *sums, const float *all, const float *squares,
                             float *centered) {
    for (int64_t g = 0; g < t->groups; g++) {
        double here = (double)rows_of(t, g).n;
        for (int64_t k = g * t->c; k < (g + 1) * t->c; k++) {
            double apart = here > 0 ? sums[k] / here - all[k] / (double)total : 0;
            centered[k] = (float)(squares[k] + here * apart * apart);
        }
    }
}

void kernel_batchnorm_stat(int64_t c, int64_t groups, int64_t total, const float *sums,
                           const float *squares, float *stat) {
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < c; k++) {
            stat[2 * g * c + k] = sums[g * c + k] / (float)total;
            stat[(2 * g + 1) * c + k] = squares[g * c + k] / (float)total;
        }
}

/* The estimate of the variance of all data has one degree of freedom less, as PyTorch's. */
void kernel_batchnorm_running(int64_t c, int64_t groups, int64_t total, float scale,
                              const float *stat, float *dmean, float *dvariance) {
    float unbiased = total > 1 ? (float)total / (float)(total - 1) : 1;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < c; k++) {
            dmean[k] += scale * stat[2 * g * c + k];
            dvariance[k] += scale * unbiased * stat[(2 * g + 1) * c + k];
        }
}

void kernel_running(int64_t n, float momentum, const float *s, float *p) {
    KERNEL_SPLIT(n, 16, n, {
        for (int64_t i = first; i < end; i++)
            p[i] += momentum * (s[i] - p[i]);
    });
}

/* ---- the rows themselves ----------------------------------------------------------- */

static void norm(const struct kernel_batchnorm *t, int64_t at, int64_t wide, float *scale,
                 const T *x, const T *gamma, const T *beta, const float *stat, float eps,
                 T *y) {
    for (int64_t g = 0; g < t->groups; g++) {
        const struct rows r = rows_of(t, g);
        const float *mean = stat + 2 * g * t->c + at, *variance = mean + t->c;
        for (int64_t k = 0; k < wide; k++)
            scale[k] = get(gamma + at + k) / sqrtf(variance[k] + eps);
        for (int64_t i = r.first; i < r.first + r.n; i++)
            for (int64_t k = 0; k < wide; k++)
                put(y + i * t->c + at + k,
                    (get(x + i * t->c + at + k) - mean[k]) * scale[k] + get(beta + at + k));
    }
}

void kernel_batchnorm(const struct kernel_batchnorm *t, const T *x, const T *gamma,
                      const T *beta, const float *stat, float eps, T *y) {
    FOR_CHANNELS(t, volume(t),
                 norm(t, at, wide, kernel_scratch(thread), x, gamma, beta, stat, eps, y));
}

/* ---- backward
 * ----------------------------------------------------------------------------- With g =
 * dy gamma and xhat = (x - mean) / std: dx = (g - mean(g) - xhat mean(g xhat)) / std. */

/* sum += dy, product += dy (x - mean) */
TILED void tile_sums(int n, int64_t rows, int64_t c, const T *x, const float *mean,
                     const T *dy, double *sum, double *product) {
    float s[TILE] = {0}, p[TILE] = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < n; k++) {
            s[k] += get(dy + i * c + k);
            p[k] += get(dy + i * c + k) * (get(x + i * c + k) - mean[k]);
        }
    for (int k = 0; k < n; k++) {
        sum[k] += s[k];
        product[k] += p[k];
    }
}

static void bwd_sums(const struct kernel_batchnorm *t, int64_t at, int64_t wide,
                     double *scratch, const T *x, const float *stat, float eps, const T *dy,
                     float *sums, float *dgamma, float *dbeta) {
    const int64_t c = t->c;
    double *sum = scratch, *product = scratch + wide;
    for (int64_t g = 0; g < t->groups; g++) {
        const struct rows r = rows_of(t, g);
        const float *mean = stat + 2 * g * c + at, *variance = mean + c;
        memset(sum, 0, sizeof *sum * (size_t)(2 * wide));
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            const int64_t rows = r.n - i < BLOCK ? r.n - i : BLOCK;
            const int64_t from = (r.first + i) * c + at;
            FOR_TILES(wide, tile_sums(n, rows, c, x + from + j, mean + j, dy + from + j,
                                      sum + j, product + j));
        }
        for (int64_t k = 0; k < wide; k++) {
            float all = (float)sum[k], along = (float)product[k] / sqrtf(variance[k] + eps);
            sums[2 * g * c + at + k] = all;
            sums[(2 * g + 1) * c + at + k] = along;
            dbeta[at + k] += all;
            dgamma[at + k] += along;
        }
    }
}

void kernel_batchnorm_bwd_sums(const struct kernel_batchnorm *t, const T *x,
                               const float *stat, float eps, const T *dy, float *sums,
                               float *dgamma, float *dbeta) {
    FOR_CHANNELS(t, volume(t),
                 bwd_sums(t, at, wide, (double *)kernel_scratch(thread), x, stat, eps, dy,
                          sums, dgamma, dbeta));
}

/* share[0] = gamma / std; [1] = mean of dy; [2] = what (x - mean) is multiplied with. */
static void bwd(const struct kernel_batchnorm *t, int64_t at, int64_t wide, float *share,
                int64_t total, const T *x, const T *gamma, const float *stat, const T *dy,
                const float *sums, float eps, T *dx) {
    const int64_t c = t->c;
    float *scale = share, *middle = share + wide, *slope = share + 2 * wide;
    for (int64_t g = 0; g < t->groups; g++) {
        const struct rows r = rows_of(t, g);
        const float *mean = stat + 2 * g * c + at, *variance = mean + c;
        const float *sum = sums + 2 * g * c + at, *along = sum + c;
        for (int64_t k = 0; k < wide; k++) {
            float rstd = 1 / sqrtf(variance[k] + eps);
            scale[k] = get(gamma + at + k) * rstd;
            middle[k] = sum[k] / (float)total;
            slope[k] = along[k] / (float)total * rstd;
        }
        for (int64_t i = r.first; i < r.first + r.n; i++) {
            const int64_t row = i * c + at;
            for (int64_t k = 0; k < wide; k++)
                put(dx + row + k, (get(dy + row + k) - middle[k] -
                                   (get(x + row + k) - mean[k]) * slope[k]) *
                                      scale[k]);
        }
    }
}

void kernel_batchnorm_bwd(const struct kernel_batchnorm *t, int64_t total, const T *x,
                          const T *gamma, const float *stat, float eps, const T *dy,
                          const float *sums, T *dx) {
    FOR_CHANNELS(
        t, volume(t),
        bwd(t, at, wide, kernel_scratch(thread), total, x, gamma, stat, dy, sums, eps, dx));
}
