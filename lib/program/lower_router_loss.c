/* The losses of a router: how evenly the experts of each sample group are loaded (Fedus et al.,
 * Switch Transformers, 2021) and how large its logits are (Zoph et al., ST-MoE, 2022). Both are
 * means over the whole step, and taken by one of the ranks that have the same rows. */
#include "program/lower.h"

static int64_t experts_of(const struct emit *e, int op) {
    const struct shape *s = &e->m->tensors[op_of(e, op)->in[0]].shape;
    return e->m->dims[s->dim[s->rank - 1]].size;
}

static int64_t rows_of(const struct emit *e, int op) {
    return lower_volume(e, op, &op_of(e, op)->in_map[0]) / experts_of(e, op);
}

static struct balance_n balance_numbers(const struct emit *e, int op) {
    const struct shape *s = &e->m->tensors[op_of(e, op)->in[0]].shape;
    int64_t samples = (int64_t)op_of(e, op)->attr[ATTR_group];
    int64_t tokens = samples * e->m->dims[s->dim[s->rank - 2]].size;
    return (struct balance_n){
        .groups = rows_of(e, op) / tokens, .tokens = tokens, .experts = experts_of(e, op)};
}

static void balance_forward(struct emit *e, int op) {
    struct balance_n n = balance_numbers(e, op);
    int logits = lower_operand(e, op, 0), load = lower_scratch(e, n.groups * n.experts);
    lower_keep(e, op, load);
    struct instr *i = emit_instr(e, I_balance);
    i->in.balance.logits = logits;
    i->out.balance.load = load;
    i->n.balance = n;
    i->axes = lower_idle_axes(e, op);
    lower_about_operand(e, i, op, 0);
}

static void balance_backward(struct emit *e, int op, const int *dy) {
    (void)dy; /* gradients begin here */
    int logits = lower_operand(e, op, 0), load = aux_get(e, op);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int dlogits = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_balance_dx);
    i->in.balance_dx.logits = logits;
    i->in.balance_dx.load = load;
    i->out.balance_dx.dlogits = dlogits;
    i->n.balance = balance_numbers(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_balance = {balance_forward, balance_backward};

static void router_z_forward(struct emit *e, int op) {
    int logits = lower_operand(e, op, 0);
    struct instr *i = emit_instr(e, I_router_z);
    i->in.router_z.logits = logits;
    i->n.router_z.rows = rows_of(e, op);
    i->n.router_z.experts = experts_of(e, op);
    i->axes = lower_idle_axes(e, op);
    lower_about_operand(e, i, op, 0);
}

static void router_z_backward(struct emit *e, int op, const int *dy) {
    (void)dy;
    if (!lower_wants_gradient(e, op, 0))
        return;
    int logits = lower_operand(e, op, 0), dlogits = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_router_z_dx);
    i->in.router_z_dx.logits = logits;
    i->out.router_z_dx.dlogits = dlogits;
    i->n.router_z.rows = rows_of(e, op);
    i->n.router_z.experts = experts_of(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_router_z = {router_z_forward, router_z_backward};
