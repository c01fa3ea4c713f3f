/* RMS norm over the last dimension, whole or split over ranks: y = gamma x r, r = 1/rms(x). A block takes
 * a row; backward, and with a residual, as in layer norm. */
#include "cuda/cuda_norm.h"
#include "cuda/cuda_norm_bwd.h"

template <typename T, bool ADDS>
CUDA_DEVICE float squares_of(int64_t n, int64_t head, int64_t at, const T *a, const T *b,
                             T *x) {
    return row_sum_of<T, ADDS>(n, head, at, a, b, x, [](float v) { return v * v; });
}

template <typename T>
CUDA_KERNEL void rmsnorm_squares(int64_t n, int64_t head, const T *x, float *squares) {
    const float sum =
        row_sum<T>(n, head, x + blockIdx.x * n, [](float v) { return v * v; });
    if (threadIdx.x == 0)
        squares[blockIdx.x] = sum;
}

CUDA_FUNCTION(rmsnorm_squares) {
    CUDA_ROWS(rmsnorm_squares<T>, n->rows, n->n, aligned(in->x), (const T *)in->x,
              (float *)out->squares);
    return 0;
}

/* squares: sums over all `total` columns, or NULL to take them here. */
template <typename T, bool ADDS>
CUDA_KERNEL void rmsnorm(int64_t n, int64_t head, int64_t total, const T *a, const T *b,
                         T *x, const T *gamma, float offset, const float *squares,
                         float eps, T *y, float *stat) {
    const int64_t row = blockIdx.x, at = row * n;
    const float sum =
        !ADDS && squares ? squares[row] : squares_of<T, ADDS>(n, head, at, a, b, x);
    const float r = 1 / sqrtf(sum / (float)total + eps);
    if (threadIdx.x == 0)
        stat[row] = r;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L];
        load(x + at + j, lanes, v);
        load(gamma + j, lanes, g);
#pragma unroll
        for (int i = 0; i < L; i++)
            v[i] *= (g[i] + offset) * r;
        store(y + at + j, lanes, v);
    });
}

template <bool ADDS>
static int launch_rmsnorm(struct cuda_call *c, const struct rmsnorm_n *n, const void *a,
                          const void *b, const struct rmsnorm_src *in,
                          const struct rmsnorm_dst *out) {
    const bool vectors = aligned(in->x, in->gamma, out->y, a, b);
    CUDA_ROWS((rmsnorm<T, ADDS>), n->rows, n->n, vectors, n->total, (const T *)a,
              (const T *)b, (T *)in->x, (const T *)in->gamma, c->args->offset,
              n->total > n->n ? (const float *)in->squares : NULL, c->args->eps,
              (T *)out->y, (float *)out->stat);
    return 0;
}

CUDA_FUNCTION(rmsnorm) {
    return launch_rmsnorm<false>(c, n, NULL, NULL, in, out);
}

int cuda_add_rmsnorm(struct cuda_call *c, const struct rmsnorm_n *n,
                     const struct add_src *add, const struct rmsnorm_src *in,
                     const struct rmsnorm_dst *out) {
    return launch_rmsnorm<true>(c, n, add->a, add->b, in, out);
}

/* ---- backward: with g = dy gamma, dx = r g - x r^3 / n sum(x g), dgamma += dy x r ------------------- */

template <typename T>
CUDA_DEVICE float products_of(int64_t n, int64_t head, const T *x, const T *gamma,
                              float offset, const T *dy) {
    float sum = 0;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], d[L];
        load(x + j, lanes, v);
        load(gamma + j, lanes, g);
        load(dy + j, lanes, d);
#pragma unroll
        for (int i = 0; i < L; i++)
            sum = fmaf(v[i] * (g[i] + offset), d[i], sum);
    });
    return block_sum(sum);
}

template <typename T>
CUDA_KERNEL void rmsnorm_bwd_sums(int64_t n, int64_t head, const T *x, const T *gamma,
                                  float offset, const T *dy, float *sums) {
    const int64_t at = blockIdx.x * n;
    const float sum = products_of(n, head, x + at, gamma, offset, dy + at);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

CUDA_FUNCTION(rmsnorm_bwd_sums) {
    CUDA_ROWS(rmsnorm_bwd_sums<T>, n->rows, n->n, aligned(in->x, in->gamma, in->dy),
              (const T *)in->x, (const T *)in->gamma, c->args->offset, (const T *)in->dy,
              (float *)out->sums);
    return 0;
}

/* dx of a row, and its share added to gamma's. */
template <typename T, bool ADDS>
CUDA_DEVICE void bwd_row(const struct norm_rows<T> &t, float offset, int64_t row,
                         float *dgamma) {
    const int64_t n = t.n, at = row * n;
    const float r = t.stat[row];
    const float sum =
        t.sums ? t.sums[row] : products_of(n, t.head, t.x + at, t.gamma, offset, t.dy + at);
    const float back = r * r * r / (float)t.total * sum;
    each_in_row<T>(n, t.head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], g[L], d[L], dg[L];
        load(t.x + at + j, lanes, v);
        load(t.gamma + j, lanes, g);
        load(t.dy + at + j, lanes, d);
        load(dgamma + j, lanes, dg);
#pragma unroll
        for (int i = 0; i < L; i++) {
            dg[i] = fmaf(d[i] * r, v[i], dg[i]);
            v[i] = fmaf(v[i], -back, d[i] * (g[i] + offset) * r);
        }
        store_gradient<T, ADDS>(t.dx, t.g, t.y, at + j, lanes, v);
        store(dgamma + j, lanes, dg);
    });
}

template <typename T, bool ADDS>
CUDA_KERNEL void rmsnorm_bwd(struct norm_rows<T> r, float offset, bool fits,
                             float *workspace) {
    norm_shares<T>(r, 1, fits, workspace,
                   [&](int64_t row, float *sum) { bwd_row<T, ADDS>(r, offset, row, sum); });
}

template <bool ADDS>
static int launch_rmsnorm_bwd(struct cuda_call *c, const struct rmsnorm_bwd_n *n,
                              const struct rmsnorm_bwd_src *in,
                              const struct rmsnorm_bwd_dst *out, const void *g, void *y) {
    struct norm_blocks b;
    if (n->rows * n->n == 0)
        return 0;
    if (norm_blocks(c, n, 1, &b) < 0)
        return -1;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH((rmsnorm_bwd<T, ADDS>), b.blocks, row_threads<T>(n->n, BLOCK),
                           b.shared, c->stream, norm_rows_of<T>(n, in, out, g, y),
                           c->args->offset, b.fits, (float *)c->workspace));
    return cuda_columns_finish(c, b.blocks, n->n, (float *)out->dgamma, NULL);
}

CUDA_FUNCTION(rmsnorm_bwd) {
    return launch_rmsnorm_bwd<false>(c, n, in, out, NULL, NULL);
}

int cuda_rmsnorm_bwd_add(struct cuda_call *c, const struct rmsnorm_bwd_n *n,
                         const struct rmsnorm_bwd_src *in,
                         const struct rmsnorm_bwd_dst *out, const void *g, void *y) {
    return launch_rmsnorm_bwd<true>(c, n, in, out, g, y);
}
