#include "common/stats.h"

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
