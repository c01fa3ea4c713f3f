/* Rows of blocks to messages and back: [outer, rows, inner], runs of rows at a time. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

static void copy_rows(int64_t n, const T *src, T *dst) {
    if (n > 0) /* where no rows come or go there is no message either */
        memcpy(dst, src, sizeof *dst * (size_t)n);
}

/* Rows of one outer index; message pieces hold all outer indices of a run, one after the
 * other. */
void kernel_halo_pack(const struct kernel_halo *h, int64_t rows, const T *x, T *s) {
    for (int i = 0; i < h->n_pieces; i++) {
        const struct halo_piece *p = &h->pieces[i];
        int64_t n = p->n * h->inner;
        for (int64_t o = 0; o < h->outer; o++, s += n)
            copy_rows(n, x + (o * rows + p->first) * h->inner, s);
    }
}

/* Rows of the window that stand in own and others' blocks: one range, for blocks are
 * neighbours. */
static void covered(const struct kernel_halo *h, int64_t *first, int64_t *end) {
    *first = h->own.in_window;
    *end = h->own.in_window + h->own.n;
    bool none = h->own.n == 0;
    for (int i = 0; i < h->n_pieces; i++) {
        const struct halo_piece *p = &h->pieces[i];
        if (p->n == 0)
            continue;
        *first = none || p->first < *first ? p->first : *first;
        *end = none || p->first + p->n > *end ? p->first + p->n : *end;
        none = false;
    }
    if (none)
        *first = *end = 0;
}

static void fill_rows(int64_t n, float value, T *y) {
    for (int64_t i = 0; i < n; i++)
        put(y + i, value);
}

void kernel_halo_join(const struct kernel_halo *h, int64_t rows, int64_t window, const T *x,
                      const T *r, T *y) {
    const int64_t inner = h->inner;
    int64_t first, end;
    covered(h, &first, &end);
    for (int64_t o = 0; o < h->outer; o++) {
        T *to = y + o * window * inner;
        fill_rows(first * inner, h->padding, to);
        fill_rows((window - end) * inner, h->padding, to + end * inner);
        copy_rows(h->own.n * inner, x + (o * rows + h->own.in_block) * inner,
                  to + h->own.in_window * inner);
    }
    for (int i = 0; i < h->n_pieces; i++) {
        const struct halo_piece *p = &h->pieces[i];
        int64_t n = p->n * inner;
        for (int64_t o = 0; o < h->outer; o++, r += n)
            copy_rows(n, r, y + (o * window + p->first) * inner);
    }
}

void kernel_halo_add(const struct kernel_halo *h, int64_t rows, int64_t window, const T *d,
                     const T *r, T *dx) {
    const int64_t inner = h->inner, first = h->own.in_block, end = first + h->own.n;
    for (int64_t o = 0; o < h->outer; o++) {
        T *to = dx + o * rows * inner;
        fill_rows(first * inner, 0, to);
        fill_rows((rows - end) * inner, 0, to + end * inner);
        copy_rows(h->own.n * inner, d + (o * window + h->own.in_window) * inner,
                  to + first * inner);
    }
    for (int i = 0; i < h->n_pieces; i++) {
        const struct halo_piece *p = &h->pieces[i];
        int64_t n = p->n * inner;
        for (int64_t o = 0; o < h->outer; o++, r += n) {
            T *to = dx + (o * rows + p->first) * inner;
            for (int64_t k = 0; k < n; k++)
                put(to + k, get(to + k) + get(r + k));
        }
    }
}
