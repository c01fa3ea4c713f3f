/* How far off rows nearby are: see curve_near.h. */
#include "cost/curve_near.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes near_by times apart have 1/e in common; `own` is what a row has of its own beside
 * that. Of an H100's, an H200's and a V100's rows, each half predicted from the other, most
 * instructions are nearest with these, among 2, 4, 10 and 30, and 0.1 and 0.3. */
static const double near_by = 10, own = .3;
static const double too_far = 5; /* farther rows count less than a hundredth */
enum { MOST_NEAR = 16 };

static double distance(const struct near_row *a, const struct near_row *b) {
    double d = 0;
    for (int k = 0; k < CURVE_NEAR_SIZES; k++)
        d += (a->at[k] - b->at[k]) * (a->at[k] - b->at[k]);
    return a->kind == b->kind ? sqrt(d) : INFINITY;
}

static double alike(double d) {
    return exp(-d);
}

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

/* Finds the rows that tell most about a shape, nearest first. Returns how many. */
static int nearest(const struct curve_near *near, const struct near_row *here,
                   const struct near_row *out[MOST_NEAR], double far[MOST_NEAR]) {
    int n = 0;
    for (int64_t i = 0; i < near->n; i++) {
        double d = distance(&near->rows[i], here);
        int at = n < MOST_NEAR ? n : MOST_NEAR;
        if (d > too_far || (at == MOST_NEAR && d >= far[at - 1]))
            continue;
        n += n < MOST_NEAR;
        for (at = n - 1; at > 0 && far[at - 1] > d; at--) {
            far[at] = far[at - 1];
            out[at] = out[at - 1];
        }
        far[at] = d;
        out[at] = &near->rows[i];
    }
    return n;
}

/* Factors the covariance of the rows (Cholesky), and solves for their logarithms and for
 * their covariance with the shape. The two vectors' product is the shape's logarithm. */
double curve_near_factor(const struct curve_near *near, const struct curve_shape *s) {
    const struct near_row here = place(s), *rows[MOST_NEAR];
    double l[MOST_NEAR][MOST_NEAR], off[MOST_NEAR], with[MOST_NEAR], far[MOST_NEAR],
        sum = 0;
    int n = nearest(near, &here, rows, far);
    for (int i = 0; i < n; i++) {
        off[i] = rows[i]->off;
        with[i] = alike(far[i]);
        for (int j = 0; j <= i; j++) {
            double c = i == j ? 1 + own * own : alike(distance(rows[i], rows[j]));
            for (int k = 0; k < j; k++)
                c -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(c) : c / l[j][j];
        }
        for (int k = 0; k < i; k++) {
            off[i] -= l[i][k] * off[k];
            with[i] -= l[i][k] * with[k];
        }
        off[i] /= l[i][i];
        with[i] /= l[i][i];
        sum += off[i] * with[i];
    }
    return exp(sum);
}
