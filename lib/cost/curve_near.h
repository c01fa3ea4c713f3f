/* curve_near.h - what measured rows near a shape say about it that their curve does not.
 *
 * Libraries choose among kernels, which no smooth curve can follow, but shapes that are
 * nearly alike mostly get the same one. So where a row is off its curve, a shape near it is
 * taken to be off too: logarithms of measured over predicted times are a Gaussian process
 * over the logarithms of sizes, conditioned on the nearest rows (Rasmussen and Williams
 * 2006, chapter 2). Far from all rows the curve holds.
 *
 *     struct curve_near near;
 *     curve_near_init(&near, &chip, &curve, rows, n);
 *     us = curve_us(&chip, &curve, &shape) * curve_near_factor(&near, &shape);
 *     curve_near_release(&near);
 */
#ifndef WEFT_CURVE_NEAR_H
#define WEFT_CURVE_NEAR_H

#include "cost/curve.h"

struct curve_row {
    struct curve_shape shape;
    double us;
};

enum { CURVE_NEAR_SIZES = 4 };
struct curve_near {
    int64_t n;
    struct near_row {
        double at[CURVE_NEAR_SIZES]; /* logarithms of its sizes, to base near_by */
        int kind;                    /* rows of other kinds say nothing */
        double off;                  /* logarithm of measured over predicted */
    } * rows;
};

/* The rows are copied. */
void curve_near_init(struct curve_near *near, const struct chip *chip,
                     const struct curve *c, const struct curve_row *rows, int64_t n);
void curve_near_release(struct curve_near *near);
double curve_near_factor(const struct curve_near *near, const struct curve_shape *s);

#endif
