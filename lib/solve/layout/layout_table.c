/* layout_table.c - arrays of arrays of numbers from a stream, with equal rows found by
 * hashing. */
#include "solve/layout/layout_table.h"

#include "common/rng.h"
#include "solve/layout/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Prefixes the place of a number as the user would write it. */
static int at_number(const struct layout_table *t, int64_t r, int64_t i, bool flat,
                     struct err *err) {
    if (flat)
        return err_prefix(err, "%s[%lld]", t->name, (long long)i);
    return err_prefix(err, "%s[%lld][%lld]", t->name, (long long)r, (long long)i);
}

static int check_cost(double x, struct err *err) {
    if (x < 0)
        return err_input(err, "expected a finite number >= 0, got %.17g", x);
    if (x > (double)LAYOUT_MAX)
        return err_input(err, "%.17g is above 2e18 (10^18 forbids a choice)", x);
    return 0;
}

static int add_number(struct layout_table *t, struct json_stream *s,
                      enum layout_table_form form, struct err *err) {
    int type = json_stream_type(s, err);
    struct json_number x;
    if (type < 0)
        return -1;
    if (type != JSON_INTEGER)
        return err_input(err, "expected a number, got %s", json_stream_type_name(type));
    if (json_stream_number(s, &x, err) < 0 ||
        (form == LAYOUT_TABLE_COSTS && check_cost(x.real, err) < 0))
        return -1;
    int64_t bits = x.whole_value;
    if (!x.whole) {
        memcpy(&bits, &x.real, sizeof bits);
        while (t->real.n < t->number.n)
            arr_push(&t->real, false);
        arr_push(&t->real, true);
    }
    arr_push(&t->number, bits);
    return 0;
}

static int add_row(struct layout_table *t, struct json_stream *s,
                   enum layout_table_form form, struct err *err) {
    struct layout_row row = {t->number.n, 0};
    int more = json_stream_enter(s, '[', err);
    while (more >= 0 && (more = json_stream_item(s, err)) > 0) {
        if (add_number(t, s, form, err) < 0)
            return s->failed
                       ? -1
                       : at_number(t, t->row.n, row.n, form == LAYOUT_TABLE_FLAT, err);
        row.n++;
    }
    arr_push(&t->row, row);
    return more;
}

static bool same_row(const void *entries, int64_t i, const void *key) {
    const struct layout_table *t = entries;
    const struct layout_row *a = &t->distinct.p[i], *b = key;
    const int64_t *x = t->number.p;
    if (a->n != b->n ||
        (a->n && memcmp(x + a->begin, x + b->begin, (size_t)a->n * sizeof *x) != 0))
        return false;
    for (int64_t s = 0; t->real.n > 0 && s < a->n; s++)
        if (layout_table_whole(t, a->begin + s) != layout_table_whole(t, b->begin + s))
            return false;
    return true;
}

static uint64_t hash_row(const struct layout_table *t, const struct layout_row *row) {
    uint64_t h = (uint64_t)row->n;
    for (int64_t s = 0; s < row->n; s++) {
        h = (h ^ (uint64_t)t->number.p[row->begin + s]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return rng_mix(h);
}

/* Replaces the last row by an equal one that was read before, if there is one. */
static void share_row(struct layout_table *t) {
    struct layout_row *row = &arr_last(&t->row);
    int64_t i = hashtable_put(&t->seen, hash_row(t, row), same_row, t, row);
    if (i == t->distinct.n) {
        arr_push(&t->distinct, *row);
        return;
    }
    t->number.n = row->begin;
    t->real.n = t->real.n > row->begin ? row->begin : t->real.n;
    *row = t->distinct.p[i];
}

int layout_table_read(struct layout_table *t, struct json_stream *s, const char *name,
                      enum layout_table_form form, struct err *err) {
    if (t->name)
        return err_input(err, "%s: this key stands here a second time", name);
    t->name = name;
    int type = json_stream_type(s, err);
    if (type < 0)
        return -1;
    if (type != JSON_ARRAY)
        return err_input(err, "%s: expected an array, got %s", name,
                         json_stream_type_name(type));
    if (form == LAYOUT_TABLE_FLAT)
        return add_row(t, s, form, err);
    int more = json_stream_enter(s, '[', err);
    while (more >= 0 && (more = json_stream_item(s, err)) > 0) {
        type = json_stream_type(s, err);
        if (type >= 0 && type != JSON_ARRAY)
            return err_input(err, "%s[%lld]: expected an array, got %s", name,
                             (long long)t->row.n, json_stream_type_name(type));
        more = type < 0 ? -1 : add_row(t, s, form, err);
        if (more == 0)
            share_row(t);
    }
    return more;
}

void layout_table_release(struct layout_table *t) {
    arr_release(&t->row);
    arr_release(&t->number);
    arr_release(&t->real);
    arr_release(&t->distinct);
    hashtable_release(&t->seen);
}

double layout_table_value(const struct layout_table *t, int64_t at) {
    double x;
    if (layout_table_whole(t, at))
        return (double)t->number.p[at];
    memcpy(&x, &t->number.p[at], sizeof x);
    return x;
}

int layout_table_int(const struct layout_table *t, int64_t r, int64_t s, int64_t lo,
                     int64_t hi, int64_t *out, struct err *err) {
    int64_t at = t->row.p[r].begin + s;
    double x = layout_table_value(t, at);
    if (x != floor(x))
        return err_input(err, "%s[%lld]: expected a whole number, got %.17g", t->name,
                         (long long)r, x);
    if (x < (double)lo || x > (double)hi)
        return err_input(err, "%s[%lld]: %.17g is not in %lld..%lld", t->name, (long long)r,
                         x, (long long)lo, (long long)hi);
    *out = layout_table_whole(t, at) ? t->number.p[at] : (int64_t)x;
    return 0;
}

int layout_table_expect(const struct layout_table *t, const char *name, int64_t n,
                        struct err *err) {
    if (!t->name)
        return err_input(err, "%s: expected an array, got nothing", name);
    if (n >= 0 && t->row.n != n)
        return err_input(err, "%s: expected %lld entries, got %lld", name, (long long)n,
                         (long long)t->row.n);
    return 0;
}
