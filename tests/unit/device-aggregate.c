/* The rules over gradients of replicas: values beside the same written plainly, one number at a time;
 * what holds of a rule whatever the numbers; and what bad rows can do. */
#include "device.h"

enum { MOST = 12 };
static const char *const names[] = {"median", "trimmed", "fair"};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The middle of m numbers, which are sorted. */
static double middle(double *v, int m) {
    qsort(v, (size_t)m, sizeof *v, ascending);
    return m % 2 ? v[m / 2] : (v[m / 2 - 1] + v[m / 2]) / 2;
}

/* The finite numbers of a column. */
static int column(const float *x, int64_t n, int parts, int64_t c, double *v) {
    int m = 0;
    for (int i = 0; i < parts; i++)
        if (isfinite(x[i * n + c]))
            v[m++] = x[i * n + c];
    return m;
}

static double plain_number(enum kernel_aggregate rule, const float *x, int64_t n, int parts,
                           int faulty, int64_t c) {
    double v[MOST], sum = 0;
    int m = column(x, n, parts, c, v), left = faulty - (parts - m), kept = 0;
    if (left < 0)
        return NAN;
    if (rule == KERNEL_MEDIAN)
        return parts * middle(v, m);
    qsort(v, (size_t)m, sizeof *v, ascending);
    for (int i = left; i < m - left; i++, kept++)
        sum += v[i];
    return parts * sum / kept;
}

static double apart(const float *x, const double *z, int64_t n) {
    double s = 0;
    for (int64_t c = 0; c < n; c++)
        s += (x[c] - z[c]) * (x[c] - z[c]);
    return sqrt(s);
}

/* Reweighting of whole rows as the textbook has it. */
static void plain_fair(const float *x, int64_t n, int parts, int faulty, double *z) {
    double s[MOST], order[MOST], u[MOST], sum;
    float *good = floats(parts * n);
    int m = 0;
    for (int i = 0; i < parts; i++) {
        bool finite = true;
        for (int64_t c = 0; c < n; c++)
            finite &= isfinite(x[i * n + c]) != 0;
        if (finite)
            memcpy(good + n * m++, x + i * n, (size_t)n * sizeof *x);
    }
    for (int64_t c = 0; c < n; c++) {
        column(good, n, m, c, order);
        z[c] = parts - m > faulty ? NAN : middle(order, m);
    }
    for (int k = 0; k < 3 && parts - m <= faulty; k++) {
        for (int i = 0; i < m; i++)
            order[i] = s[i] = apart(good + i * n, z, n);
        double sigma = middle(order, m), far = order[m - 1 - (faulty - (parts - m))];
        if (sigma == 0)
            break;
        sum = 0;
        for (int i = 0; i < m; i++)
            sum += u[i] = s[i] <= far ? 1 / (1 + s[i] / sigma) : 0;
        for (int64_t c = 0; c < n; c++) {
            z[c] = 0;
            for (int i = 0; i < m; i++)
                z[c] += u[i] / sum * good[i * n + c];
        }
    }
    for (int64_t c = 0; c < n; c++)
        z[c] *= parts;
    free(good);
}

static float *of(enum kernel_aggregate rule, const float *x, int64_t n, int parts,
                 int faulty, int64_t *suspects) {
    float *y = floats(n);
    kernel_aggregate(rule, n, parts, faulty, x, y, suspects);
    return y;
}

/* A small block, so that the fair rule sees all of a row at once, as the plain form does. */
static void test_values(void) {
    enum { N = 301 };
    struct rng r = {11, 0};
    int bad = 0, unknown = 0, trials = 0;
    for (int parts = 1; parts <= MOST; parts++)
        for (int faulty = 0; 2 * faulty < parts; faulty++)
            for (int rule = KERNEL_MEDIAN; rule <= KERNEL_FAIR; rule++, trials++) {
                float *x = noise(parts * N, 3, (uint64_t)trials);
                /* now and then more that is not finite than may be */
                for (int k = (int)rng_below(&r, 2 + faulty); k > 0; k--)
                    x[rng_below(&r, parts * N)] = k % 2 ? NAN : -INFINITY;
                float *y = of((enum kernel_aggregate)rule, x, N, parts, faulty, NULL);
                double *want = doubles(N);
                if (rule == KERNEL_FAIR)
                    plain_fair(x, N, parts, faulty, want);
                for (int c = 0; c < N; c++) {
                    if (rule != KERNEL_FAIR)
                        want[c] = plain_number((enum kernel_aggregate)rule, x, N, parts,
                                               faulty, c);
                    unknown += isnan(want[c]);
                    bad +=
                        isnan(want[c])
                            ? !isnan(y[c])
                            : !(fabs(y[c] - want[c]) <= 1e-5 * (3 * parts + fabs(want[c])));
                }
                free(x), free(y), free(want);
            }
    ok(bad == 0, "%d numbers of %d rules unlike the plain form", bad, trials);
    ok(unknown > 0, "%d of them unknown, as more are not finite than may be", unknown);
}

/* Of rows in another order, of another scale, moved by the same. */
static void test_equivariance(void) {
    enum { N = 40000, PARTS = 7, FAULTY = 2 };
    float *x = noise(PARTS * N, 1, 5), *shifted = floats(PARTS * N),
          *turned = floats(PARTS * N);
    float *v = noise(N, 1, 6);
    for (int i = 0; i < PARTS; i++)
        for (int c = 0; c < N; c++)
            turned[(i * 3 + 2) % PARTS * N + c] = x[i * N + c];
    for (int rule = KERNEL_MEDIAN; rule <= KERNEL_FAIR; rule++) {
        enum kernel_aggregate k = (enum kernel_aggregate)rule;
        for (int i = 0; i < PARTS * N; i++)
            shifted[i] = ldexpf(x[i], -100);
        float *y = of(k, x, N, PARTS, FAULTY, NULL),
              *t = of(k, turned, N, PARTS, FAULTY, NULL),
              *s = of(k, shifted, N, PARTS, FAULTY, NULL);
        double *want = doubles(N);
        for (int c = 0; c < N; c++) {
            want[c] = y[c];
            s[c] = ldexpf(s[c], 100);
        }
        close_to(N, t, want, TIGHT, "rows in another order");
        close_to(N, s, want, TIGHT, "rows of another scale");
        for (int i = 0; i < PARTS; i++)
            for (int c = 0; c < N; c++)
                shifted[i * N + c] = x[i * N + c] + v[c];
        float *moved = of(k, shifted, N, PARTS, FAULTY, NULL);
        for (int c = 0; c < N; c++)
            want[c] = (double)y[c] + PARTS * (double)v[c];
        close_to(N, moved, want, 1e-11, "all rows moved by the same");
        free(y), free(t), free(s), free(moved), free(want);
    }
    free(x), free(shifted), free(turned), free(v);
}

/* Rows that agree give their sum; one that is bad changes it by no more than the others differ, and is
 * suspected, as nobody else is. */
static void test_bad_rows(void) {
    enum { N = 5000, PARTS = 5 };
    static const char *const how[] = {"none", "flipped", "noise", "nan", "1e30"};
    float *g = noise(N, 0.01f, 8), *x = floats(PARTS * N);
    double *want = doubles(N);
    int64_t suspects[PARTS + 1];
    for (int c = 0; c < N; c++)
        want[c] = PARTS * (double)g[c];
    for (int rule = KERNEL_MEDIAN; rule <= KERNEL_FAIR; rule++)
        for (int k = 0; k < 5; k++)
            for (int spread = 0; spread < 2; spread++) {
                float *far = noise(N, 10, 9), *own = noise(PARTS * N, 0.001f, 10);
                for (int i = 0; i < PARTS; i++)
                    for (int c = 0; c < N; c++)
                        x[i * N + c] = g[c] + (spread ? own[i * N + c] : 0);
                for (int c = 0; c < N && k; c++)
                    x[2 * N + c] = k == 1   ? -10 * g[c]
                                   : k == 2 ? far[c]
                                   : k == 3 ? NAN
                                            : 1e30f;
                memset(suspects, 0, sizeof suspects);
                float *y = of((enum kernel_aggregate)rule, x, N, PARTS, 1, suspects);
                close_to(N, y, want, spread ? 0.01 : TIGHT, how[k]);
                ok(suspects[0] == 0 && suspects[4] == 0 && suspects[2] == (k ? N : 0) &&
                       suspects[PARTS] == N,
                   "%s, %s: suspected of %lld of %lld", names[rule], how[k],
                   (long long)suspects[2], (long long)suspects[PARTS]);
                free(y), free(far), free(own);
            }
    free(g), free(x), free(want);
}

static void test_all(void) {
    test_values();
    test_equivariance();
    test_bad_rows();
}

int main(void) {
    with_threads(test_all);
    return done_testing();
}
