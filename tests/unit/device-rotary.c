/* Rotary positions against complex numbers in double; the gradient by central differences. */
#include "device.h"

#include <complex.h>

struct test {
    int64_t batch, seq, heads, dim, first, n;
    float base, *x, *dy, *y, *dx;
};

static struct test make(int64_t batch, int64_t seq, int64_t heads, int64_t dim,
                        int64_t first, float base) {
    struct test t = {batch, seq,  heads, dim,  first, batch * seq * heads * dim,
                     base,  NULL, NULL,  NULL, NULL};
    t.x = noise(t.n, 1, 1);
    t.dy = noise(t.n, 1, 2);
    t.y = floats(t.n);
    t.dx = floats(t.n);
    return t;
}

static void drop(struct test *t) {
    free(t->x), free(t->dy), free(t->y), free(t->dx);
}

static void run(const struct test *t) {
    struct kernel_rotary r = {t->batch, t->seq, t->heads, t->dim, t->first, t->base, false};
    kernel_rotary(&r, t->x, t->y);
    r.back = true;
    kernel_rotary(&r, t->dy, t->dx);
}

/* A head at a position: the pair (i, i + dim/2) is one number, which turns. */
static void turn(const struct test *t, int64_t position, const double *x, double *y) {
    const int64_t pairs = t->dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        double angle = (double)position * pow(t->base, -2.0 * (double)i / (double)t->dim);
        double complex z = (x[i] + I * x[pairs + i]) * cexp(I * angle);
        y[i] = creal(z), y[pairs + i] = cimag(z);
    }
}

static double loss(const struct test *t, int64_t position, const double *x,
                   const float *dy) {
    double y[64], sum = 0;
    turn(t, position, x, y);
    for (int64_t i = 0; i < t->dim; i++)
        sum += y[i] * dy[i];
    return sum;
}

static void check(int64_t batch, int64_t seq, int64_t heads, int64_t dim, int64_t first,
                  float base) {
    struct test t = make(batch, seq, heads, dim, first, base);
    double *y = doubles(t.n), *dx = doubles(t.n), x[64];
    const double h = 1e-5;
    run(&t);
    for (int64_t at = 0; at < t.n; at += dim) {
        int64_t position = first + at / (heads * dim) % seq;
        for (int64_t i = 0; i < dim; i++)
            x[i] = t.x[at + i];
        turn(&t, position, x, y + at);
        for (int64_t i = 0; i < dim; i++) {
            double here = x[i];
            x[i] = here + h;
            dx[at + i] = loss(&t, position, x, t.dy + at);
            x[i] = here - h;
            dx[at + i] = (dx[at + i] - loss(&t, position, x, t.dy + at)) / (2 * h);
            x[i] = here;
        }
    }
    double e = nmse(t.n, t.y, y), f = nmse(t.n, t.dx, dx);
    ok(e < 1e-13 && f < 1e-13, "rotary %d x %d from %d x %d x %d: y %.0e dx %.0e",
       (int)batch, (int)seq, (int)first, (int)heads, (int)dim, e, f);
    kernel_rotary(&(struct kernel_rotary){batch, seq, heads, dim, first, base, false}, t.x,
                  t.x);
    ok(same(t.n, t.x, t.y), "in place: the same bits");
    free(y), free(dx);
    drop(&t);
}

/* The part of a sequence that a rank has comes out as in the whole, bit by bit. */
static void check_part(int64_t seq, int64_t parts) {
    struct test whole = make(1, seq * parts, 2, 24, 0, 1e4f);
    run(&whole);
    int good = 1;
    for (int64_t p = 0; p < parts; p++) {
        struct test part = make(1, seq, 2, 24, p * seq, 1e4f);
        memcpy(part.x, whole.x + p * part.n, (size_t)part.n * sizeof *part.x);
        run(&part);
        good &= same(part.n, part.y, whole.y + p * part.n);
        drop(&part);
    }
    ok(good, "%d positions in %d parts: the same bits", (int)(seq * parts), (int)parts);
    drop(&whole);
}

static void all(void) {
    check(1, 1, 1, 2, 0, 1e4f);
    check(2, 5, 3, 6, 3, 1e4f);
    check(3, 130, 2, 32, 100, 1e4f);
    check(1, 70, 2, 64, 100000, 5e5f);
    check_part(50, 3);
    check_part(64, 4);
    check_part(1, 7);
}

int main(void) {
    with_threads(all);
    return done_testing();
}
