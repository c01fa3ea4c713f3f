/* Rotary positions against complex numbers in double; the gradient by central differences. Angles for
 * longer sequences against numbers that transformers gives (modeling_rope_utils.py). */
#include "device.h"

#include <complex.h>

struct test {
    int64_t batch, seq, heads, dim, first, n;
    struct rotary_angles angles;
    float *x, *dy, *y, *dx;
};

static struct rotary_angles plain(int64_t turned, double base) {
    return (struct rotary_angles){
        .log2_base = log2(base), .turned = turned, .factor = 1, .gain = 1};
}

static struct test make(int64_t batch, int64_t seq, int64_t heads, int64_t dim,
                        int64_t first, struct rotary_angles angles) {
    struct test t = {.batch = batch,
                     .seq = seq,
                     .heads = heads,
                     .dim = dim,
                     .first = first,
                     .n = batch * seq * heads * dim,
                     .angles = angles};
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
    struct kernel_rotary r = {t->batch, t->seq,    t->heads, t->dim,
                              t->first, t->angles, false};
    kernel_rotary(&r, t->x, t->y);
    r.back = true;
    kernel_rotary(&r, t->dy, t->dx);
}

/* A head at a position: the pair (i, i + turned/2) is one number, which turns. */
static void turn(const struct test *t, int64_t position, const double *x, double *y) {
    const int64_t pairs = t->angles.turned / 2;
    for (int64_t i = 2 * pairs; i < t->dim; i++)
        y[i] = x[i];
    for (int64_t i = 0; i < pairs; i++) {
        double speed = pow(2, -2.0 * (double)i / (double)(2 * pairs) * t->angles.log2_base);
        double slower = t->angles.slower ? t->angles.slower[i] : t->angles.factor;
        double angle = (double)position * speed / slower;
        double complex z = (x[i] + I * x[pairs + i]) * cexp(I * angle);
        y[i] = t->angles.gain * creal(z), y[pairs + i] = t->angles.gain * cimag(z);
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
                  struct rotary_angles angles) {
    struct test t = make(batch, seq, heads, dim, first, angles);
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
    kernel_rotary(&(struct kernel_rotary){batch, seq, heads, dim, first, angles, false},
                  t.x, t.x);
    ok(same(t.n, t.x, t.y), "in place: the same bits");
    free(y), free(dx);
    drop(&t);
}

/* The part of a sequence that a rank has comes out as in the whole, bit by bit. */
static void check_part(int64_t seq, int64_t parts) {
    struct test whole = make(1, seq * parts, 2, 24, 0, plain(24, 1e4));
    run(&whole);
    int good = 1;
    for (int64_t p = 0; p < parts; p++) {
        struct test part = make(1, seq, 2, 24, p * seq, plain(24, 1e4));
        memcpy(part.x, whole.x + p * part.n, (size_t)part.n * sizeof *part.x);
        run(&part);
        good &= same(part.n, part.y, whole.y + p * part.n);
        drop(&part);
    }
    ok(good, "%d positions in %d parts: the same bits", (int)(seq * parts), (int)parts);
    drop(&whole);
}

/* The inverse frequencies that transformers computes for heads of 16 dims. */
static void check_slower(const char *name, struct rotary_angles r, const double *want) {
    double worst = 0;
    for (int64_t i = 0; i < 8; i++)
        worst = fmax(worst, fabs(rotary_frequency(&r, i) / want[i] - 1));
    ok(worst < 1e-6, "%s: frequencies differ by %.0e", name, worst);
}

static void check_published(void) {
    static const double llama3[] = {1,
                                    0.19392276,
                                    0.037606031,
                                    0.0072926651,
                                    0.00052484602,
                                    3.4281024e-05,
                                    6.6478697e-06,
                                    1.2891732e-06};
    static const double yarn[] = {1,
                                  0.17782794,
                                  0.023717083,
                                  0.0028117066,
                                  0.00025000001,
                                  4.4456985e-05,
                                  7.9056936e-06,
                                  1.4058534e-06};
    static const double linear[] = {0.25,          0.044456985,   0.0079056947,
                                    0.0014058533,  0.00025000001, 4.4456985e-05,
                                    7.9056936e-06, 1.4058534e-06};
    struct rotary_angles r = plain(16, 5e5);
    r.factor = 8, r.original = 8192, r.low = 1, r.high = 4;
    check_slower("llama3", r, llama3);
    r = plain(16, 1e6);
    r.factor = 4, r.original = 4096, r.low = 1, r.high = 32, r.by_pair = true;
    check_slower("yarn", r, yarn);
    r.original = 0;
    check_slower("linear", r, linear);
}

static void all(void) {
    struct rotary_angles slower = plain(12, 1e4);
    slower.factor = 4, slower.gain = 1.25f;
    const double by_pair[] = {1, 1.05, 1.3, 2.25, 4, 17.5};
    struct rotary_angles listed = plain(12, 1e4);
    listed.slower = by_pair, listed.gain = 1.19f;
    check(1, 1, 1, 2, 0, plain(2, 1e4));
    check(2, 5, 3, 6, 3, plain(6, 1e4));
    check(3, 130, 2, 32, 100, plain(32, 1e4));
    check(1, 70, 2, 64, 100000, plain(64, 5e5));
    check(2, 5, 3, 10, 3, plain(4, 1e4));
    check(1, 9, 2, 7, 0, plain(0, 1e4));
    check(1, 70, 2, 48, 900, slower);
    check(2, 70, 2, 16, 900, listed);
    check_part(50, 3);
    check_part(64, 4);
    check_part(1, 7);
}

int main(void) {
    check_published();
    with_threads(all);
    return done_testing();
}
