/* Means of what rows nearby are off: see curve_near.h. */
#include "cost/curve_near.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes this many times apart tell less of each other by a factor of sqrt(e); what the
 * curve counts beside a row of the same shape. Of an H100's and a V100's rows, each half
 * predicted from the other, most instructions are nearest with these, among 1.5, 2 and 3,
 * and 0.2 and 0.5. */
static const double near_by = 1.5, of_curve = 0.2;
static const double too_far = 14; /* squares of steps: a thousandth of a row */

static struct near_row place(const struct curve_shape *s) {
    bool product = s->n > 0 || s->k > 0;
    const double sizes[CURVE_NEAR_SIZES] = {product ? s->m : s->bytes,
                                            product ? s->n : s->rows, s->k, s->batch};
    struct near_row r = {.kind = s->causal + 2 * s->positions + 4 * s->lengths};
    for (int i = 0; i < CURVE_NEAR_SIZES; i++)
        r.at[i] = log(sizes[i] + 1) / log(near_by);
    return r;
}

void curve_near_init(struct curve_near *near, const struct chip *chip,
                     const struct curve *c, const struct curve_row *rows, int64_t n) {
    near->n = 0;
    near->rows = mem_array((size_t)n + 1, sizeof *near->rows);
    for (int64_t i = 0; i < n; i++) {
        double us = curve_us(chip, c, &rows[i].shape);
        if (us <= 0 || rows[i].us <= 0)
            continue;
        near->rows[near->n] = place(&rows[i].shape);
        near->rows[near->n++].off = log(rows[i].us / us);
    }
}

void curve_near_release(struct curve_near *near) {
    free(near->rows);
    *near = (struct curve_near){0};
}

double curve_near_factor(const struct curve_near *near, const struct curve_shape *s) {
    const struct near_row here = place(s);
    double sum = 0, all = of_curve;
    for (int64_t i = 0; i < near->n; i++) {
        const struct near_row *r = &near->rows[i];
        double d = 0;
        for (int k = 0; k < CURVE_NEAR_SIZES; k++)
            d += (r->at[k] - here.at[k]) * (r->at[k] - here.at[k]);
        if (r->kind != here.kind || d > too_far)
            continue;
        double w = exp(-0.5 * d);
        sum += w * r->off;
        all += w;
    }
    return exp(sum / all);
}
