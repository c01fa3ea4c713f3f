/* Reading weft-model(5): the list of ops is expanded block by block (model_op.c reads each). A tensor name
 * stands for the latest tensor of that name, so a repeated block chains by itself
 * ("in": ["x"] ... "out": "x"). */
#include "model/read.h"
#include "model/weights.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 1 << 20, MAX_NESTING = 8 };

/* ---- repeats ------------------------------------------------------------------------------- */

static int read_ops(struct reader *r, const json_t *list, int depth, struct err *err);

/* One of several values, by a number: {"at": "expression", "of": [...]}. NULL on failure. */
static json_t *choose(struct reader *r, const json_t *names, const char *key, json_t *value,
                      struct err *err) {
    struct scope scope = {names, r->scope};
    int64_t at = 0;
    json_t *of;
    if (json_keys(value, "at of", err) < 0 ||
        json_array_member(value, "of", &of, err) < 0) {
        err_prefix(err, "bind.%.64s", key);
        return NULL;
    }
    r->scope = &scope;
    int rc = read_int(r, json_object_get(value, "at"), "at", &at, err);
    r->scope = scope.outer;
    if (rc == 0 && (at < 0 || at >= (int64_t)json_array_size(of)))
        rc = err_input(err, "at: %lld, and there are %zu values", (long long)at,
                       json_array_size(of));
    if (rc < 0)
        err_prefix(err, "bind.%.64s", key);
    return rc < 0 ? NULL : json_array_get(of, (size_t)at);
}

/* Names that are bound to a number or an expression, which is read where it is used, for instance i. */
static int bind_plain(json_t *binds, int64_t i, int64_t n, json_t *names, struct err *err) {
    const char *key;
    json_t *value;
    json_object_foreach(binds, key, value) {
        if (json_is_array(value) && json_array_size(value) != (size_t)n)
            return err_input(err, "bind.%s: expected %lld values, one per block, got %zu",
                             key, (long long)n, json_array_size(value));
        if (!json_is_object(value))
            json_object_set(names, key,
                            json_is_array(value) ? json_array_get(value, (size_t)i)
                                                 : value);
    }
    return 0;
}

/* Choices see the names that are bound without one: members of an object have no order. */
static int bind_choices(struct reader *r, json_t *binds, json_t *names, struct err *err) {
    json_t *plain = json_copy(names), *value;
    const char *key;
    int rc = 0;
    json_object_foreach(binds, key, value) {
        json_t *one =
            json_is_object(value) && rc == 0 ? choose(r, plain, key, value, err) : NULL;
        if (one)
            json_object_set(names, key, one);
        else if (json_is_object(value))
            rc = -1;
    }
    json_decref(plain);
    return rc;
}

/* What "bind" and "index" say for instance i; a new reference. */
static json_t *bind_names(struct reader *r, const json_t *v, int64_t i, int64_t n,
                          struct err *err) {
    json_t *names = json_object(), *binds = json_object_get(v, "bind");
    const char *index = NULL;
    int rc = json_opt_str(v, "index", &index, err);
    if (rc == 0 && binds && !json_is_object(binds))
        rc = err_input(err, "bind: expected an object, got %s", json_type_name(binds));
    if (rc == 0 && index)
        json_object_set_new(names, index, json_integer(i));
    if (rc == 0)
        rc = bind_plain(binds, i, n, names, err);
    if (rc == 0)
        rc = bind_choices(r, binds, names, err);
    if (rc < 0)
        json_decref(names);
    return rc < 0 ? NULL : names;
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
    json_t *names = bind_names(r, p->doc, i, p->count, err);
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

/* The ops and the repeats of a block, those inside too, of which an instance need not have any. */
static void count_places(const json_t *ops, int *n_ops, int *n_repeats) {
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const json_t *v = json_array_get(ops, i);
        const bool repeat = json_object_get(v, "repeat");
        *n_ops += !repeat;
        *n_repeats += repeat;
        if (repeat)
            count_places(json_object_get(v, "ops"), n_ops, n_repeats);
    }
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
    if (read_check_name(p.name, err) < 0)
        return -1;
    const char *path = arena_printf(&r->m->arena, "%s%s", r->prefix, p.name);
    if (read_find(r->op_of, path) >= 0)
        return err_input(err, "name: two ops or blocks are called \"%.64s\"", path);
    json_object_set_new(r->op_of, path, json_integer(0));
    if (p.count < 0 || p.count > MAX_BLOCKS)
        return err_input(err, "repeat: expected 0 to %d blocks, got %lld", MAX_BLOCKS,
                         (long long)p.count);
    p.ops = ops;
    /* The instances of an outer block share the numbers of its inner repeats. */
    int n_ops = 0, n_repeats = 0;
    count_places(ops, &n_ops, &n_repeats);
    for (int64_t i = 0; i < p.count; i++) {
        r->n_repeats = p.number + 1;
        if (read_instance(r, &p, i, depth, err) < 0)
            return -1;
    }
    r->n_repeats = p.number + 1 + n_repeats;
    r->file_op = p.first_file_op + n_ops;
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
                  "ops frozen weights pin",
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
    if (read_frozen(m, json_object_get(doc, "frozen"), err) < 0)
        return -1;
    model_find_matrices(m);
    if (read_check_ends(m, err) < 0)
        return -1;
    m->hash = model_hash(m);
    /* A repeat may have no instance; where none has any, a size is a slip of the pen. */
    if (m->n_repeats > 0 && m->n_blocks == 0)
        return err_input(err, "ops: repeat: the model is left without a block");
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
