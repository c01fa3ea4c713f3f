/* The losses of a router: how evenly the experts of each sample group are loaded (Fedus et al.,
 * Switch Transformers, 2021) and how large its logits are (Zoph et al., ST-MoE, 2022). Both are
 * means over the whole step, and taken by one of the ranks that have the same rows. Loads are a
 * tensor, so that those of several routers can be added up before the loss is taken of them. */
#include "program/lower/lower.h"

static int64_t experts_of(const struct emit *e, int op) {
    const struct shape *s = &e->m->tensors[op_of(e, op)->in[0]].shape;
    return e->m->dims[s->dim[s->rank - 1]].size;
}

static int64_t rows_of(const struct emit *e, int op) {
    return lower_volume(e, op, &op_of(e, op)->in_map[0]) / experts_of(e, op);
}

/* ---- expert-load ---------------------------------------------------------------------------- */

/* Groups here are the tokens of one sample, or of its part. */
static void load_forward(struct emit *e, int op) {
    const struct shape *s = &e->m->tensors[op_of(e, op)->in[0]].shape;
    int logits = lower_operand(e, op, 0), load = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_expert_load);
    i->in.expert_load.logits = logits;
    i->out.expert_load.load = load;
    i->n.expert_load.tokens = e->m->dims[s->dim[s->rank - 2]].size;
    i->n.expert_load.groups = rows_of(e, op) / i->n.expert_load.tokens;
    i->n.expert_load.experts = experts_of(e, op);
    i->n.expert_load.choices = (int64_t)op_of(e, op)->attr[ATTR_choices];
}

static void load_backward(struct emit *e, int op, const int *dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    const struct shape *s = &e->m->tensors[op_of(e, op)->in[0]].shape;
    int logits = lower_operand(e, op, 0), dlogits = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_expert_load_dx);
    i->in.expert_load_dx.logits = logits;
    i->in.expert_load_dx.dload = dy[0];
    i->out.expert_load_dx.dlogits = dlogits;
    i->n.expert_load_dx.tokens = e->m->dims[s->dim[s->rank - 2]].size;
    i->n.expert_load_dx.groups = rows_of(e, op) / i->n.expert_load_dx.tokens;
    i->n.expert_load_dx.experts = experts_of(e, op);
}

const struct lowering lower_expert_load = {load_forward, load_backward};

/* ---- balance -------------------------------------------------------------------------------- */

/* A group's loads are those of its samples. */
static struct balance_n balance_numbers(const struct emit *e, int op) {
    int64_t samples = (int64_t)op_of(e, op)->attr[ATTR_group];
    return (struct balance_n){.groups = rows_of(e, op) / (2 * samples),
                              .parts = samples,
                              .experts = experts_of(e, op)};
}

static void balance_forward(struct emit *e, int op) {
    int load = lower_operand(e, op, 0);
    struct instr *i = emit_instr(e, I_balance);
    i->in.balance.load = load;
    i->n.balance = balance_numbers(e, op);
    i->axes = lower_idle_axes(e, op);
    lower_about_operand(e, i, op, 0);
}

static void balance_backward(struct emit *e, int op, const int *dy) {
    (void)dy; /* gradients begin here */
    if (!lower_wants_gradient(e, op, 0))
        return;
    int load = lower_operand(e, op, 0), dload = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_balance_dx);
    i->in.balance_dx.load = load;
    i->out.balance_dx.dload = dload;
    i->n.balance = balance_numbers(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_balance = {balance_forward, balance_backward};

/* ---- router-z ------------------------------------------------------------------------------- */

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
