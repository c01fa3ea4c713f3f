/* Fuzzes the reader of model files (libFuzzer). The first line is the preset and the overrides
 * ("nano layers=2"), the rest the document. What is accepted must be a graph: every op follows
 * its operands, every size is positive, counting its parameters and products is sane, and what
 * "weights" says keeps each parameter inside its tensors. */
#include "model/config.h"
#include "model/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_shape(const struct model *m, const struct shape *s) {
    if (s->rank < 0 || s->rank > TENSOR_MAX_RANK)
        abort();
    for (int i = 0; i < s->rank; i++)
        if (s->dim[i] < 0 || s->dim[i] >= m->n_dims ||
            (s->dim[i] != m->batch && m->dims[s->dim[i]].size < 1))
            abort();
}

/* An axis map gives each dim of the space an axis of the tensor, which has that dim or its
 * second name, and every axis of the tensor is one of them. */
static void check_map(const struct model_op *op, const struct shape *s,
                      const struct axis_map *map) {
    int seen = 0;
    for (int k = 0; k < op->space.n; k++) {
        int axis = map->axis[k];
        if (axis < -1 || axis >= s->rank || (axis >= 0 && seen >> axis & 1) ||
            (axis >= 0 && s->dim[axis] != op->space.dim[k] &&
             s->dim[axis] != op->space.alias[k]))
            abort();
        if (axis >= 0)
            seen |= 1 << axis;
    }
}

static void check_space(const struct model *m, const struct model_op *op) {
    if (op->space.n < 0 || op->space.n > OP_MAX_SPACE)
        abort();
    for (int k = 0; k < op->space.n; k++)
        if (op->space.dim[k] < 0 || op->space.dim[k] >= m->n_dims ||
            op->space.alias[k] < -1 || op->space.alias[k] >= m->n_dims)
            abort();
}

static void check_op(const struct model *m, int number) {
    const struct model_op *op = &m->ops[number];
    const struct kind *k = kind_of(op->kind);
    if (op->n_in > k->n_in || op->n_param != k->n_param || op->n_out != k->n_out ||
        op->block < -1 || op->block >= m->n_blocks || op->file_op < 0 ||
        op->file_op >= m->n_file_ops)
        abort();
    check_space(m, op);
    for (int i = 0; i < op->n_out; i++) {
        if (m->tensors[op->out[i]].producer != number)
            abort();
        check_map(op, &m->tensors[op->out[i]].shape, &op->out_map[i]);
    }
    for (int i = 0; i < op->n_in; i++) {
        if (m->tensors[op->in[i]].producer >= number)
            abort();
        check_map(op, &m->tensors[op->in[i]].shape, &op->in_map[i]);
    }
    for (int i = 0; i < op->n_param; i++) {
        if (op->param[i] < -1 || op->param[i] >= m->n_params ||
            (op->param[i] < 0 && !k->param[i].optional))
            abort();
        if (op->param[i] >= 0)
            check_map(op, &m->params[op->param[i]].shape, &op->param_map[i]);
    }
}

/* An instance holds its ops and stands inside the one around it. */
static void check_block(const struct model *m, int number) {
    const struct model_block *b = &m->blocks[number];
    if (b->first_op < 0 || b->end_op < b->first_op || b->end_op > m->n_ops ||
        b->parent < -1 || b->parent >= number || b->repeat < 0 || b->repeat >= m->n_repeats)
        abort();
    if (b->parent >= 0 && (m->blocks[b->parent].first_op > b->first_op ||
                           m->blocks[b->parent].end_op < b->end_op))
        abort();
}

static void check_model(const struct model *m) {
    int losses = 0;
    for (int i = 0; i < m->n_tensors; i++)
        check_shape(m, &m->tensors[i].shape);
    for (int i = 0; i < m->n_params; i++)
        check_shape(m, &m->params[i].shape);
    for (int i = 0; i < m->n_ops; i++) {
        check_op(m, i);
        losses += op_is(&m->ops[i], KIND_LOSS);
    }
    for (int i = 0; i < m->n_blocks; i++)
        check_block(m, i);
    if (!losses || !isfinite(model_forward_flops(m, 1)))
        abort();
}

/* The farthest element of a part lies in its tensor. */
static void check_part(const struct weights *w, const struct weight_part *part) {
    const struct st_view *v = &w->forms[part->param].whole;
    const struct weight_tensor *t = &w->tensors[part->tensor];
    int64_t last = v->base, n = 1;
    for (int d = 0; d < v->dims; d++) {
        if (v->base < 0 || v->stride[d] < 0 || v->size[d] < 1)
            abort();
        last += (v->size[d] - 1) * v->stride[d];
    }
    for (int d = 0; d < t->dims; d++)
        n *= t->shape[d];
    if (last >= n)
        abort();
}

static void check_weights(struct model *m) {
    struct err err = {0};
    struct weights *w = weights_of(m, &err);
    if (!w && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    for (int i = 0; w && i < w->n_parts; i++)
        check_part(w, &w->parts[i]);
    weights_destroy(w);
    err = (struct err){0};
    json_t *config = weights_config(m, &err);
    if (!config && err.status && err.status != EXIT_INPUT)
        abort();
    json_decref(config);
}

/* Any object may be a config.json; what is read of it is a model's document. */
static void check_config(const json_t *doc) {
    struct err err = {0};
    if (!config_is(doc))
        return;
    json_t *read = config_to_model(doc, &err);
    if (!read && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    json_decref(read);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char line[256] = "", *set;
    const uint8_t *end = size ? memchr(bytes, '\n', size) : NULL;
    if (!end || (size_t)(end - bytes) >= sizeof line)
        return 0;
    memcpy(line, bytes, (size_t)(end - bytes));
    set = strchr(line, ' ');
    if (set)
        *set++ = '\0';
    size -= (size_t)(end + 1 - bytes);
    struct err err = {0};
    json_t *doc = json_parse((const char *)end + 1, size, "model", &err);
    check_config(doc);
    struct model *m = doc ? model_from_json(doc, line, set, &err) : NULL;
    if (!m && (err.status != EXIT_INPUT || !err.msg[0]))
        abort();
    if (m)
        check_model(m);
    if (m && m->n_params < 1000)
        check_weights(m);
    model_destroy(m);
    json_decref(doc);
    return 0;
}
