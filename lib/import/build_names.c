/* What dims, blocks, ops and tensors are called. */
#include "import/build.h"

#include <ctype.h>
#include <string.h>

static struct found_op *op_at(const struct build *b, int at) {
    return &b->t->ops.p[b->order.p[at]];
}

static const char *unique(struct build *b, json_t *taken, const char *want) {
    const char *name = want;
    for (int i = 2; json_object_get(taken, name); i++)
        name = arena_printf(&b->t->arena, "%s%d", want, i);
    json_object_set_new(taken, name, json_true());
    return name;
}

/* ---- dims ------------------------------------------------------------------------------------------------ */

const char *build_dim(const struct build *b, int atom) {
    const char *name = b->dim[axes_class(&b->t->axes, atom)];
    return name ? name : "?";
}

static void name_dim(struct build *b, int atom, const char *want) {
    int class = axes_class(&b->t->axes, atom);
    if (b->dim[class])
        return;
    int64_t size = b->t->axes.atoms.p[class].size;
    const char *name = want;
    for (int i = 2; json_object_get(b->sizes, name); i++)
        name = arena_printf(&b->t->arena, "%s%d", want, i);
    b->dim[class] = name;
    json_object_set_new(b->sizes, name, json_integer(size));
}

static struct axis dims_of(struct build *b, const struct axis *a) {
    struct axis dims = *a;
    axes_settle(&b->t->axes, &dims);
    return dims;
}

static void name_at(struct build *b, const struct axis *a, int i, const char *want) {
    struct axis dims = dims_of(b, a);
    if (i >= 0 && i < dims.n)
        name_dim(b, dims.atom[i], want);
}

static void name_input(struct build *b, const struct found_op *op) {
    static const char *const image[] = {"batch", "height", "width", "channels"};
    struct axis dims = dims_of(b, &op->dims);
    bool pixels = dims.n == 2 && !strcmp(op->source, "image");
    for (int i = 1; i < dims.n; i++)
        name_dim(b, dims.atom[i],
                 strcmp(op->source, "image") != 0
                     ? strstr(op->source, "target") ? "target_seq" : "seq"
                 : pixels          ? "pixels"
                 : dims.n == 4     ? image[i]
                 : i == dims.n - 1 ? "channels"
                                   : "places");
}

static void name_attention(struct build *b, const struct found_op *op) {
    static const char *const names[] = {NULL, NULL, "heads", "kv"};
    for (int i = 2; i < 4; i++)
        name_at(b, &op->dims, i, names[i]);
    const struct axis *k = &b->t->ops.p[op->in[op->n_in > 1]].dims;
    name_at(b, k, 2, op->n_in > 1 ? "kv_heads" : "qkv");
    if (op->n_in > 1)
        name_at(b, k, 1, "keys");
    if (op->n_param)
        name_at(b, &op->param[0].dims, 0, "buckets");
}

/* What a product adds and another sums is inside of a feed-forward part. */
static void name_product(struct build *b, const struct found_op *op, const char *want) {
    struct axis w = dims_of(b, &op->param[0].dims), y = dims_of(b, &op->dims);
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < y.n; k++)
            if (y.atom[k] == w.atom[i])
                name_dim(b, w.atom[i], want);
}

/* Experts have room for all positions of a sample, however many there are. */
static void name_capacity(struct build *b, const struct found_op *op) {
    struct axis dims = dims_of(b, &op->dims), x = dims_of(b, &b->t->ops.p[op->in[0]].dims);
    int room = dims.atom[dims.n - 2], seq = x.atom[x.n - 2];
    bool again = b->dim[axes_class(&b->t->axes, room)];
    name_dim(b, seq, "seq");
    name_dim(b, room, "capacity");
    if (!again)
        json_object_set_new(b->sizes, build_dim(b, room), json_string(build_dim(b, seq)));
}

static void name_by_kind(struct build *b, const struct found_op *op, int pass) {
    if (pass == 0 && op->kind == OP_embedding) {
        name_at(b, &op->param[0].dims, 0, "vocab");
        name_at(b, &op->param[0].dims, 1, "hidden");
    }
    if (pass == 0 && (op->kind == OP_attention || op->kind == OP_attention_packed))
        name_attention(b, op);
    if (pass == 0 && op->kind == OP_reshape && b->t->ops.p[op->in[0]].n_param &&
        b->t->ops.p[op->in[0]].param[0].as >= 0)
        name_at(b, &(struct axis){1, {b->t->ops.p[op->in[0]].param[0].as}}, 0, "queries");
    if (pass == 0 && op->kind == OP_route) {
        name_at(b, &op->dims, dims_of(b, &op->dims).n - 1, "top");
        name_at(b, &b->t->ops.p[op->in[0]].dims, dims_of(b, &op->dims).n - 1, "experts");
    }
    if (pass == 0 && op->kind == OP_dispatch)
        name_capacity(b, op);
    if (pass == 1 && op->kind == OP_cross_entropy) {
        const struct axis *x = &b->t->ops.p[op->in[0]].dims;
        name_at(b, x, dims_of(b, x).n - 1, "classes");
    }
    if (pass == 1 && (op->kind == OP_layernorm || op->kind == OP_rmsnorm))
        name_at(b, &op->param[0].dims, 0, "hidden");
    if (pass == 1 && op->kind == OP_conv2d) {
        name_at(b, &op->param[0].dims, 0, "rows");
        name_at(b, &op->param[0].dims, 1, "columns");
        name_at(b, &op->param[0].dims, 3, "channels");
        name_at(b, &op->dims, 1, "height");
        name_at(b, &op->dims, 2, "width");
    }
    if (pass == 2 && op->kind == OP_einsum)
        name_product(b, op, op->run >= 0 ? "ffn" : "features");
}

static void name_rest(struct build *b, const struct axis *a) {
    struct axis dims = dims_of(b, a);
    for (int i = 0; i < dims.n; i++)
        name_dim(b, dims.atom[i],
                 b->t->axes.atoms.p[dims.atom[i]].size == 1 ? "one" : "dim");
}

static void name_dims(struct build *b) {
    b->dim = arena_array(&b->t->arena, (size_t)b->t->axes.atoms.n + 1, sizeof *b->dim);
    b->dim[axes_class(&b->t->axes, b->batch)] = "batch";
    for (int64_t i = 0; i < b->t->ops.n; i++)
        if (b->t->ops.p[i].live && b->t->ops.p[i].kind == FOUND_INPUT)
            name_input(b, &b->t->ops.p[i]);
    for (int pass = 0; pass < 3; pass++)
        for (int at = 0; at < b->order.n; at++)
            name_by_kind(b, op_at(b, at), pass);
    for (int at = 0; at < b->order.n; at++) {
        name_rest(b, &op_at(b, at)->dims);
        for (int i = 0; i < op_at(b, at)->n_param; i++)
            name_rest(b, &op_at(b, at)->param[i].dims);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

/* "model.layers" is layer where there is one such list, else model_layers. */
static void name_runs(struct build *b) {
    json_t *taken = json_object();
    for (int64_t i = 0; i < b->runs.n; i++) {
        struct run *r = &b->runs.p[i];
        const char *last = strrchr(r->prefix, '.');
        char *name = arena_strdup(&b->t->arena, b->runs.n == 1 ? "layer" : r->prefix);
        if (b->runs.n > 1 && last) {
            const char *from = last;
            while (from > r->prefix && from[-1] != '.')
                from--;
            name = arena_strdup(&b->t->arena, from);
        }
        for (char *c = name; *c; c++)
            if (!isalnum((unsigned char)*c))
                *c = '_';
        if (isdigit((unsigned char)*name) || !*name)
            name = arena_strdup(&b->t->arena, "block");
        r->name = unique(b, taken, name);
        const char *count =
            b->runs.n == 1 ? "layers" : arena_printf(&b->t->arena, "%s_count", r->name);
        for (int k = 2; json_object_get(b->sizes, count); k++)
            count = arena_printf(&b->t->arena, "layers%d", k);
        r->count = count;
        json_object_set_new(b->sizes, count, json_integer(r->instances));
    }
    json_decref(taken);
}

/* ---- ops and tensors ------------------------------------------------------------------------------------ */

/* The last `parts` of a path, with the one before where the first of them is a number. */
static const char *path_end(struct build *b, const char *path, int parts) {
    const char *from = path + strlen(path);
    for (; parts > 0 && from > path; parts--) {
        const char *end = from - (from[0] == '.' || !*from ? 1 : 0);
        for (from = end; from > path && from[-1] != '.';)
            from--;
        if (isdigit((unsigned char)*from) && from > path)
            parts++;
        if (parts > 1 && from > path)
            from--;
    }
    char *name = arena_strdup(&b->t->arena, *from == '.' ? from + 1 : from);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    return isalpha((unsigned char)*name) ? name : NULL;
}

/* What a parameter is called that is a part of its module. */
static bool is_part(const char *name) {
    static const char *const parts[] = {"weight", "bias", "kernel", "scale", "embedding",
                                        "w",      "b",    "g",      NULL};
    for (int i = 0; parts[i]; i++)
        if (!strcmp(name, parts[i]))
            return true;
    return isdigit((unsigned char)*name);
}

/* The kind of what has no parameters; else the module that has them. */
static const char *name_wanted(struct build *b, json_t *taken, const struct found_op *op) {
    const char *kind = kind_of((enum kind_id)op->kind)->name;
    char *own = arena_strdup(&b->t->arena, kind);
    for (char *c = own; *c; c++)
        if (*c == '-')
            *c = '_';
    if (!op->n_param || op->kind == OP_attention)
        return op->kind == OP_cross_entropy                                  ? "loss"
               : op->kind == OP_attention || op->kind == OP_attention_packed ? "attn"
                                                                             : own;
    const char *path = build_path(b, op->param[0].param);
    if (!path)
        return path_end(b, op->path, 1) ? path_end(b, op->path, 1) : own;
    if (*op->path && strncmp(path, op->path, strlen(op->path)) != 0)
        return path_end(b, op->path, 1) ? path_end(b, op->path, 1) : own; /* it is tied */
    const char *dot = strrchr(path, '.');
    if (dot && !is_part(dot + 1))
        dot = path + strlen(path); /* it has a name of its own */
    if (!dot)
        return isalpha((unsigned char)*path) ? path_end(b, path, 1) : own;
    path = arena_printf(&b->t->arena, "%.*s", (int)(dot - path), path);
    const char *name = path_end(b, path, 1);
    if (name && json_object_get(taken, name))
        name = path_end(b, path, 2);
    return name ? name : own;
}

/* Names of the first instance hold for all; of two parts of one product each has its number. */
static void name_ops(struct build *b) {
    json_t *taken = json_object(), *inner = NULL;
    int open = -1;
    for (int64_t i = 0; i < b->runs.n; i++)
        json_object_set_new(taken, b->runs.p[i].name, json_true());
    for (int at = 0; at < b->order.n; at++) {
        struct found_op *op = op_at(b, at);
        if (op->run >= 0 && op->instance > 0) {
            const struct run *r = &b->runs.p[op->run];
            const struct found_op *first = op_at(b, r->begin + op->place);
            op->name = first->name;
            op->out = first->out;
            continue;
        }
        if (op->run != open) {
            json_decref(inner);
            inner = op->run >= 0 ? json_object() : NULL;
            open = op->run;
        }
        json_t *scope = inner ? inner : taken;
        op->name = unique(b, scope, name_wanted(b, scope, op));
        op->out = op->run >= 0 ? arena_printf(&b->t->arena, "%s_%s",
                                              b->runs.p[op->run].name, op->name)
                               : op->name;
    }
    json_decref(inner);
    json_decref(taken);
}

/* What is handed on has one name before, in and behind the block. */
static void name_carried(struct build *b) {
    for (int64_t i = 0; i < b->runs.n; i++) {
        struct run *r = &b->runs.p[i];
        for (int64_t k = 0; k < r->carried.n; k++) {
            struct carried *c = &r->carried.p[k];
            c->name = i || k ? arena_printf(&b->t->arena, "x%lld_%lld", (long long)i,
                                            (long long)k)
                             : "x";
            if (!c->lead)
                b->t->ops.p[c->first].out = c->name;
            for (int n = 0; n < r->instances; n++) {
                struct found_op *op = op_at(b, r->begin + n * r->ops + c->place);
                c->inner = op->out;
                if (!c->trail)
                    op->out = c->name;
            }
        }
    }
}

int build_names(struct build *b, struct err *err) {
    b->sizes = json_object();
    json_object_set_new(b->sizes, "batch", json_integer(0));
    name_dims(b);
    name_runs(b);
    name_ops(b);
    name_carried(b);
    json_object_del(b->sizes, "batch");
    for (int64_t i = 0; i < b->t->ops.n; i++) {
        struct found_op *op = &b->t->ops.p[i];
        if (op->kind != FOUND_SECOND || !op->live)
            continue;
        struct found_op *first = &b->t->ops.p[op->in[0]];
        op->out = first->second = arena_printf(&b->t->arena, "%s_slots", first->out);
    }
    for (int64_t i = 0; i < b->t->ops.n; i++) {
        struct found_op *op = &b->t->ops.p[i];
        if (!op->live || op->kind != FOUND_INPUT)
            continue;
        op->name = op->out = i == b->targets                         ? "targets"
                             : !strcmp(op->source, "image")          ? "image"
                             : !strcmp(op->source, "shifted-target") ? "shifted"
                             : !strcmp(op->source, "input")          ? "input"
                                                                     : "tokens";
    }
    return b->order.n ? 0 : err_input(err, "the program computes nothing");
}
