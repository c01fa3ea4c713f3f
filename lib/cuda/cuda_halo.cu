/* Rows of blocks to messages and back: [outer, rows, inner]. A thread takes an element of the result and
 * finds where it comes from. What is sent, got or the rank's own goes to the kernel by value. */
#include "cuda/cuda_block.h"

enum { PIECES = 64 }; /* that one rank exchanges rows with, at most */

/* Runs of rows; messages hold them one after the other, each [outer, n, inner]. */
struct pieces {
    int64_t outer, inner;
    struct halo_run own;
    float padding;
    int count;
    struct halo_piece run[PIECES];
};

/* Those without rows say nothing. */
static int pieces_of(struct cuda_call *c, struct pieces *p) {
    const struct kernel_halo *h = &c->args->halo;
    p->outer = h->outer;
    p->inner = h->inner;
    p->own = h->own;
    p->padding = h->padding;
    p->count = 0;
    for (int i = 0; i < h->n_pieces; i++)
        if (h->pieces[i].n > 0) {
            if (p->count == PIECES)
                return err_system(c->err, "more than %d ranks exchange rows", PIECES);
            p->run[p->count++] = h->pieces[i];
        }
    return 0;
}

template <typename T>
CUDA_KERNEL void halo_pack(struct pieces p, int64_t n, int64_t rows, const T *x, T *s) {
    const int64_t i = grid_thread();
    int64_t at = i;
    if (i >= n)
        return;
    for (int k = 0; k < p.count; k++) {
        const int64_t size = p.outer * p.run[k].n * p.inner;
        if (at < size) {
            const struct digits to = digits_of(at, p.run[k].n, p.inner);
            s[i] = x[(to.high * rows + p.run[k].first + to.middle) * p.inner + to.low];
            return;
        }
        at -= size;
    }
}

CUDA_FUNCTION(halo_pack) {
    struct pieces p;
    int64_t rows = 0;
    if (pieces_of(c, &p) < 0)
        return -1;
    for (int k = 0; k < p.count; k++)
        rows += p.run[k].n;
    const int64_t all = rows * p.outer * p.inner;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(halo_pack<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, p,
                               all, n->rows, (const T *)in->x, (T *)out->s));
    return 0;
}

/* Where the messages have element [outer, row, inner] if piece k holds it, else -1. *before: elements of
 * the pieces so far. */
CUDA_DEVICE int64_t in_piece(const struct pieces &p, int k, struct digits to,
                             int64_t *before) {
    const int64_t row = to.middle - p.run[k].first, n = p.run[k].n, begin = *before;
    *before += p.outer * n * p.inner;
    return row < 0 || row >= n ? -1 : begin + (to.high * n + row) * p.inner + to.low;
}

/* A row of a window is the rank's own, another's, or padding. */
template <typename T>
CUDA_KERNEL void halo_join(struct pieces p, int64_t n, int64_t rows, int64_t window,
                           const T *x, const T *r, T *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const struct digits to = digits_of(i, window, p.inner);
    const int64_t own = to.middle - p.own.in_window;
    if (own >= 0 && own < p.own.n) {
        y[i] = x[(to.high * rows + p.own.in_block + own) * p.inner + to.low];
        return;
    }
    int64_t before = 0;
    for (int k = 0; k < p.count; k++) {
        const int64_t at = in_piece(p, k, to, &before);
        if (at >= 0) {
            y[i] = r[at];
            return;
        }
    }
    put(y + i, p.padding);
}

CUDA_FUNCTION(halo_join) {
    struct pieces p;
    const int64_t all = n->outer * n->window * n->inner;
    if (pieces_of(c, &p) < 0)
        return -1;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(halo_join<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, p,
                               all, n->rows, n->window, (const T *)in->x, (const T *)in->r,
                               (T *)out->y));
    return 0;
}

/* A row's gradient is what the rank's own window has of it, and what those of others have. */
template <typename T>
CUDA_KERNEL void halo_add(struct pieces p, int64_t n, int64_t rows, int64_t window,
                          const T *d, const T *r, T *dx) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const struct digits to = digits_of(i, rows, p.inner);
    const int64_t own = to.middle - p.own.in_block;
    float sum = 0;
    if (own >= 0 && own < p.own.n)
        sum = get(d + (to.high * window + p.own.in_window + own) * p.inner + to.low);
    int64_t before = 0;
    for (int k = 0; k < p.count; k++) {
        const int64_t at = in_piece(p, k, to, &before);
        if (at >= 0)
            sum += get(r + at);
    }
    put(dx + i, sum);
}

CUDA_FUNCTION(halo_add) {
    struct pieces p;
    const int64_t all = n->outer * n->rows * n->inner;
    if (pieces_of(c, &p) < 0)
        return -1;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(halo_add<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, p,
                               all, n->rows, n->window, (const T *)in->d, (const T *)in->r,
                               (T *)out->dx));
    return 0;
}
