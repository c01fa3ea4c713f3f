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

struct forward {
    struct kernel_batchnorm t;
    const T *x, *gamma, *beta;
    const float *stat;
    T *y;
};

/* Channels at..at+wide-1. */
static void norm(const struct forward *f, int64_t at, int64_t wide, float *scale) {
    const int64_t c = f->t.c;
    const T *gamma = f->gamma + at, *beta = f->beta + at;
    for (int64_t g = 0; g < f->t.groups; g++) {
        const struct rows r = rows_of(&f->t, g);
        const float *mean = f->stat + 2 * g * c + at, *variance = mean + c;
        for (int64_t k = 0; k < wide; k++)
            scale[k] = get(gamma + k) / sqrtf(variance[k] + f->t.eps);
        for (int64_t i = r.first; i < r.first + r.n; i++) {
            const T *x = f->x + i * c + at;
            T *y = f->y + i * c + at;
            for (int64_t k = 0; k < wide; k++)
                put(y + k, (get(x + k) - mean[k]) * scale[k] + get(beta + k));
        }
    }
}

void kernel_batchnorm(const struct kernel_batchnorm *t, const T *x, const T *gamma,
                      const T *beta, const float *stat, T *y) {
    const struct forward f = {*t, x, gamma, beta, stat, y};
    FOR_CHANNELS(t, volume(t), norm(&f, at, wide, kernel_scratch(thread)));
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

struct sums {
    struct kernel_batchnorm t;
    const T *x, *dy;
    const float *stat;
    float *sums, *dgamma, *dbeta;
};

/* Channels at..at+wide-1: sums, dgamma and dbeta. */
static void bwd_sums(const struct sums *b, int64_t at, int64_t wide, double *scratch) {
    const int64_t c = b->t.c;
    double *sum = scratch, *product = scratch + wide;
    for (int64_t g = 0; g < b->t.groups; g++) {
        const struct rows r = rows_of(&b->t, g);
        const float *mean = b->stat + 2 * g * c + at, *variance = mean + c;
        float *sums = b->sums + 2 * g * c + at;
        memset(sum, 0, sizeof *sum * (size_t)(2 * wide));
        for (int64_t i = 0; i < r.n; i += BLOCK) {
            const int64_t rows = r.n - i < BLOCK ? r.n - i : BLOCK;
            const int64_t from = (r.first + i) * c + at;
            FOR_TILES(wide, tile_sums(n, rows, c, b->x + from + j, mean + j,
                                      b->dy + from + j, sum + j, product + j));
        }
        for (int64_t k = 0; k < wide; k++) {
            sums[k] = (float)sum[k];
            sums[c + k] = (float)product[k] / sqrtf(variance[k] + b->t.eps);
            b->dbeta[at + k] += sums[k];
            b->dgamma[at + k] += sums[c + k];
        }
    }
}

void kernel_batchnorm_bwd_sums(const struct kernel_batchnorm *t, const T *x,
                               const float *stat, const T *dy, float *sums, float *dgamma,
                               float *dbeta) {
    const struct sums b = {*t, x, dy, stat, sums, dgamma, dbeta};
    FOR_CHANNELS(t, volume(t), bwd_sums(&b, at, wide, (double *)kernel_scratch(thread)));
}

struct bwd {
    struct kernel_batchnorm t;
    int64_t total;
    const T *x, *gamma, *dy;
    const float *stat, *sums;
    T *dx;
};

/* Channels at..at+wide-1: dx. share[0] = gamma / std; [1] = mean of dy; [2] = what (x - mean) is
 * multiplied with. */
static void bwd(const struct bwd *b, int64_t at, int64_t wide, float *share) {
    const int64_t c = b->t.c;
    float *scale = share, *middle = share + wide, *slope = share + 2 * wide;
    for (int64_t g = 0; g < b->t.groups; g++) {
        const struct rows r = rows_of(&b->t, g);
        const float *mean = b->stat + 2 * g * c + at, *variance = mean + c;
        const float *sum = b->sums + 2 * g * c + at, *along = sum + c;
        for (int64_t k = 0; k < wide; k++) {
            float rstd = 1 / sqrtf(variance[k] + b->t.eps);
            scale[k] = get(b->gamma + at + k) * rstd;
            middle[k] = sum[k] / (float)b->total;
            slope[k] = along[k] / (float)b->total * rstd;
        }
        for (int64_t i = r.first; i < r.first + r.n; i++) {
            const T *x = b->x + i * c + at, *dy = b->dy + i * c + at;
            T *dx = b->dx + i * c + at;
            for (int64_t k = 0; k < wide; k++)
                put(dx + k, (get(dy + k) - middle[k] - (get(x + k) - mean[k]) * slope[k]) *
                                scale[k]);
        }
    }
}

void kernel_batchnorm_bwd(const struct kernel_batchnorm *t, int64_t total, const T *x,
                          const T *gamma, const float *stat, const T *dy, const float *sums,
                          T *dx) {
    const struct bwd b = {*t, total, x, gamma, dy, stat, sums, dx};
    FOR_CHANNELS(t, volume(t), bwd(&b, at, wide, kernel_scratch(thread)));
}
