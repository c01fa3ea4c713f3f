/* curve_fit.h - curves out of measured times.
 *
 * Parameters are sought in logarithms, so they stay positive, by damped least squares of
 * the logarithms of times (Levenberg 1944, Marquardt 1963); rows far off count less
 * (Cauchy's weights). The fit is held to the curve that it begins with, the more so the
 * nearer that says it is (within) and the nearer the rows find it. So another device's
 * curve and a handful of rows give one of this device, while a guess, or the curve of a
 * device that proves to be unlike, counts for little.
 *
 *     struct curve c = device_model_curve(model, I_linear, DTYPE_bf16)->curve;
 *     curve_fit(&model->chip, rows, n, &c);       // c.within: how far off rows not used were
 */
#ifndef WEFT_CURVE_FIT_H
#define WEFT_CURVE_FIT_H

#include "cost/curve_near.h"

/* With fewer rows than this, a fit of this form says nothing of its own. */
int curve_least_rows(enum curve_form f);

/* Improves *c; sets its rows and within. What few rows do not tell stays as it was. n >= 1. */
void curve_fit(const struct chip *chip, const struct curve_row *rows, int64_t n,
               struct curve *c);

/* Logarithms of measured over predicted times, of rows that the curve was not fitted to:
 * each half is predicted by a fit of the other, corrected by its rows nearby if `near` is
 * set. out: n numbers. */
void curve_held_out(const struct chip *chip, const struct curve_row *rows, int64_t n,
                    const struct curve *prior, bool near, double *out);
/* The bound that four of five of these n logarithms keep to, as a fraction: the next one
 * above that share. Sorts them and drops their signs. */
double curve_bound(double *off, int64_t n);

#endif
