/* Pooling over tensors [batch, height, width, channels]: loops over channels innermost,
 * which compilers make vectors of. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <assert.h>
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

/* One that is no number wins. */
VEC float larger(float best, float x) {
    return x > best || x != x ? x : best;
}

/* The largest of n channels from channel c on. */
static void largest(const struct kernel_pool *p, const struct window *v, const T *x,
                    int64_t c, int64_t n, float *best) {
    for (int64_t k = 0; k < n; k++)
        best[k] = -INFINITY;
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t t = 0; t < v->columns; t++) {
            const T *at = x + (v->at + r * p->iw + t) * p->c + c;
            for (int64_t k = 0; k < n; k++)
                best[k] = larger(best[k], get(at + k));
        }
}

static int64_t tile(int64_t c, int64_t end) {
    return end - c < TILE ? end - c : TILE;
}

/* Rows of windows: batch and height of the result counted together. */
static void maxpool_rows(const struct kernel_pool *p, int64_t first, int64_t end,
                         const T *x, T *y) {
    for (int64_t i = first; i < end; i++)
        for (int64_t ow = 0; ow < p->ow; ow++) {
            struct window v = window_of(p, i / p->oh, i % p->oh, ow);
            for (int64_t c = 0; c < p->c; c += TILE) {
                T *to = y + (i * p->ow + ow) * p->c + c;
                float tops[TILE], *best = TYPE == DTYPE_f32 ? (float *)to : tops;
                largest(p, &v, x, c, tile(c, p->c), best);
                for (int64_t k = 0; best == tops && k < tile(c, p->c); k++)
                    put(to + k, tops[k]);
            }
        }
}

static int64_t volume(const struct kernel_pool *p) {
    return p->batch * p->oh * p->ow * p->c * p->kernel * p->kernel;
}

void kernel_maxpool(const struct kernel_pool *p, const T *x, T *y) {
    KERNEL_SPLIT(p->batch * p->oh, 1, volume(p), maxpool_rows(p, first, end, x, y));
}

/* The first tap that holds the largest number takes the whole of dy: what is left is 0
 * then. The sums of these channels lie `stride` apart from place to place, x begins with the first
 * channel. */
static void give_back(const struct kernel_pool *p, const struct window *v, const T *x,
                      int64_t n, const T *dy, float *sum, int64_t stride) {
    float best[TILE], left[TILE];
    largest(p, v, x, 0, n, best);
    for (int64_t k = 0; k < n; k++)
        left[k] = get(dy + k);
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t t = 0; t < v->columns; t++) {
            const int64_t place = v->at + r * p->iw + t;
            for (int64_t k = 0; k < n; k++) {
                float share = get(x + place * p->c + k) == best[k] ? left[k] : 0;
                sum[place * stride + k] += share;
                left[k] -= share;
            }
        }
}

/* Channels c..c+n-1 of a sample. */
static void maxpool_dx_channels(const struct kernel_pool *p, int64_t c, int64_t n,
                                const T *x, const T *dy, float *sum, int64_t stride) {
    for (int64_t i = 0; i < p->oh * p->ow; i++) {
        const struct window v = window_of(p, 0, i / p->ow, i % p->ow);
        for (int64_t k = 0; k < n; k += TILE)
            give_back(p, &v, x + c + k, tile(k, n), dy + i * p->c + c + k, sum + k, stride);
    }
}

/* Numbers of 16 bits are summed in scratch, as many channels at a time as it holds. */
static void maxpool_dx_sample(const struct kernel_pool *p, const T *x, const T *dy, T *dx,
                              float *scratch) {
    const int64_t places = p->ih * p->iw;
    if (TYPE == DTYPE_f32) {
        memset(dx, 0, sizeof *dx * (size_t)(places * p->c));
        maxpool_dx_channels(p, 0, p->c, x, dy, (float *)dx, p->c);
        return;
    }
    const int64_t most = KERNEL_SCRATCH_BYTES / 4 / places;
    assert(most > 0 && "a map this large does not fit the scratch");
    for (int64_t c = 0; c < p->c; c += most) {
        const int64_t n = p->c - c < most ? p->c - c : most;
        memset(scratch, 0, sizeof *scratch * (size_t)(places * n));
        maxpool_dx_channels(p, c, n, x, dy, scratch, n);
        for (int64_t i = 0; i < places; i++)
            for (int64_t k = 0; k < n; k++)
                put(dx + i * p->c + c + k, scratch[i * n + k]);
    }
}

/* Windows overlap, samples do not. */
void kernel_maxpool_dx(const struct kernel_pool *p, const T *x, const T *dy, T *dx) {
    const int64_t in = p->ih * p->iw * p->c, out = p->oh * p->ow * p->c;
    KERNEL_SPLIT(p->batch, 1, volume(p), {
        for (int64_t b = first; b < end; b++)
            maxpool_dx_sample(p, x + b * in, dy + b * out, dx + b * in,
                              kernel_scratch(thread));
    });
}

/* ---- mean -------------------------------------------------------------------------- */

/* n channels of a sample, from its first place on. */
static void mean_of(int64_t places, int64_t c, int64_t n, float scale, const T *x, T *y) {
    float sum[TILE] = {0};
    for (int64_t i = 0; i < places; i++)
        for (int64_t k = 0; k < n; k++)
            sum[k] += get(x + i * c + k);
    for (int64_t k = 0; k < n; k++)
        put(y + k, sum[k] * scale);
}

void kernel_avgpool(int64_t batch, int64_t places, int64_t c, float scale, const T *x,
                    T *y) {
    KERNEL_SPLIT(batch, 1, batch * places * c, {
        for (int64_t b = first; b < end; b++)
            for (int64_t k = 0; k < c; k += TILE)
                mean_of(places, c, tile(k, c), scale, x + b * places * c + k,
                        y + b * c + k);
    });
}

void kernel_avgpool_dx(int64_t batch, int64_t places, int64_t c, float scale, const T *dy,
                       T *dx) {
    KERNEL_SPLIT(batch, 1, batch * places * c, {
        for (int64_t i = first * places; i < end * places; i++)
            for (int64_t k = 0; k < c; k++)
                put(dx + i * c + k, scale * get(dy + i / places * c + k));
    });
}
