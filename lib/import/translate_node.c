/* Values and nodes. */
#include "import/translate.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ----------------------------------------------------------------------------------- */

bool translate_is_integer(int type) {
    return (type >= 1 && type <= 9) || type == 21 || type == 22 || type == 26 ||
           type == 27 || type == 30 || type == 31;
}

int translate_value(struct translate *t, enum exported_role role, const char *path,
                    int rank, const int64_t *size, int type) {
    struct exported_value v = {.role = role,
                               .node = role == EXPORTED_RESULT ? (int)t->nodes.n : -1,
                               .path = path,
                               .tensor = true,
                               .integer = translate_is_integer(type),
                               .truth = type == 1,
                               .rank = rank,
                               .tie = -1};
    v.name = arena_printf(&t->p->arena, "v%lld", (long long)t->p->values.n);
    if (!v.path)
        v.path = v.name;
    if (rank)
        memcpy(v.size, size, sizeof *size * (size_t)rank);
    json_object_set_new(t->p->value_of, v.name, json_integer(t->p->values.n));
    arr_push(&t->p->values, v);
    return (int)t->p->values.n - 1;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static json_t *add_arg(json_t *args, const char *name, const char *kind, json_t *v) {
    json_t *wrapped = json_object(), *arg = json_object();
    json_object_set_new(wrapped, kind, v);
    json_object_set_new(arg, "name", json_string(name));
    json_object_set_new(arg, "arg", wrapped);
    json_array_append_new(args, arg);
    return args;
}

static json_t *tensor_name(const struct translate *t, int value) {
    json_t *v = json_object();
    json_object_set_new(v, "name", json_string(t->p->values.p[value].name));
    return v;
}

json_t *translate_tensor(struct translate *t, json_t *args, const char *name, int value) {
    return add_arg(args, name, "as_tensor", tensor_name(t, value));
}

json_t *translate_tensors(struct translate *t, json_t *args, const char *name,
                          const int *values, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, tensor_name(t, values[i]));
    return add_arg(args, name, "as_tensors", list);
}

json_t *translate_text(json_t *args, const char *name, const char *text) {
    return add_arg(args, name, "as_string", json_string(text));
}

json_t *translate_int(json_t *args, const char *name, int64_t v) {
    return add_arg(args, name, "as_int", json_integer(v));
}

json_t *translate_ints(json_t *args, const char *name, const int64_t *v, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(v[i]));
    return add_arg(args, name, "as_ints", list);
}

json_t *translate_number(json_t *args, const char *name, double v) {
    return add_arg(args, name, "as_float",
                   isinf(v)   ? json_string(v < 0 ? "-Infinity" : "Infinity")
                   : isnan(v) ? json_string("NaN")
                              : json_real(v));
}

/* The scopes of "jit(f)/layers_3/attn/dot_general" that a model numbers: layers.3.attn. */
static const char *scope_of(struct translate *t, const char *op_name) {
    const char *end = strrchr(op_name, '/');
    char *path = arena_alloc(&t->p->arena, 2 * strlen(op_name) + 1), *to = path;
    bool number = false;
    for (const char *p = op_name; end && p < end; p++) {
        size_t n = strcspn(p, "/"), word = 0;
        while (word < n && (isalnum((unsigned char)p[word]) || strchr("_.", p[word])))
            word++;
        if (word == n && n) {
            if (to > path)
                *to++ = '.';
            memcpy(to, p, n);
            size_t digits = n;
            while (digits && isdigit((unsigned char)p[digits - 1]))
                digits--;
            if (digits < n && digits > 1 && strchr("_.", p[digits - 1])) {
                to[digits - 1] = '.';
                number = true;
            }
            to += n;
        }
        p += n;
    }
    return number ? path : "";
}

int translate_node(struct translate *t, const char *target, json_t *args, int rank,
                   const int64_t *size, int type, bool constant) {
    char *key = NULL;
    if (constant) {
        char *text = json_dumps(args, JSON_COMPACT);
        key = arena_printf(&t->p->arena, "%s %d %s", target, type, text);
        free(text);
        for (int i = 0; i < rank; i++)
            key = arena_printf(&t->p->arena, "%s %lld", key, (long long)size[i]);
        const json_t *seen = json_object_get(t->seen, key);
        if (seen) {
            json_decref(args);
            return (int)json_integer_value(seen);
        }
    }
    json_array_append_new(t->p->root, args);
    int value = translate_value(t, EXPORTED_RESULT, NULL, rank, size, type);
    struct exported_node n = {.target = target, .inputs = args, .n_out = 1};
    n.said = t->at->custom[0]
                 ? arena_printf(&t->p->arena, "%s:%s", t->at->opcode, t->at->custom)
                 : arena_strdup(&t->p->arena, t->at->opcode);
    n.place = arena_strdup(&t->p->arena, t->at->op_name[0] ? t->at->op_name : t->at->name);
    n.path = constant || t->turn >= 0 ? "" : scope_of(t, t->at->op_name);
    n.out = arena_alloc(&t->p->arena, sizeof *n.out);
    n.out[0] = value;
    arr_push(&t->nodes, n);
    if (key)
        json_object_set_new(t->seen, key, json_integer(value));
    return value;
}

static const struct exported_value *value_at(const struct translate *t, int value) {
    return &t->p->values.p[value];
}

static int type_of(const struct translate *t, int value) {
    const struct exported_value *v = value_at(t, value);
    return v->truth ? 1 : v->integer ? 4 : 11;
}

int translate_view(struct translate *t, const struct made *x, int value, int rank,
                   const int64_t *size) {
    const struct exported_value *v = value_at(t, value);
    if (v->rank == rank && !memcmp(v->size, size, sizeof *size * (size_t)rank))
        return value;
    json_t *args = translate_tensor(t, json_array(), "self", value);
    return translate_node(t, "aten.view.default", translate_ints(args, "size", size, rank),
                          rank, size, type_of(t, value), x->constant);
}

int translate_permute(struct translate *t, const struct made *x, int value,
                      const int64_t *order) {
    int64_t size[HLO_MAX_RANK];
    int rank = value_at(t, value)->rank;
    bool same = true;
    for (int i = 0; i < rank; i++) {
        size[i] = value_at(t, value)->size[order[i]];
        same &= order[i] == i;
    }
    if (same)
        return value;
    json_t *args = translate_tensor(t, json_array(), "self", value);
    return translate_node(t, "aten.permute.default",
                          translate_ints(args, "dims", order, rank), rank, size,
                          type_of(t, value), x->constant);
}

int translate_full(struct translate *t, const struct made *x) {
    const struct hlo_shape *s = x->shape;
    json_t *args = json_array();
    if (x->known) {
        translate_ints(args, "size", s->size, s->rank);
        translate_number(args, "fill_value", x->number);
        return translate_node(t, "aten.full.default", args, s->rank, s->size, s->type,
                              true);
    }
    const struct exported_value *v = value_at(t, x->value);
    if (v->rank == s->rank && !memcmp(v->size, s->size, sizeof *s->size * (size_t)s->rank))
        return json_decref(args), x->value;
    translate_tensor(t, args, "self", x->value);
    translate_ints(args, "size", s->size, s->rank);
    return translate_node(t, "aten.expand.default", args, s->rank, s->size, s->type,
                          x->constant);
}

/* ---- parameters ------------------------------------------------------------ */

int translate_part(struct translate *t, const struct made *x, int64_t index) {
    const struct exported_value *v = value_at(t, x->value);
    if (v->role != EXPORTED_PARAMETER || v->rank < 2)
        return -1;
    const char *dot = strchr(v->path, '.');
    const char *first =
        dot ? arena_printf(&t->p->arena, "%.*s", (int)(dot - v->path), v->path) : "layers";
    char *path = arena_printf(&t->p->arena, "%s.%lld.%s", first, (long long)index,
                              dot ? dot + 1 : v->path);
    if (!t->stack)
        t->stack = first;
    const json_t *seen = json_object_get(t->seen, path);
    if (seen)
        return (int)json_integer_value(seen);
    struct exported_value own = *v;
    int value =
        translate_value(t, EXPORTED_PARAMETER, path, own.rank - 1, own.size + 1, 11);
    json_object_set_new(t->seen, path, json_integer(value));
    return value;
}
