/* Muon's steps: momentum, and matrices made orthogonal.
 *
 * With X divided by its norm, so that no singular value is above 1, a step of Newton and Schulz is
 * X = a X + (b A + c A A) X where A = X X^T: an odd polynomial of every singular value, whose coefficients are
 * such that it grows fast from near zero and stays near 1 afterwards. What X is multiplied with, a I + b A +
 * c A A, has the side of the shorter of rows and columns: of a matrix with fewer columns, A is X^T X, and it
 * stands behind X. */
#include "kernel_impl.h"

#include "program/instr.h"

#include <math.h>
#include <string.h>

static const float coefficients[3] = NEWTON_SCHULZ;

static void momentum_range(int64_t n, float *u, const float *g, float *m, float grad_scale,
                           float momentum) {
    for (int64_t i = 0; i < n; i++) {
        const float d = grad_scale * g[i];
        m[i] = momentum * m[i] + d;
        u[i] = d + momentum * m[i];
    }
}

void kernel_momentum(int64_t n, float *u, const float *g, float *m, float grad_scale,
                     float momentum) {
    KERNEL_SPLIT(
        n, 16, n,
        momentum_range(end - first, u + first, g + first, m + first, grad_scale, momentum));
}

static void muon_range(int64_t n, float *p, const float *o, float lr, float decay) {
    for (int64_t i = 0; i < n; i++)
        p[i] -= lr * (o[i] + decay * p[i]);
}

void kernel_muon(int64_t n, float *p, const float *o, float lr, float decay) {
    KERNEL_SPLIT(n, 16, n, muon_range(end - first, p + first, o + first, lr, decay));
}

/* A matrix with so many floats from row to row. */
struct plane {
    float *p;
    int64_t ld;
};

/* Its sizes, and dense scratch for two matrices of the shorter side. */
struct newton {
    int64_t rows, columns, side;
    float *a, *b;
};

static void multiply(int64_t m, int64_t n, int64_t k, struct kernel_operand a,
                     struct kernel_operand b, struct plane c) {
    kernel_product(&(struct kernel_product){.m = m,
                                            .n = n,
                                            .k = k,
                                            .type = DTYPE_f32,
                                            .a = a,
                                            .b = b,
                                            .type_c = DTYPE_f32,
                                            .c = c.p,
                                            .ldc = c.ld});
}

static struct kernel_operand plain(struct plane x) {
    return (struct kernel_operand){x.p, x.ld, false};
}

static struct kernel_operand turned(struct plane x) {
    return (struct kernel_operand){x.p, x.ld, true};
}

/* b = scale (c b + b a + a I), the polynomial where b is the square of a. */
static void polynomial(const struct newton *s, float scale) {
    const float one = scale * coefficients[0], linear = scale * coefficients[1];
    const float square = scale * coefficients[2];
    KERNEL_SPLIT(s->side, 1, s->side * s->side, {
        for (int64_t i = first; i < end; i++) {
            float *b = s->b + i * s->side;
            const float *a = s->a + i * s->side;
            for (int64_t j = 0; j < s->side; j++)
                b[j] = square * b[j] + linear * a[j];
            b[i] += one;
        }
    });
}

/* y = scale times a step from x. */
static void newton_step(const struct newton *s, struct plane x, struct plane y,
                        float scale) {
    const int64_t side = s->side;
    const struct plane a = {s->a, side}, b = {s->b, side};
    const bool wide = s->rows <= s->columns;
    if (wide)
        multiply(side, side, s->columns, plain(x), turned(x), a);
    else
        multiply(side, side, s->rows, turned(x), plain(x), a);
    multiply(side, side, side, plain(a), plain(a), b);
    polynomial(s, scale);
    if (wide)
        multiply(s->rows, s->columns, side, plain(b), plain(x), y);
    else
        multiply(s->rows, s->columns, side, plain(x), plain(b), y);
}

static void scale_range(int64_t n, float *x, float by) {
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

/* The matrix divided by its norm, dense. */
static void normalize(const struct newton *s, const float *u, int64_t ld, float *x) {
    const int64_t n = s->rows * s->columns;
    KERNEL_SPLIT(s->rows, 1, n, {
        for (int64_t i = first; i < end; i++)
            memcpy(x + i * s->columns, u + i * ld, (size_t)s->columns * sizeof *x);
    });
    const float by = (float)(1 / (sqrt(kernel_sum_squares(n, x)) + 1e-7));
    KERNEL_SPLIT(n, 16, n, scale_range(end - first, x + first, by));
}

/* An odd number of steps, to and fro between the scratch and where the result belongs. */
_Static_assert(NEWTON_SCHULZ_STEPS % 2 == 1, "the last step writes the result");
static void orthogonalize(const struct newton *s, const float *u, struct plane o,
                          float *scratch) {
    const float longer = (float)(s->rows > s->columns ? s->rows : s->columns);
    struct plane x = {scratch, s->columns}, y = o;
    normalize(s, u, o.ld, scratch);
    for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
        const bool last = i == NEWTON_SCHULZ_STEPS - 1;
        newton_step(s, x, y, last ? 0.2f * sqrtf(longer) : 1);
        const struct plane other = x;
        x = y;
        y = other;
    }
}

void kernel_orthogonalize(const struct kernel_matrices *x, const float *u, float *o,
                          float *scratch) {
    struct newton s = {.rows = x->rows, .columns = x->columns};
    s.side = s.rows < s.columns ? s.rows : s.columns;
    s.a = scratch + s.rows * s.columns;
    s.b = s.a + s.side * s.side;
    const int64_t ld = x->inner * x->columns;
    for (int64_t i = 0; i < x->outer; i++)
        for (int64_t j = 0; j < x->inner; j++) {
            const int64_t at = i * x->rows * ld + j * x->columns;
            orthogonalize(&s, u + at, (struct plane){o + at, ld}, scratch);
        }
}
