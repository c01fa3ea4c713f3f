/* Least squares for curves: see curve_fit.h. */
#include "cost/curve_fit.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 400, ROUNDS = 20 };
/* As logarithms: how far off rows usually are; where Cauchy's weight is half at the end. */
static const double usual_off = 0.1, far_off_last = 0.15;
/* How far off a guess is, as a logarithm; a prior that is farther off counts as much. */
static const double of_a_guess = 1;
/* A prior this far off, as a logarithm, is of an unlike device; a fit that begins elsewhere
 * then has to leave less than this share of the loss. */
static const double unlike = 0.5, clearly_less = 0.9;

struct fit {
    const struct chip *chip;
    const struct curve_row *rows;
    int64_t n, step; /* every step-th row */
    enum curve_form form;
    int n_params;
    double far_off; /* where Cauchy's weight is half */
    bool as_told;   /* parameters that datasheets state stay as they are */
    double hold;    /* to the prior, whose parameters are as far off as its times */
    double prior[CURVE_MAX_PARAMS]; /* logarithms */
};

static int count_params(enum curve_form f) {
    int n = 0;
    while (curve_params(f)[n].name)
        n++;
    return n;
}

int curve_least_rows(enum curve_form f) {
    return count_params(f);
}

/* How firmly a parameter is held to the prior's. */
static double hold_of(const struct fit *f, int i) {
    return f->hold * curve_params(f->form)[i].firm;
}

/* Whether a parameter stays as it is. Times are no smooth function of what datasheets state
 * (turns are whole, for example). */
static bool stays(const struct fit *f, int i) {
    return f->as_told && curve_params(f->form)[i].sheet;
}

static struct curve curve_of(const struct fit *f, const double *log_p) {
    struct curve c = {.form = f->form};
    for (int i = 0; i < f->n_params; i++) {
        const struct curve_param *k = &curve_params(f->form)[i];
        c.p[i] = fmin(fmax(exp(log_p[i]), k->least), k->most);
    }
    return c;
}

static double off(const struct fit *f, const struct curve *c, int64_t i) {
    return log(f->rows[i].us / curve_us(f->chip, c, &f->rows[i].shape));
}

static double weight(const struct fit *f, double r) {
    return 1 / (1 + r * r / (f->far_off * f->far_off));
}

/* The loss that Cauchy's weights minimize. */
static double loss(const struct fit *f, const double *log_p) {
    struct curve c = curve_of(f, log_p);
    double sum = 0;
    for (int64_t i = 0; i < f->n; i += f->step) {
        double r = off(f, &c, i) / f->far_off;
        sum += log1p(r * r) * f->far_off * f->far_off;
    }
    for (int i = 0; i < f->n_params; i++) {
        double moved = hold_of(f, i) * (log_p[i] - f->prior[i]);
        sum += moved * moved;
    }
    return sum;
}

struct normal {
    double a[CURVE_MAX_PARAMS][CURVE_MAX_PARAMS], b[CURVE_MAX_PARAMS];
};

static void add_row(struct normal *q, int n, const double *slope, double r, double w) {
    for (int i = 0; i < n; i++) {
        q->b[i] += w * slope[i] * r;
        for (int j = 0; j < n; j++)
            q->a[i][j] += w * slope[i] * slope[j];
    }
}

/* The normal equations at log_p: slopes of the logarithm of time by small steps. */
static void linearize(const struct fit *f, const double *log_p, struct normal *q) {
    static const double h = 1e-3;
    struct curve at = curve_of(f, log_p), moved[CURVE_MAX_PARAMS];
    *q = (struct normal){0};
    for (int k = 0; k < f->n_params; k++) {
        double p[CURVE_MAX_PARAMS];
        memcpy(p, log_p, sizeof p);
        p[k] += h;
        moved[k] = curve_of(f, p);
        double hold = hold_of(f, k);
        q->a[k][k] = hold * hold;
        q->b[k] = hold * hold * (f->prior[k] - log_p[k]);
    }
    for (int64_t i = 0; i < f->n; i += f->step) {
        double slope[CURVE_MAX_PARAMS], r = off(f, &at, i);
        for (int k = 0; k < f->n_params; k++)
            slope[k] = stays(f, k) ? 0 : (r - off(f, &moved[k], i)) / h;
        add_row(q, f->n_params, slope, r, weight(f, r));
    }
}

/* Gauss's elimination with the diagonal damped; what it finds goes to x. */
static void solve_damped(struct normal q, int n, double damping, double *x) {
    for (int i = 0; i < n; i++)
        q.a[i][i] *= 1 + damping;
    for (int i = 0; i < n; i++)
        for (int r = i + 1; r < n; r++) {
            double f = q.a[r][i] / q.a[i][i];
            for (int c = i; c < n; c++)
                q.a[r][c] -= f * q.a[i][c];
            q.b[r] -= f * q.b[i];
        }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = q.b[i];
        for (int c = i + 1; c < n; c++)
            x[i] -= q.a[i][c] * x[c];
        x[i] /= q.a[i][i];
    }
}

/* Goes downhill from log_p until nothing is gained. */
static void descend(const struct fit *f, double *log_p) {
    double best = loss(f, log_p), damping = 0.1;
    for (int round = 0; round < ROUNDS; round++) {
        struct normal q;
        double x[CURVE_MAX_PARAMS], p[CURVE_MAX_PARAMS] = {0}, before = best;
        linearize(f, log_p, &q);
        for (int tries = 0; tries < 4 && best == before; tries++, damping *= 5) {
            solve_damped(q, f->n_params, damping, x);
            for (int i = 0; i < f->n_params; i++)
                p[i] = log_p[i] + fmin(fmax(x[i], -1), 1);
            double now = loss(f, p);
            if (now < best) {
                memcpy(log_p, p, sizeof p);
                best = now;
                damping /= 25;
            }
        }
        if (before - best < 1e-5 * before)
            break;
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double curve_bound(double *off, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        off[i] = fabs(off[i]);
    qsort(off, (size_t)n, sizeof *off, by_size);
    int64_t at = (int64_t)ceil(0.8 * (double)(n + 1)) - 1;
    return expm1(off[at < n ? at : n - 1]);
}

/* How far off the initial curve is: as far as it says or, if that is more, as far as four
 * of five rows lie from it. So a like device's curve is believed where the rows agree, and
 * that of one that proves unlike gives way to them. */
static double prior_off(const struct fit *f, const struct curve *c) {
    double *off = mem_array((size_t)f->n, sizeof *off);
    for (int64_t i = 0; i < f->n; i++)
        off[i] = log(f->rows[i].us / curve_us(f->chip, c, &f->rows[i].shape));
    double seen = curve_bound(off, f->n);
    free(off);
    return log1p(fmax(c->within, seen));
}

/* Descends from the prior, at first with all rows pulling alike, however far off it is.
 * Takes the result if its loss is below `bar`. */
static void fit_from(struct fit *f, double bar, double *log_p, double *least) {
    double p[CURVE_MAX_PARAMS];
    memcpy(p, f->prior, sizeof p);
    for (f->far_off = 10; f->far_off > far_off_last;
         f->far_off = fmax(f->far_off / 8, far_off_last))
        descend(f, p);
    descend(f, p);
    double left = loss(f, p);
    if (left < bar) {
        *least = left;
        memcpy(log_p, p, sizeof p);
    }
}

/* Begins with another device: one unit that computes as fast as the chip, which is the
 * roofline as far as the form has one. From a curve of many units the turns bar the way
 * down to it. False: the form has no units. */
static bool begin_whole(struct fit *f) {
    for (int i = 0; i < f->n_params; i++)
        if (!strcmp(curve_params(f->form)[i].name, "units")) {
            f->prior[i] = -log(f->chip->multiprocessors);
            return true;
        }
    return false;
}

/* What the datasheet states is believed, unless the device proves unlike the prior's and
 * moving it leaves clearly less loss. */
static void fit_part(const struct chip *chip, const struct curve_row *rows, int64_t n,
                     struct curve *c) {
    struct fit f = {.chip = chip, .rows = rows, .n = n, .form = c->form, .as_told = true};
    double log_p[CURVE_MAX_PARAMS] = {0}, least = INFINITY;
    f.step = (n + MOST_ROWS - 1) / MOST_ROWS;
    f.n_params = count_params(c->form);
    double prior = prior_off(&f, c), guess = log1p(fmax(c->within, of_a_guess));
    f.hold = usual_off / fmax(fmin(prior, guess), usual_off / 2);
    for (int i = 0; i < f.n_params; i++)
        f.prior[i] = log_p[i] = log(c->p[i]);
    fit_from(&f, INFINITY, log_p, &least);
    f.as_told = false;
    if (prior > unlike && n >= 2 * f.n_params && c->form == CURVE_PRODUCT) {
        fit_from(&f, clearly_less * least, log_p, &least);
        if (begin_whole(&f))
            fit_from(&f, clearly_less * least, log_p, &least);
    }
    struct curve found = curve_of(&f, log_p);
    memcpy(c->p, found.p, sizeof c->p);
}

void curve_held_out(const struct chip *chip, const struct curve_row *rows, int64_t n,
                    const struct curve *prior, bool near, double *out) {
    struct curve_row *half = mem_array((size_t)n, sizeof *half);
    for (int side = 0; side < 2; side++) {
        struct curve c = *prior;
        int64_t used = 0;
        for (int64_t i = side; i < n; i += 2)
            half[used++] = rows[i];
        if (used)
            fit_part(chip, half, used, &c);
        struct curve_near beside;
        curve_near_init(&beside, chip, &c, half, near ? used : 0);
        for (int64_t i = 1 - side; i < n; i += 2)
            out[i] = log(rows[i].us / curve_us(chip, &c, &rows[i].shape) /
                         curve_near_factor(&beside, &rows[i].shape));
        curve_near_release(&beside);
    }
    free(half);
}

void curve_fit(const struct chip *chip, const struct curve_row *rows, int64_t n,
               struct curve *c) {
    double *off = mem_array((size_t)n, sizeof *off);
    curve_held_out(chip, rows, n, c, false, off);
    double within = curve_bound(off, n);
    free(off);
    fit_part(chip, rows, n, c);
    /* A few rows do not tell how far off the next one will be. */
    double few = c->within * exp(-(double)n / 4);
    c->within = within > few ? within : few;
    c->rows = n;
}
