/* Reading weft-model(5): the list of ops is expanded block by block, and every op checked and
 * bound to its kind. A tensor name stands for the latest tensor of that name, so a repeated
 * block chains by itself ("in": ["x"] ... "out": "x"). */
#include "model/read.h"
#include "model/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 1 << 20, MAX_OPS = 1 << 20, MAX_NESTING = 8 };

/* ---- tensors ----------------------------------------------------------------------------- */

/* "dims": each name once. */
static int read_shape(struct reader *r, const json_t *dims, struct shape *out,
                      struct err *err) {
    if (!json_is_array(dims) || json_array_size(dims) > TENSOR_MAX_RANK)
        return err_input(err, "dims: expected an array of at most %d names",
                         TENSOR_MAX_RANK);
    *out = (struct shape){0};
    double n = 1;
    for (size_t i = 0; i < json_array_size(dims); i++) {
        const char *name = json_string_value(json_array_get(dims, i));
        if (!name)
            return err_input(err, "dims[%zu]: expected a name", i);
        int d = read_dim(r, name, err);
        if (d < 0)
            return err_prefix(err, "dims[%zu]", i);
        for (int k = 0; k < out->rank; k++)
            if (out->dim[k] == d)
                return err_input(err, "dims[%zu]: \"%.64s\" appears twice", i, name);
        out->dim[out->rank++] = d;
        n *= d == r->m->batch ? 1 : (double)r->dim_list.p[d].size;
    }
    /* Offsets are 64-bit; a tensor beyond 2^48 elements is a typing error. */
    if (n > 0x1p48)
        return err_input(err, "dims: a tensor of %.3g elements is too large", n);
    return 0;
}

static void name_tensor(struct reader *r, const char *name, int tensor) {
    json_object_set_new(r->tensor_of, name, json_integer(tensor));
}

static int find(const json_t *table, const char *name) {
    const json_t *v = json_object_get(table, name);
    return v ? (int)json_integer_value(v) : -1;
}

/* A data input: batch first; then what its source can give. */
static int read_input(struct reader *r, const char *name, const json_t *v,
                      struct err *err) {
    struct model_tensor t = {.name = arena_strdup(&r->m->arena, name), .producer = -1};
    json_t *dims;
    if (json_keys(v, "dims source", err) < 0 ||
        json_array_member(v, "dims", &dims, err) < 0 ||
        read_shape(r, dims, &t.shape, err) < 0 || read_source(v, &t, err) < 0)
        return -1;
    if (!t.shape.rank || t.shape.dim[0] != r->m->batch)
        return err_input(err, "dims: expected batch first");
    if (check_input_dims(&t, err) < 0)
        return -1;
    arr_push(&r->tensors, t);
    name_tensor(r, name, (int)r->tensors.n - 1);
    return 0;
}

static int read_inputs(struct reader *r, const json_t *inputs, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)inputs, name, v) {
        if (read_input(r, name, v, err) < 0)
            return err_at(err, "inputs.%s", name);
    }
    return 0;
}

/* ---- parameters ---------------------------------------------------------------------------- */

/* The parameter that this one shares, -1 if it is its own, -2 on failure. */
static int read_tie(struct reader *r, const json_t *v, const struct shape *s,
                    struct err *err) {
    int64_t tied = 1;
    const char *tie = NULL;
    const json_t *when = json_object_get(v, "when");
    if (json_opt_str(v, "tie", &tie, err) < 0 ||
        (when && read_int(r, when, "when", &tied, err) < 0))
        return -2;
    if (!tie || !tied)
        return -1;
    int other = find(r->param_of, tie);
    if (other < 0) {
        err_input(err, "tie: no parameter \"%.64s\" before this op", tie);
        return -2;
    }
    if (memcmp(&r->params.p[other].shape, s, sizeof *s)) {
        err_input(err, "tie: \"%.64s\" has other dims", tie);
        return -2;
    }
    return other;
}

/* Normal with 0.02, "std", or that over the root of "fan". */
static int read_std(struct reader *r, const json_t *v, double *std, struct err *err) {
    const json_t *given = json_object_get(v, "std"), *fan = json_object_get(v, "fan");
    int64_t f = 1;
    *std = 0.02;
    if ((given && read_real(r, given, "std", std, err) < 0) ||
        (fan && read_int(r, fan, "fan", &f, err) < 0))
        return -1;
    if (f <= 0)
        return err_input(err, "fan: %lld is not positive", (long long)f);
    if (fan)
        *std /= sqrt((double)f);
    return 0;
}

/* Returns the parameter's number, or -1. */
static int read_param(struct reader *r, const json_t *v, const char *op_name,
                      const struct kind_slot *slot, struct err *err) {
    static const enum param_init inits[] = {
        [SLOT_NORMAL] = INIT_NORMAL, [SLOT_ONES] = INIT_ONES, [SLOT_ZEROS] = INIT_ZEROS};
    struct model_param p = {.first_op = (int)r->ops.n, .init = inits[slot->init]};
    json_t *dims;
    if (json_keys(v, "dims std fan tie when", err) < 0 ||
        json_array_member(v, "dims", &dims, err) < 0 ||
        read_shape(r, dims, &p.shape, err) < 0)
        return -1;
    int other = read_tie(r, v, &p.shape, err);
    if (other >= 0 && slot->running)
        return err_input(err, "tie: running statistics are the op's own");
    if (other >= 0)
        r->params.p[other].tied |= r->params.p[other].first_op != p.first_op;
    if (other != -1)
        return other < 0 ? -1 : other;
    if (read_std(r, v, &p.std, err) < 0)
        return -1;
    p.decay = p.shape.rank >= 2 && p.init == INIT_NORMAL;
    p.running = slot->running;
    p.name = arena_printf(&r->m->arena, "%s.%s", op_name, slot->name);
    json_object_set_new(r->param_of, p.name, json_integer(r->params.n));
    arr_push(&r->params, p);
    return (int)r->params.n - 1;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static int check_op_keys(const json_t *v, const struct kind *k, struct err *err) {
    char keys[256] = "name kind in out dims";
    for (int i = 0; i < k->n_param; i++)
        snprintf(keys + strlen(keys), sizeof keys - strlen(keys), " %s", k->param[i].name);
    for (int a = 0; a < ATTR_COUNT; a++)
        if (k->has_attr[a])
            snprintf(keys + strlen(keys), sizeof keys - strlen(keys), " %s",
                     attr_info((enum attr)a)->name);
    return json_keys(v, keys, err);
}

static int read_attr(struct reader *r, const json_t *v, const struct attr_info *info,
                     double *out, struct err *err) {
    const json_t *given = json_object_get(v, info->name);
    bool flag = false;
    int64_t whole = 0;
    int rc = info->type == ATTR_BOOL  ? json_opt_bool(v, info->name, &flag, err)
             : info->type == ATTR_INT ? read_int(r, given, info->name, &whole, err)
                                      : read_real(r, given, info->name, out, err);
    if (info->type != ATTR_REAL)
        *out = info->type == ATTR_BOOL ? flag : (double)whole;
    return rc;
}

/* Attributes of the kind: what the file says, else the default; in range. */
static int read_attrs(struct reader *r, const json_t *v, struct model_op *op,
                      struct err *err) {
    const struct kind *k = kind_of(op->kind);
    for (int a = 0; a < ATTR_COUNT; a++) {
        const struct attr_info *info = attr_info((enum attr)a);
        const json_t *given = json_object_get(v, info->name);
        op->attr[a] = k->attr[a];
        if (!given && k->needs_attr[a])
            return err_input(err, "%s: missing, %s needs it", info->name, k->name);
        if (!given)
            continue;
        if (read_attr(r, v, info, &op->attr[a], err) < 0)
            return -1;
        if (op->attr[a] < info->least || op->attr[a] >= info->below)
            return err_input(err,
                             "%s: expected at least %.10g and less than %.10g, got %.10g",
                             info->name, info->least, info->below, op->attr[a]);
    }
    return 0;
}

/* "in", without the names that end in ? and of which there is no tensor yet: an op that adds to what
 * the blocks before made has nothing to add to in the first one. A new reference. */
static json_t *operand_names(const struct reader *r, const json_t *v) {
    json_t *names = json_array(), *name;
    size_t i;
    json_array_foreach(json_object_get(v, "in"), i, name) {
        size_t n = json_string_length(name);
        bool may_miss = n && json_string_value(name)[n - 1] == '?';
        json_t *bare =
            may_miss ? json_stringn(json_string_value(name), n - 1) : json_incref(name);
        if (!may_miss || find(r->tensor_of, json_string_value(bare)) >= 0)
            json_array_append(names, bare);
        json_decref(bare);
    }
    return names;
}

/* Tensors made before, as many and of such values as the kind asks for; `in` are their names. */
static int read_operands(struct reader *r, const json_t *v, const json_t *in,
                         struct model_op *op, struct slot_shapes *shapes, struct err *err) {
    json_t *given;
    if (json_array_member(v, "in", &given, err) < 0)
        return -1;
    const struct kind *k = kind_of(op->kind);
    int n = (int)json_array_size(in), least = kind_least(k);
    if (n < least || n > k->n_in)
        return err_input(err, "in: %s takes %d, got %d", k->name,
                         n < least ? least : k->n_in, n);
    op->n_in = n;
    op->in = arena_array(&r->m->arena, (size_t)n, sizeof *op->in);
    for (int i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(in, (size_t)i));
        int t = name ? find(r->tensor_of, name) : -1;
        if (t < 0)
            return err_input(err, "in[%d]: no tensor \"%.64s\" before this op", i,
                             name ? name : "");
        const struct model_tensor *tensor = &r->tensors.p[t];
        if (tensor->integer != k->in[i].integer)
            return err_input(err, "in[%d]: %s expects %s here, and \"%.64s\" holds %s", i,
                             k->name, k->in[i].integer ? "whole numbers" : "numbers", name,
                             tensor->integer ? "whole numbers" : "numbers");
        if (k->in[i].wide && !tensor->wide)
            return err_input(err,
                             "in[%d]: %s expects sums in f32 here, which \"%.64s\" is not",
                             i, k->name, name);
        op->in[i] = t;
    }
    for (int i = 0; i < n; i++)
        shapes->in[i] = &r->tensors.p[op->in[i]].shape;
    return 0;
}

/* The parameters that the kind has, under their names. */
static int read_params(struct reader *r, const json_t *v, struct model_op *op,
                       struct err *err) {
    const struct kind *k = kind_of(op->kind);
    op->n_param = k->n_param;
    op->param = arena_array(&r->m->arena, (size_t)k->n_param, sizeof *op->param);
    for (int i = 0; i < k->n_param; i++) {
        const struct kind_slot *slot = &k->param[i];
        const json_t *p = json_object_get(v, slot->name);
        op->param[i] = -1;
        if (!p && slot->optional)
            continue;
        if (!p)
            return err_input(err, "%s: missing, %s needs it", slot->name, k->name);
        op->param[i] = read_param(r, p, op->name, slot, err);
        if (op->param[i] < 0)
            return err_at(err, "%s", slot->name);
    }
    return 0;
}

/* "out" and "dims": a name and its dims, or lists of both where the kind has several results. */
static int read_results(struct reader *r, const json_t *v, struct model_op *op,
                        struct model_tensor *results, struct slot_shapes *shapes,
                        struct err *err) {
    const struct kind *k = kind_of(op->kind);
    const json_t *out = json_object_get(v, "out"), *dims = json_object_get(v, "dims");
    bool list = k->n_out > 1;
    int n_wide = 0;
    for (int i = 0; i < op->n_in; i++)
        n_wide += r->tensors.p[op->in[i]].wide;
    /* What is f32 stays that, and is not worked on beside what may not be. */
    if (n_wide && !k->in[0].wide && (n_wide < op->n_in || k->n_param))
        return err_input(err, "in: %s cannot take sums in f32 beside others", k->name);
    if (list && (json_array_size(out) != (size_t)k->n_out ||
                 json_array_size(dims) != (size_t)k->n_out))
        return err_input(err,
                         "out: %s gives %d results: expected a list of their names, "
                         "and one of their dims",
                         k->name, k->n_out);
    op->n_out = k->n_out;
    op->out = arena_array(&r->m->arena, (size_t)k->n_out, sizeof *op->out);
    for (int i = 0; i < k->n_out; i++) {
        const json_t *name = list ? json_array_get(out, (size_t)i) : out;
        if (!json_is_string(name))
            return err_input(err, "out: expected the name of the result");
        results[i] = (struct model_tensor){
            .name = arena_strdup(&r->m->arena, json_string_value(name)),
            .producer = (int)r->ops.n,
            .integer = k->out[i].integer,
            .wide = k->out[i].wide || (n_wide && !k->in[0].wide)};
        if (read_shape(r, list ? json_array_get(dims, (size_t)i) : dims, &results[i].shape,
                       err) < 0)
            return -1;
        shapes->out[i] = &results[i].shape;
    }
    return 0;
}

static int bind(struct reader *r, struct model_op *op, struct slot_shapes *shapes,
                struct err *err) {
    struct arena *arena = &r->m->arena;
    op->in_map = arena_array(arena, (size_t)op->n_in, sizeof *op->in_map);
    op->param_map = arena_array(arena, (size_t)op->n_param, sizeof *op->param_map);
    op->out_map = arena_array(arena, (size_t)op->n_out, sizeof *op->out_map);
    for (int i = 0; i < op->n_param; i++)
        if (op->param[i] >= 0)
            shapes->param[i] = &r->params.p[op->param[i]].shape;
    return model_bind(r->dim_list.p, shapes, op, err);
}

/* Patterns (weft-plan(5)) must be able to say every name. */
static int check_name(const char *name, struct err *err) {
    if (!name[0] || strpbrk(name, ".*, \t\n") || (name[0] >= '0' && name[0] <= '9'))
        return err_input(err,
                         "name: \"%.64s\" is empty, begins with a digit or holds one of "
                         ". * , or blanks",
                         name);
    return 0;
}

/* "name" and "kind"; the full name ("layer.3.fc1") must be new. */
static int read_name(struct reader *r, const json_t *v, struct model_op *op,
                     struct err *err) {
    const char *name = "", *kind = "";
    if (json_str(v, "name", &name, err) < 0 || json_str(v, "kind", &kind, err) < 0)
        return -1;
    if (check_name(name, err) < 0)
        return -1;
    op->name = arena_printf(&r->m->arena, "%s%s", r->prefix, name);
    op->kind = kind_find(kind);
    if (op->kind == KIND_COUNT)
        return err_input(err, "kind: there is no kind \"%.64s\"", kind);
    if (find(r->op_of, op->name) >= 0)
        return err_input(err, "name: two ops or blocks are called \"%.64s\"", op->name);
    json_object_set_new(r->op_of, op->name, json_integer(r->ops.n));
    return 0;
}

/* A dropout that drops nothing is no op, nor is a scaling by 1 or a sum of one: its result is its
 * operand under another name. */
static bool does_nothing(const struct model_op *op) {
    return (op->kind == OP_dropout && op->attr[ATTR_rate] == 0) ||
           (op->kind == OP_scale && op->attr[ATTR_fan] == 1) ||
           (op->kind == OP_add && op->n_in == 1);
}

/* Results are entered last, so that an op does not read its own. */
static int read_op(struct reader *r, const json_t *v, struct err *err) {
    struct model_op op = {.block = r->block, .file_op = r->file_op};
    struct model_tensor results[KIND_MAX_SLOTS];
    struct slot_shapes shapes = {0};
    if (read_name(r, v, &op, err) < 0)
        return -1;
    json_t *in = operand_names(r, v);
    op.kind = kind_form(op.kind, (int)json_array_size(in));
    bool good = check_op_keys(v, kind_of(op.kind), err) == 0 &&
                read_attrs(r, v, &op, err) == 0 &&
                read_operands(r, v, in, &op, &shapes, err) == 0 &&
                read_results(r, v, &op, results, &shapes, err) == 0 &&
                read_params(r, v, &op, err) == 0 && bind(r, &op, &shapes, err) == 0 &&
                read_routing(r, &op, &shapes, err) == 0;
    json_decref(in);
    if (!good)
        return -1;
    if (does_nothing(&op)) {
        name_tensor(r, results[0].name, op.in[0]);
        return 0;
    }
    for (int i = 0; i < op.n_out; i++) {
        op.out[i] = (int)r->tensors.n;
        arr_push(&r->tensors, results[i]);
        name_tensor(r, results[i].name, op.out[i]);
    }
    if (r->ops.n == MAX_OPS)
        return err_input(err, "the model has more than %d ops", MAX_OPS);
    arr_push(&r->ops, op);
    return 0;
}

/* ---- repeats ------------------------------------------------------------------------------- */

static int read_ops(struct reader *r, const json_t *list, int depth, struct err *err);

/* What "bind" and "index" say for instance i; a new reference. */
static json_t *bind_names(const json_t *v, int64_t i, int64_t n, struct err *err) {
    json_t *names = json_object();
    const char *index = NULL, *key;
    json_t *value, *binds = json_object_get(v, "bind");
    if (json_opt_str(v, "index", &index, err) < 0 || (binds && !json_is_object(binds))) {
        if (binds)
            err_input(err, "bind: expected an object, got %s", json_type_name(binds));
        json_decref(names);
        return NULL;
    }
    if (index)
        json_object_set_new(names, index, json_integer(i));
    json_object_foreach(binds, key, value) {
        if (json_is_array(value) && json_array_size(value) != (size_t)n) {
            err_input(err, "bind.%s: expected %lld values, one per block, got %zu", key,
                      (long long)n, json_array_size(value));
            json_decref(names);
            return NULL;
        }
        json_object_set(names, key,
                        json_is_array(value) ? json_array_get(value, (size_t)i) : value);
    }
    return names;
}

/* What a repeat says, once for all its instances. */
struct repeat {
    const json_t *doc, *ops;
    const char *name;
    int64_t count;
    int number;        /* among the repeats of the file */
    int first_file_op; /* of its ops */
};

/* One instance of a block: names that it binds hold inside, and end with it. */
static int read_instance(struct reader *r, const struct repeat *p, int64_t i, int depth,
                         struct err *err) {
    json_t *names = bind_names(p->doc, i, p->count, err);
    if (!names)
        return -1;
    struct reader outside = *r; /* what the block around sees again afterwards */
    struct scope scope = {names, outside.scope};
    struct model_block b = {
        .name = arena_printf(&r->m->arena, "%s%s.%lld", r->prefix, p->name, (long long)i),
        .index = (int)i,
        .repeat = p->number,
        .first_op = (int)r->ops.n,
        .parent = r->block};
    r->scope = &scope;
    r->prefix = arena_printf(&r->m->arena, "%s.", b.name);
    r->block = (int)r->blocks.n;
    r->file_op = p->first_file_op;
    arr_push(&r->blocks, b);
    int rc = read_ops(r, p->ops, depth + 1, err);
    r->blocks.p[r->block].end_op = (int)r->ops.n;
    r->scope = outside.scope;
    r->prefix = outside.prefix;
    r->block = outside.block;
    json_decref(names);
    return rc;
}

/* All instances of a block. Places (numbers of ops in the file) are counted once, not per
 * instance. */
static int read_repeat(struct reader *r, const json_t *v, int depth, struct err *err) {
    struct repeat p = {.doc = v, .number = r->n_repeats, .first_file_op = r->file_op};
    json_t *ops;
    if (depth == MAX_NESTING)
        return err_input(err, "repeat: blocks are nested more than %d deep", MAX_NESTING);
    if (json_keys(v, "name repeat index bind ops", err) < 0 ||
        json_str(v, "name", &p.name, err) < 0 ||
        json_array_member(v, "ops", &ops, err) < 0 ||
        read_int(r, json_object_get(v, "repeat"), "repeat", &p.count, err) < 0)
        return -1;
    if (check_name(p.name, err) < 0)
        return -1;
    const char *path = arena_printf(&r->m->arena, "%s%s", r->prefix, p.name);
    if (find(r->op_of, path) >= 0)
        return err_input(err, "name: two ops or blocks are called \"%.64s\"", path);
    json_object_set_new(r->op_of, path, json_integer(0));
    if (p.count < 0 || p.count > MAX_BLOCKS)
        return err_input(err, "repeat: expected 0 to %d blocks, got %lld", MAX_BLOCKS,
                         (long long)p.count);
    p.ops = ops;
    /* The instances of an outer block share the numbers of its inner repeats. */
    r->n_repeats = p.number + 1;
    int inner = r->n_repeats, end_file_op = r->file_op;
    for (int64_t i = 0; i < p.count; i++) {
        r->n_repeats = inner;
        if (read_instance(r, &p, i, depth, err) < 0)
            return -1;
        if (r->file_op > end_file_op)
            end_file_op = r->file_op;
    }
    r->file_op = end_file_op;
    return 0;
}

/* The messages say where: "ops[3] (layer).ops[1] (add1): in[0]: no tensor ...". */
static int read_ops(struct reader *r, const json_t *list, int depth, struct err *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        bool repeat = json_object_get(v, "repeat");
        struct err inner = {0};
        int rc = repeat ? read_repeat(r, v, depth, &inner) : read_op(r, v, &inner);
        if (rc < 0) {
            const char *name = json_string_value(json_object_get(v, "name"));
            bool located = repeat && !strncmp(inner.msg, "ops[", 4);
            if (err)
                *err = inner;
            (located ? err_at : err_prefix)(err, name ? "ops[%zu] (%.64s)" : "ops[%zu]", i,
                                            name);
            return -1;
        }
        r->file_op += !repeat;
    }
    return 0;
}

/* ---- the document ---------------------------------------------------------------------------- */

/* Every result is used, but that of a loss, which no op reads, and whole numbers, which have no
 * gradient; there is a loss of the data. */
static int check_graph(const struct model *m, struct err *err) {
    char *used = mem_array((size_t)m->n_tensors, 1);
    int losses = 0, rc = 0;
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++)
            used[m->ops[i].in[k]] = 1;
    for (int i = 0; i < m->n_ops && rc == 0; i++) {
        const struct model_op *op = &m->ops[i];
        bool loss = op_is(op, KIND_LOSSES), read = true;
        for (int k = 0; k < op->n_out; k++)
            read &= used[op->out[k]] || m->tensors[op->out[k]].integer;
        losses += op_is(op, KIND_LOSS);
        if (loss && read)
            rc = err_input(err, "ops: \"%s\" is a loss, and no op may read it", op->name);
        else if (!loss && !read)
            rc = err_input(err, "ops: the result of \"%s\" is not used", op->name);
    }
    free(used);
    if (rc == 0 && !losses)
        rc = err_input(err, "ops: there is no loss (an op of kind cross-entropy)");
    return rc;
}

static void *keep(struct arena *arena, const void *p, int64_t n, size_t size) {
    void *out = arena_array(arena, (size_t)n, size);
    if (n)
        memcpy(out, p, size * (size_t)n);
    return out;
}

#define KEEP(list) keep(&m->arena, r->list.p, r->list.n, sizeof *r->list.p)

/* Moves what was collected into the model. */
static void finish(struct reader *r) {
    struct model *m = r->m;
    m->dims = KEEP(dim_list);
    m->tensors = KEEP(tensors);
    m->params = KEEP(params);
    m->ops = KEEP(ops);
    m->blocks = KEEP(blocks);
    m->n_dims = (int)r->dim_list.n;
    m->n_tensors = (int)r->tensors.n;
    m->n_params = (int)r->params.n;
    m->n_ops = (int)r->ops.n;
    m->n_blocks = (int)r->blocks.n;
    m->n_file_ops = r->file_op;
    m->n_repeats = r->n_repeats;
    m->hash = model_hash(m);
}

/* What is said of a model besides the graph; only its form is checked here. */
static int check_sections(const json_t *doc, struct err *err) {
    const json_t *weights = json_object_get(doc, "weights");
    json_t *pin = NULL;
    if (json_object_get(doc, "pin") && json_object_member(doc, "pin", &pin, err) < 0)
        return -1;
    return weights && weights_check(weights, err) < 0 ? err_at(err, "weights") : 0;
}

static int read_document(struct reader *r, json_t *doc, const char *preset, const char *set,
                         struct err *err) {
    struct model *m = r->m;
    const char *name = "", *about;
    json_t *sizes, *dims = NULL, *rates = NULL, *inputs, *ops;
    if (json_keys(doc,
                  "$schema format name about sizes dims rates default presets data inputs "
                  "ops weights pin",
                  err) < 0 ||
        json_format(doc, "weft-model/1", err) < 0 ||
        json_str(doc, "name", &name, err) < 0 ||
        json_opt_str(doc, "about", &about, err) < 0 ||
        json_object_member(doc, "sizes", &sizes, err) < 0 ||
        (json_object_get(doc, "dims") && json_object_member(doc, "dims", &dims, err) < 0) ||
        (json_object_get(doc, "rates") &&
         json_object_member(doc, "rates", &rates, err) < 0) ||
        json_object_member(doc, "inputs", &inputs, err) < 0 ||
        json_array_member(doc, "ops", &ops, err) < 0 || check_sections(doc, err) < 0)
        return -1;
    m->name = arena_strdup(&m->arena, name);
    r->sizes = json_copy(sizes);
    r->rates = rates ? json_copy(rates) : json_object();
    r->dims = dims;
    m->batch = read_dim(r, "batch", err);
    if (read_preset(r, doc, preset, err) < 0 || read_set(r, set, err) < 0 ||
        read_data(r, json_object_get(doc, "data"), err) < 0 ||
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
    struct reader r = {.m = m,
                       .block = -1,
                       .prefix = "",
                       .dim_of = json_object(),
                       .tensor_of = json_object(),
                       .param_of = json_object(),
                       .op_of = json_object()};
    int rc = read_document(&r, doc, preset, set, err);
    json_t *tables[] = {r.sizes, r.rates, r.dim_of, r.tensor_of, r.param_of, r.op_of};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        json_decref(tables[i]);
    arr_release(&r.dim_list);
    arr_release(&r.tensors);
    arr_release(&r.params);
    arr_release(&r.ops);
    arr_release(&r.blocks);
    if (rc < 0) {
        model_destroy(m);
        return NULL;
    }
    return m;
}
