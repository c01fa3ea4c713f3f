/* alibi.h - what ALiBi adds to the scores of attention (Press et al., Train short, test long, 2022), on
 * every device alike.
 *
 * A key d positions behind its query gets -d times the slope of the head. Of a power of two of heads the
 * slopes are 2^(-8 i / heads), i = 1 .. heads; of another number those of the power below it, and then every
 * second one of the power above.
 *
 *     struct alibi a = {.by = 1, .first = 0, .heads = 12};
 *     float slope = alibi_slope(&a, head);        // of the rank's head of this number
 *     score += slope * (float)(key - query);
 */
#ifndef WEFT_ALIBI_H
#define WEFT_ALIBI_H

#include "common/both.h"

#include <math.h>
#include <stdint.h>

struct alibi {
    float by;      /* times the slopes; 0: nothing is added */
    int32_t first; /* number of the rank's first head */
    int32_t heads; /* of all ranks */
};

BOTH float alibi_slope(const struct alibi *a, int64_t h) {
    if (a->by == 0)
        return 0;
    const int64_t head = a->first + h;
    int64_t power = 1;
    while (2 * power <= a->heads)
        power *= 2;
    const double step =
        head < power ? (double)(head + 1) : (double)(2 * (head - power) + 1) / 2;
    return a->by * (float)exp2(-8 * step / (double)power);
}

#endif
