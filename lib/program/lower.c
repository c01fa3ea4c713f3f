/* Lowering: one op of the model to instructions, forward and backward, for any layout.
 *
 * Every local size follows from the layout alone; an op whose own maths crosses a split dim
 * carries its small collective here (layer norm over hidden, cross-entropy over vocab). */
#include "program/emit.h"

#include <stdlib.h>

const struct layout *op_layout(const struct emit *e, int op) {
    return &e->st->layouts[e->op_index[op]];
}

/* Local size of dim d for an op with this layout. */
static int64_t local(const struct emit *e, const struct layout *l, int d) {
    int64_t n = e->sizes.size[d];
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] == d)
            n /= e->mesh->size[a];
    return n;
}

static int64_t local_volume(const struct emit *e, const struct layout *l, dimset dims) {
    int64_t n = 1;
    for (int d = 0; d < e->m->n_dims; d++)
        if (dims >> d & 1)
            n *= local(e, l, d);
    return n;
}

/* Axes that split one of these dims. */
static unsigned axes_on(const struct emit *e, const struct layout *l, dimset dims) {
    unsigned axes = 0;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] >= 0 && (dims >> l->dim[a] & 1))
            axes |= 1u << a;
    return axes;
}

/* A bias is added once, not per part of a sum: axes that split the summed dims do not concern
 * it. */
static struct layout bias_layout(const struct model_op *op, const struct layout *l) {
    struct layout b = *l;
    for (int a = 0; a < MESH_MAX_AXES; a++)
        if (b.dim[a] >= 0 && (op->contracted >> b.dim[a] & 1))
            b.dim[a] = PLACE_NONE;
    return b;
}

static struct layout param_layout(const struct model_op *op, const struct layout *l,
                                  int slot) {
    return slot ? bias_layout(op, l) : *l;
}

int param_get(struct emit *e, int param, struct placement place) {
    for (int64_t i = e->param_of[param]; i >= 0 && i < e->params.n; i++)
        if (e->params.p[i].param == param && placement_equal(e->params.p[i].place, place))
            return (int)i;
    int buffer =
        emit_buffer(e, emit_elements(e, &e->m->params[param].shape, place), MEM_parameters);
    bool first = e->param_of[param] < 0;
    /* The home of a parameter is the stage that uses it first, under that op's layout. */
    bool home = first && e->plan->stage_of[e->m->params[param].first_op] == e->stage;
    arr_push(&e->params, (struct param_instance){param, place, buffer, home});
    if (first)
        e->param_of[param] = (int)e->params.n - 1;
    return (int)e->params.n - 1;
}

int grad_get(struct emit *e, int param, int instance, struct placement place) {
    for (int64_t i = e->grad_of[param]; i >= 0 && i < e->grads.n; i++)
        if (e->grads.p[i].param == param && e->grads.p[i].instance == instance &&
            placement_equal(e->grads.p[i].place, place))
            return e->grads.p[i].buffer;
    int buffer =
        emit_buffer(e, emit_elements(e, &e->m->params[param].shape, place), MEM_gradients);
    arr_push(&e->grads, (struct grad_instance){param, instance, place, buffer});
    if (e->grad_of[param] < 0)
        e->grad_of[param] = (int)e->grads.n - 1;
    return buffer;
}

static int op_param(struct emit *e, int op, int slot) {
    const struct model_op *o = &e->m->ops[op];
    struct layout l = param_layout(o, op_layout(e, op), slot);
    dimset dims = shape_dims(&e->m->params[o->param[slot]].shape);
    return param_get(e, o->param[slot], placement_operand(e->mesh, &l, dims));
}

static int op_param_buffer(struct emit *e, int op, int slot) {
    int instance = op_param(e, op, slot); /* may grow the list */
    return e->params.p[instance].buffer;
}

static int op_grad_buffer(struct emit *e, int op, int slot) {
    const struct model_op *o = &e->m->ops[op];
    struct layout l = param_layout(o, op_layout(e, op), slot);
    dimset dims = shape_dims(&e->m->params[o->param[slot]].shape);
    int instance = op_param(e, op, slot);
    return grad_get(e, o->param[slot], instance, placement_result(e->mesh, &l, dims));
}

static struct instr *op_instr(struct emit *e, enum opcode code, int op) {
    struct instr *i = emit_instr(e, code);
    i->op = op; /* which may be made again on behalf of another */
    return i;
}

static int operand(struct emit *e, int op, int k) {
    int t = e->m->ops[op].in[k];
    return value_get(
        e, t,
        placement_operand(e->mesh, op_layout(e, op), shape_dims(&e->m->tensors[t].shape)));
}

static struct placement result_place(const struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    return placement_result(e->mesh, op_layout(e, op),
                            shape_dims(&e->m->tensors[o->out].shape));
}

/* Lists a result in the pass under way. */
static void set_result(struct emit *e, int op, int buffer) {
    avail_add(e, e->seg == SEG_FORWARD ? e->forward : e->backward, e->m->ops[op].out,
              result_place(e, op), buffer);
}

static void set_aux(struct emit *e, int op, int buffer) {
    e->aux[2 * e->op_index[op] + (e->seg != SEG_FORWARD)] = buffer;
}

static int new_result(struct emit *e, int op) {
    const struct shape *s = &e->m->tensors[e->m->ops[op].out].shape;
    return emit_buffer(e, emit_elements(e, s, result_place(e, op)), MEM_temporaries);
}

/* m, n, k of an einsum's local product. */
static void einsum_sizes(const struct emit *e, int op, int64_t *m, int64_t *n, int64_t *k) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    dimset x = shape_dims(&e->m->tensors[o->in[0]].shape);
    dimset y = shape_dims(&e->m->tensors[o->out].shape);
    *m = local_volume(e, l, x & y);
    *n = local_volume(e, l, y & ~x);
    *k = local_volume(e, l, o->contracted);
}

/* ---- forward ---------------------------------------------------------------------------- */

static void einsum_forward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    int x = operand(e, op, 0), w = op_param_buffer(e, op, 0);
    int b = o->n_param > 1 ? op_param_buffer(e, op, 1) : -1, y = new_result(e, op);
    struct instr *i = op_instr(e, I_linear, op);
    i->in[0] = x;
    i->in[1] = w;
    i->in[2] = b;
    i->out[0] = y;
    einsum_sizes(e, op, &i->n[0], &i->n[1], &i->n[2]);
    i->n[3] = o->transposed;
    i->n[4] = b >= 0;
    i->axes = axes_on(e, op_layout(e, op), o->contracted);
    set_result(e, op, y);
}

static void embedding_forward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    const struct shape *w = &e->m->params[o->param[0]].shape;
    int ids = operand(e, op, 0), table = op_param_buffer(e, op, 0), y = new_result(e, op);
    struct instr *i = op_instr(e, I_embedding, op);
    i->in[0] = ids;
    i->in[1] = table;
    i->out[0] = y;
    i->n[0] = local_volume(e, l, shape_dims(&e->m->tensors[o->in[0]].shape));
    i->n[1] = local(e, l, w->dim[0]);
    i->n[2] = local(e, l, w->dim[1]);
    i->axes = axes_on(e, l, 1u << w->dim[0]);
    i->param = o->param[0];
    i->place = placement_operand(e->mesh, l, shape_dims(w));
    set_result(e, op, y);
}

static void bias_forward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int x = operand(e, op, 0), p = op_param_buffer(e, op, 0), y = new_result(e, op);
    struct instr *i = op_instr(e, I_bias, op);
    i->in[0] = x;
    i->in[1] = p;
    i->out[0] = y;
    i->n[0] = local_volume(e, l, o->domain);
    i->n[1] = local_volume(e, l, shape_dims(&e->m->params[o->param[0]].shape));
    set_result(e, op, y);
}

static void layernorm_forward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int x = operand(e, op, 0), gamma = op_param_buffer(e, op, 0);
    int beta = op_param_buffer(e, op, 1);
    int64_t n = local_volume(e, l, o->crossed), rows = local_volume(e, l, o->domain) / n;
    unsigned axes = axes_on(e, l, o->crossed);
    int parts = -1, g = mesh_group_size(e->mesh, axes);
    if (axes) {
        int part = emit_buffer(e, 2 * rows, MEM_temporaries);
        struct instr *i = op_instr(e, I_layernorm_moments, op);
        i->in[0] = x;
        i->out[0] = part;
        i->n[0] = rows;
        i->n[1] = n;
        parts = emit_buffer(e, 2 * rows * g, MEM_temporaries);
        i = op_instr(e, I_all_gather, op);
        i->axes = axes;
        i->in[0] = part;
        i->out[0] = parts;
        i->n[0] = 2 * rows * g;
    }
    int y = new_result(e, op), stat = emit_buffer(e, 2 * rows, MEM_temporaries);
    struct instr *i = op_instr(e, axes ? I_layernorm_apply : I_layernorm, op);
    i->in[0] = x;
    i->in[1] = gamma;
    i->in[2] = beta;
    i->in[3] = parts;
    i->out[0] = y;
    i->out[1] = stat;
    i->n[0] = rows;
    i->n[1] = n;
    i->n[2] = axes ? g : 0;
    set_result(e, op, y);
    set_aux(e, op, stat);
}

static void attention_shape(const struct emit *e, int op, struct instr *i) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    const struct shape *y = &e->m->tensors[o->out].shape;
    i->n[0] = local(e, l, y->dim[0]);
    i->n[1] = local(e, l, y->dim[2]);
    i->n[2] = local(e, l, y->dim[1]);
    i->n[3] = local(e, l, y->dim[3]);
    i->n[4] = o->causal;
}

static void attention_forward(struct emit *e, int op) {
    int qkv = operand(e, op, 0), y = new_result(e, op);
    struct instr *i = op_instr(e, I_attention, op);
    attention_shape(e, op, i);
    int64_t rows = i->n[0] * i->n[1] * i->n[2];
    int lse = emit_buffer(e, rows, MEM_temporaries);
    i->in[0] = qkv;
    i->out[0] = y;
    i->out[1] = lse;
    set_result(e, op, y);
    set_aux(e, op, lse);
}

static void elementwise_forward(struct emit *e, int op, enum opcode code) {
    const struct model_op *o = &e->m->ops[op];
    int a = operand(e, op, 0), b = o->n_in > 1 ? operand(e, op, 1) : -1,
        y = new_result(e, op);
    struct instr *i = op_instr(e, code, op);
    i->in[0] = a;
    i->in[1] = b;
    i->out[0] = y;
    i->n[0] = local_volume(e, op_layout(e, op), o->domain);
    i->tensor = o->out;
    i->place = result_place(e, op);
    set_result(e, op, y);
}

static void cross_entropy_forward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int x = operand(e, op, 0), target = operand(e, op, 1);
    int64_t n = local_volume(e, l, o->crossed), rows = local_volume(e, l, o->domain) / n;
    unsigned axes = axes_on(e, l, o->crossed), replicated = 0;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] == PLACE_NONE)
            replicated |= 1u << a;
    int lse = emit_buffer(e, rows, MEM_temporaries);
    if (axes) {
        int g = mesh_group_size(e->mesh, axes);
        int part = emit_buffer(e, 3 * rows, MEM_temporaries);
        int parts = emit_buffer(e, 3 * rows * g, MEM_temporaries);
        struct instr *i = op_instr(e, I_cross_entropy_part, op);
        i->in[0] = x;
        i->in[1] = target;
        i->out[0] = part;
        i->n[0] = rows;
        i->n[1] = n;
        i->tensor = o->in[0];
        i->place =
            placement_operand(e->mesh, l, shape_dims(&e->m->tensors[o->in[0]].shape));
        i = op_instr(e, I_all_gather, op);
        i->axes = axes;
        i->in[0] = part;
        i->out[0] = parts;
        i->n[0] = 3 * rows * g;
        i = op_instr(e, I_cross_entropy_finish, op);
        i->in[0] = parts;
        i->out[0] = lse;
        i->n[0] = rows;
        i->n[1] = g;
        i->axes = axes | replicated; /* every rank of the group knows the whole loss */
    } else {
        struct instr *i = op_instr(e, I_cross_entropy, op);
        i->in[0] = x;
        i->in[1] = target;
        i->out[0] = lse;
        i->n[0] = rows;
        i->n[1] = n;
        i->axes = replicated;
    }
    set_aux(e, op, lse);
}

static void forward(struct emit *e, int op) {
    switch (e->m->ops[op].kind) {
    case OP_embedding: embedding_forward(e, op); break;
    case OP_bias: bias_forward(e, op); break;
    case OP_einsum: einsum_forward(e, op); break;
    case OP_layernorm: layernorm_forward(e, op); break;
    case OP_attention: attention_forward(e, op); break;
    case OP_gelu: elementwise_forward(e, op, I_gelu); break;
    case OP_relu: elementwise_forward(e, op, I_relu); break;
    case OP_silu: elementwise_forward(e, op, I_silu); break;
    case OP_add: elementwise_forward(e, op, I_add); break;
    case OP_dropout: elementwise_forward(e, op, I_dropout); break;
    case OP_cross_entropy: cross_entropy_forward(e, op); break;
    case OP_KIND_COUNT: break;
    }
}

void lower_forward(struct emit *e, int op) {
    int caller = e->op;
    e->op = op;
    forward(e, op);
    e->op = caller;
}

/* ---- backward ---------------------------------------------------------------------------- */

/* A new gradient of operand k, listed under the placement in which it comes out; -1 when the
 * operand is data. */
static int operand_gradient(struct emit *e, int op, int k) {
    const struct model_tensor *t = &e->m->tensors[e->m->ops[op].in[k]];
    if (t->producer < 0)
        return -1;
    struct placement p = placement_result(e->mesh, op_layout(e, op), shape_dims(&t->shape));
    int buffer = emit_buffer(e, emit_elements(e, &t->shape, p), MEM_temporaries);
    gradient_add(e, e->m->ops[op].in[k], p, buffer);
    return buffer;
}

static void einsum_backward(struct emit *e, int op, int dy) {
    const struct model_op *o = &e->m->ops[op];
    int x = operand(e, op, 0), dw = op_grad_buffer(e, op, 0);
    int db = o->n_param > 1 ? op_grad_buffer(e, op, 1) : -1;
    struct instr *i = op_instr(e, I_linear_dw, op);
    i->in[0] = x;
    i->in[1] = dy;
    i->out[0] = dw;
    i->out[1] = db;
    einsum_sizes(e, op, &i->n[0], &i->n[1], &i->n[2]);
    i->n[3] = o->transposed;
    i->n[4] = db >= 0;
    int w = op_param_buffer(e, op, 0), dx = operand_gradient(e, op, 0);
    if (dx < 0)
        return;
    i = op_instr(e, I_linear_dx, op);
    i->in[0] = dy;
    i->in[1] = w;
    i->out[0] = dx;
    einsum_sizes(e, op, &i->n[0], &i->n[1], &i->n[2]);
    i->n[3] = o->transposed;
}

static void embedding_backward(struct emit *e, int op, int dy) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    const struct shape *w = &e->m->params[o->param[0]].shape;
    int ids = operand(e, op, 0), dtable = op_grad_buffer(e, op, 0);
    struct instr *i = op_instr(e, I_embedding_dw, op);
    i->in[0] = ids;
    i->in[1] = dy;
    i->out[0] = dtable;
    i->n[0] = local_volume(e, l, shape_dims(&e->m->tensors[o->in[0]].shape));
    i->n[1] = local(e, l, w->dim[0]);
    i->n[2] = local(e, l, w->dim[1]);
    i->param = o->param[0];
    i->place = placement_operand(e->mesh, l, shape_dims(w));
}

/* The gradient passes on unchanged to operand k: the same buffer under two names. */
static void pass_on(struct emit *e, int op, int k, int dy) {
    const struct model_tensor *t = &e->m->tensors[e->m->ops[op].in[k]];
    if (t->producer >= 0)
        gradient_add(e, e->m->ops[op].in[k],
                     placement_result(e->mesh, op_layout(e, op), shape_dims(&t->shape)),
                     dy);
}

static void bias_backward(struct emit *e, int op, int dy) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int dp = op_grad_buffer(e, op, 0);
    struct instr *i = op_instr(e, I_bias_dw, op);
    i->in[0] = dy;
    i->out[0] = dp;
    i->n[0] = local_volume(e, l, o->domain);
    i->n[1] = local_volume(e, l, shape_dims(&e->m->params[o->param[0]].shape));
    pass_on(e, op, 0, dy);
}

static void layernorm_backward(struct emit *e, int op, int dy) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int x = operand(e, op, 0), gamma = op_param_buffer(e, op, 0), stat = aux_get(e, op);
    int64_t n = local_volume(e, l, o->crossed), rows = local_volume(e, l, o->domain) / n;
    unsigned axes = axes_on(e, l, o->crossed);
    int sums = -1;
    if (axes) {
        sums = emit_buffer(e, 2 * rows, MEM_temporaries);
        struct instr *i = op_instr(e, I_layernorm_bwd_sums, op);
        i->in[0] = x;
        i->in[1] = gamma;
        i->in[2] = stat;
        i->in[3] = dy;
        i->out[0] = sums;
        i->n[0] = rows;
        i->n[1] = n;
        i = op_instr(e, I_all_reduce, op);
        i->axes = axes;
        i->in[0] = i->out[0] = sums;
        i->n[0] = 2 * rows;
    }
    int dgamma = op_grad_buffer(e, op, 0), dbeta = op_grad_buffer(e, op, 1);
    int dx = operand_gradient(e, op, 0);
    struct instr *i = op_instr(e, axes ? I_layernorm_bwd_apply : I_layernorm_bwd, op);
    i->in[0] = x;
    i->in[1] = gamma;
    i->in[2] = stat;
    i->in[3] = dy;
    i->in[4] = sums;
    i->out[0] = dx;
    i->out[1] = dgamma;
    i->out[2] = dbeta;
    i->n[0] = rows;
    i->n[1] = n;
    if (axes)
        i->n[2] = n * mesh_group_size(e->mesh, axes);
}

static void attention_backward(struct emit *e, int op, int dy) {
    const struct model_op *o = &e->m->ops[op];
    int qkv = operand(e, op, 0), lse = aux_get(e, op);
    int y = value_get(e, o->out, result_place(e, op)), dx = operand_gradient(e, op, 0);
    struct instr *i = op_instr(e, I_attention_bwd, op);
    attention_shape(e, op, i);
    i->in[0] = qkv;
    i->in[1] = y;
    i->in[2] = lse;
    i->in[3] = dy;
    i->out[0] = dx;
}

static void activation_backward(struct emit *e, int op, enum opcode code, int dy) {
    int x = operand(e, op, 0), dx = operand_gradient(e, op, 0);
    if (dx < 0)
        return;
    struct instr *i = op_instr(e, code, op);
    i->in[0] = x;
    i->in[1] = dy;
    i->out[0] = dx;
    i->n[0] = local_volume(e, op_layout(e, op), e->m->ops[op].domain);
}

static void dropout_backward(struct emit *e, int op, int dy) {
    int dx = operand_gradient(e, op, 0);
    if (dx < 0)
        return;
    struct instr *i = op_instr(e, I_dropout, op);
    i->in[0] = dy;
    i->out[0] = dx;
    i->n[0] = local_volume(e, op_layout(e, op), e->m->ops[op].domain);
    i->tensor = e->m->ops[op].out;
    i->place = result_place(e, op);
}

static void cross_entropy_backward(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    const struct layout *l = op_layout(e, op);
    int x = operand(e, op, 0), target = operand(e, op, 1), lse = aux_get(e, op);
    int dx = operand_gradient(e, op, 0);
    struct instr *i = op_instr(e, I_cross_entropy_dx, op);
    i->in[0] = x;
    i->in[1] = target;
    i->in[2] = lse;
    i->out[0] = dx;
    i->n[1] = local_volume(e, l, o->crossed);
    i->n[0] = local_volume(e, l, o->domain) / i->n[1];
    i->tensor = o->in[0];
    i->place = placement_operand(e->mesh, l, shape_dims(&e->m->tensors[o->in[0]].shape));
}

void lower_backward(struct emit *e, int op, int dy) {
    switch (e->m->ops[op].kind) {
    case OP_embedding: embedding_backward(e, op, dy); break;
    case OP_bias: bias_backward(e, op, dy); break;
    case OP_einsum: einsum_backward(e, op, dy); break;
    case OP_layernorm: layernorm_backward(e, op, dy); break;
    case OP_attention: attention_backward(e, op, dy); break;
    case OP_gelu: activation_backward(e, op, I_gelu_dx, dy); break;
    case OP_relu: activation_backward(e, op, I_relu_dx, dy); break;
    case OP_silu: activation_backward(e, op, I_silu_dx, dy); break;
    case OP_add:
        pass_on(e, op, 0, dy);
        pass_on(e, op, 1, dy);
        break;
    case OP_dropout: dropout_backward(e, op, dy); break;
    case OP_cross_entropy: cross_entropy_backward(e, op); break;
    case OP_KIND_COUNT: break;
    }
}
