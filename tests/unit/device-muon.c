/* Muon: momentum and step against formulas in double; matrices are made orthogonal as the same steps of Newton
 * and Schulz in double make them, whatever lies between their rows, and come out with singular values near 1. */
#include "device.h"

static const int64_t sizes[] = {1, 15, 16, 1000, 70000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void test_steps(void) {
    double worst = 0;
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *p = noise(n, 1, 1), *g = noise(n, 2, 2), *m = noise(n, 0, 3), *u = floats(n);
        double *pw = doubles(n), *mw = doubles(n), *uw = doubles(n);
        for (int64_t i = 0; i < n; i++)
            pw[i] = p[i];
        for (int t = 1; t <= 3; t++) {
            kernel_momentum(n, u, g, m, 0.5f, 0.95f);
            kernel_muon(n, p, u, 0.01f, 0.1f);
            for (int64_t i = 0; i < n; i++) {
                mw[i] = 0.95 * mw[i] + 0.5 * g[i];
                uw[i] = 0.5 * g[i] + 0.95 * mw[i];
                pw[i] -= 0.01 * (uw[i] + 0.1 * pw[i]);
            }
        }
        worst = fmax(worst, fmax(nmse(n, p, pw), fmax(nmse(n, m, mw), nmse(n, u, uw))));
        kernel_momentum(n, g, g, m, 0.5f, 0.95f);
        for (int64_t i = 0; i < n; i++) /* the momentum is what u was */
            uw[i] += 0.95 * (uw[i] - mw[i]);
        worst = fmax(worst, nmse(n, g, uw));
        free(p), free(g), free(m), free(u), free(pw), free(mw), free(uw);
    }
    ok(worst < 1e-12, "three steps: %.0e", worst);
}

/* y[m,n] = a[m,k] b[k,n]; turned: b lies as [n,k]. */
static void product(int64_t m, int64_t n, int64_t k, const double *a, const double *b,
                    bool turned, double *y) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[i * k + l] * (turned ? b[j * k + l] : b[l * n + j]);
            y[i * n + j] = sum;
        }
}

/* The matrix as it is, whatever its longer side: A = X X^T, X = a X + (b A + c A A) X. */
static void plainly(int64_t rows, int64_t columns, double *x) {
    double *a = doubles(rows * rows), *b = doubles(rows * rows),
           *y = doubles(rows * columns);
    double squares = 0;
    for (int64_t i = 0; i < rows * columns; i++)
        squares += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= sqrt(squares) + 1e-7;
    for (int t = 0; t < 5; t++) {
        product(rows, rows, columns, x, x, true, a);
        product(rows, rows, rows, a, a, false, b);
        for (int64_t i = 0; i < rows * rows; i++)
            b[i] = 2.0315 * b[i] - 4.7750 * a[i];
        product(rows, columns, rows, b, x, false, y);
        for (int64_t i = 0; i < rows * columns; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
    const double scale = 0.2 * sqrt((double)(rows > columns ? rows : columns));
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] *= scale;
    free(a), free(b), free(y);
}

/* Element (i, j) of matrix (o, k) of those that lie as [outer][rows][inner][columns]. */
static int64_t at(const struct kernel_matrices *x, int64_t o, int64_t k, int64_t i,
                  int64_t j) {
    return ((o * x->rows + i) * x->inner + k) * x->columns + j;
}

/* The extreme singular values of a matrix over 0.2 root of its longer side, by Jacobi's rotations of its
 * columns or rows, whichever are fewer, until they are orthogonal. */
static void singular(int64_t rows, int64_t columns, const double *x, double range[2]) {
    const bool wide = rows < columns;
    const int64_t side = wide ? rows : columns, n = wide ? columns : rows;
    double *v = doubles(side * n); /* [side][n] */
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j < n; j++)
            v[i * n + j] = wide ? x[i * n + j] : x[j * side + i];
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t p = 0; p < side; p++)
            for (int64_t q = p + 1; q < side; q++) {
                double a = 0, b = 0, c = 0;
                for (int64_t i = 0; i < n; i++) {
                    a += v[p * n + i] * v[p * n + i];
                    b += v[q * n + i] * v[q * n + i];
                    c += v[p * n + i] * v[q * n + i];
                }
                if (fabs(c) < 1e-14)
                    continue;
                const double angle = 0.5 * atan2(2 * c, a - b);
                const double cosine = cos(angle), sine = sin(angle);
                for (int64_t i = 0; i < n; i++) {
                    const double y = v[p * n + i], z = v[q * n + i];
                    v[p * n + i] = cosine * y + sine * z;
                    v[q * n + i] = cosine * z - sine * y;
                }
            }
    for (int64_t p = 0; p < side; p++) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++)
            squares += v[p * n + i] * v[p * n + i];
        const double value = sqrt(squares) / (0.2 * sqrt((double)n));
        range[0] = fmin(range[0], value);
        range[1] = fmax(range[1], value);
    }
    free(v);
}

static void test_matrices(const struct kernel_matrices *x) {
    const int64_t all = x->outer * x->rows * x->inner * x->columns;
    const int64_t side = x->rows < x->columns ? x->rows : x->columns;
    float *u = noise(all, 3, 5), *o = floats(all), *again = copy(all, u);
    float *scratch = floats(x->rows * x->columns + 2 * side * side);
    double *want = doubles(all), *one = doubles(x->rows * x->columns);
    double range[2] = {INFINITY, 0};
    kernel_orthogonalize(x, u, o, scratch);
    kernel_orthogonalize(x, again, again, scratch);
    for (int64_t b = 0; b < x->outer; b++)
        for (int64_t k = 0; k < x->inner; k++) {
            for (int64_t i = 0; i < x->rows * x->columns; i++)
                one[i] = u[at(x, b, k, i / x->columns, i % x->columns)];
            plainly(x->rows, x->columns, one);
            for (int64_t i = 0; i < x->rows * x->columns; i++)
                want[at(x, b, k, i / x->columns, i % x->columns)] = one[i];
            for (int64_t i = 0; i < x->rows * x->columns; i++)
                one[i] = o[at(x, b, k, i / x->columns, i % x->columns)];
            singular(x->rows, x->columns, one, range);
        }
    const double apart = nmse(all, o, want);
    ok(apart < 1e-10 && same(all, o, again) && range[0] > 0.68 && range[1] < 1.14,
       "%lld x %lld matrices %lld x %lld: %.0e, singular values %.3f to %.3f, and in place",
       (long long)x->outer, (long long)x->inner, (long long)x->rows, (long long)x->columns,
       apart, range[0], range[1]);
    free(u), free(o), free(again), free(scratch), free(want), free(one);
}

static void test_orthogonal(void) {
    static const struct kernel_matrices cases[] = {
        {1, 32, 1, 64}, {1, 64, 1, 32},  {1, 24, 3, 48}, {2, 40, 1, 16},
        {2, 7, 3, 5},   {1, 30, 1, 200}, {1, 150, 2, 33}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_matrices(&cases[i]);
}

/* A gradient of zeros is no direction: o is zero, and nothing is divided by zero. */
static void test_nothing(void) {
    const struct kernel_matrices x = {1, 8, 1, 4};
    float u[32] = {0}, o[32], scratch[32 + 2 * 16];
    bool zero = true;
    kernel_orthogonalize(&x, u, o, scratch);
    for (int i = 0; i < 32; i++)
        zero &= o[i] == 0;
    ok(zero, "nothing becomes nothing");
}

int main(void) {
    with_threads(test_steps);
    with_threads(test_orthogonal);
    with_threads(test_nothing);
    return done_testing();
}
