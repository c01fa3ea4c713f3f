/* stages_table.c - packs four levels of nested arrays. */
#include "solve/stages/stages_table.h"

#include <math.h>
#include <string.h>

struct walk {
    struct stages_table *t;
    struct json_stream *s;
    bool times;
    int at[4]; /* first, last, submesh, config */
    struct err *err;
};

/* Prefixes a message with the place of the first `depth` indices. */
static int at_place(struct walk *w, int depth) {
    char place[64] = "";
    for (int i = 0, n = 0; i < depth; i++)
        n += snprintf(place + n, sizeof place - (size_t)n, "[%d]", w->at[i]);
    return w->s->failed ? -1 : err_prefix(w->err, "%s%s", w->t->name, place);
}

static int enter(struct walk *w, int depth) {
    int type = json_stream_type(w->s, w->err);
    if (type >= 0 && type != JSON_ARRAY) {
        err_input(w->err, "expected an array, got %s", json_stream_type_name(type));
        return at_place(w, depth);
    }
    return type < 0 ? -1 : json_stream_enter(w->s, '[', w->err);
}

/* Checks the length of an array; the first one at each depth says how many entries all
 * of them have. */
static int leave(struct walk *w, int depth, int *want) {
    int n = w->at[depth];
    if (*want == 0)
        *want = n;
    if (n == *want && n > 0)
        return 0;
    err_input(w->err, "expected %d entries, got %d", *want ? *want : 1, n);
    return at_place(w, depth);
}

static int wrong_number(struct walk *w) {
    err_input(w->err, "expected %s",
              w->times ? "a time (a finite number >= 0) or null"
                       : "a number of successor stages or null");
    return at_place(w, 4);
}

/* Reads a number: null and "Infinity" are infinite, other values NAN. Returns -1 with the
 * stream's error. */
static int take_number(struct walk *w, double *x) {
    struct json_number number;
    int type = json_stream_type(w->s, w->err);
    *x = NAN;
    if (type == JSON_INTEGER) {
        int rc = json_stream_number(w->s, &number, w->err);
        *x = number.real;
        return rc;
    }
    json_t *v = type < 0 ? NULL : json_stream_tree(w->s, w->err);
    const char *word = json_string_value(v);
    if (json_is_null(v) || (word && !strcmp(word, "Infinity")))
        *x = INFINITY;
    json_decref(v);
    return v ? 0 : -1;
}

static int take_cell(struct walk *w) {
    struct stages_table *t = w->t;
    double x;
    if (take_number(w, &x) < 0)
        return -1;
    if (isnan(x) || (w->times && x < 0))
        return wrong_number(w);
    if (t->time.n + t->succ.n >= STAGES_MAX_CELLS)
        return err_input(w->err, "%s: more than %d entries", t->name, STAGES_MAX_CELLS);
    if (w->times)
        arr_push(&t->time, x);
    else
        arr_push(&t->succ, (int16_t)(x < 0                   ? -1
                                     : x > STAGES_MAX_LAYERS ? STAGES_MAX_LAYERS
                                                             : floor(x)));
    return 0;
}

static int take_configs(struct walk *w) {
    int more = enter(w, 3);
    for (w->at[3] = 0; more >= 0 && (more = json_stream_item(w->s, w->err)) > 0; w->at[3]++)
        more = take_cell(w);
    return more < 0 ? -1 : leave(w, 3, &w->t->configs);
}

static int take_submeshes(struct walk *w) {
    int more = enter(w, 2);
    for (w->at[2] = 0; more >= 0 && (more = json_stream_item(w->s, w->err)) > 0; w->at[2]++)
        more = take_configs(w);
    return more < 0 ? -1 : leave(w, 2, &w->t->submeshes);
}

static int take_lasts(struct walk *w) {
    int more = enter(w, 1);
    for (w->at[1] = 0; more >= 0 && (more = json_stream_item(w->s, w->err)) > 0; w->at[1]++)
        more = w->at[1] < w->at[0] ? json_stream_skip(w->s, w->err) : take_submeshes(w);
    return more < 0 ? -1 : leave(w, 1, &w->t->layers);
}

static int take_table(struct walk *w, const char *name) {
    int type = json_stream_type(w->s, w->err);
    w->t->name = name;
    if (type == JSON_NULL) {
        w->t->name = NULL;
        return json_stream_skip(w->s, w->err);
    }
    int more = enter(w, 0);
    for (; more >= 0 && (more = json_stream_item(w->s, w->err)) > 0; w->at[0]++)
        more = take_lasts(w);
    return more < 0 ? -1 : leave(w, 0, &w->t->layers);
}

int stages_table_times(void *to, struct json_stream *s, struct err *err) {
    return take_table(&(struct walk){.t = to, .s = s, .times = true, .err = err},
                      "compute_cost");
}

int stages_table_successors(void *to, struct json_stream *s, struct err *err) {
    return take_table(&(struct walk){.t = to, .s = s, .err = err}, "max_n_succ_stages");
}

void stages_table_release(struct stages_table *t) {
    arr_release(&t->time);
    arr_release(&t->succ);
}
