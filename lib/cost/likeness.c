/* Gaussian processes over instructions: see likeness.h. */
#include "cost/likeness.h"

#include "common/hashtable.h"
#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most rows that are worked in: more tell little, and cost grows with their square. */
enum { MOST_TOLD = 400 };
/* Shares of the deviation between two devices: of a form, of an opcode and type, and of one
 * instruction. The numbers are rounded guesses; an H100 and an H200, taken for each other,
 * have four of five rows within the bounds that follow. */
static const double of_form = 0.5, of_class = 0.7, of_one = 0.3;
/* Instructions this many times apart in bytes and operations are hardly alike. */
static const double apart = 20;
/* How far a row deviates from itself when it is measured again. */
static const double of_clock = 0.01;
/* The deviation of devices with one datasheet, the share of two datasheets' difference that
 * curves may get wrong, and the deviation where no datasheet is known. */
static const double at_least = 0.03, of_sheets = 0.25, unknown = 0.7;
/* A row that is farther off than so many deviations is one of a kind (a library took
 * another kernel): it is worked in as if its clock were that bad. */
static const double believed = 1.5;
/* Half the inter-quartile range of a normal distribution, and four fifths of it on one
 * side. */
static const double half_quartiles = 0.6745, four_of_five = 1.2816;

struct item {
    struct instr_key key;
    enum curve_form form;
    double at[2]; /* logarithms of bytes and operations */
    double us;    /* predicted time if curves told everything */
    double own;   /* the curve's deviation, where the like device lacks its row; else 0 */
    double uses;
    bool told, barred;
    double off; /* logarithm of measured over us */
};

/* What the rows tell: each that is worked in adds a column to the covariance's Cholesky
 * factor.
 */
struct told {
    double scale[CURVE_FORM_COUNT]; /* deviation of the devices from each other */
    double *mean, *var;             /* of each item's factor, given the rows */
    double *pull;                   /* covariance of each with the weighted sum of all */
    double likelihood[CURVE_FORM_COUNT]; /* logarithm, of the rows, up to a constant */
    ARR(double *) columns;
};

struct likeness {
    const struct profile_times *times;
    const struct device_model *model;
    const struct chip *chip;
    double scale; /* deviation of the devices before any row was told */
    ARR(struct item) items;
    struct hashtable table;
    struct told now;
};

/* ---- items --------------------------------------------------------------------------- */

static double most_apart(const struct chip *a, const struct chip *b) {
    double most = fmax(fabs(log(a->bandwidth / b->bandwidth)),
                       fabs(log(a->cache_bandwidth / b->cache_bandwidth)));
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        if (a->flops[t] > 0 && b->flops[t] > 0)
            most = fmax(most, fabs(log(a->flops[t] / b->flops[t])));
    return most;
}

struct likeness *likeness_create(const struct profile_times *times,
                                 const struct device_model *model,
                                 const struct chip *chip) {
    struct likeness *l = mem_alloc(sizeof *l);
    *l = (struct likeness){.times = times, .model = model, .chip = chip};
    l->scale = chip ? at_least + of_sheets * most_apart(&model->chip, chip) : unknown;
    return l;
}

static void told_release(struct told *t) {
    for (int64_t i = 0; i < t->columns.n; i++)
        free(t->columns.p[i]);
    arr_release(&t->columns);
    free(t->mean);
    free(t->var);
    free(t->pull);
    *t = (struct told){0};
}

void likeness_destroy(struct likeness *l) {
    if (!l)
        return;
    told_release(&l->now);
    arr_release(&l->items);
    hashtable_release(&l->table);
    free(l);
}

static bool same_key(const void *items, int64_t i, const void *key) {
    return instr_key_equal(&((const struct item *)items)[i].key, key);
}

/* The ratio of two devices' times, by a curve and their datasheets; -1: unknown. */
static double by_sheets(const struct likeness *l, const struct curve *c,
                        const struct curve_shape *s) {
    if (!l->chip)
        return 1;
    double there = curve_us(&l->model->chip, c, s), here = curve_us(l->chip, c, s);
    return there > 0 && here > 0 ? here / there : -1;
}

/* False where nothing is known of the instruction. */
static bool make_item(const struct likeness *l, const struct instr_key *key,
                      struct item *out) {
    if ((int)key->dtype >= (int)CLUSTER_DTYPES || opcode_is_move(key->code))
        return false;
    struct curve_shape s = curve_shape(key);
    const struct curve *c = &device_model_curve(l->model, key->code, key->dtype)->curve;
    struct profile_time row = profile_op_time(l->times, key);
    bool known = row.us > 0 && !row.computed && !row.below;
    double us = known ? row.us : curve_us(&l->model->chip, c, &s);
    *out = (struct item){.key = *key,
                         .form = c->form,
                         .at = {log(s.bytes + 1), log(s.flops + 1)},
                         .us = us * by_sheets(l, c, &s),
                         .own = known ? 0 : log1p(c->within) / four_of_five};
    return out->us > 0;
}

int64_t likeness_find(const struct likeness *l, const struct instr_key *key) {
    return hashtable_find(&l->table, instr_key_hash(key), same_key, l->items.p, key);
}

int64_t likeness_add(struct likeness *l, const struct instr_key *key, double uses) {
    int64_t i = likeness_find(l, key);
    struct item item;
    if (i < 0) {
        if (!make_item(l, key, &item))
            return -1;
        i = hashtable_put(&l->table, instr_key_hash(key), same_key, l->items.p, key);
        arr_push(&l->items, item);
    }
    l->items.p[i].uses += uses;
    return i;
}

int64_t likeness_count(const struct likeness *l) {
    return l->items.n;
}

const struct instr_key *likeness_key(const struct likeness *l, int64_t i) {
    return &l->items.p[i].key;
}

void likeness_bar(struct likeness *l, int64_t i) {
    l->items.p[i].barred = true;
}

void likeness_tell(struct likeness *l, int64_t i, double us) {
    if (us <= 0)
        return;
    l->items.p[i].told = true;
    l->items.p[i].off = log(us / l->items.p[i].us);
}

bool likeness_told(const struct likeness *l, int64_t i) {
    return l->items.p[i].told;
}

/* ---- covariance ---------------------------------------------------------------------- */

static double nearness(const struct item *a, const struct item *b) {
    double x = (a->at[0] - b->at[0]) / log(apart), y = (a->at[1] - b->at[1]) / log(apart);
    return exp(-0.5 * (x * x + y * y));
}

static double own_variance(const struct item *a, double scale) {
    double one = of_one * scale;
    return one * one + a->own * a->own;
}

static double covariance(const struct item *a, const struct item *b, double scale) {
    if (a->form != b->form)
        return 0;
    bool alike = a->key.code == b->key.code && a->key.dtype == b->key.dtype;
    double near = nearness(a, b);
    double common = of_form * of_form * near;
    if (alike)
        common += of_class * of_class * (1 + near) / 2;
    double c = scale * scale * common;
    return a == b ? c + own_variance(a, scale) : c;
}

static double weight(const struct item *a) {
    return a->uses * a->us;
}

/* The state before any row is worked in. pull: whether it is needed. */
static struct told told_nothing(const struct likeness *l, const double *scale, bool pull) {
    size_t n = (size_t)l->items.n + 1;
    struct told t = {.mean = mem_array(n, sizeof(double)),
                     .var = mem_array(n, sizeof(double)),
                     .pull = mem_array(n, sizeof(double))};
    memcpy(t.scale, scale, sizeof t.scale);
    for (int64_t i = 0; i < l->items.n; i++) {
        const struct item *a = &l->items.p[i];
        t.var[i] = covariance(a, a, scale[a->form]);
        for (int64_t k = 0; k < l->items.n && pull; k++)
            if (l->items.p[k].uses > 0)
                t.pull[i] +=
                    weight(&l->items.p[k]) * covariance(a, &l->items.p[k], scale[a->form]);
    }
    return t;
}

/* Works in row i: what it is off or, if !known, only that it will be measured. */
static void work_in(const struct likeness *l, struct told *t, int64_t i, bool known) {
    int64_t n = l->items.n;
    double *column = mem_array((size_t)n, sizeof *column), with_sum = 0;
    double off = known ? l->items.p[i].off - t->mean[i] : 0;
    double var = t->var[i] + of_clock * of_clock;
    if (known)
        t->likelihood[l->items.p[i].form] -= 0.5 * (off * off / var + log(var));
    var = fmax(var, off * off / (believed * believed));
    double root = sqrt(var);
    for (int64_t k = 0; k < n; k++) {
        double c = covariance(&l->items.p[k], &l->items.p[i], t->scale[l->items.p[i].form]);
        for (int64_t j = 0; j < t->columns.n && l->items.p[k].form == l->items.p[i].form;
             j++)
            c -= t->columns.p[j][k] * t->columns.p[j][i];
        column[k] = c / root;
        with_sum += weight(&l->items.p[k]) * column[k];
    }
    for (int64_t k = 0; k < n; k++) {
        t->mean[k] += column[k] * off / root;
        t->var[k] = fmax(t->var[k] - column[k] * column[k], 0);
        t->pull[k] -= with_sum * column[k];
    }
    arr_push(&t->columns, column);
}

/* ---- choosing ------------------------------------------------------------------------ */

/* By how much a row reduces the variance of the weighted sum. */
static double gain(const struct told *t, int64_t i) {
    return t->pull[i] * t->pull[i] / (t->var[i] + of_clock * of_clock);
}

static int64_t best_of(const struct likeness *l, const struct told *t, const bool *done,
                       bool told) {
    int64_t best = -1;
    for (int64_t i = 0; i < l->items.n; i++) {
        const struct item *a = &l->items.p[i];
        if (done[i] || a->told != told || (a->barred && !told))
            continue;
        if (best < 0 || gain(t, i) > gain(t, best))
            best = i;
    }
    return best;
}

int64_t likeness_choose(struct likeness *l, int64_t k, int64_t *chosen) {
    double scale[CURVE_FORM_COUNT];
    for (int f = 0; f < CURVE_FORM_COUNT; f++)
        scale[f] = l->scale;
    struct told t = told_nothing(l, scale, true);
    bool *done = mem_array((size_t)l->items.n + 1, sizeof *done);
    int64_t n = 0, at;
    for (int told = 0; told < MOST_TOLD && (at = best_of(l, &t, done, true)) >= 0; told++) {
        done[at] = true;
        work_in(l, &t, at, false);
    }
    while (n < k && (at = best_of(l, &t, done, false)) >= 0) {
        done[at] = true;
        work_in(l, &t, at, false);
        chosen[n++] = at;
    }
    free(done);
    told_release(&t);
    return n;
}

/* ---- what the rows tell -------------------------------------------------------------- */

/* Works in all told rows, or every step-th where there are too many. */
static struct told work_in_all(const struct likeness *l, const double *scale) {
    struct told t = told_nothing(l, scale, false);
    int64_t n = 0, seen = 0;
    for (int64_t i = 0; i < l->items.n; i++)
        n += l->items.p[i].told;
    int64_t step = (n + MOST_TOLD - 1) / MOST_TOLD;
    for (int64_t i = 0; i < l->items.n; i++)
        if (l->items.p[i].told && seen++ % step == 0)
            work_in(l, &t, i, true);
    return t;
}

/* Forms are independent of each other, so each has the deviation that makes its rows
 * likeliest. */
void likeness_update(struct likeness *l) {
    static const double times[] = {1, 0.25, 0.35, 0.5, 0.7, 1.4, 2, 2.8, 4};
    double scale[CURVE_FORM_COUNT], best[CURVE_FORM_COUNT], found[CURVE_FORM_COUNT];
    for (int f = 0; f < CURVE_FORM_COUNT; f++) {
        best[f] = -INFINITY;
        found[f] = l->scale;
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        for (int f = 0; f < CURVE_FORM_COUNT; f++)
            scale[f] = times[i] * l->scale;
        struct told t = work_in_all(l, scale);
        for (int f = 0; f < CURVE_FORM_COUNT && t.columns.n; f++)
            if (t.likelihood[f] > best[f]) {
                best[f] = t.likelihood[f];
                found[f] = scale[f];
            }
        told_release(&t);
    }
    told_release(&l->now);
    l->now = work_in_all(l, found);
}

struct likely likeness_time(const struct likeness *l, int64_t i) {
    const struct item *a = &l->items.p[i];
    if (a->told)
        return (struct likely){.us = a->us * exp(a->off)};
    return (struct likely){.us = a->us * exp(l->now.mean[i]),
                           .spread = half_quartiles * sqrt(l->now.var[i])};
}
