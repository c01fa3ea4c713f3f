/* Reading weft-model(5): sizes are resolved first, then the list of ops is expanded block by
 * block. A tensor name stands for the latest tensor of that name, so a repeated block chains
 * by itself ("in": ["x"] ... "out": "x"). */
#include "common/rng.h"
#include "model/expr.h"
#include "model/model.h"
#include "model/model_check.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 1 << 20, MAX_OPS = 1 << 20, MAX_SETTINGS = 256 };

struct reader {
    struct model *m;
    json_t *sizes, *rates; /* with the overrides applied */
    int depth;             /* of size lookups, to find cycles */
    ARR(struct model_tensor) tensors;
    ARR(struct model_param) params;
    ARR(struct model_op) ops;
    ARR(int) latest; /* tensors by name: the latest of each distinct name */
    int block, place;
    const char *prefix; /* "layer.3." */
};

static int lookup_size(void *ctx, const char *name, int64_t *out, struct err *err) {
    struct reader *r = ctx;
    json_t *v = json_object_get(r->sizes, name);
    if (!v)
        return err_input(err, "size \"%.64s\" is not defined", name);
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 0;
    }
    if (!json_is_string(v))
        return err_input(err,
                         "size \"%.64s\": expected a whole number or an expression, got %s",
                         name, json_type_name(v));
    if (++r->depth > 32)
        return err_input(err, "size \"%.64s\" depends on itself", name);
    int rc = expr_eval(json_string_value(v), lookup_size, r, out, err);
    r->depth--;
    return rc < 0 ? err_prefix(err, "size \"%.64s\"", name) : 0;
}

/* A size that must be positive. */
static int positive_size(struct reader *r, const char *name, int64_t *out,
                         struct err *err) {
    if (lookup_size(r, name, out, err) < 0)
        return -1;
    if (*out <= 0 || *out > (int64_t)1 << 40)
        return err_input(err, "size \"%.64s\": %lld is not in 1..2^40", name,
                         (long long)*out);
    return 0;
}

/* A real number: a number or the name of a rate. */
static int real_value(struct reader *r, const json_t *v, const char *key, double *out,
                      struct err *err) {
    if (json_is_string(v))
        v = json_object_get(r->rates, json_string_value(v));
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return err_input(err, "%s: expected a number or the name of a rate", key);
    *out = json_number_value(v);
    return 0;
}

static int find_or_add_dim(struct reader *r, const char *name, struct err *err) {
    struct model *m = r->m;
    int d = model_dim_find(m, name);
    if (d >= 0)
        return d;
    if (m->n_dims == MODEL_MAX_DIMS)
        return err_input(err, "more than %d dims", MODEL_MAX_DIMS);
    int64_t size = 0;
    if (strcmp(name, "batch") && positive_size(r, name, &size, err) < 0)
        return -1;
    m->dims[m->n_dims] = (struct model_dim){arena_strdup(&m->arena, name), size};
    return m->n_dims++;
}

static int read_shape(struct reader *r, const json_t *dims, struct shape *out,
                      struct err *err) {
    if (!json_is_array(dims) || json_array_size(dims) > MODEL_MAX_RANK)
        return err_input(err, "dims: expected an array of at most %d names",
                         MODEL_MAX_RANK);
    *out = (struct shape){0};
    dimset seen = 0;
    for (size_t i = 0; i < json_array_size(dims); i++) {
        const char *name = json_string_value(json_array_get(dims, i));
        if (!name)
            return err_input(err, "dims[%zu]: expected a name", i);
        int d = find_or_add_dim(r, name, err);
        if (d < 0)
            return err_prefix(err, "dims[%zu]", i);
        if (seen >> d & 1)
            return err_input(err, "dims[%zu]: \"%.64s\" appears twice", i, name);
        seen |= 1u << d;
        out->dim[out->rank++] = d;
    }
    /* Offsets are 64-bit; a tensor beyond 2^48 elements is a typing error. */
    double n = 1;
    for (int i = 0; i < out->rank; i++)
        n *= out->dim[i] == r->m->batch ? 1 : (double)r->m->dims[out->dim[i]].size;
    if (n > 0x1p48)
        return err_input(err, "dims: a tensor of %.3g elements is too large", n);
    return 0;
}

static int find_tensor(const struct reader *r, const char *name) {
    for (int64_t i = r->latest.n - 1; i >= 0; i--)
        if (!strcmp(r->tensors.p[r->latest.p[i]].name, name))
            return r->latest.p[i];
    return -1;
}

static int add_tensor(struct reader *r, struct model_tensor t) {
    int id = (int)r->tensors.n;
    arr_push(&r->tensors, t);
    for (int64_t i = 0; i < r->latest.n; i++) {
        if (!strcmp(r->tensors.p[r->latest.p[i]].name, t.name)) {
            r->latest.p[i] = id;
            return id;
        }
    }
    arr_push(&r->latest, id);
    return id;
}

static int read_inputs(struct reader *r, const json_t *inputs, struct err *err) {
    static const char *const sources[] = {"token", "next-token", "image", "label"};
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)inputs, name, v) {
        struct model_tensor t = {.name = arena_strdup(&r->m->arena, name), .producer = -1};
        const char *source = "";
        json_t *dims;
        if (json_keys(v, "dims source", err) < 0 ||
            json_str(v, "source", &source, err) < 0 ||
            json_array_member(v, "dims", &dims, err) < 0 ||
            read_shape(r, dims, &t.shape, err) < 0)
            return err_at(err, "inputs.%s", name);
        int s = 0;
        while (s < 4 && strcmp(sources[s], source))
            s++;
        if (s == 4)
            return err_input(
                err,
                "inputs.%s.source: expected token, next-token, image or label, "
                "got \"%.64s\"",
                name, source);
        t.source = (enum data_source)s;
        int rank = t.source == DATA_LABEL ? 1 : 2;
        if (t.shape.rank != rank || t.shape.dim[0] != r->m->batch)
            return err_input(err, "inputs.%s.dims: expected batch%s", name,
                             rank == 2 ? " and one more" : " alone");
        add_tensor(r, t);
    }
    return 0;
}

static int find_param(const struct reader *r, const char *name) {
    for (int64_t i = 0; i < r->params.n; i++)
        if (!strcmp(r->params.p[i].name, name))
            return (int)i;
    return -1;
}

/* Reads "weight" or "bias" of an op. Returns the parameter's number, or -1. */
static int read_param(struct reader *r, const json_t *v, const char *op_name,
                      const char *slot, enum op_kind kind, struct err *err) {
    struct model_param p = {.first_op = (int)r->ops.n, .std = 0.02, .init = INIT_NORMAL};
    json_t *dims;
    if (json_keys(v, "dims std fan tie when", err) < 0 ||
        json_array_member(v, "dims", &dims, err) < 0 ||
        read_shape(r, dims, &p.shape, err) < 0)
        return -1;
    int64_t tied = 1;
    const char *tie = NULL, *when = NULL, *fan = NULL;
    if (json_opt_str(v, "tie", &tie, err) < 0 || json_opt_str(v, "when", &when, err) < 0 ||
        json_opt_str(v, "fan", &fan, err) < 0)
        return -1;
    if (when && expr_eval(when, lookup_size, r, &tied, err) < 0)
        return err_prefix(err, "when");
    if (tie && tied) {
        int other = find_param(r, tie);
        if (other < 0)
            return err_input(err, "tie: no parameter \"%.64s\" before this op", tie);
        if (memcmp(&r->params.p[other].shape, &p.shape, sizeof p.shape))
            return err_input(err, "tie: \"%.64s\" has other dims", tie);
        return other;
    }
    if (!strcmp(slot, "bias"))
        p.init = INIT_ZEROS;
    else if (kind == OP_layernorm)
        p.init = INIT_ONES;
    json_t *std = json_object_get(v, "std");
    if (std && real_value(r, std, "std", &p.std, err) < 0)
        return -1;
    if (fan) {
        int64_t f;
        if (expr_eval(fan, lookup_size, r, &f, err) < 0)
            return err_prefix(err, "fan");
        if (f <= 0)
            return err_input(err, "fan: %lld is not positive", (long long)f);
        p.std /= sqrt((double)f);
    }
    p.decay = p.shape.rank >= 2 && p.init == INIT_NORMAL;
    p.name = arena_printf(&r->m->arena, "%s.%s", op_name, slot);
    arr_push(&r->params, p);
    return (int)r->params.n - 1;
}

static int read_operands(struct reader *r, const json_t *v, struct model_op *op,
                         struct err *err) {
    json_t *in;
    if (json_array_member(v, "in", &in, err) < 0)
        return -1;
    if (!json_array_size(in) || json_array_size(in) > MODEL_MAX_OPERANDS)
        return err_input(err, "in: expected 1 or %d tensors", MODEL_MAX_OPERANDS);
    for (size_t i = 0; i < json_array_size(in); i++) {
        const char *name = json_string_value(json_array_get(in, i));
        int t = name ? find_tensor(r, name) : -1;
        if (t < 0)
            return err_input(err, "in[%zu]: no tensor \"%.64s\" before this op", i,
                             name ? name : "");
        op->in[op->n_in++] = t;
    }
    return 0;
}

static enum op_kind find_kind(const char *name) {
    int k = 0;
    while (k < OP_KIND_COUNT && strcmp(op_kind_name((enum op_kind)k), name))
        k++;
    return (enum op_kind)k;
}

static int read_op(struct reader *r, const json_t *v, struct err *err) {
    struct model *m = r->m;
    struct model_op op = {.block = r->block, .place = r->place, .eps = 1e-5};
    const char *name = "", *kind = "", *out = "";
    json_t *dims;
    if (json_keys(v, "name kind in out dims weight bias causal rate eps", err) < 0 ||
        json_str(v, "name", &name, err) < 0 || json_str(v, "kind", &kind, err) < 0 ||
        json_str(v, "out", &out, err) < 0 ||
        json_opt_bool(v, "causal", &op.causal, err) < 0 ||
        json_opt_num(v, "eps", 0, 1, &op.eps, err) < 0 ||
        json_array_member(v, "dims", &dims, err) < 0)
        return -1;
    op.kind = find_kind(kind);
    if (op.kind == OP_KIND_COUNT)
        return err_input(err, "kind: unknown op kind \"%.64s\"", kind);
    if (!name[0] || strpbrk(name, ".*, \t\n"))
        return err_input(err, "name: \"%.64s\" is empty or holds one of . * , or blanks",
                         name);
    op.name = arena_printf(&m->arena, "%s%s", r->prefix, name);
    struct model_tensor t = {.name = arena_strdup(&m->arena, out),
                             .producer = (int)r->ops.n};
    if (read_operands(r, v, &op, err) < 0 || read_shape(r, dims, &t.shape, err) < 0)
        return -1;
    const json_t *rate = json_object_get(v, "rate");
    if (rate && real_value(r, rate, "rate", &op.rate, err) < 0)
        return -1;
    if (op.rate < 0 || op.rate >= 1)
        return err_input(err, "rate: %g is not in 0..1", op.rate);
    static const char *const slots[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        const json_t *p = json_object_get(v, slots[i]);
        if (!p)
            continue;
        int id = read_param(r, p, op.name, slots[i], op.kind, err);
        if (id < 0)
            return err_at(err, "%s", slots[i]);
        op.param[op.n_param++] = id;
    }
    /* A dropout that drops nothing is no op: its result is its operand under another name. */
    if (op.kind == OP_dropout && op.rate == 0) {
        t.producer = r->tensors.p[op.in[0]].producer;
        if (!strcmp(t.name, r->tensors.p[op.in[0]].name))
            return 0;
        return err_input(err, "out: a dropout keeps the name of its operand");
    }
    op.out = add_tensor(r, t);
    if (model_check_op(r->m, r->tensors.p, r->params.p, &op, err) < 0)
        return -1;
    if (r->ops.n == MAX_OPS)
        return err_input(err, "the model has more than %d ops", MAX_OPS);
    arr_push(&r->ops, op);
    return 0;
}

/* The name of element i for messages. */
static int at_op(const json_t *v, size_t i, struct err *err) {
    const char *name = json_string_value(json_object_get(v, "name"));
    return name ? err_at(err, "ops[%zu] (%.64s)", i, name) : err_at(err, "ops[%zu]", i);
}

static int read_ops(struct reader *r, const json_t *list, int depth, struct err *err);

static int read_repeat(struct reader *r, const json_t *v, int depth, struct err *err) {
    const char *name = "", *count = "";
    json_t *ops;
    int64_t n;
    if (depth > 0)
        return err_input(err, "repeat: blocks do not nest");
    if (json_keys(v, "name repeat ops", err) < 0 || json_str(v, "name", &name, err) < 0 ||
        json_str(v, "repeat", &count, err) < 0 ||
        json_array_member(v, "ops", &ops, err) < 0)
        return -1;
    if (expr_eval(count, lookup_size, r, &n, err) < 0)
        return err_prefix(err, "repeat");
    if (n < 0 || n > MAX_BLOCKS)
        return err_input(err, "repeat: %lld is not in 0..%d", (long long)n, MAX_BLOCKS);
    int first_place = r->place;
    for (int64_t i = 0; i < n; i++) {
        r->block = (int)i;
        r->place = first_place;
        r->prefix = arena_printf(&r->m->arena, "%s.%lld.", name, (long long)i);
        if (read_ops(r, ops, depth + 1, err) < 0)
            return -1;
    }
    r->block = -1;
    r->prefix = "";
    return 0;
}

static int read_ops(struct reader *r, const json_t *list, int depth, struct err *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        int rc = json_object_get(v, "repeat") ? read_repeat(r, v, depth, err)
                                              : read_op(r, v, err);
        if (rc < 0)
            return at_op(v, i, err);
        r->place++;
    }
    return 0;
}

static int override_one(struct reader *r, const char *key, json_t *value, struct err *err) {
    json_t *where = json_object_get(r->sizes, key) ? r->sizes : r->rates;
    int rc = -1;
    if (!json_object_get(where, key))
        err_input(err, "the model has no size or rate \"%.64s\"", key);
    else if (where == r->rates && !json_is_number(value))
        err_input(err, "rate \"%.64s\": expected a number", key);
    else if (where == r->sizes && !json_is_integer(value) && !json_is_string(value))
        err_input(err, "size \"%.64s\": expected a whole number", key);
    else
        rc = json_object_set(where, key, value);
    json_decref(value);
    return rc;
}

static int apply_preset(struct reader *r, const json_t *doc, const char *preset,
                        struct err *err) {
    json_t *presets = json_object_get(doc, "presets");
    if (!preset[0])
        json_opt_str(doc, "default", &preset, NULL);
    r->m->preset = arena_strdup(&r->m->arena, preset);
    if (!preset[0])
        return 0;
    json_t *p = json_object_get(presets, preset);
    if (!json_is_object(p)) {
        char names[256] = "";
        const char *key;
        json_t *v;
        json_object_foreach(presets, key, v) {
            size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, " %s", key);
        }
        return err_input(err, "no preset \"%.64s\" (there are:%s)", preset, names);
    }
    const char *key;
    json_t *v;
    json_object_foreach(p, key, v) {
        if (override_one(r, key, json_incref(v), err) < 0)
            return err_at(err, "presets.%s", preset);
    }
    return 0;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Is the name of part i given again further on? Then part i has no effect. */
static bool overridden(char *const *parts, int64_t n, int64_t i) {
    size_t name = strcspn(parts[i], "=") + 1;
    for (int64_t k = i + 1; k < n; k++)
        if (!strncmp(parts[i], parts[k], name))
            return true;
    return false;
}

/* "layers=4,hidden=1024": the last of each name counts; kept sorted in m->set. */
static int apply_set(struct reader *r, const char *set, struct err *err) {
    r->m->set = "";
    if (!set || !set[0])
        return 0;
    ARR(char *) parts = {0};
    for (char *s = arena_strdup(&r->m->arena, set), *save, *p = strtok_r(s, ", ", &save); p;
         p = strtok_r(NULL, ", ", &save))
        arr_push(&parts, p);
    if (parts.n > MAX_SETTINGS) {
        arr_release(&parts);
        return err_input(err, "set: more than %d settings", MAX_SETTINGS);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < parts.n; i++)
        if (!overridden(parts.p, parts.n, i))
            parts.p[kept++] = parts.p[i];
    parts.n = kept;
    for (int64_t i = 0; i < parts.n; i++) {
        char *eq = strchr(parts.p[i], '=');
        json_t *v = NULL;
        if (eq) {
            v = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
            if (!v)
                v = json_string(eq + 1);
        }
        char key[64];
        snprintf(key, sizeof key, "%.*s", eq ? (int)(eq - parts.p[i]) : 0, parts.p[i]);
        int rc = v ? override_one(r, key, v, err)
                   : err_input(err, "expected NAME=NUMBER, got \"%.64s\"", parts.p[i]);
        if (rc < 0) {
            arr_release(&parts);
            return err_prefix(err, "set");
        }
    }
    if (parts.n)
        qsort(parts.p, (size_t)parts.n, sizeof *parts.p, by_text);
    for (int64_t i = 0; i < parts.n; i++)
        r->m->set =
            arena_printf(&r->m->arena, "%s%s%s", r->m->set, i ? "," : "", parts.p[i]);
    arr_release(&parts);
    return 0;
}

static uint64_t hash_int(uint64_t h, int64_t v) {
    return hash_bytes(&v, sizeof v, h);
}

static uint64_t hash_shape(const struct model *m, uint64_t h, const struct shape *s) {
    for (int i = 0; i < s->rank; i++)
        h = hash_int(h, m->dims[s->dim[i]].size * MODEL_MAX_DIMS + s->dim[i]);
    return hash_int(h, s->rank);
}

static uint64_t hash_model(const struct model *m) {
    uint64_t h = 0;
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        h = hash_bytes(op->name, strlen(op->name), h);
        h = hash_int(h, op->kind);
        h = hash_int(h, (int64_t)(op->rate * 1e9));
        h = hash_shape(m, h, &m->tensors[op->out].shape);
        for (int k = 0; k < op->n_in; k++)
            h = hash_int(h, op->in[k]);
        for (int k = 0; k < op->n_param; k++)
            h = hash_shape(m, hash_int(h, op->param[k]), &m->params[op->param[k]].shape);
    }
    return h;
}

/* The last op must be the loss, and every result must be used. */
static int check_graph(const struct model *m, struct err *err) {
    if (!m->n_ops || m->ops[m->n_ops - 1].kind != OP_cross_entropy)
        return err_input(err, "ops: the last op must be the loss (cross-entropy)");
    char *used = mem_array((size_t)m->n_tensors, 1);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++)
            used[m->ops[i].in[k]] = 1;
    int idle = 0;
    while (idle < m->n_ops - 1 && used[m->ops[idle].out])
        idle++;
    free(used);
    if (idle < m->n_ops - 1)
        return err_input(err, "ops: the result of \"%s\" is not used", m->ops[idle].name);
    return 0;
}

static void finish(struct reader *r) {
    struct model *m = r->m;
    m->n_tensors = (int)r->tensors.n;
    m->tensors = arena_array(&m->arena, (size_t)m->n_tensors, sizeof *m->tensors);
    if (m->n_tensors)
        memcpy(m->tensors, r->tensors.p, sizeof *m->tensors * (size_t)m->n_tensors);
    m->n_params = (int)r->params.n;
    m->params = arena_array(&m->arena, (size_t)m->n_params, sizeof *m->params);
    if (m->n_params)
        memcpy(m->params, r->params.p, sizeof *m->params * (size_t)m->n_params);
    m->n_ops = (int)r->ops.n;
    m->ops = arena_array(&m->arena, (size_t)m->n_ops, sizeof *m->ops);
    if (m->n_ops)
        memcpy(m->ops, r->ops.p, sizeof *m->ops * (size_t)m->n_ops);
    m->n_places = r->place + 1;
    m->loss = m->n_ops - 1;
    m->hash = hash_model(m);
}

static int read_document(struct reader *r, json_t *doc, const char *preset, const char *set,
                         struct err *err) {
    struct model *m = r->m;
    const char *name = "", *about;
    json_t *sizes, *rates = NULL, *inputs, *ops;
    if (json_keys(doc, "$schema format name about sizes rates default presets inputs ops",
                  err) < 0 ||
        json_format(doc, "weft-model/1", err) < 0 ||
        json_str(doc, "name", &name, err) < 0 ||
        json_opt_str(doc, "about", &about, err) < 0 ||
        json_object_member(doc, "sizes", &sizes, err) < 0 ||
        (json_object_get(doc, "rates") &&
         json_object_member(doc, "rates", &rates, err) < 0) ||
        json_object_member(doc, "inputs", &inputs, err) < 0 ||
        json_array_member(doc, "ops", &ops, err) < 0)
        return -1;
    m->name = arena_strdup(&m->arena, name);
    r->sizes = json_copy(sizes);
    r->rates = rates ? json_copy(rates) : json_object();
    m->batch = find_or_add_dim(r, "batch", err);
    if (apply_preset(r, doc, preset ? preset : "", err) < 0 || apply_set(r, set, err) < 0 ||
        read_inputs(r, inputs, err) < 0 || read_ops(r, ops, 0, err) < 0)
        return -1;
    finish(r);
    return check_graph(m, err);
}

struct model *model_from_json(json_t *doc, const char *preset, const char *set,
                              struct err *err) {
    struct arena arena = {0};
    struct model *m = arena_alloc(&arena, sizeof *m);
    m->arena = arena;
    m->doc = json_incref(doc);
    struct reader r = {.m = m, .block = -1, .prefix = ""};
    int rc = read_document(&r, doc, preset, set, err);
    json_decref(r.sizes);
    json_decref(r.rates);
    arr_release(&r.tensors);
    arr_release(&r.params);
    arr_release(&r.ops);
    arr_release(&r.latest);
    if (rc < 0) {
        model_destroy(m);
        return NULL;
    }
    return m;
}
