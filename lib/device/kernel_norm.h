/* kernel_norm.h - what layer norm and RMS norm share: rows taken several at a time, and the sums over rows
 * that are the gradients of gamma and beta.
 *
 *     NORM_BLOCKS(NORM_ROWS, first, end, compute(count, row));
 */
#ifndef WEFT_KERNEL_NORM_H
#define WEFT_KERNEL_NORM_H

#include "kernel_impl.h"
#include "kernel_type.h"

/* Rows whose parameters are widened once. Floats are bound by memory, which likes one row after the other. */
enum { NORM_ROWS = sizeof(T) == 2 ? 4 : 1 };

/* Runs the call for rows first..end-1: for `count` of them from `row` on, `most` and then one by one; `count` is a
 * constant, so that loops over it unroll. */
#define NORM_BLOCKS(most, first, end, ...)                                                 \
    do {                                                                                   \
        int64_t row = (first);                                                             \
        for (; row + (most) <= (end); row += (most)) {                                     \
            enum { count = (most) };                                                       \
            __VA_ARGS__;                                                                   \
        }                                                                                  \
        for (; row < (end); row++) {                                                       \
            enum { count = 1 };                                                            \
            __VA_ARGS__;                                                                   \
        }                                                                                  \
    } while (0)

/* Adds the shares of rows first..end-1 to dgamma[n], and where there is one to dbeta[n]. */
typedef void norm_share(const void *arg, int64_t first, int64_t end, float *dgamma,
                        float *dbeta);
/* Adds those of all rows, [rows, n] in size. Each thread adds into its scratch, for slices that begin at
 * multiples of `unit`, and then its sums are added in the order of the threads; rows too long for the scratch
 * take one thread. dbeta may be NULL. */
void norm_gradients(int64_t rows, int64_t n, int64_t unit, norm_share *share,
                    const void *arg, float *dgamma, float *dbeta);

#endif
