#include "common/stats.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_quantile(double *x, int64_t n, double q) {
    if (n <= 0)
        return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;
    if (i >= n - 1)
        return x[n - 1];
    return x[i] + (at - (double)i) * (x[i + 1] - x[i]);
}

double stats_median(double *x, int64_t n) {
    return stats_quantile(x, n, 0.5);
}

double stats_spread(double *x, int64_t n) {
    double median = stats_median(x, n);
    if (median == 0)
        return 0;
    return 0.5 * (stats_quantile(x, n, 0.75) - stats_quantile(x, n, 0.25)) / median;
}

/* rank[i] = number of smaller values + half the number of other equal ones. */
static double *ranks(const double *x, int64_t n) {
    double *r = mem_array((size_t)n, sizeof *r);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            r[i] += x[j] < x[i] ? 1 : (x[j] == x[i] && j != i ? 0.5 : 0);
    return r;
}

double stats_rank_correlation(const double *x, const double *y, int64_t n) {
    if (n < 2)
        return 0;
    double *a = ranks(x, n), *b = ranks(y, n), mean = 0.5 * (double)(n - 1);
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) * (a[i] - mean);
        bb += (b[i] - mean) * (b[i] - mean);
    }
    free(a);
    free(b);
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}
