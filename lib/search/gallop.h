/* gallop.h - bisection that sets out from a guess (after Bentley and Yao, 1976): where answers
 * differ little from one time to the next, it looks at a few places near the last one.
 *
 *     at = gallop(first, most + 1, last_time, reaches, &ctx);
 */
#ifndef WEFT_GALLOP_H
#define WEFT_GALLOP_H

#include <stdbool.h>

/* The last place that is reached: `lo` is (or is nothing), `hi` is not, and what lies in front of
 * a place that is reached counts as reached. `guess` may lie anywhere. */
static inline int gallop(int lo, int hi, int guess, bool (*reached)(void *ctx, int at),
                         void *ctx) {
    int step = 1;
    while (hi - lo > 1) {
        if (guess <= lo || guess >= hi)
            guess = lo + (hi - lo) / 2;
        if (reached(ctx, guess)) {
            lo = guess;
            guess += step;
        } else {
            hi = guess;
            guess -= step;
        }
        step *= 2;
    }
    return lo;
}

#endif
