/* Curves of a device from its profile: see device_fit.h. */
#include "cost/device_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Shorter times are the clock's own error. */
static const double shortest_us = 0.05;

static void take_row(void *ctx, const struct instr_key *key, double us) {
    struct device_fit *f = ctx;
    if ((int)key->dtype >= (int)CLUSTER_DTYPES || us < shortest_us ||
        opcode_is_move(key->code))
        return;
    struct curve_shape s = curve_shape(key);
    if (s.flops + s.bytes > 0)
        arr_push(&f->ops[(int)key->code * CLUSTER_DTYPES + (int)key->dtype].list,
                 (struct curve_row){s, us});
}

static int by_size(const void *a, const void *b) {
    const struct curve_row *x = a, *y = b;
    double p = x->shape.flops + x->shape.bytes, q = y->shape.flops + y->shape.bytes;
    return p != q ? (p > q) - (p < q) : (x->us > y->us) - (x->us < y->us);
}

/* Rows are sorted by size, so that curve_held_out's halves reach equally far. */
void device_fit_init(struct device_fit *f, const struct profile_times *times) {
    f->ops = mem_array((size_t)OPCODE_COUNT * CLUSTER_DTYPES, sizeof *f->ops);
    profile_each_op(times, take_row, f);
    for (int i = 0; i < OPCODE_COUNT * CLUSTER_DTYPES; i++)
        if (f->ops[i].list.n)
            qsort(f->ops[i].list.p, (size_t)f->ops[i].list.n, sizeof *f->ops[i].list.p,
                  by_size);
}

void device_fit_release(struct device_fit *f) {
    for (int i = 0; f->ops && i < OPCODE_COUNT * CLUSTER_DTYPES; i++)
        arr_release(&f->ops[i].list);
    free(f->ops);
    f->ops = NULL;
}

const struct device_rows *device_fit_rows(const struct device_fit *f, enum opcode code,
                                          enum dtype dtype) {
    return &f->ops[(int)code * CLUSTER_DTYPES + (int)dtype];
}

static bool computes(const struct chip *chip, enum curve_form form, enum dtype dtype) {
    return form == CURVE_MOVE || chip->flops[dtype] > 0;
}

bool device_fit_op(const struct device_fit *f, const struct device_model *m,
                   enum opcode code, enum dtype dtype, struct device_curve *out) {
    if ((int)dtype >= (int)CLUSTER_DTYPES)
        return false;
    const struct device_rows *r = device_fit_rows(f, code, dtype);
    if (!r->list.n || !computes(&m->chip, curve_form_of(code), dtype))
        return false;
    const struct device_curve *begin = device_model_curve(m, code, dtype);
    struct device_curve c = *begin;
    /* The form's curve comes from other instructions: here it is only a guess. */
    if (begin == &m->forms[curve_form_of(code)])
        c.curve.within = fmax(c.curve.within, 1);
    c.given = true;
    curve_fit(&m->chip, r->list.p, r->list.n, &c.curve);
    snprintf(c.from, sizeof c.from, "fitted");
    *out = c;
    return true;
}

static void fit_form(const struct device_fit *f, struct device_model *m,
                     enum curve_form form) {
    struct device_rows all = {0};
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int t = 0; t < CLUSTER_DTYPES && curve_form_of((enum opcode)code) == form;
             t++) {
            const struct device_rows *r =
                device_fit_rows(f, (enum opcode)code, (enum dtype)t);
            for (int64_t i = 0; i < r->list.n && computes(&m->chip, form, (enum dtype)t);
                 i++)
                arr_push(&all.list, r->list.p[i]);
        }
    if (all.list.n) {
        curve_fit(&m->chip, all.list.p, all.list.n, &m->forms[form].curve);
        m->forms[form].given = true;
        snprintf(m->forms[form].from, sizeof m->forms[form].from,
                 "fitted to all of its form");
    }
    arr_release(&all.list);
}

void device_fit_all(const struct device_fit *f, struct device_model *m) {
    for (int form = 0; form < CURVE_FORM_COUNT; form++)
        fit_form(f, m, (enum curve_form)form);
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int t = 0; t < CLUSTER_DTYPES; t++)
            device_fit_op(f, m, (enum opcode)code, (enum dtype)t, &m->ops[code][t]);
}
