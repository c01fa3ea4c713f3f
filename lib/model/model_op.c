/* One op of weft-model(5): checked, with its operands, parameters and results, and bound to its kind. */
#include "model/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPS = 1 << 20 };

/* ---- names and shapes ---------------------------------------------------------------------- */

int read_shape(struct reader *r, const json_t *dims, struct shape *out, struct err *err) {
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

void read_name_tensor(struct reader *r, const char *name, int tensor) {
    json_object_set_new(r->tensor_of, name, json_integer(tensor));
}

int read_find(const json_t *table, const char *name) {
    const json_t *v = json_object_get(table, name);
    return v ? (int)json_integer_value(v) : -1;
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
    int other = read_find(r->param_of, tie);
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
static int read_param(struct reader *r, const json_t *v, const struct model_op *op,
                      const struct kind_slot *slot, struct err *err) {
    static const enum param_init inits[] = {
        [SLOT_NORMAL] = INIT_NORMAL, [SLOT_ONES] = INIT_ONES, [SLOT_ZEROS] = INIT_ZEROS};
    struct model_param p = {.first_op = (int)r->ops.n, .init = inits[slot->init]};
    if (slot->init == SLOT_ONES && op->attr[ATTR_offset] == 1)
        p.init = INIT_ZEROS; /* together with what is added to it, it begins at 1 */
    json_t *dims;
    bool uniform = false;
    if (json_keys(v, "dims std fan uniform tie when", err) < 0 ||
        json_opt_bool(v, "uniform", &uniform, err) < 0 ||
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
    p.init = uniform ? INIT_UNIFORM : p.init;
    p.running = slot->running;
    p.frozen = slot->fixed;
    p.name = arena_printf(&r->m->arena, "%s.%s", op->name, slot->name);
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
    if (info->type == ATTR_LIST) {
        const double *list;
        const int n = read_list(r, given, info->name, &list, err);
        *out = n;
        return n < 0 ? -1 : 0;
    }
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
        if (!may_miss || read_find(r->tensor_of, json_string_value(bare)) >= 0)
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
        int t = name ? read_find(r->tensor_of, name) : -1;
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

/* One that may be missing is there where its "when" is not 0; of a tie that says whether it holds. */
static int read_presence(struct reader *r, const json_t *p, bool *there, struct err *err) {
    const json_t *when = json_object_get(p, "when");
    int64_t on = 1;
    if (when && !json_object_get(p, "tie") && read_int(r, when, "when", &on, err) < 0)
        return -1;
    *there = on != 0;
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
        bool there = p != NULL;
        op->param[i] = -1;
        if (p && slot->optional && read_presence(r, p, &there, err) < 0)
            return err_at(err, "%s", slot->name);
        if (!there && slot->optional)
            continue;
        if (!p)
            return err_input(err, "%s: missing, %s needs it", slot->name, k->name);
        op->param[i] = read_param(r, p, op, slot, err);
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

int read_check_name(const char *name, struct err *err) {
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
    if (read_check_name(name, err) < 0)
        return -1;
    op->name = arena_printf(&r->m->arena, "%s%s", r->prefix, name);
    op->kind = kind_find(kind);
    if (op->kind == KIND_COUNT)
        return err_input(err, "kind: there is no kind \"%.64s\"", kind);
    if (read_find(r->op_of, op->name) >= 0)
        return err_input(err, "name: two ops or blocks are called \"%.64s\"", op->name);
    json_object_set_new(r->op_of, op->name, json_integer(r->ops.n));
    return 0;
}

static bool scales_by_one(const struct model_op *op) {
    return op->attr[ATTR_fan] == op->attr[ATTR_root] &&
           op->attr[ATTR_gain] == op->attr[ATTR_over];
}

/* A dropout that drops nothing is no op, nor is a scaling by 1, a turning of no dims, a cap of nothing or a
 * sum of one: its result is its operand under another name. */
static bool does_nothing(const struct model_op *op) {
    return (op->kind == OP_dropout && op->attr[ATTR_rate] == 0) ||
           (op->kind == OP_scale && scales_by_one(op)) ||
           (op->kind == OP_rotary && op->attr[ATTR_share] == 0) ||
           (op->kind == OP_softcap && op->attr[ATTR_cap] == 0) ||
           (op->kind == OP_add && op->n_in == 1);
}

/* The operand that says where documents start, or 0. */
static int starts_of(const struct model_op *op) {
    return op->kind == OP_attention_inside                    ? 3
           : op->kind == OP_attention_packed && op->n_in == 2 ? 1
                                                              : 0;
}

/* Whole numbers that say where a key or a row is are those that the data's reader gives: others could be of
 * places that are not there. */
static int check_documents(const struct reader *r, const struct model_op *op,
                           struct err *err) {
    const bool row = op->kind == OP_bias_at || op->kind == OP_rows_at;
    const int at = row ? 1 : starts_of(op);
    const enum data_source want = row ? DATA_DOCUMENT_POSITION : DATA_DOCUMENT_START;
    const struct model_tensor *t = at ? &r->tensors.p[op->in[at]] : NULL;
    if (!t || (t->producer < 0 && t->source == want))
        return 0;
    return err_input(
        err, "in[%d]: %s expects an input of the source %s here, got \"%.64s\"", at,
        kind_of(op->kind)->name,
        want == DATA_DOCUMENT_START ? "document-start" : "document-position", t->name);
}

/* A window ends with the query's own key; what a cap lets through is the score alone. */
static int check_numbers(const struct model_op *op, struct err *err) {
    if (op->kind == OP_scale && op->attr[ATTR_fan] == 0)
        return err_input(err, "fan: expected at least 1, got 0");
    if (op->kind != OP_attention && op->kind != OP_attention_inside &&
        op->kind != OP_attention_packed)
        return 0;
    if (op->attr[ATTR_window] != 0 && op->attr[ATTR_causal] == 0)
        return err_input(err, "window: only causal attention has one");
    if (starts_of(op) && op->attr[ATTR_causal] == 0)
        return err_input(err, "in[%d]: only causal attention keeps inside documents",
                         starts_of(op));
    if (op->attr[ATTR_rounded] != 0 && op->attr[ATTR_slope] == 0)
        return err_input(err, "rounded: attention without a slope has nothing to round");
    if (op->attr[ATTR_slope] != 0 && op->param[0] >= 0)
        return err_input(err, "slope: attention with positions has none");
    if (op->attr[ATTR_softcap] != 0 && op->param[0] >= 0)
        return err_input(err, "softcap: attention with positions has none");
    return 0;
}

/* Dim k of a slot, counted from its end. */
static const struct model_dim *dim_behind(const struct reader *r, const struct shape *s,
                                          int k) {
    return &r->dim_list.p[s->dim[s->rank - k]];
}

/* What is joined has room in the result. */
static int check_join(const struct reader *r, const struct model_op *op,
                      const struct slot_shapes *shapes, struct err *err) {
    if (op->kind != OP_join)
        return 0;
    const struct model_dim *x = dim_behind(r, shapes->in[0], 1);
    const struct model_dim *z = dim_behind(r, shapes->in[1], 1);
    const struct model_dim *y = dim_behind(r, shapes->out[0], 1);
    return y->size == x->size + z->size
               ? 0
               : err_input(err,
                           "y: \"%.64s\" is %lld, expected %lld: \"%.64s\" and \"%.64s\"",
                           y->name, (long long)y->size, (long long)(x->size + z->size),
                           x->name, z->name);
}

/* Rows, and positions, that an op names by number are there; what is put in front makes longer. */
static int check_positions(const struct reader *r, const struct model_op *op,
                           const struct slot_shapes *shapes, struct err *err) {
    const bool row = op->kind == OP_bias_at || op->kind == OP_rows_at;
    if (op->kind != OP_rows && !row && op->kind != OP_prepend && op->kind != OP_select)
        return 0;
    const struct model_dim *s = dim_behind(r, shapes->in[0], 2);
    if (op->kind == OP_select)
        return (double)s->size > op->attr[ATTR_at]
                   ? 0
                   : err_input(err, "at: \"%.64s\" has %lld positions, from 0 on, got %.0f",
                               s->name, (long long)s->size, op->attr[ATTR_at]);
    const struct model_dim *table = dim_behind(r, shapes->param[0], 2);
    if (op->kind == OP_prepend) {
        const struct model_dim *t = dim_behind(r, shapes->out[0], 2);
        return t->size == s->size + table->size
                   ? 0
                   : err_input(
                         err,
                         "y: \"%.64s\" is %lld, expected %lld: \"%.64s\" and \"%.64s\"",
                         t->name, (long long)t->size, (long long)(s->size + table->size),
                         table->name, s->name);
    }
    const double step = row ? 1 : op->attr[ATTR_step];
    const double last = op->attr[ATTR_start] + step * (double)(s->size - 1);
    return last < (double)table->size
               ? 0
               : err_input(
                     err,
                     "weight: \"%.64s\" has %lld rows, the last position takes number %.0f",
                     table->name, (long long)table->size, last);
}

/* Of the two lists of a rotary op, that which holds for its sequence; both have a number for each pair. */
static int read_pairs(struct reader *r, const json_t *v, struct model_op *op,
                      const struct slot_shapes *shapes, struct err *err) {
    if (op->kind != OP_rotary || (op->attr[ATTR_short] == 0 && op->attr[ATTR_long] == 0))
        return 0;
    const double dim = (double)dim_behind(r, shapes->in[0], 1)->size;
    const int pairs = (int)(op->attr[ATTR_share] * dim) / 2;
    const bool longer =
        (double)dim_behind(r, shapes->in[0], 3)->size > op->attr[ATTR_original];
    static const enum attr lists[] = {ATTR_short, ATTR_long};
    for (int k = 0; k < 2; k++) {
        const char *name = attr_info(lists[k])->name;
        if ((int)op->attr[lists[k]] != pairs)
            return err_input(err, "%s: expected a number for each of %d pairs, got %.0f",
                             name, pairs, op->attr[lists[k]]);
        if (k != longer)
            continue;
        read_list(r, json_object_get(v, name), name, &op->slower, err);
        for (int i = 0; i < pairs; i++)
            if (op->slower[i] == 0)
                return err_input(err, "%s[%d]: expected another number than 0", name, i);
    }
    return 0;
}

/* The form of a kind that takes operands of these names. */
static enum kind_id form_of(const struct reader *r, enum kind_id kind, const json_t *in) {
    int ranks[KIND_MAX_SLOTS];
    const int n = (int)json_array_size(in);
    for (int i = 0; i < n && i < KIND_MAX_SLOTS; i++) {
        const char *name = json_string_value(json_array_get(in, (size_t)i));
        const int t = name ? read_find(r->tensor_of, name) : -1;
        ranks[i] = t < 0 ? -1 : r->tensors.p[t].shape.rank;
    }
    return kind_form(kind, n, ranks);
}

/* Results are entered last, so that an op does not read its own. */
int read_op(struct reader *r, const json_t *v, struct err *err) {
    struct model_op op = {.block = r->block, .file_op = r->file_op};
    struct model_tensor results[KIND_MAX_SLOTS];
    struct slot_shapes shapes = {0};
    if (read_name(r, v, &op, err) < 0)
        return -1;
    json_t *in = operand_names(r, v);
    op.kind = form_of(r, op.kind, in);
    bool good =
        check_op_keys(v, kind_of(op.kind), err) == 0 && read_attrs(r, v, &op, err) == 0 &&
        read_operands(r, v, in, &op, &shapes, err) == 0 &&
        read_results(r, v, &op, results, &shapes, err) == 0 &&
        read_params(r, v, &op, err) == 0 && check_numbers(&op, err) == 0 &&
        check_documents(r, &op, err) == 0 && bind(r, &op, &shapes, err) == 0 &&
        check_positions(r, &op, &shapes, err) == 0 &&
        check_join(r, &op, &shapes, err) == 0 && read_pairs(r, v, &op, &shapes, err) == 0 &&
        read_routing(r, &op, &shapes, err) == 0;
    json_decref(in);
    if (!good)
        return -1;
    if (does_nothing(&op)) {
        read_name_tensor(r, results[0].name, op.in[0]);
        return 0;
    }
    for (int i = 0; i < op.n_out; i++) {
        op.out[i] = (int)r->tensors.n;
        arr_push(&r->tensors, results[i]);
        read_name_tensor(r, results[i].name, op.out[i]);
    }
    if (r->ops.n == MAX_OPS)
        return err_input(err, "the model has more than %d ops", MAX_OPS);
    arr_push(&r->ops, op);
    return 0;
}
