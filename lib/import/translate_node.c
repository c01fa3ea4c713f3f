/* Values and nodes. */
#include "import/translate.h"

#include "common/rng.h"

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
    arr_push(&t->p->values, v);
    return (int)t->p->values.n - 1;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static struct translate_args *add_arg(struct translate_args *args,
                                      const struct exported_arg *arg) {
    if (args->n < TRANSLATE_MOST_ARGS)
        args->arg[args->n++] = *arg;
    return args;
}

struct translate_args *translate_tensor(struct translate_args *args, const char *name,
                                        int value) {
    return add_arg(args, &(struct exported_arg){
                             .name = name, .kind = EXPORTED_TENSOR, .value = value});
}

struct translate_args *translate_tensors(struct translate_args *args, const char *name,
                                         const int *values, int n) {
    return add_arg(args,
                   &(struct exported_arg){
                       .name = name, .kind = EXPORTED_TENSORS, .n = n, .values = values});
}

struct translate_args *translate_text(struct translate_args *args, const char *name,
                                      const char *text) {
    return add_arg(
        args, &(struct exported_arg){.name = name, .kind = EXPORTED_TEXT, .text = text});
}

struct translate_args *translate_int(struct translate_args *args, const char *name,
                                     int64_t v) {
    return add_arg(args,
                   &(struct exported_arg){.name = name, .kind = EXPORTED_INT, .whole = v});
}

struct translate_args *translate_ints(struct translate_args *args, const char *name,
                                      const int64_t *v, int n) {
    return add_arg(args, &(struct exported_arg){
                             .name = name, .kind = EXPORTED_INTS, .n = n, .ints = v});
}

struct translate_args *translate_number(struct translate_args *args, const char *name,
                                        double v) {
    return add_arg(
        args, &(struct exported_arg){.name = name, .kind = EXPORTED_NUMBER, .number = v});
}

/* The program's own copy of what an argument borrows. */
static void keep_arg(struct arena *a, struct exported_arg *arg) {
    size_t n = (size_t)arg->n;
    if (arg->kind == EXPORTED_TEXT) {
        arg->text = arena_strdup(a, arg->text);
    } else if (arg->kind == EXPORTED_TENSORS) {
        int *own = arena_array(a, n + 1, sizeof *own);
        if (n)
            memcpy(own, arg->values, n * sizeof *own);
        arg->values = own;
    } else if (arg->kind == EXPORTED_INTS) {
        int64_t *own = arena_array(a, n + 1, sizeof *own);
        if (n)
            memcpy(own, arg->ints, n * sizeof *own);
        arg->ints = own;
    }
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

/* ---- constants, of which each is made once ---------------------------------------------------------- */

static const void *elements_of(const struct exported_arg *arg, size_t *bytes) {
    switch (arg->kind) {
    case EXPORTED_TENSOR: return *bytes = sizeof arg->value, &arg->value;
    case EXPORTED_TENSORS: return *bytes = (size_t)arg->n * sizeof(int), arg->values;
    case EXPORTED_INT: return *bytes = sizeof arg->whole, &arg->whole;
    case EXPORTED_INTS: return *bytes = (size_t)arg->n * sizeof(int64_t), arg->ints;
    case EXPORTED_NUMBER: return *bytes = sizeof arg->number, &arg->number;
    case EXPORTED_TEXT: return *bytes = strlen(arg->text), arg->text;
    default: return *bytes = 0, arg->name;
    }
}

/* A node as it would be, and the sizes and type of its result. */
struct wanted {
    const struct translate *t;
    const char *target;
    const struct translate_args *args;
    int rank, type;
    const int64_t *size;
};

static uint64_t hash_of(const struct wanted *w) {
    uint64_t hash = hash_bytes(w->target, strlen(w->target), (uint64_t)w->type);
    for (int i = 0; i < w->args->n; i++) {
        size_t bytes;
        const void *at = elements_of(&w->args->arg[i], &bytes);
        hash = hash_bytes(at, bytes, hash + (uint64_t)w->args->arg[i].kind);
    }
    return hash_bytes(w->size, sizeof *w->size * (size_t)w->rank, hash);
}

static bool is_wanted(const void *entries, int64_t i, const void *key) {
    const struct wanted *w = key;
    const struct exported_node *n = &w->t->nodes.p[((const int *)entries)[i]];
    const struct exported_value *v = &w->t->p->values.p[n->out[0]];
    if (strcmp(n->target, w->target) != 0 || n->n_args != w->args->n ||
        v->rank != w->rank || v->integer != translate_is_integer(w->type) ||
        v->truth != (w->type == 1) ||
        (w->rank && memcmp(v->size, w->size, sizeof *v->size * (size_t)v->rank) != 0))
        return false;
    for (int k = 0; k < n->n_args; k++) {
        const struct exported_arg *a = &n->args[k], *b = &w->args->arg[k];
        size_t bytes, other;
        const void *p = elements_of(a, &bytes), *q = elements_of(b, &other);
        if (a->kind != b->kind || bytes != other || strcmp(a->name, b->name) != 0 ||
            (bytes && memcmp(p, q, bytes) != 0))
            return false;
    }
    return true;
}

/* ---- all nodes -------------------------------------------------------------------------------------- */

static int add_node(struct translate *t, const struct wanted *w, bool constant) {
    struct arena *a = &t->p->arena;
    const struct hlo_instruction *at = t->at;
    struct exported_node n = {.target = w->target, .n_args = w->args->n, .n_out = 1};
    int value = translate_value(t, EXPORTED_RESULT, NULL, w->rank, w->size, w->type);
    struct exported_arg *args = arena_array(a, (size_t)n.n_args + 1, sizeof *args);
    for (int i = 0; i < n.n_args; i++) {
        args[i] = w->args->arg[i];
        keep_arg(a, &args[i]);
    }
    n.args = args;
    n.said = at->custom[0] ? arena_printf(a, "%s:%s", at->opcode, at->custom)
                           : arena_strdup(a, at->opcode);
    n.place = arena_strdup(a, at->op_name[0] ? at->op_name : at->name);
    n.path = constant || t->turn >= 0 ? "" : scope_of(t, at->op_name);
    n.out = arena_alloc(a, sizeof *n.out);
    n.out[0] = value;
    arr_push(&t->nodes, n);
    return value;
}

int translate_node(struct translate *t, const char *target,
                   const struct translate_args *args, int rank, const int64_t *size,
                   int type, bool constant) {
    struct wanted w = {t, target, args, rank, type, size};
    if (!constant)
        return add_node(t, &w, false);
    int64_t i = hashtable_put(&t->known, hash_of(&w), is_wanted, t->constants.p, &w);
    if (i < t->constants.n)
        return t->nodes.p[t->constants.p[i]].out[0];
    arr_push(&t->constants, (int)t->nodes.n);
    return add_node(t, &w, true);
}

void translate_end(struct translate *t) {
    struct exported *p = t->p;
    p->n_nodes = (int)t->nodes.n;
    p->nodes = arena_array(&p->arena, (size_t)t->nodes.n + 1, sizeof *p->nodes);
    if (t->nodes.n)
        memcpy(p->nodes, t->nodes.p, (size_t)t->nodes.n * sizeof *p->nodes);
    arr_release(&t->nodes);
    arr_release(&t->constants);
    hashtable_release(&t->known);
    json_decref(t->parts);
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
    struct translate_args args = {0};
    translate_ints(translate_tensor(&args, "self", value), "size", size, rank);
    return translate_node(t, "aten.view.default", &args, rank, size, type_of(t, value),
                          x->constant);
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
    struct translate_args args = {0};
    translate_ints(translate_tensor(&args, "self", value), "dims", order, rank);
    return translate_node(t, "aten.permute.default", &args, rank, size, type_of(t, value),
                          x->constant);
}

int translate_full(struct translate *t, const struct made *x) {
    const struct hlo_shape *s = x->shape;
    struct translate_args args = {0};
    if (x->known) {
        translate_ints(&args, "size", s->size, s->rank);
        translate_number(&args, "fill_value", x->number);
        return translate_node(t, "aten.full.default", &args, s->rank, s->size, s->type,
                              true);
    }
    const struct exported_value *v = value_at(t, x->value);
    if (v->rank == s->rank && !memcmp(v->size, s->size, sizeof *s->size * (size_t)s->rank))
        return x->value;
    translate_tensor(&args, "self", x->value);
    translate_ints(&args, "size", s->size, s->rank);
    return translate_node(t, "aten.expand.default", &args, s->rank, s->size, s->type,
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
    const json_t *seen = json_object_get(t->parts, path);
    if (seen)
        return (int)json_integer_value(seen);
    struct exported_value own = *v;
    int value =
        translate_value(t, EXPORTED_PARAMETER, path, own.rank - 1, own.size + 1, 11);
    json_object_set_new(t->parts, path, json_integer(value));
    return value;
}
