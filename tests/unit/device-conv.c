/* Convolution and pooling: values in double, gradients by central differences. */
#include "device.h"

/* ---- convolution ------------------------------------------------------------------- */

/* Place (b, h, w) of a map [batch, rows, columns, c]; -1 outside. */
static int64_t place(int64_t b, int64_t h, int64_t w, int64_t rows, int64_t columns,
                     int64_t c) {
    return h < 0 || h >= rows || w < 0 || w >= columns ? -1
                                                       : ((b * rows + h) * columns + w) * c;
}

static void convolve(const struct kernel_conv *s, const double *x, const double *w,
                     double *y) {
    int64_t at = 0;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->oh * s->ow; i++)
            for (int64_t k = 0; k < s->cout; k++, at++) {
                y[at] = 0;
                for (int64_t t = 0; t < s->kh * s->kw; t++) {
                    int64_t from = place(b, i / s->ow * s->stride - s->ph + t / s->kw,
                                         i % s->ow * s->stride - s->pw + t % s->kw, s->ih,
                                         s->iw, s->cin);
                    for (int64_t c = 0; c < s->cin && from >= 0; c++)
                        y[at] += x[from + c] * w[(t * s->cin + c) * s->cout + k];
                }
            }
}

static double *widened(int64_t n, const float *x) {
    double *y = doubles(n);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

/* Derivatives of the sum of y dy with respect to `n` numbers at p. */
struct sum {
    const struct kernel_conv *s;
    const double *x, *w;
    const float *dy;
    double *y;
    int64_t n_y;
};

static double dot(const struct sum *t) {
    double sum = 0;
    convolve(t->s, t->x, t->w, t->y);
    for (int64_t i = 0; i < t->n_y; i++)
        sum += t->y[i] * t->dy[i];
    return sum;
}

static void slopes(const struct sum *t, int64_t n, double *p, double *out) {
    const double h = 0.5; /* the sum is linear in each number */
    for (int64_t i = 0; i < n; i++) {
        double at = p[i];
        p[i] = at + h;
        double above = dot(t);
        p[i] = at - h;
        out[i] += (above - dot(t)) / (2 * h);
        p[i] = at;
    }
}

static void check_conv(struct kernel_conv s) {
    int64_t n_x = s.batch * s.ih * s.iw * s.cin, n_w = s.kh * s.kw * s.cin * s.cout;
    int64_t n_y = s.batch * s.oh * s.ow * s.cout;
    float *x = noise(n_x, 1, 1), *w = noise(n_w, 1, 2), *dy = noise(n_y, 1, 3);
    float *y = floats(n_y), *dx = floats(n_x), *dw = noise(n_w, 1, 4);
    double *x2 = widened(n_x, x), *w2 = widened(n_w, w), *y2 = doubles(n_y);
    double *dx2 = doubles(n_x), *dw2 = widened(n_w, dw);
    struct sum t = {&s, x2, w2, dy, doubles(n_y), n_y};
    convolve(&s, x2, w2, y2);
    slopes(&t, n_x, x2, dx2);
    slopes(&t, n_w, w2, dw2);
    kernel_conv(&s, x, w, y);
    kernel_conv_dx(&s, dy, w, dx);
    kernel_conv_dw(&s, x, dy, dw);
    double a = nmse(n_y, y, y2), b = nmse(n_x, dx, dx2), c = nmse(n_w, dw, dw2);
    ok(a < TIGHT && b < TIGHT && c < TIGHT,
       "%dx%dx%dx%d by %dx%d to %dx%dx%d: y %.0e dx %.0e dw %.0e", (int)s.batch, (int)s.ih,
       (int)s.iw, (int)s.cin, (int)s.kh, (int)s.kw, (int)s.oh, (int)s.ow, (int)s.cout, a, b,
       c);
    float *again = floats(n_y);
    kernel_conv(&s, x, w, again);
    ok(same(n_y, y, again), "the same bits again");
    free(x), free(w), free(dy), free(y), free(dx), free(dw), free(again);
    free(x2), free(w2), free(y2), free(dx2), free(dw2), free(t.y);
}

/* ---- pooling ----------------------------------------------------------------------- */

/* The sum of dy times the largest numbers; the values go to y if it is not NULL. */
static double pool(const struct kernel_pool *p, const double *x, const float *dy,
                   double *y) {
    double sum = 0;
    for (int64_t i = 0; i < p->batch * p->oh * p->ow * p->c; i++) {
        int64_t at = i / p->c, ow = at % p->ow, oh = at / p->ow % p->oh,
                b = at / p->ow / p->oh;
        double best = -INFINITY;
        for (int64_t t = 0; t < p->kernel * p->kernel; t++) {
            int64_t from =
                place(b, oh * p->stride - p->ph + t / p->kernel,
                      ow * p->stride - p->pw + t % p->kernel, p->ih, p->iw, p->c);
            if (from >= 0 && x[from + i % p->c] > best)
                best = x[from + i % p->c];
        }
        if (y)
            y[i] = best;
        sum += best * dy[i];
    }
    return sum;
}

static void check_pool(struct kernel_pool p) {
    int64_t n_x = p.batch * p.ih * p.iw * p.c, n_y = p.batch * p.oh * p.ow * p.c;
    float *x = noise(n_x, 1, 1), *dy = noise(n_y, 1, 2), *y = floats(n_y),
          *dx = floats(n_x);
    double *x2 = widened(n_x, x), *y2 = doubles(n_y), *dx2 = doubles(n_x);
    const double h = 1e-6;
    pool(&p, x2, dy, y2);
    for (int64_t i = 0; i < n_x; i++) {
        double at = x2[i];
        x2[i] = at + h;
        double above = pool(&p, x2, dy, NULL);
        x2[i] = at - h;
        dx2[i] = (above - pool(&p, x2, dy, NULL)) / (2 * h);
        x2[i] = at;
    }
    kernel_maxpool(&p, x, y);
    kernel_maxpool_dx(&p, x, dy, dx);
    double a = nmse(n_y, y, y2), b = nmse(n_x, dx, dx2);
    ok(a == 0 && b < TIGHT, "maximum of %dx%d, stride %d: y %.0e dx %.0e", (int)p.kernel,
       (int)p.kernel, (int)p.stride, a, b);
    free(x), free(dy), free(y), free(dx), free(x2), free(y2), free(dx2);
}

/* Of equal numbers the first takes the gradient, as PyTorch's; what is no number comes
 * through. */
static void check_ties(void) {
    struct kernel_pool p = {1, 1, 3, 1, 1, 1, 3, 1, 1, 0};
    float x[3] = {2, 5, 5}, dy = 7, dx[3], y;
    kernel_maxpool_dx(&p, x, &dy, dx);
    ok(dx[0] == 0 && dx[1] == 7 && dx[2] == 0,
       "the first of equal ones takes the gradient");
    x[1] = NAN;
    kernel_maxpool(&p, x, &y);
    ok(isnan(y), "no number is larger than NaN");
}

static void check_mean(int64_t batch, int64_t places, int64_t c) {
    float *x = noise(batch * places * c, 1, 1), *y = floats(batch * c);
    float *dx = floats(batch * places * c), scale = 1.0f / (float)places;
    double *want = doubles(batch * c), *dx_want = doubles(batch * places * c);
    kernel_avgpool(batch, places, c, scale, x, y);
    kernel_avgpool_dx(batch, places, c, scale, y, dx);
    for (int64_t i = 0; i < batch * places * c; i++)
        want[i / places / c * c + i % c] += x[i] / (double)places;
    for (int64_t i = 0; i < batch * places * c; i++)
        dx_want[i] = want[i / places / c * c + i % c] / (double)places;
    double a = nmse(batch * c, y, want), b = nmse(batch * places * c, dx, dx_want);
    ok(a < TIGHT && b < TIGHT, "mean of %d places: y %.0e dx %.0e", (int)places, a, b);
    free(x), free(y), free(dx), free(want), free(dx_want);
}

/* What the library takes is within the bound that predictions count. */
static void check_workspace(int threads) {
    static const struct conv2d_n shapes[] = {
        {4, 112, 112, 3, 56, 56, 64, 7, 7, 2, 3, 3, 0},
        {2, 28, 28, 1, 28, 28, 16, 5, 5, 1, 2, 2, 0},
        {2, 32, 32, 5, 16, 16, 32, 3, 3, 2, 1, 1, 0},
        {4, 28, 28, 64, 28, 28, 64, 3, 3, 1, 1, 1, 0},
        {2, 30, 30, 64, 28, 28, 64, 3, 3, 1, 0, 0, 0},
        {4, 28, 28, 64, 28, 28, 256, 1, 1, 1, 0, 0, 0},
        {4, 28, 28, 256, 14, 14, 512, 1, 1, 2, 0, 0, 0},
        {4, 14, 14, 128, 14, 14, 256, 3, 3, 1, 1, 1, 0},
        {2, 7, 7, 256, 4, 4, 512, 3, 3, 2, 1, 1, 0},
        {2, 7, 7, 256, 7, 7, 1024, 1, 1, 1, 0, 0, 0},
        {16, 32, 32, 8, 32, 32, 16, 3, 3, 1, 1, 1, 0},
        {64, 4, 4, 32, 4, 4, 33, 3, 3, 1, 1, 1, 0},
        {64, 8, 8, 40, 8, 8, 20, 5, 5, 1, 2, 2, 0}};
    struct err err = {0};
    kernel_init(threads, &err);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct conv2d_n *n = &shapes[i];
        const struct kernel_conv s = {n->batch, n->ih, n->iw, n->cin,    n->oh, n->ow,
                                      n->cout,  n->kh, n->kw, n->stride, n->ph, n->pw};
        for (int half = 0; half < 2; half++) {
            const enum dtype dtype = half ? DTYPE_bf16 : DTYPE_f32;
            const int64_t bytes = kernel_conv_bytes(&s, dtype);
            const int64_t bound = cpu_workspace_convolution(n, dtype, threads);
            ok(bytes <= bound, "%d threads, shape %d in %s: %.2f MB of at most %.2f",
               threads, (int)i, dtype_name(dtype), 1e-6 * (double)bytes,
               1e-6 * (double)bound);
        }
    }
    kernel_release();
}

static void all(void) {
    check_conv((struct kernel_conv){2, 5, 6, 3, 5, 6, 4, 3, 3, 1, 1, 1});
    check_conv((struct kernel_conv){1, 7, 8, 2, 4, 4, 3, 3, 3, 2, 1, 1});
    check_conv((struct kernel_conv){2, 6, 5, 17, 2, 2, 33, 1, 1, 3, 0, 0});
    check_conv((struct kernel_conv){1, 9, 4, 3, 3, 2, 16, 5, 1, 2, 0, 0});
    check_conv((struct kernel_conv){1, 5, 3, 16, 5, 3, 16, 3, 3, 1, 1, 1});
    check_conv((struct kernel_conv){2, 6, 7, 4, 4, 7, 8, 3, 3, 1, 0, 1});
    check_conv((struct kernel_conv){1, 9, 9, 3, 5, 5, 4, 7, 7, 2, 3, 3});
    check_conv((struct kernel_conv){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
    check_pool((struct kernel_pool){2, 5, 6, 3, 3, 3, 3, 2, 1, 1});
    check_pool((struct kernel_pool){1, 7, 4, 20, 5, 2, 3, 1, 0, 0});
    check_pool((struct kernel_pool){2, 4, 4, 300, 2, 2, 2, 2, 0, 0});
    check_pool((struct kernel_pool){1, 6, 5, 4, 2, 3, 5, 2, 0, 2});
    check_ties();
    check_mean(3, 7, 5);
    check_mean(1, 49, 64);
}

int main(void) {
    with_threads(all);
    for (int threads = 1; threads <= 8; threads *= 2)
        check_workspace(threads);
    return done_testing();
}
