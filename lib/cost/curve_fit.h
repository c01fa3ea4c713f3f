/* curve_fit.h - curves out of measured times.
 *
 * Parameters are sought in logarithms, so they stay positive, by damped least squares of the
 * logarithms of times (Levenberg 1944, Marquardt 1963); rows far off count less (Cauchy's
 * weights). The curve that one begins with is held on to, the more the nearer it says that it is
 * (within) and the rows find it: so a curve of another device and a handful of rows give one of this
 * device, and a guess counts for little, as does a curve of a device that proves to be unlike.
 *
 *     struct curve c = device_model_curve(model, I_linear, DTYPE_bf16)->curve;
 *     curve_fit(&model->chip, rows, n, &c);       // c.within: how far off rows not used were
 */
#ifndef WEFT_CURVE_FIT_H
#define WEFT_CURVE_FIT_H

#include "cost/curve_near.h"

/* Rows below which a curve of this form says nothing of its own. */
int curve_least_rows(enum curve_form f);

/* Improves *c; sets its rows and within. What few rows do not tell stays as it was. n >= 1. */
void curve_fit(const struct chip *chip, const struct curve_row *rows, int64_t n,
               struct curve *c);

/* logarithms of measured over predicted times, of rows that the curve was not fitted to: each of
 * two halves is predicted by a fit of the other; near: and by what its rows nearby are off. out: n
 * numbers. */
void curve_held_out(const struct chip *chip, const struct curve_row *rows, int64_t n,
                    const struct curve *prior, bool near, double *out);
/* What four of five of these logarithms keep to, as a part; of n of them the next above that share. They
 * are sorted, without their signs. */
double curve_bound(double *off, int64_t n);

#endif
