/* What each kind of op asks of its operands, and what follows for layouts: the iteration domain,
 * the dims that may be split, those summed over, and those that the op itself crosses. */
#include "model/model_check.h"

#include <string.h>

/* The model as far as it has been read. */
struct context {
    const struct model *m;
    const struct model_tensor *tensors;
    const struct model_param *params;
};

/* Checks that `list` is a followed by b. */
static bool is_concat(const struct shape *list, const int *a, int na, const int *b,
                      int nb) {
    if (list->rank != na + nb)
        return false;
    for (int i = 0; i < na; i++)
        if (list->dim[i] != a[i])
            return false;
    for (int i = 0; i < nb; i++)
        if (list->dim[na + i] != b[i])
            return false;
    return true;
}

/* An einsum is one matrix product: x[M.., K..] W[K.., N..] (or W[N.., K..]) = y[M.., N..]. */
static int check_einsum(const struct context *r, struct model_op *op, struct err *err) {
    const struct shape *x = &r->tensors[op->in[0]].shape, *y = &r->tensors[op->out].shape;
    const struct shape *w = &r->params[op->param[0]].shape;
    dimset in_y = shape_dims(y), in_x = shape_dims(x);
    int m = 0, k[MODEL_MAX_RANK], nk = 0, n[MODEL_MAX_RANK], nn = 0;
    while (m < x->rank && m < y->rank && x->dim[m] == y->dim[m])
        m++;
    for (int i = m; i < x->rank; i++)
        k[nk++] = x->dim[i];
    for (int i = m; i < y->rank; i++)
        n[nn++] = y->dim[i];
    for (int i = 0; i < nk; i++)
        if (in_y >> k[i] & 1)
            return err_input(
                err, "einsum: the dims of the operand must be those shared with the "
                     "result, then those summed over");
    for (int i = 0; i < nn; i++)
        if (in_x >> n[i] & 1)
            return err_input(err,
                             "einsum: the dims of the result must be those shared with the "
                             "operand, then those of the weight");
    op->transposed = !is_concat(w, k, nk, n, nn);
    if (op->transposed && !is_concat(w, n, nn, k, nk))
        return err_input(err,
                         "weight.dims: expected the summed dims then the new ones, or the "
                         "reverse");
    if (op->n_param > 1 && !is_concat(&r->params[op->param[1]].shape, n, nn, NULL, 0))
        return err_input(err, "bias.dims: expected the dims that the weight adds");
    for (int i = 0; i < nk; i++)
        op->contracted |= 1u << k[i];
    return 0;
}

static int need_same_dims(const struct shape *a, const struct shape *b, const char *what,
                          struct err *err) {
    if (memcmp(a, b, sizeof *a))
        return err_input(err, "%s must have the dims of the operand", what);
    return 0;
}

/* Fills domain, splittable, crossed, and checks the shapes that the kind needs. */
static int check_op(const struct context *r, struct model_op *op, struct err *err) {
    static const struct {
        int8_t n_in, min_param, max_param;
    } arity[] = {
        [OP_embedding] = {1, 1, 1}, [OP_bias] = {1, 1, 1},         [OP_einsum] = {1, 1, 2},
        [OP_layernorm] = {1, 2, 2}, [OP_attention] = {1, 0, 0},    [OP_gelu] = {1, 0, 0},
        [OP_relu] = {1, 0, 0},      [OP_silu] = {1, 0, 0},         [OP_add] = {2, 0, 0},
        [OP_dropout] = {1, 0, 0},   [OP_cross_entropy] = {2, 0, 0}};
    if (op->n_in != arity[op->kind].n_in)
        return err_input(err, "in: %s takes %d, got %d", op_kind_name(op->kind),
                         arity[op->kind].n_in, op->n_in);
    if (op->n_param < arity[op->kind].min_param || op->n_param > arity[op->kind].max_param)
        return err_input(err, "%s: weight or bias missing or not expected",
                         op_kind_name(op->kind));
    const struct shape *x = &r->tensors[op->in[0]].shape, *y = &r->tensors[op->out].shape;
    const struct shape *w = op->n_param ? &r->params[op->param[0]].shape : NULL;
    op->domain = shape_dims(x) | shape_dims(y);
    for (int i = 0; i < op->n_param; i++)
        op->domain |= shape_dims(&r->params[op->param[i]].shape);
    op->splittable = op->domain;
    bool from_data = r->tensors[op->in[0]].producer < 0;
    bool integer = from_data && r->tensors[op->in[0]].source != DATA_IMAGE;
    if (integer != (op->kind == OP_embedding))
        return err_input(err, "in: %s expects %s", op_kind_name(op->kind),
                         integer ? "numbers, got token ids" : "token ids");
    switch (op->kind) {
    case OP_embedding:
        if (w->rank != 2 || !is_concat(y, x->dim, x->rank, w->dim + 1, 1))
            return err_input(err,
                             "embedding: expected ids, a [vocab, width] table and a result "
                             "with the dims of the ids and width");
        return 0;
    case OP_einsum: return check_einsum(r, op, err);
    case OP_bias:
        if (need_same_dims(x, y, "the result", err) < 0)
            return -1;
        if (w->rank > x->rank ||
            memcmp(w->dim, x->dim + (x->rank - w->rank), sizeof *w->dim * (size_t)w->rank))
            return err_input(err, "weight.dims: expected the last dims of the operand");
        return 0;
    case OP_layernorm:
        if (need_same_dims(x, y, "the result", err) < 0)
            return -1;
        for (int i = 0; i < 2; i++) {
            const struct shape *p = &r->params[op->param[i]].shape;
            if (p->rank != 1 || p->dim[0] != x->dim[x->rank - 1])
                return err_input(err, "%s.dims: expected the last dim of the operand",
                                 i ? "bias" : "weight");
        }
        op->crossed = 1u << x->dim[x->rank - 1];
        return 0;
    case OP_attention:
        if (x->rank != 5 || y->rank != 4 || x->dim[0] != y->dim[0] ||
            x->dim[1] != y->dim[1] || x->dim[3] != y->dim[2] || x->dim[4] != y->dim[3] ||
            r->m->dims[x->dim[2]].size != 3)
            return err_input(
                err, "attention: expected an operand [batch, seq, 3, heads, kv] and "
                     "a result [batch, seq, heads, kv]");
        op->splittable = 1u << x->dim[0] | 1u << x->dim[3];
        return 0;
    case OP_add:
        if (need_same_dims(x, &r->tensors[op->in[1]].shape, "the second operand", err) < 0)
            return -1;
        return need_same_dims(x, y, "the result", err);
    case OP_gelu:
    case OP_relu:
    case OP_silu:
    case OP_dropout: return need_same_dims(x, y, "the result", err);
    case OP_cross_entropy: {
        const struct model_tensor *t = &r->tensors[op->in[1]];
        if (t->producer >= 0 || t->source == DATA_IMAGE || t->source == DATA_TOKEN ||
            x->rank != t->shape.rank + 1 ||
            memcmp(x->dim, t->shape.dim, sizeof *x->dim * (size_t)t->shape.rank))
            return err_input(err,
                             "cross-entropy: expected logits with one dim more than the "
                             "targets, and targets from the data");
        if (y->rank)
            return err_input(err, "dims: the loss is a scalar");
        op->crossed = 1u << x->dim[x->rank - 1];
        return 0;
    }
    case OP_KIND_COUNT: break;
    }
    return 0;
}

int model_check_op(const struct model *m, const struct model_tensor *tensors,
                   const struct model_param *params, struct model_op *op, struct err *err) {
    struct context context = {m, tensors, params};
    return check_op(&context, op, err);
}
