/* stats.h - small robust statistics. Arrays are doubles; n = 0 gives 0. */
#ifndef WEFT_STATS_H
#define WEFT_STATS_H

#include <stdint.h>

/* q-quantile (0..1, linear between order statistics). Sorts x in place. */
double stats_quantile(double *x, int64_t n, double q);

/* Median; sorts x in place. */
double stats_median(double *x, int64_t n);

/* Half the inter-quartile range over the median: a relative spread. Sorts x in place. */
double stats_spread(double *x, int64_t n);

#endif
