/* Matrix product of an activation and a weight. */
#include "program/lower.h"

/* Dims of x and y, dims that the weight adds, dims summed over. */
struct sizes {
    int64_t m, n, k;
    bool wt; /* the weight is [n, k] */
};

static struct sizes sizes_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *x = &o->in_map[0], *y = &o->out_map[0], *w = &o->param_map[0];
    struct sizes s = {.m = lower_shared(e, op, x, y),
                      .n = lower_without(e, op, y, x),
                      .k = lower_role(e, op, ROLE_contracted)};
    for (int k = 0; k < o->space.n; k++)
        if (w->axis[k] == 0)
            s.wt = y->axis[k] >= 0;
    return s;
}

static void forward(struct emit *e, int op) {
    struct sizes s = sizes_of(e, op);
    int x = lower_operand(e, op, 0), w = lower_param(e, op, 0);
    int b = lower_param(e, op, 1), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_linear);
    i->in.linear.x = x;
    i->in.linear.w = w;
    i->in.linear.b = b;
    i->out.linear.y = y;
    i->n.linear.m = s.m;
    i->n.linear.n = s.n;
    i->n.linear.k = s.k;
    i->n.linear.wt = s.wt;
    i->n.linear.bias = b >= 0;
    i->axes = lower_axes(e, op, ROLE_contracted);
}

static void backward(struct emit *e, int op, const int *dy) {
    struct sizes s = sizes_of(e, op);
    int x = lower_operand(e, op, 0), dw = lower_grad(e, op, 0), db = lower_grad(e, op, 1);
    struct instr *i = emit_instr(e, I_linear_dw);
    i->in.linear_dw.x = x;
    i->in.linear_dw.dy = dy[0];
    i->out.linear_dw.dw = dw;
    i->out.linear_dw.db = db;
    i->n.linear_dw.m = s.m;
    i->n.linear_dw.n = s.n;
    i->n.linear_dw.k = s.k;
    i->n.linear_dw.wt = s.wt;
    i->n.linear_dw.bias = db >= 0;
    if (!lower_wants_gradient(e, op, 0))
        return;
    int w = lower_param(e, op, 0), dx = lower_gradient(e, op, 0);
    i = emit_instr(e, I_linear_dx);
    i->in.linear_dx.dy = dy[0];
    i->in.linear_dx.w = w;
    i->out.linear_dx.dx = dx;
    i->n.linear_dx.m = s.m;
    i->n.linear_dx.n = s.n;
    i->n.linear_dx.k = s.k;
    i->n.linear_dx.wt = s.wt;
}

const struct lowering lower_einsum = {forward, backward};
