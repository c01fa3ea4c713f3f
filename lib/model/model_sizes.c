/* Sizes, dims and rates of a model file, with presets and overrides applied. */
#include "model/expr.h"
#include "model/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETTINGS = 256 };

static const json_t *scope_find(const struct scope *s, const char *name) {
    for (; s; s = s->outer) {
        const json_t *v = json_object_get(s->names, name);
        if (v)
            return v;
    }
    return NULL;
}

/* A name in an expression: bound by a block around it, else a size, else a dim of the file. The row
 * of names that are being looked up shows cycles. */
static int lookup_size(void *ctx, const char *name, int64_t *out, struct err *err) {
    struct reader *r = ctx;
    const json_t *v = scope_find(r->scope, name);
    if (!v)
        v = json_object_get(r->sizes, name);
    if (!v && r->dims)
        v = json_object_get(r->dims, name);
    if (!v)
        return err_input(err, "size \"%.64s\" is not defined", name);
    for (int i = 0; i < r->n_lookups; i++)
        if (!strcmp(r->lookups[i], name))
            return err_input(err, "size \"%.64s\" depends on itself", name);
    if (r->n_lookups == MAX_LOOKUPS)
        return err_input(err, "size \"%.64s\": more than %d sizes depend on each other",
                         name, MAX_LOOKUPS);
    char key[96];
    snprintf(key, sizeof key, "size \"%.64s\"", name);
    r->lookups[r->n_lookups++] = name;
    int rc = read_int(r, v, key, out, err);
    r->n_lookups--;
    return rc;
}

int read_int(struct reader *r, const json_t *v, const char *key, int64_t *out,
             struct err *err) {
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 0;
    }
    if (!json_is_string(v))
        return err_input(err, "%s: expected a whole number or an expression, got %s", key,
                         json_is_real(v) ? "a fraction" : json_type_name(v));
    return expr_eval(json_string_value(v), lookup_size, r, out, err) < 0
               ? err_prefix(err, "%s", key)
               : 0;
}

/* What a bound name stands for in the end: another name, or a number; NULL if it is not bound. */
static const json_t *bound_value(const struct reader *r, const char *name) {
    const json_t *last = NULL, *bound;
    for (int i = 0; name && i < MAX_LOOKUPS && (bound = scope_find(r->scope, name)); i++) {
        last = bound;
        name = json_string_value(bound);
    }
    return last;
}

/* The name that a bound one stands for; NULL if it is bound to a number. */
static const char *unbound(const struct reader *r, const char *name) {
    const json_t *bound = bound_value(r, name);
    return bound ? json_string_value(bound) : name;
}

/* What stands for a rate that a name may stand for; NULL where there is none of the name. */
static const json_t *rate_value(const struct reader *r, const json_t *v) {
    const json_t *bound = json_is_string(v) ? bound_value(r, json_string_value(v)) : NULL;
    v = bound ? bound : v;
    return json_is_string(v) ? json_object_get(r->rates, json_string_value(v)) : v;
}

int read_real(struct reader *r, const json_t *v, const char *key, double *out,
              struct err *err) {
    v = rate_value(r, v);
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return err_input(err, "%s: expected a number or the name of a rate", key);
    *out = json_number_value(v);
    return 0;
}

int read_list(struct reader *r, const json_t *v, const char *key, const double **out,
              struct err *err) {
    v = rate_value(r, v);
    if (!json_is_array(v))
        return err_input(
            err, "%s: expected a list of numbers or the name of a rate that is one", key);
    const size_t n = json_array_size(v);
    double *list = arena_array(&r->m->arena, n, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(v, i);
        if (!json_is_number(one) || !isfinite(json_number_value(one)))
            return err_input(err, "%s[%zu]: expected a number", key, i);
        list[i] = json_number_value(one);
    }
    *out = list;
    return (int)n;
}

/* Sizes of dims do not depend on the block: one dim has one size. */
static int dim_size(struct reader *r, const char *name, int64_t *size, struct err *err) {
    const struct scope *scope = r->scope;
    r->scope = NULL;
    int rc = lookup_size(r, name, size, err);
    r->scope = scope;
    if (rc == 0 && (*size <= 0 || *size > (int64_t)1 << 40))
        return err_input(err, "size \"%.64s\": %lld is not in 1..2^40", name,
                         (long long)*size);
    return rc;
}

/* Bound names are followed to the size that they stand for. */
int read_dim(struct reader *r, const char *text, struct err *err) {
    const char *name = unbound(r, text);
    if (!name)
        return err_input(
            err, "\"%.64s\" is bound to a number; a dim takes the name of a size", text);
    const json_t *known = json_object_get(r->dim_of, name);
    if (known)
        return (int)json_integer_value(known);
    int64_t size = 0;
    if (strcmp(name, "batch") && dim_size(r, name, &size, err) < 0)
        return -1;
    arr_push(&r->dim_list, (struct model_dim){arena_strdup(&r->m->arena, name), size});
    json_object_set_new(r->dim_of, name, json_integer(r->dim_list.n - 1));
    return (int)r->dim_list.n - 1;
}

/* ---- presets and overrides --------------------------------------------------------------- */

static void list_keys(const json_t *object, char *list, size_t size) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)object, key, v) {
        err_list(list, size, key);
    }
}

static void no_such_name(const struct reader *r, const char *name, struct err *err) {
    char names[512] = "";
    list_keys(r->sizes, names, sizeof names);
    list_keys(r->rates, names, sizeof names);
    err_input(err, "the model has no size or rate \"%.64s\" (there are:%s)", name, names);
}

/* Takes the reference to value. */
static int override_one(struct reader *r, const char *key, json_t *value, struct err *err) {
    json_t *where = json_object_get(r->sizes, key) ? r->sizes : r->rates;
    int rc = -1;
    const json_t *now = json_object_get(where, key);
    if (!now)
        no_such_name(r, key, err);
    else if (json_is_array(now) && !json_is_array(value))
        err_input(err, "rate \"%.64s\": expected a list of numbers, as only files hold",
                  key);
    else if (json_is_array(now))
        rc = json_object_set(where, key, value);
    else if (where == r->rates && !json_is_number(value))
        err_input(err, "rate \"%.64s\": expected a number", key);
    else if (where == r->sizes && !json_is_integer(value) && !json_is_string(value))
        err_input(err, "size \"%.64s\": expected a whole number", key);
    else
        rc = json_object_set(where, key, value);
    json_decref(value);
    return rc;
}

/* Overrides sizes and rates one by one, as --set does. */
int read_preset(struct reader *r, const json_t *doc, const char *preset, struct err *err) {
    json_t *presets = json_object_get(doc, "presets");
    if (!preset || !preset[0]) {
        preset = "";
        json_opt_str(doc, "default", &preset, NULL);
    }
    r->m->preset = arena_strdup(&r->m->arena, preset);
    if (!preset[0])
        return 0;
    json_t *p = json_object_get(presets, preset);
    const char *key;
    json_t *v;
    if (!json_is_object(p)) {
        char names[256] = "";
        list_keys(presets, names, sizeof names);
        return err_input(err, "no preset \"%.64s\" (there are:%s)", preset, names);
    }
    json_object_foreach(p, key, v) {
        if (override_one(r, key, json_incref(v), err) < 0)
            return err_prefix(err, "presets.%s", preset);
    }
    return 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "hidden=1024", "ffn=8*hidden": a value that is no JSON is an expression. */
static int set_one(struct reader *r, const char *part, struct err *err) {
    const char *eq = strchr(part, '=');
    if (!eq)
        return err_input(err, "expected NAME=NUMBER, got \"%.64s\"", part);
    json_t *v = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    if (!v)
        v = json_string(eq + 1);
    if (!v)
        return err_input(err, "expected NAME=NUMBER, got \"%.64s\"", part);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(eq - part), part);
    return override_one(r, key, v, err);
}

int model_settle(json_t *doc, const char *set, struct err *err) {
    struct reader r = {.sizes = json_object_get(doc, "sizes"),
                       .rates = json_object_get(doc, "rates")};
    char *parts = mem_strdup(set), *save;
    int rc = 0;
    for (char *p = strtok_r(parts, ",", &save); p && rc == 0;
         p = strtok_r(NULL, ",", &save))
        rc = set_one(&r, p, err);
    free(parts);
    return rc;
}

/* Parts are sorted: those of one name stand side by side. */
static int check_twice(char *const *parts, int64_t n, struct err *err) {
    for (int64_t i = 1; i < n; i++) {
        size_t name = strcspn(parts[i], "=");
        if (!strncmp(parts[i - 1], parts[i], name + 1))
            return err_input(err, "\"%.*s\" is given twice", (int)(name < 64 ? name : 64),
                             parts[i]);
    }
    return 0;
}

/* "layers=4,hidden=512"; sorted in m->set. A name that is given twice is refused: which one counts
 * would be a guess. */
int read_set(struct reader *r, const char *set, struct err *err) {
    struct arena *arena = &r->m->arena;
    r->m->set = "";
    if (!set || !set[0])
        return 0;
    ARR(char *) parts = {0};
    for (char *s = arena_strdup(arena, set), *save, *p = strtok_r(s, ", ", &save); p;
         p = strtok_r(NULL, ", ", &save))
        arr_push(&parts, p);
    int rc =
        parts.n > MAX_SETTINGS ? err_input(err, "more than %d settings", MAX_SETTINGS) : 0;
    for (int64_t i = 0; i < parts.n && rc == 0; i++)
        rc = set_one(r, parts.p[i], err);
    if (parts.n && rc == 0) {
        qsort(parts.p, (size_t)parts.n, sizeof *parts.p, by_text);
        rc = check_twice(parts.p, parts.n, err);
    }
    for (int64_t i = 0; i < parts.n && rc == 0; i++)
        r->m->set = arena_printf(arena, "%s%s%s", r->m->set, i ? "," : "", parts.p[i]);
    arr_release(&parts);
    return rc < 0 ? err_prefix(err, "set") : 0;
}
