/* cuda_norm_bwd.h - what the gradients of layer norm and RMS norm share: blocks that take every so many rows and
 * add up their shares of the gradients of gamma and beta.
 *
 *     if (norm_blocks(c, n, 2, &b) < 0)
 *         return -1;
 *     CUDA_LAUNCH(kernel<T>, b.blocks, row_threads<T>(n->n, BLOCK), b.shared, c->stream,
 *                 norm_rows_of<T>(n, in, out, NULL, NULL), b.fits, (float *)c->workspace);
 *     return cuda_columns_finish(c, b.blocks, n->n, (float *)out->dgamma, (float *)out->dbeta);
 */
#ifndef WEFT_CUDA_NORM_BWD_H
#define WEFT_CUDA_NORM_BWD_H

#include "cuda/cuda_columns.h"
#include "cuda/cuda_row.h"

template <typename T> struct norm_rows {
    int64_t rows, n, head;
    int64_t total; /* columns of the whole row, of which n are here */
    const T *x, *gamma, *dy;
    const float *stat, *sums; /* sums NULL: rows are whole, take them here */
    T *dx;
    const T *g; /* what is added to dx, or NULL; and where the sum goes */
    T *y;
};

/* Of the instruction layernorm_bwd or rmsnorm_bwd. */
template <typename T, typename N, typename SRC, typename DST>
static struct norm_rows<T> norm_rows_of(const N *n, const SRC *in, const DST *out,
                                        const void *g, void *y) {
    const bool vectors = aligned(in->x, in->gamma, in->dy, out->dx) && aligned(g, y);
    struct norm_rows<T> r;
    r.rows = n->rows;
    r.n = n->n;
    r.head = row_head<T>(n->n, vectors);
    r.total = n->total;
    r.x = (const T *)in->x;
    r.gamma = (const T *)in->gamma;
    r.dy = (const T *)in->dy;
    r.stat = (const float *)in->stat;
    r.sums = n->total > n->n ? (const float *)in->sums : NULL;
    r.dx = (T *)out->dx;
    r.g = (const T *)g;
    r.y = (T *)y;
    return r;
}

/* A block adds up its rows' shares, [count][n], in shared memory, or where that does not hold them in its part of
 * the workspace. */
struct norm_blocks {
    unsigned blocks;
    bool fits;
    size_t shared; /* bytes of a block */
};

enum { NORM_SHARED = 40 << 10 }; /* bytes, at most */

/* 0, or -1 where the workspace is less. */
template <typename N>
static int norm_blocks(const struct cuda_call *c, const N *n, int count,
                       struct norm_blocks *b) {
    const int64_t bytes = count * n->n * (int64_t)sizeof(float);
    b->blocks = (unsigned)cuda_workspace_norm(n->rows, n->n);
    b->fits = bytes <= NORM_SHARED;
    b->shared = b->fits ? (size_t)bytes : 0;
    return workspace_holds(c, b->blocks * bytes);
}

/* share(row, sum) for each row of the block, then its sums to its part of the workspace. A thread has the same
 * columns in every row, so its sums are its own. */
template <typename T, typename F>
CUDA_DEVICE void norm_shares(const struct norm_rows<T> &r, int count, bool fits,
                             float *workspace, F share) {
    CUDA_DYNAMIC(float, shared);
    float *part = workspace + blockIdx.x * count * r.n, *sum = fits ? shared : part;
    each_in_row<T>(r.n, r.head, [&](int64_t j, auto lanes) {
        const float zero[decltype(lanes)::N] = {0};
        for (int k = 0; k < count; k++)
            store(sum + k * r.n + j, lanes, zero);
    });
    for (int64_t row = blockIdx.x; row < r.rows; row += gridDim.x)
        share(row, sum);
    if (!fits)
        return;
    each_in_row<T>(r.n, r.head, [&](int64_t j, auto lanes) {
        float v[decltype(lanes)::N];
        for (int k = 0; k < count; k++) {
            load(sum + k * r.n + j, lanes, v);
            store(part + k * r.n + j, lanes, v);
        }
    });
}

#endif
