/* Convolution in plain C, where there is no library for it: a sum of scaled rows of
 * weights at each place, and its transposes. */
#include "kernel_impl.h"

#ifndef WEFT_GEMM_dnnl

#include <string.h>

void kernel_conv_release(void) {
}

int64_t kernel_conv_bytes(const struct kernel_conv *s) {
    (void)s;
    return 0;
}

/* Taps of a window that begins at `at` which lie in 0 .. size - 1. */
static void taps_inside(int64_t at, int64_t size, int64_t taps, int64_t *first,
                        int64_t *end) {
    *first = at < 0 ? -at : 0;
    *end = at + taps > size ? size - at : taps;
}

/* Calls it for every place of samples b0 .. b1 - 1 with each tap inside: xi, wi, yi are
 * where channels begin in x, w and y. */
#define FOR_TAPS(s, b0, b1, call)                                                          \
    for (int64_t b = (b0); b < (b1); b++)                                                  \
        for (int64_t oh = 0; oh < (s)->oh; oh++)                                           \
            for (int64_t ow = 0; ow < (s)->ow; ow++) {                                     \
                int64_t h = oh * (s)->stride - (s)->ph, w0 = ow * (s)->stride - (s)->pw;   \
                int64_t r0, r1, c0, c1;                                                    \
                taps_inside(h, (s)->ih, (s)->kh, &r0, &r1);                                \
                taps_inside(w0, (s)->iw, (s)->kw, &c0, &c1);                               \
                int64_t yi = ((b * (s)->oh + oh) * (s)->ow + ow) * (s)->cout;              \
                for (int64_t r = r0; r < r1; r++)                                          \
                    for (int64_t t = c0; t < c1; t++) {                                    \
                        int64_t xi =                                                       \
                            ((b * (s)->ih + h + r) * (s)->iw + w0 + t) * (s)->cin;         \
                        int64_t wi = (r * (s)->kw + t) * (s)->cin * (s)->cout;             \
                        call;                                                              \
                    }                                                                      \
            }

static void add_forward(const struct kernel_conv *s, const float *x, const float *w,
                        float *y) {
    for (int64_t c = 0; c < s->cin; c++)
        for (int64_t k = 0; k < s->cout; k++)
            y[k] += x[c] * w[c * s->cout + k];
}

static void add_data(const struct kernel_conv *s, const float *dy, const float *w,
                     float *dx) {
    for (int64_t c = 0; c < s->cin; c++) {
        float sum = 0;
        for (int64_t k = 0; k < s->cout; k++)
            sum += dy[k] * w[c * s->cout + k];
        dx[c] += sum;
    }
}

static int64_t volume(const struct kernel_conv *s) {
    return s->batch * s->oh * s->ow * s->cout * s->kh * s->kw * s->cin;
}

void kernel_conv(const struct kernel_conv *s, const float *x, const float *w, float *y) {
    memset(y, 0, (size_t)(s->batch * s->oh * s->ow * s->cout) * sizeof *y);
    KERNEL_SPLIT(s->batch, 1, volume(s),
                 FOR_TAPS(s, first, end, add_forward(s, x + xi, w + wi, y + yi)));
}

void kernel_conv_dx(const struct kernel_conv *s, const float *dy, const float *w,
                    float *dx) {
    memset(dx, 0, (size_t)(s->batch * s->ih * s->iw * s->cin) * sizeof *dx);
    KERNEL_SPLIT(s->batch, 1, volume(s),
                 FOR_TAPS(s, first, end, add_data(s, dy + yi, w + wi, dx + xi)));
}

/* Threads take input channels of their own. */
void kernel_conv_dw(const struct kernel_conv *s, const float *x, const float *dy,
                    float *dw) {
    KERNEL_SPLIT(s->cin, 1, volume(s), FOR_TAPS(s, 0, s->batch, {
                     for (int64_t c = first; c < end; c++)
                         for (int64_t k = 0; k < s->cout; k++)
                             dw[wi + c * s->cout + k] += x[xi + c] * dy[yi + k];
                 }));
}

#endif
