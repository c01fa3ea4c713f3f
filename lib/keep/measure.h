/* measure.h - how fast this host is alone: products, memory, disk.
 *
 * Made for comparison of hosts with each other, in a second: products are plain C, so they are slower than those of
 * weft-run's libraries, by the same factor everywhere.
 *
 *     struct check_host h = {0};
 *     measure_host("ckpt", &h);
 *     printf("%g\n", h.speed[CHECK_PRODUCTS]);
 */
#ifndef WEFT_MEASURE_H
#define WEFT_MEASURE_H

#include "keep/check.h"

/* Fills speeds, result and, where something fails, the reason. The disk is that of folder `dir`, where a file is
 * written, synced and removed. Takes all cores of this process for about a second. */
void measure_host(const char *dir, struct check_host *h);

#endif
