/* rotary.h - how fast the pairs of a head turn from one position to the next, on every device alike.
 *
 * Pair i of a head turns by base^(-2i / turned). What was trained on sequences of `original` positions
 * reads longer ones where slow pairs turn slower: `factor` times, while those that turn more than `high`
 * times in an original sequence stay as they are. In between, the share of each goes by the turns (Llama
 * 3.1), or, with `by_pair`, by the number of the pair (Peng et al., YaRN, 2024). With original = 0 all turn
 * slower (Chen et al., Position Interpolation, 2023).
 *
 *     struct rotary_angles r = {.log2_base = log2(10000), .turned = 64, .factor = 1, .gain = 1};
 *     double angle = (double)position * rotary_frequency(&r, pair);
 */
#ifndef WEFT_ROTARY_H
#define WEFT_ROTARY_H

#include "common/both.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct rotary_angles {
    double log2_base;
    int64_t turned; /* dims of a head that turn, the first ones; an even number */
    double factor, original, low, high;
    bool by_pair;
    float gain; /* of what is turned */
    const double *
        slower; /* by pair, how much slower it turns (Ding et al., LongRoPE, 2024), and nothing
                           * else counts; or NULL. Of the host */
};
enum { ROTARY_MOST_LISTED = 256 }; /* pairs of such a list */

/* The pair that would turn so often in an original sequence. */
BOTH double rotary_pair_of(const struct rotary_angles *r, double turns) {
    return (double)r->turned * log2(r->original / (turns * 6.283185307179586)) /
           (2 * r->log2_base);
}

/* Of a pair, between 0 and 1: 1 = as slow as the factor makes it. */
BOTH double rotary_slowed(const struct rotary_angles *r, double pair, double frequency) {
    double from = r->high, to = r->low, at = r->original * frequency / 6.283185307179586;
    if (r->original == 0)
        return 1;
    if (r->by_pair) {
        from = fmax(floor(rotary_pair_of(r, r->high)), 0.0);
        to = fmin(ceil(rotary_pair_of(r, r->low)), (double)r->turned - 1);
        to += from == to ? 0.001 : 0;
        at = pair;
    }
    return fmin(fmax((at - from) / (to - from), 0.0), 1.0);
}

/* Radians per position, of what is not slowed down. */
BOTH double rotary_plain(const struct rotary_angles *r, int64_t pair) {
    return exp2(-2 * (double)pair / (double)r->turned * r->log2_base);
}

/* Radians per position. */
BOTH double rotary_frequency(const struct rotary_angles *r, int64_t pair) {
    const double frequency = rotary_plain(r, pair);
    if (r->slower)
        return frequency / r->slower[pair];
    if (r->factor == 1)
        return frequency;
    const double slowed = rotary_slowed(r, (double)pair, frequency);
    return frequency * (1 - slowed) + frequency / r->factor * slowed;
}

#endif
