/* Pooling over tensors [batch, height, width, channels]: loops over channels innermost,
 * which compilers make vectors of. */
#include "kernel_impl.h"

#include <math.h>
#include <string.h>

enum { TILE = 256 }; /* channels at a time, what a window is compared in */

/* One window: its taps r0 .. r1 - 1 by t0 .. t1 - 1 are inside; x points to the first. */
struct window {
    int64_t rows, columns; /* taps inside */
    int64_t at;            /* of the first of them, in places */
};

static void inside(int64_t at, int64_t size, int64_t kernel, int64_t *first, int64_t *n) {
    int64_t end = at + kernel < size ? at + kernel : size;
    *first = at > 0 ? at : 0;
    *n = end - *first;
}

static struct window window_of(const struct kernel_pool *p, int64_t b, int64_t oh,
                               int64_t ow) {
    struct window v;
    int64_t h, w;
    inside(oh * p->stride - p->ph, p->ih, p->kernel, &h, &v.rows);
    inside(ow * p->stride - p->pw, p->iw, p->kernel, &w, &v.columns);
    v.at = (b * p->ih + h) * p->iw + w;
    return v;
}

/* The largest of n channels from channel c on; one that is no number wins. */
static void largest(const struct kernel_pool *p, const struct window *v, const float *x,
                    int64_t c, int64_t n, float *best) {
    for (int64_t k = 0; k < n; k++)
        best[k] = -INFINITY;
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t t = 0; t < v->columns; t++) {
            const float *at = x + (v->at + r * p->iw + t) * p->c + c;
            for (int64_t k = 0; k < n; k++)
                best[k] = at[k] > best[k] || at[k] != at[k] ? at[k] : best[k];
        }
}

static int64_t tile(int64_t c, int64_t end) {
    return end - c < TILE ? end - c : TILE;
}

/* Rows of windows: batch and height of the result counted together. */
static void maxpool_rows(const struct kernel_pool *p, int64_t first, int64_t end,
                         const float *x, float *y) {
    for (int64_t i = first; i < end; i++)
        for (int64_t ow = 0; ow < p->ow; ow++) {
            struct window v = window_of(p, i / p->oh, i % p->oh, ow);
            for (int64_t c = 0; c < p->c; c += TILE)
                largest(p, &v, x, c, tile(c, p->c), y + (i * p->ow + ow) * p->c + c);
        }
}

static int64_t volume(const struct kernel_pool *p) {
    return p->batch * p->oh * p->ow * p->c * p->kernel * p->kernel;
}

void kernel_maxpool(const struct kernel_pool *p, const float *x, float *y) {
    KERNEL_SPLIT(p->batch * p->oh, 1, volume(p), maxpool_rows(p, first, end, x, y));
}

/* The first tap that holds the largest number takes the whole of dy: what is left is 0
 * then. */
static void give_back(const struct kernel_pool *p, const struct window *v, const float *x,
                      int64_t c, int64_t n, const float *dy, float *dx) {
    float best[TILE], left[TILE];
    largest(p, v, x, c, n, best);
    memcpy(left, dy, sizeof *left * (size_t)n);
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t t = 0; t < v->columns; t++) {
            int64_t at = (v->at + r * p->iw + t) * p->c + c;
            for (int64_t k = 0; k < n; k++) {
                float share = x[at + k] == best[k] ? left[k] : 0;
                dx[at + k] += share;
                left[k] -= share;
            }
        }
}

/* Windows overlap, samples do not. */
static void maxpool_dx_samples(const struct kernel_pool *p, int64_t first, int64_t end,
                               const float *x, const float *dy, float *dx) {
    int64_t sample = p->ih * p->iw * p->c;
    memset(dx + first * sample, 0, sizeof *dx * (size_t)((end - first) * sample));
    for (int64_t b = first; b < end; b++)
        for (int64_t i = 0; i < p->oh * p->ow; i++) {
            struct window v = window_of(p, b, i / p->ow, i % p->ow);
            const float *d = dy + (b * p->oh * p->ow + i) * p->c;
            for (int64_t c = 0; c < p->c; c += TILE)
                give_back(p, &v, x, c, tile(c, p->c), d + c, dx);
        }
}

void kernel_maxpool_dx(const struct kernel_pool *p, const float *x, const float *dy,
                       float *dx) {
    KERNEL_SPLIT(p->batch, 1, volume(p), maxpool_dx_samples(p, first, end, x, dy, dx));
}

/* ---- mean -------------------------------------------------------------------------- */

void kernel_avgpool(int64_t batch, int64_t places, int64_t c, float scale, const float *x,
                    float *y) {
    KERNEL_SPLIT(batch, 1, batch * places * c, {
        for (int64_t b = first; b < end; b++) {
            memset(y + b * c, 0, sizeof *y * (size_t)c);
            for (int64_t i = 0; i < places; i++)
                for (int64_t k = 0; k < c; k++)
                    y[b * c + k] += x[(b * places + i) * c + k];
            for (int64_t k = 0; k < c; k++)
                y[b * c + k] *= scale;
        }
    });
}

void kernel_avgpool_dx(int64_t batch, int64_t places, int64_t c, float scale,
                       const float *dy, float *dx) {
    KERNEL_SPLIT(batch, 1, batch * places * c, {
        for (int64_t i = first * places; i < end * places; i++)
            for (int64_t k = 0; k < c; k++)
                dx[i * c + k] = scale * dy[i / places * c + k];
    });
}
