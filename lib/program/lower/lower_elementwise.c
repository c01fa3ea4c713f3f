/* Elementwise ops, and reshapes, which move no number at all. */
#include "program/lower/lower.h"

static int64_t elements(const struct emit *e, int op) {
    return lower_volume(e, op, &op_of(e, op)->out_map[0]);
}

/* Emits an activation. All have gelu's operands, and their gradients gelu_dx's. */
static void activate(struct emit *e, int op, enum opcode code) {
    int x = lower_operand(e, op, 0), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, code);
    i->in.gelu.x = x;
    i->out.gelu.y = y;
    i->n.gelu.elems = elements(e, op);
}

/* The result of a ReLU says as much about its slope as x, and is kept anyway for
 * readers. */
static int kept_of(struct emit *e, int op, enum opcode code) {
    return code == I_relu_dx ? value_get(e, op_of(e, op)->out[0], result_place(e, op, 0))
                             : lower_operand(e, op, 0);
}

static void activate_dx(struct emit *e, int op, enum opcode code, int dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    int x = kept_of(e, op, code), dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, code);
    i->in.gelu_dx.x = x;
    i->in.gelu_dx.dy = dy;
    i->out.gelu_dx.dx = dx;
    i->n.gelu_dx.elems = elements(e, op);
}

#define ACTIVATION(id)                                                                     \
    static void id##_forward(struct emit *e, int op) {                                     \
        activate(e, op, I_##id);                                                           \
    }                                                                                      \
    static void id##_backward(struct emit *e, int op, const int *dy) {                     \
        activate_dx(e, op, I_##id##_dx, dy[0]);                                            \
    }                                                                                      \
    const struct lowering lower_##id = {id##_forward, id##_backward};
ACTIVATION(gelu)
ACTIVATION(relu)
ACTIVATION(silu)
ACTIVATION(tanh)
ACTIVATION(gelu_erf)
ACTIVATION(relu2)
ACTIVATION(sigmoid)
ACTIVATION(softcap)

/* One operand gates the other. All gates have the operands of swiglu and swiglu_bwd. */
static void gate(struct emit *e, int op, enum opcode code) {
    int x = lower_operand(e, op, 0), z = lower_operand(e, op, 1);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, code);
    i->in.swiglu.x = x;
    i->in.swiglu.z = z;
    i->out.swiglu.y = y;
    i->n.swiglu.elems = elements(e, op);
}

static void gate_bwd(struct emit *e, int op, enum opcode code, int dy) {
    int x = lower_operand(e, op, 0), z = lower_operand(e, op, 1);
    int dx = lower_gradient(e, op, 0), dz = lower_gradient(e, op, 1);
    struct instr *i = emit_instr(e, code);
    i->in.swiglu_bwd.x = x;
    i->in.swiglu_bwd.z = z;
    i->in.swiglu_bwd.dy = dy;
    i->out.swiglu_bwd.dx = dx;
    i->out.swiglu_bwd.dz = dz;
    i->n.swiglu_bwd.elems = elements(e, op);
}

#define GATE(id)                                                                           \
    static void id##_forward(struct emit *e, int op) {                                     \
        gate(e, op, I_##id);                                                               \
    }                                                                                      \
    static void id##_backward(struct emit *e, int op, const int *dy) {                     \
        gate_bwd(e, op, I_##id##_bwd, dy[0]);                                              \
    }                                                                                      \
    const struct lowering lower_##id = {id##_forward, id##_backward};
GATE(swiglu)
GATE(geglu)

/* The gradient of a scale is the same instruction. */
static void scale(struct emit *e, int op, int x, int y) {
    struct instr *i = emit_instr(e, I_scale);
    i->in.scale.x = x;
    i->out.scale.y = y;
    i->n.scale.elems = elements(e, op);
}

static void scale_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0);
    scale(e, op, x, lower_result(e, op, 0));
}

static void scale_backward(struct emit *e, int op, const int *dy) {
    if (lower_wants_gradient(e, op, 0))
        scale(e, op, dy[0], lower_gradient(e, op, 0));
}

const struct lowering lower_scale = {scale_forward, scale_backward};

static void add_forward(struct emit *e, int op) {
    int a = lower_operand(e, op, 0), b = lower_operand(e, op, 1);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_add);
    i->in.add.a = a;
    i->in.add.b = b;
    i->out.add.y = y;
    i->n.add.elems = elements(e, op);
}

static void add_backward(struct emit *e, int op, const int *dy) {
    lower_pass_on(e, op, 0, dy[0]);
    lower_pass_on(e, op, 1, dy[0]);
}

const struct lowering lower_add = {add_forward, add_backward};

/* The draw for an element depends on its index in the whole tensor, so the gradient is the same
 * instruction. */
static void drop(struct emit *e, int op, int x, int y) {
    struct instr *i = emit_instr(e, I_dropout);
    i->in.dropout.x = x;
    i->out.dropout.y = y;
    i->n.dropout.elems = elements(e, op);
    lower_about_result(e, i, op, 0);
}

static void dropout_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0);
    drop(e, op, x, lower_result(e, op, 0));
}

static void dropout_backward(struct emit *e, int op, const int *dy) {
    if (lower_wants_gradient(e, op, 0))
        drop(e, op, dy[0], lower_gradient(e, op, 0));
}

const struct lowering lower_dropout = {dropout_forward, dropout_backward};

/* The same bytes under other dims. */
static void reshape_forward(struct emit *e, int op) {
    avail_add(e, e->seg == SEG_FORWARD ? e->forward : e->backward, op_of(e, op)->out[0],
              result_place(e, op, 0), lower_operand(e, op, 0));
}

static void reshape_backward(struct emit *e, int op, const int *dy) {
    lower_pass_on(e, op, 0, dy[0]);
}

const struct lowering lower_reshape = {reshape_forward, reshape_backward};
