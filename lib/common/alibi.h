/* alibi.h - what ALiBi adds to the scores of attention (Press et al., Train short, test long, 2022), on
 * every device alike.
 *
 * A key d positions behind its query gets -d times the slope of the head. Of a power of two of heads the
 * slopes are 2^(-8 i / heads), i = 1 .. heads; of another number those of the power below it, and then every
 * second one of the power above.
 *
 * Falcon has slopes, positions and the products of both in bf16, as transformers computes them: then what is
 * added depends on where in the sequence both are, and not on their distance alone.
 *
 *     struct alibi a = {.by = 1, .first = 0, .heads = 12};
 *     struct alibi_head h = alibi_head(&a, head, 1);     // of the rank's head of this number
 *     score += alibi_between(&h, key, query);
 */
#ifndef WEFT_ALIBI_H
#define WEFT_ALIBI_H

#include "common/both.h"
#include "common/half.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct alibi {
    float by;      /* times the slopes; 0: nothing is added */
    int32_t first; /* number of the rank's first head */
    int32_t heads; /* of all ranks */
    bool rounded;  /* to bf16 */
};

/* What one head has. */
struct alibi_head {
    float slope; /* of what is added, in the unit of scores; 0: nothing is */
    float inner; /* rounded: the slope that is multiplied with positions, before .. */
    float outer; /* .. both that and the unit */
    bool rounded;
};

/* unit: of scores, in natural ones. */
BOTH struct alibi_head alibi_head(const struct alibi *a, int64_t h, float unit) {
    struct alibi_head out = {0, 0, 0, a->rounded};
    if (a->by == 0)
        return out;
    const int64_t head = a->first + h;
    int64_t power = 1;
    while (2 * power <= a->heads)
        power *= 2;
    const double step =
        head < power ? (double)(head + 1) : (double)(2 * (head - power) + 1) / 2;
    out.inner = (float)exp2(-8 * step / (double)power);
    out.outer = unit * a->by;
    out.slope = unit * (a->by * out.inner);
    if (a->rounded)
        out.inner = bf16_round(out.inner);
    return out;
}

/* The product of the slope and a position of the sequence. */
BOTH float alibi_product(const struct alibi_head *h, int64_t position) {
    return bf16_round(h->inner * bf16_round((float)position));
}

/* What is added to the score that a query has for a key, by their positions in the sequence. */
BOTH float alibi_between(const struct alibi_head *h, int64_t key, int64_t query) {
    if (!h->rounded)
        return h->slope * (float)(key - query);
    return h->outer * (alibi_product(h, key) - alibi_product(h, query));
}

#endif
