/* gallop.h - bisection that starts from a guess, such as the previous answer (after Bentley
 * and Yao, 1976): if the answer is near the guess, only a few places are tested.
 *
 *     at = gallop(first, most + 1, last_time, reaches, &ctx);
 */
#ifndef WEFT_GALLOP_H
#define WEFT_GALLOP_H

#include <stdbool.h>

/* Returns the last place that is reached. `lo` is reached (or is one before the first
 * place), `hi` is not, and every place in front of a reached one is reached too.
 * `guess` may be any number. */
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
