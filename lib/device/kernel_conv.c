/* Convolution: by the library (kernel_conv_dnnl.c) or, where it has none for the type of elements,
 * in plain C: a sum of scaled rows of weights at each place, and its transposes. In bf16 the gradients
 * of one that has a single tap and reads every place are products of matrices, [places, in], [in, out]
 * and [places, out], in which the library is faster. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

/* Taps of a window that begins at `at` which lie in 0 .. size - 1. */
static void taps_inside(int64_t at, int64_t size, int64_t taps, int64_t *first,
                        int64_t *end) {
    *first = at < 0 ? -at : 0;
    *end = at + taps > size ? size - at : taps;
}

/* Where the window of place (b, oh, ow) begins, and which of its taps are inside. */
struct window {
    int64_t b, h, w, r0, r1, t0, t1;
};
static struct window window_of(const struct kernel_conv *s, int64_t place) {
    struct window v = {.b = place / (s->oh * s->ow),
                       .h = place / s->ow % s->oh * s->stride - s->ph,
                       .w = place % s->ow * s->stride - s->pw};
    taps_inside(v.h, s->ih, s->kh, &v.r0, &v.r1);
    taps_inside(v.w, s->iw, s->kw, &v.t0, &v.t1);
    return v;
}

/* Where channels begin in x and w for tap (r, t) of the window. */
static int64_t x_at(const struct kernel_conv *s, const struct window *v, int64_t r,
                    int64_t t) {
    return ((v->b * s->ih + v->h + r) * s->iw + v->w + t) * s->cin;
}
static int64_t w_at(const struct kernel_conv *s, int64_t r, int64_t t) {
    return (r * s->kw + t) * s->cin * s->cout;
}

static int64_t volume(const struct kernel_conv *s) {
    return s->batch * s->oh * s->ow * s->cout * s->kh * s->kw * s->cin;
}

static bool is_product(const struct kernel_conv *s) {
    return TYPE == DTYPE_bf16 && s->kh * s->kw == 1 && s->stride == 1 && s->ph + s->pw == 0;
}

static void forward_place(const struct kernel_conv *s, int64_t place, const T *x,
                          const T *w, float *sum, T *y) {
    const struct window v = window_of(s, place);
    memset(sum, 0, sizeof *sum * (size_t)s->cout);
    for (int64_t r = v.r0; r < v.r1; r++)
        for (int64_t t = v.t0; t < v.t1; t++)
            for (int64_t c = 0; c < s->cin; c++) {
                const T *row = w + w_at(s, r, t) + c * s->cout;
                const float scale = get(x + x_at(s, &v, r, t) + c);
                for (int64_t k = 0; k < s->cout; k++)
                    sum[k] += scale * get(row + k);
            }
    for (int64_t k = 0; k < s->cout; k++)
        put(y + place * s->cout + k, sum[k]);
}

void kernel_conv(const struct kernel_conv *s, const T *x, const T *w, T *y) {
    if (kernel_conv_library(KERNEL_FORWARD, s, TYPE, x, w, y))
        return;
    KERNEL_SPLIT(s->batch * s->oh * s->ow, 1, volume(s), {
        for (int64_t i = first; i < end; i++)
            forward_place(s, i, x, w, kernel_scratch(thread), y);
    });
}

/* sum += what tap (r, t) says of an input place h, w: the window that has it there, if any. */
static void data_tap(const struct kernel_conv *s, int64_t place, int64_t r, int64_t t,
                     const T *dy, const T *weights, float *sum) {
    const int64_t b = place / (s->ih * s->iw), h = place / s->iw % s->ih, w = place % s->iw;
    const int64_t oh = h + s->ph - r, ow = w + s->pw - t;
    if (oh < 0 || ow < 0 || oh % s->stride || ow % s->stride || oh / s->stride >= s->oh ||
        ow / s->stride >= s->ow)
        return;
    const T *d = dy + ((b * s->oh + oh / s->stride) * s->ow + ow / s->stride) * s->cout;
    for (int64_t c = 0; c < s->cin; c++)
        for (int64_t k = 0; k < s->cout; k++)
            sum[c] += get(d + k) * get(weights + w_at(s, r, t) + c * s->cout + k);
}

static void data_place(const struct kernel_conv *s, int64_t place, const T *dy, const T *w,
                       float *sum, T *dx) {
    memset(sum, 0, sizeof *sum * (size_t)s->cin);
    for (int64_t r = 0; r < s->kh; r++)
        for (int64_t t = 0; t < s->kw; t++)
            data_tap(s, place, r, t, dy, w, sum);
    for (int64_t c = 0; c < s->cin; c++)
        put(dx + place * s->cin + c, sum[c]);
}

/* With fewer channels the library's gradient of the operand is the faster. */
enum { LEAST_CHANNELS = 64 };

void kernel_conv_dx(const struct kernel_conv *s, const T *dy, const T *w, T *dx) {
    const bool wide = s->cin >= LEAST_CHANNELS && s->cout >= LEAST_CHANNELS;
    if (wide && is_product(s) &&
        kernel_blas_half(&(struct kernel_product){.m = s->batch * s->oh * s->ow,
                                                  .n = s->cin,
                                                  .k = s->cout,
                                                  .type = TYPE,
                                                  .a = {dy, s->cout, false},
                                                  .b = {w, s->cout, true},
                                                  .type_c = TYPE,
                                                  .c = dx,
                                                  .ldc = s->cin}))
        return;
    if (kernel_conv_library(KERNEL_DATA, s, TYPE, dx, w, dy))
        return;
    KERNEL_SPLIT(s->batch * s->ih * s->iw, 1, volume(s), {
        for (int64_t i = first; i < end; i++)
            data_place(s, i, dy, w, kernel_scratch(thread), dx);
    });
}

/* Input channels first..end-1. */
static void weights_place(const struct kernel_conv *s, int64_t place, int64_t first,
                          int64_t end, const T *x, const T *dy, float *dw) {
    const struct window v = window_of(s, place);
    for (int64_t r = v.r0; r < v.r1; r++)
        for (int64_t t = v.t0; t < v.t1; t++)
            for (int64_t c = first; c < end; c++) {
                float *row = dw + w_at(s, r, t) + c * s->cout;
                const float scale = get(x + x_at(s, &v, r, t) + c);
                for (int64_t k = 0; k < s->cout; k++)
                    row[k] += scale * get(dy + place * s->cout + k);
            }
}

/* Threads take input channels of their own. */
void kernel_conv_dw(const struct kernel_conv *s, const T *x, const T *dy, float *dw) {
    if (is_product(s) &&
        kernel_blas_half(&(struct kernel_product){.m = s->cin,
                                                  .n = s->cout,
                                                  .k = s->batch * s->oh * s->ow,
                                                  .type = TYPE,
                                                  .a = {x, s->cin, true},
                                                  .b = {dy, s->cout, false},
                                                  .beta = 1,
                                                  .type_c = DTYPE_f32,
                                                  .c = dw,
                                                  .ldc = s->cout}))
        return;
    if (kernel_conv_library(KERNEL_WEIGHTS, s, TYPE, x, dw, dy))
        return;
    KERNEL_SPLIT(s->cin, 1, volume(s), {
        for (int64_t i = 0; i < s->batch * s->oh * s->ow; i++)
            weights_place(s, i, first, end, x, dy, dw);
    });
}
