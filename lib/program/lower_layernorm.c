/* Layer norm. Where the dim that it crosses is split, every rank takes the moments of its columns,
 * gathers those of all, and combines them (Chan, Golub, LeVeque 1979); backward, two sums are
 * reduced. */
#include "program/lower.h"

/* Split, moments travel between the two halves of the work; whole, one instruction does both. */
static void forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0);
    int beta = lower_param(e, op, 1);
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int parts = mesh_group_size(e->mesh, axes), moments = -1;
    if (axes) {
        int part = lower_scratch(e, 2 * rows);
        struct instr *i = emit_instr(e, I_layernorm_moments);
        i->in.layernorm_moments.x = x;
        i->out.layernorm_moments.part = part;
        i->n.layernorm_moments.rows = rows;
        i->n.layernorm_moments.n = n;
        moments = lower_scratch(e, 2 * rows * parts);
        emit_collective(e, I_all_gather, axes, part, moments, 2 * rows * parts);
    }
    int y = lower_result(e, op, 0), stat = lower_scratch(e, 2 * rows);
    if (axes) {
        struct instr *i = emit_instr(e, I_layernorm_apply);
        i->in.layernorm_apply.x = x;
        i->in.layernorm_apply.gamma = gamma;
        i->in.layernorm_apply.beta = beta;
        i->in.layernorm_apply.moments = moments;
        i->out.layernorm_apply.y = y;
        i->out.layernorm_apply.stat = stat;
        i->n.layernorm_apply.rows = rows;
        i->n.layernorm_apply.n = n;
        i->n.layernorm_apply.parts = parts;
    } else {
        struct instr *i = emit_instr(e, I_layernorm);
        i->in.layernorm.x = x;
        i->in.layernorm.gamma = gamma;
        i->in.layernorm.beta = beta;
        i->out.layernorm.y = y;
        i->out.layernorm.stat = stat;
        i->n.layernorm.rows = rows;
        i->n.layernorm.n = n;
    }
    lower_keep(e, op, stat);
}

/* The two sums over the local columns, added up over the group. */
static int reduced_sums(struct emit *e, int op, int x, int gamma, int stat, int dy) {
    int64_t rows = lower_role(e, op, ROLE_parallel);
    int sums = lower_scratch(e, 2 * rows);
    struct instr *i = emit_instr(e, I_layernorm_bwd_sums);
    i->in.layernorm_bwd_sums.x = x;
    i->in.layernorm_bwd_sums.gamma = gamma;
    i->in.layernorm_bwd_sums.stat = stat;
    i->in.layernorm_bwd_sums.dy = dy;
    i->out.layernorm_bwd_sums.sums = sums;
    i->n.layernorm_bwd_sums.rows = rows;
    i->n.layernorm_bwd_sums.n = lower_role(e, op, ROLE_coupled);
    emit_collective(e, I_all_reduce, lower_axes(e, op, ROLE_coupled), sums, sums, 2 * rows);
    return sums;
}

static void backward(struct emit *e, int op, const int *dy) {
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0), stat = aux_get(e, op);
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int sums = axes ? reduced_sums(e, op, x, gamma, stat, dy[0]) : -1;
    int dgamma = lower_grad(e, op, 0), dbeta = lower_grad(e, op, 1);
    int dx = lower_gradient(e, op, 0);
    if (axes) {
        struct instr *i = emit_instr(e, I_layernorm_bwd_apply);
        i->in.layernorm_bwd_apply.x = x;
        i->in.layernorm_bwd_apply.gamma = gamma;
        i->in.layernorm_bwd_apply.stat = stat;
        i->in.layernorm_bwd_apply.dy = dy[0];
        i->in.layernorm_bwd_apply.sums = sums;
        i->out.layernorm_bwd_apply.dx = dx;
        i->out.layernorm_bwd_apply.dgamma = dgamma;
        i->out.layernorm_bwd_apply.dbeta = dbeta;
        i->n.layernorm_bwd_apply.rows = rows;
        i->n.layernorm_bwd_apply.n = n;
        i->n.layernorm_bwd_apply.total = n * mesh_group_size(e->mesh, axes);
    } else {
        struct instr *i = emit_instr(e, I_layernorm_bwd);
        i->in.layernorm_bwd.x = x;
        i->in.layernorm_bwd.gamma = gamma;
        i->in.layernorm_bwd.stat = stat;
        i->in.layernorm_bwd.dy = dy[0];
        i->out.layernorm_bwd.dx = dx;
        i->out.layernorm_bwd.dgamma = dgamma;
        i->out.layernorm_bwd.dbeta = dbeta;
        i->n.layernorm_bwd.rows = rows;
        i->n.layernorm_bwd.n = n;
    }
}

const struct lowering lower_layernorm = {forward, backward};
