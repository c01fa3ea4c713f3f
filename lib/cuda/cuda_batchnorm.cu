/* Batch norm of [samples, places, channels] over groups of samples.
 *
 * Sums go down the rows of a group in chunks (cuda_columns.h). For the squared deviations each chunk takes
 * its first row as an origin: with sums of the differences and of their squares, the deviations from
 * the chunk's own mean follow, and cancel no more than they do for numbers about zero. Chunks are
 * combined as Chan, Golub and LeVeque (1979) do. */
#include "cuda/cuda_columns.h"

#define GROUPS_OF(n, c)                                                                    \
    {                                                                                      \
        (n)->samples, (n)->places, (n)->c, (n)->groups, (n)->group, (c)->args->first,      \
            (c)->args->eps                                                                 \
    }

/* The rows of a group that are here: [first, end). */
CUDA_BOTH int64_t first_row(const struct kernel_batchnorm &t, int64_t group) {
    const int64_t from = group * t.group - t.first;
    return (from < 0 ? 0 : from < t.samples ? from : t.samples) * t.places;
}
CUDA_BOTH int64_t end_row(const struct kernel_batchnorm &t, int64_t group) {
    return first_row(t, group + 1);
}
/* The most rows that a group has here. */
static int64_t most_rows(const struct kernel_batchnorm *t) {
    return (t->group < t->samples ? t->group : t->samples) * t->places;
}

/* What is kept of the columns that a thread goes down. */
template <int L> struct kept { float v[L]; };

/* ---- moments ------------------------------------------------------------------------------ */

/* Sums of x - origin and of its square. */
template <typename T> struct moments {
    enum { COUNT = 2 };
    struct kernel_batchnorm t;
    const T *x;
    CUDA_MEMBER int64_t first(int64_t group) const {
        return first_row(t, group);
    }
    CUDA_MEMBER int64_t end(int64_t group) const {
        return end_row(t, group);
    }
    template <int L>
    CUDA_MEMBER struct kept<L> begin(int64_t, int64_t row, int64_t column) const {
        struct kept<L> origin;
        load(x + row * t.c + column, lanes_of<L>(), origin.v);
        return origin;
    } template <int L>
    CUDA_MEMBER void add(int64_t row, int64_t column, lanes_of<L> lanes,
                         const struct kept<L> &origin, float (*sum)[L]) const {
        float v[L];
        load(x + row * t.c + column, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float d = v[i] - origin.v[i];
            sum[0][i] += d;
            sum[1][i] = fmaf(d, d, sum[1][i]);
        }
    }
};

/* The sum over the rows of threads, in all of them. */
CUDA_DEVICE double sum_over_rows(double v) {
    __shared__ double shown[COLUMN_ROWS][WARP];
    double sum = 0;
    __syncthreads();
    shown[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    for (int r = 0; r < COLUMN_ROWS; r++)
        sum += shown[r][threadIdx.x];
    return sum;
}

/* A chunk's rows, their sum and their squared deviations from their mean. */
struct chunk {
    double n, sum, squares;
};
template <typename T>
CUDA_DEVICE struct chunk chunk_of(const struct moments<T> &m, int64_t group, int64_t chunk,
                                  int64_t chunks, int64_t each, int64_t column,
                                  const float *part) {
    const int64_t first = m.first(group) + chunk * each, stop = m.end(group);
    const int64_t end = first + each < stop ? first + each : stop, c = m.t.c;
    struct chunk k = {0, 0, 0};
    if (column >= c || first >= end)
        return k;
    const float *s = part + (group * chunks + chunk) * 2 * c + column;
    k.n = (double)(end - first);
    k.sum = k.n * get(m.x + first * c + column) + s[0];
    k.squares = s[c] - (double)s[0] * s[0] / k.n;
    return k;
}

/* Blocks: x columns, y groups; rows of threads share out the chunks. */
template <typename T>
CUDA_KERNEL void join_moments(struct moments<T> m, int64_t chunks, int64_t each,
                              const float *part, float *sums, float *squares) {
    const int64_t column = blockIdx.x * (int64_t)WARP + threadIdx.x, group = blockIdx.y;
    double sum = 0, square = 0;
    for (int64_t k = threadIdx.y; k < chunks; k += COLUMN_ROWS)
        sum += chunk_of(m, group, k, chunks, each, column, part).sum;
    sum = sum_over_rows(sum);
    const double n = (double)(m.end(group) - m.first(group)), mean = n > 0 ? sum / n : 0;
    for (int64_t k = threadIdx.y; k < chunks; k += COLUMN_ROWS) {
        const struct chunk q = chunk_of(m, group, k, chunks, each, column, part);
        const double apart = q.n > 0 ? q.sum / q.n - mean : 0;
        square += q.squares + q.n * apart * apart;
    }
    square = sum_over_rows(square);
    if (threadIdx.y == 0 && column < m.t.c) {
        sums[group * m.t.c + column] = (float)sum;
        squares[group * m.t.c + column] = (float)square;
    }
}

CUDA_FUNCTION(batchnorm_moments) {
    const struct kernel_batchnorm t = GROUPS_OF(n, c);
    const int64_t rows = most_rows(&t), chunks = cuda_workspace_chunks(rows, t.c, t.groups);
    if (t.c * t.groups == 0)
        return 0;
    CUDA_TYPED(c->args->dtype, T, {
        const struct moments<T> m = { t, (const T *)in->x };
        if (launch_columns<T>(c, chunks, rows, t.c, t.groups, aligned(in->x), m) < 0)
            return -1;
        CUDA_LAUNCH(join_moments<T>, dim3(blocks_of(t.c, WARP), (unsigned)t.groups),
                    dim3(WARP, COLUMN_ROWS), 0, c->stream, m, chunks,
                    column_rows(rows, chunks), (const float *)c->workspace,
                    (float *)out->sums, (float *)out->squares);
    });
    return 0;
}

/* ---- statistics: a thread takes a channel of a group ---------------------------------------- */

CUDA_KERNEL void center(struct kernel_batchnorm t, int64_t total, const float *sums,
                        const float *all, const float *squares, float *centered) {
    const int64_t i = grid_thread();
    if (i >= t.groups * t.c)
        return;
    const int64_t group = quotient(i, t.c);
    const double here = (double)(end_row(t, group) - first_row(t, group));
    const double apart = here > 0 ? sums[i] / here - all[i] / (double)total : 0;
    centered[i] = (float)(squares[i] + here * apart * apart);
}

CUDA_FUNCTION(batchnorm_center) {
    const struct kernel_batchnorm t = GROUPS_OF(n, c);
    if (t.groups * t.c > 0)
        CUDA_LAUNCH(center, blocks_of(t.groups * t.c, BLOCK), BLOCK, 0, c->stream, t,
                    n->total, (const float *)in->sums, (const float *)in->all,
                    (const float *)in->squares, (float *)out->centered);
    return 0;
}

/* While evaluating every group has the running statistics. */
CUDA_KERNEL void batchnorm_stat(int64_t n, int64_t c, int64_t total,
                                const struct scalars *now, const float *sums,
                                const float *squares, const float *mean,
                                const float *variance, float *stat) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t group = quotient(i, c), k = i - group * c;
    float *to = stat + 2 * group * c + k;
    to[0] = now->evaluating ? mean[k] : sums[i] / (float)total;
    to[c] = now->evaluating ? variance[k] : squares[i] / (float)total;
}

CUDA_FUNCTION(batchnorm_stat) {
    const int64_t all = n->groups * n->c;
    if (all > 0)
        CUDA_LAUNCH(batchnorm_stat, blocks_of(all, BLOCK), BLOCK, 0, c->stream, all, n->c,
                    n->total, c->args->scalars, (const float *)in->sums,
                    (const float *)in->squares, (const float *)in->mean,
                    (const float *)in->variance, (float *)out->stat);
    return 0;
}

/* The estimate of the variance of all data has one degree of freedom less. */
CUDA_KERNEL void batchnorm_running(int64_t c, int64_t groups, float scale, float unbiased,
                                   const float *stat, float *dmean, float *dvariance) {
    const int64_t k = grid_thread();
    if (k >= c)
        return;
    float mean = dmean[k], variance = dvariance[k];
    for (int64_t g = 0; g < groups; g++) {
        mean += scale * stat[2 * g * c + k];
        variance += scale * unbiased * stat[(2 * g + 1) * c + k];
    }
    dmean[k] = mean;
    dvariance[k] = variance;
}

CUDA_FUNCTION(batchnorm_running) {
    const float unbiased = n->total > 1 ? (float)n->total / (float)(n->total - 1) : 1;
    if (c->args->counts && n->c > 0)
        CUDA_LAUNCH(batchnorm_running, blocks_of(n->c, BLOCK), BLOCK, 0, c->stream, n->c,
                    n->groups, c->args->scale, unbiased, (const float *)in->stat,
                    (float *)out->dmean, (float *)out->dvariance);
    return 0;
}

/* ---- the rows themselves ------------------------------------------------------------------ */

/* Where the statistics of element j begin, [groups][2][c], and its channel. */
CUDA_DEVICE int64_t stat_at(const struct kernel_batchnorm &t, int64_t j, int64_t *channel) {
    const int64_t row = quotient(j, t.c);
    *channel = j - row * t.c;
    return 2 * quotient(t.first + quotient(row, t.places), t.group) * t.c + *channel;
}

/* Vectors do not cross the end of a row: channels are a multiple of theirs, or there are none. */
template <typename T>
CUDA_KERNEL void batchnorm(struct kernel_batchnorm t, int64_t n, int64_t head, const T *x,
                           const T *gamma, const T *beta, const float *stat, T *y) {
    each<T>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], b[L], mean[L], variance[L];
        int64_t k;
        const float *s = stat + stat_at(t, j, &k);
        load(x + j, lanes, v);
        load(gamma + k, lanes, g);
        load(beta + k, lanes, b);
        load(s, lanes, mean);
        load(s + t.c, lanes, variance);
#pragma unroll
        for (int i = 0; i < L; i++)
            v[i] = (v[i] - mean[i]) * (g[i] / sqrtf(variance[i] + t.eps)) + b[i];
        store(y + j, lanes, v);
    });
}

CUDA_FUNCTION(batchnorm) {
    const struct kernel_batchnorm t = GROUPS_OF(n, c);
    const int64_t all = t.samples * t.places * t.c;
    const bool vectors = aligned(in->x, in->gamma, in->beta, in->stat, out->y);
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T, {
            const bool whole = row_head<T>(t.c, vectors) == 0;
            CUDA_LAUNCH(batchnorm<T>, blocks_of(all, BLOCK * vector_of<T>::N), BLOCK, 0,
                        c->stream, t, all, whole ? 0 : all, (const T *)in->x,
                        (const T *)in->gamma, (const T *)in->beta, (const float *)in->stat,
                        (T *)out->y);
        });
    return 0;
}

/* ---- backward: with g = dy gamma and xhat = (x - mean) / std,
 * dx = (g - mean(g) - xhat mean(g xhat)) / std ------------------------------------------------- */

/* Sums of dy and of dy (x - mean). */
template <typename T> struct products {
    enum { COUNT = 2 };
    struct kernel_batchnorm t;
    const T *x, *dy;
    const float *stat;
    CUDA_MEMBER int64_t first(int64_t group) const {
        return first_row(t, group);
    }
    CUDA_MEMBER int64_t end(int64_t group) const {
        return end_row(t, group);
    }
    template <int L>
    CUDA_MEMBER struct kept<L> begin(int64_t group, int64_t, int64_t column) const {
        struct kept<L> mean;
#pragma unroll
        for (int i = 0; i < L; i++)
            mean.v[i] = stat[2 * group * t.c + column + i];
        return mean;
    } template <int L>
    CUDA_MEMBER void add(int64_t row, int64_t column, lanes_of<L> lanes,
                         const struct kept<L> &mean, float (*sum)[L]) const {
        float v[L], d[L];
        load(x + row * t.c + column, lanes, v);
        load(dy + row * t.c + column, lanes, d);
#pragma unroll
        for (int i = 0; i < L; i++) {
            sum[0][i] += d[i];
            sum[1][i] = fmaf(d[i], v[i] - mean.v[i], sum[1][i]);
        }
    }
};

/* Blocks: x columns; group after group, rows of threads share out its chunks. */
CUDA_KERNEL void join_products(int64_t groups, int64_t chunks, int64_t c, const float *part,
                               const float *stat, float eps, float *sums, float *dgamma,
                               float *dbeta) {
    const int64_t column = blockIdx.x * (int64_t)WARP + threadIdx.x;
    const bool here = column < c;
    float beta = 0, gamma = 0;
    for (int64_t g = 0; g < groups; g++) {
        double sum = 0, product = 0;
        for (int64_t k = threadIdx.y; k < chunks && here; k += COLUMN_ROWS) {
            sum += part[(g * chunks + k) * 2 * c + column];
            product += part[((g * chunks + k) * 2 + 1) * c + column];
        }
        sum = sum_over_rows(sum);
        product = sum_over_rows(product);
        if (threadIdx.y > 0 || !here)
            continue;
        const float all = (float)sum;
        const float along = (float)product / sqrtf(stat[(2 * g + 1) * c + column] + eps);
        sums[2 * g * c + column] = all;
        sums[(2 * g + 1) * c + column] = along;
        beta += all;
        gamma += along;
    }
    if (threadIdx.y == 0 && here) {
        dbeta[column] += beta;
        dgamma[column] += gamma;
    }
}

CUDA_FUNCTION(batchnorm_bwd_sums) {
    const struct kernel_batchnorm t = GROUPS_OF(n, c);
    const int64_t rows = most_rows(&t), chunks = cuda_workspace_chunks(rows, t.c, t.groups);
    if (t.c * t.groups == 0)
        return 0;
    CUDA_TYPED(c->args->dtype, T, {
        const struct products<T> p = {
            t, (const T *)in->x, (const T *)in->dy, (const float *)in->stat
        };
        if (launch_columns<T>(c, chunks, rows, t.c, t.groups, aligned(in->x, in->dy), p) <
            0)
            return -1;
    });
    CUDA_LAUNCH(join_products, blocks_of(t.c, WARP), dim3(WARP, COLUMN_ROWS), 0, c->stream,
                t.groups, chunks, t.c, (const float *)c->workspace, (const float *)in->stat,
                c->args->eps, (float *)out->sums, (float *)out->dgamma,
                (float *)out->dbeta);
    return 0;
}

template <typename T>
CUDA_KERNEL void batchnorm_bwd(struct kernel_batchnorm t, int64_t n, int64_t head,
                               float share, const T *x, const T *gamma, const float *stat,
                               const T *dy, const float *sums, T *dx) {
    each<T>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], d[L], mean[L], variance[L], sum[L], along[L];
        int64_t k;
        const int64_t at = stat_at(t, j, &k);
        load(x + j, lanes, v);
        load(dy + j, lanes, d);
        load(gamma + k, lanes, g);
        load(stat + at, lanes, mean);
        load(stat + at + t.c, lanes, variance);
        load(sums + at, lanes, sum);
        load(sums + at + t.c, lanes, along);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float rstd = 1 / sqrtf(variance[i] + t.eps);
            const float slope = along[i] * share * rstd;
            v[i] = (d[i] - sum[i] * share - (v[i] - mean[i]) * slope) * (g[i] * rstd);
        }
        store(dx + j, lanes, v);
    });
}

CUDA_FUNCTION(batchnorm_bwd) {
    const struct kernel_batchnorm t = GROUPS_OF(n, c);
    const int64_t all = t.samples * t.places * t.c;
    const bool vectors =
        aligned(in->x, in->gamma, in->stat, in->dy, in->sums) && aligned(out->dx);
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T, {
            const bool whole = row_head<T>(t.c, vectors) == 0;
            CUDA_LAUNCH(batchnorm_bwd<T>, blocks_of(all, BLOCK * vector_of<T>::N), BLOCK, 0,
                        c->stream, t, all, whole ? 0 : all, 1 / (float)n->total,
                        (const T *)in->x, (const T *)in->gamma, (const float *)in->stat,
                        (const T *)in->dy, (const float *)in->sums, (T *)out->dx);
        });
    return 0;
}
