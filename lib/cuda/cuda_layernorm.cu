/* Layer norm over the last dimension, whole or split over ranks: a block takes a row.
 *
 * A row is read two or three times, from the second time on out of the caches: the mean first, then
 * the squared deviations from it, which is exact where the one-pass formula cancels. Backward, a block
 * takes every so many rows (cuda_norm_bwd.h); then the sums of the blocks are added up.
 *
 * A residual may be added on the way (cuda_norm.h, ADDS). */
#include "cuda/cuda_norm.h"
#include "cuda/cuda_norm_bwd.h"

/* ---- forward ------------------------------------------------------------------------------ */

template <typename T>
CUDA_DEVICE float deviation(int64_t n, int64_t head, const T *x, float mean) {
    return row_sum<T>(n, head, x, [=](float v) { return (v - mean) * (v - mean); });
}

template <typename T> CUDA_DEVICE float mean_of(int64_t n, int64_t head, const T *x) {
    return row_sum<T>(n, head, x, [](float v) { return v; }) / (float)n;
}

template <typename T>
CUDA_KERNEL void layernorm_moments(int64_t n, int64_t head, const T *x, float *part) {
    const int64_t row = blockIdx.x;
    const float mean = mean_of(n, head, x + row * n);
    const float squares = deviation(n, head, x + row * n, mean);
    if (threadIdx.x == 0) {
        part[2 * row] = mean;
        part[2 * row + 1] = squares;
    }
}

CUDA_FUNCTION(layernorm_moments) {
    CUDA_ROWS(layernorm_moments<T>, n->rows, n->n, aligned(in->x), (const T *)in->x,
              (float *)out->part);
    return 0;
}

/* Mean and 1/std of a row from the parts' moments, of n elements each (Chan, Golub, LeVeque 1979). */
CUDA_DEVICE float2 join_moments(int64_t rows, int64_t n, int64_t parts,
                                const float *moments, int64_t row, float eps) {
    double mean = 0, squares = 0;
    for (int64_t p = 0; p < parts; p++)
        mean += moments[2 * (p * rows + row)];
    mean /= (double)parts;
    for (int64_t p = 0; p < parts; p++) {
        const double apart = moments[2 * (p * rows + row)] - mean;
        squares += moments[2 * (p * rows + row) + 1] + (double)n * apart * apart;
    }
    float2 stat;
    stat.x = (float)mean;
    stat.y = (float)(1.0 / sqrt(squares / (double)(n * parts) + eps));
    return stat;
}

template <typename T, bool ADDS>
CUDA_KERNEL void layernorm(int64_t n, int64_t head, int64_t parts, const float *moments,
                           const T *a, const T *b, T *x, const T *gamma, const T *beta,
                           float offset, float eps, T *y, float *stat) {
    const int64_t row = blockIdx.x, at = row * n;
    const T *from = x + at;
    T *to = y + at;
    float2 s;
    if (!ADDS && moments) {
        s = join_moments(gridDim.x, n, parts, moments, row, eps);
    } else {
        s.x =
            row_sum_of<T, ADDS>(n, head, at, a, b, x, [](float v) { return v; }) / (float)n;
        s.y = 1 / sqrtf(deviation(n, head, from, s.x) / (float)n + eps);
    }
    if (threadIdx.x == 0) {
        stat[2 * row] = s.x;
        stat[2 * row + 1] = s.y;
    }
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], b[L] = {0};
        load(from + j, lanes, v);
        load(gamma + j, lanes, g);
        if (beta)
            load(beta + j, lanes, b);
#pragma unroll
        for (int i = 0; i < L; i++)
            v[i] = fmaf((v[i] - s.x) * s.y, g[i] + offset, b[i]);
        store(to + j, lanes, v);
    });
}

template <bool ADDS>
static int launch_layernorm(struct cuda_call *c, const struct layernorm_n *n, const void *a,
                            const void *b, const struct layernorm_src *in,
                            const struct layernorm_dst *out) {
    const void *beta = n->plain ? NULL : in->beta;
    const bool vectors = aligned(in->x, in->gamma, beta, out->y) && aligned(a, b);
    CUDA_ROWS((layernorm<T, ADDS>), n->rows, n->n, vectors, n->parts,
              n->parts > 1 ? (const float *)in->moments : NULL, (const T *)a, (const T *)b,
              (T *)in->x, (const T *)in->gamma, (const T *)beta, c->args->offset,
              c->args->eps, (T *)out->y, (float *)out->stat);
    return 0;
}

CUDA_FUNCTION(layernorm) {
    return launch_layernorm<false>(c, n, NULL, NULL, in, out);
}

int cuda_add_layernorm(struct cuda_call *c, const struct layernorm_n *n,
                       const struct add_src *add, const struct layernorm_src *in,
                       const struct layernorm_dst *out) {
    return launch_layernorm<true>(c, n, add->a, add->b, in, out);
}

/* ---- backward: with g = dy gamma, dx = rstd (g - mean(g) - xhat mean(g xhat)) -------------------- */

/* s[0] = the sum of g, s[1] of g xhat, over the row that is here. */
template <typename T>
CUDA_DEVICE void bwd_sums(int64_t n, int64_t head, const T *x, const T *gamma, float offset,
                          const T *dy, float mean, float rstd, float s[2]) {
    s[0] = s[1] = 0;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], d[L];
        load(x + j, lanes, v);
        load(gamma + j, lanes, g);
        load(dy + j, lanes, d);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float gd = d[i] * (g[i] + offset);
            s[0] += gd;
            s[1] = fmaf(gd, v[i] - mean, s[1]);
        }
    });
    block_sums<2>(s);
    s[1] *= rstd;
}

template <typename T>
CUDA_KERNEL void layernorm_bwd_sums(int64_t n, int64_t head, const T *x, const T *gamma,
                                    float offset, const float *stat, const T *dy,
                                    float *sums) {
    const int64_t row = blockIdx.x;
    float s[2];
    bwd_sums(n, head, x + row * n, gamma, offset, dy + row * n, stat[2 * row],
             stat[2 * row + 1], s);
    if (threadIdx.x == 0) {
        sums[2 * row] = s[0];
        sums[2 * row + 1] = s[1];
    }
}

CUDA_FUNCTION(layernorm_bwd_sums) {
    CUDA_ROWS(layernorm_bwd_sums<T>, n->rows, n->n, aligned(in->x, in->gamma, in->dy),
              (const T *)in->x, (const T *)in->gamma, c->args->offset,
              (const float *)in->stat, (const T *)in->dy, (float *)out->sums);
    return 0;
}

/* dx of a row, and its shares added to those of gamma and, unless it is plain, of beta. */
template <typename T, bool ADDS>
CUDA_DEVICE void bwd_row(const struct norm_rows<T> &r, float offset, bool plain,
                         int64_t row, float *dgamma) {
    const int64_t n = r.n, at = row * n;
    const float mean = r.stat[2 * row], rstd = r.stat[2 * row + 1];
    const float part = 1.0f / (float)r.total;
    float s[2], *dbeta = dgamma + n;
    if (r.sums) {
        s[0] = r.sums[2 * row];
        s[1] = r.sums[2 * row + 1];
    } else {
        bwd_sums(n, r.head, r.x + at, r.gamma, offset, r.dy + at, mean, rstd, s);
    }
    each_in_row<T>(n, r.head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], d[L], dg[L], db[L] = {0};
        load(r.x + at + j, lanes, v);
        load(r.gamma + j, lanes, g);
        load(r.dy + at + j, lanes, d);
        load(dgamma + j, lanes, dg);
        if (!plain)
            load(dbeta + j, lanes, db);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float xhat = (v[i] - mean) * rstd;
            dg[i] = fmaf(d[i], xhat, dg[i]);
            db[i] += d[i];
            v[i] = fmaf(xhat, -part * s[1], fmaf(d[i], g[i] + offset, -part * s[0])) * rstd;
        }
        store_gradient<T, ADDS>(r.dx, r.g, r.y, at + j, lanes, v);
        store(dgamma + j, lanes, dg);
        if (!plain)
            store(dbeta + j, lanes, db);
    });
}

template <typename T, bool ADDS>
CUDA_KERNEL void layernorm_bwd(struct norm_rows<T> r, float offset, bool plain, bool fits,
                               float *workspace) {
    norm_shares<T>(r, plain ? 1 : 2, fits, workspace, [&](int64_t row, float *sum) {
        bwd_row<T, ADDS>(r, offset, plain, row, sum);
    });
}

template <bool ADDS>
static int launch_layernorm_bwd(struct cuda_call *c, const struct layernorm_bwd_n *n,
                                const struct layernorm_bwd_src *in,
                                const struct layernorm_bwd_dst *out, const void *g,
                                void *y) {
    struct norm_blocks b;
    if (n->rows * n->n == 0)
        return 0;
    if (norm_blocks(c, n, n->plain ? 1 : 2, &b) < 0)
        return -1;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH((layernorm_bwd<T, ADDS>), b.blocks, row_threads<T>(n->n, BLOCK),
                           b.shared, c->stream, norm_rows_of<T>(n, in, out, g, y),
                           c->args->offset, n->plain != 0, b.fits, (float *)c->workspace));
    return cuda_columns_finish(c, b.blocks, n->n, (float *)out->dgamma,
                               n->plain ? NULL : (float *)out->dbeta);
}

CUDA_FUNCTION(layernorm_bwd) {
    return launch_layernorm_bwd<false>(c, n, in, out, NULL, NULL);
}

int cuda_layernorm_bwd_add(struct cuda_call *c, const struct layernorm_bwd_n *n,
                           const struct layernorm_bwd_src *in,
                           const struct layernorm_bwd_dst *out, const void *g, void *y) {
    return launch_layernorm_bwd<true>(c, n, in, out, g, y);
}
