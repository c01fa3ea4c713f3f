/* Layer norm. Where the dim that it crosses is split, every rank takes the moments of its columns and
 * gathers those of all, which the norm combines (Chan, Golub, LeVeque 1979); backward, two sums are
 * reduced. */
#include "program/lower/lower.h"

/* The moments of every rank's columns. */
static int gathered_moments(struct emit *e, int op, int x, int parts) {
    int64_t rows = lower_role(e, op, ROLE_parallel);
    int part = lower_scratch(e, 2 * rows);
    struct instr *i = emit_instr(e, I_layernorm_moments);
    i->in.layernorm_moments.x = x;
    i->out.layernorm_moments.part = part;
    i->n.layernorm_moments =
        (struct layernorm_moments_n){.rows = rows, .n = lower_role(e, op, ROLE_coupled)};
    int moments = lower_scratch(e, 2 * rows * parts);
    emit_collective(e, I_all_gather, lower_axes(e, op, ROLE_coupled), part, moments,
                    2 * rows * parts);
    return moments;
}

static void forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0);
    int beta = lower_param(e, op, 1);
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int parts = mesh_group_size(e->mesh, axes);
    int moments = axes ? gathered_moments(e, op, x, parts) : -1;
    int y = lower_result(e, op, 0), stat = lower_scratch(e, 2 * rows);
    struct instr *i = emit_instr(e, I_layernorm);
    i->in.layernorm.x = x;
    i->in.layernorm.gamma = gamma;
    i->in.layernorm.beta = beta;
    i->in.layernorm.moments = moments;
    i->out.layernorm.y = y;
    i->out.layernorm.stat = stat;
    i->n.layernorm =
        (struct layernorm_n){.rows = rows, .n = n, .parts = parts, .plain = beta < 0};
    lower_save(e, op, stat);
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
    i->n.layernorm_bwd_sums =
        (struct layernorm_bwd_sums_n){.rows = rows, .n = lower_role(e, op, ROLE_coupled)};
    emit_collective(e, I_all_reduce, lower_axes(e, op, ROLE_coupled), sums, sums, 2 * rows);
    return sums;
}

static void backward(struct emit *e, int op, const int *dy) {
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0), stat = saved_get(e, op);
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int sums = axes ? reduced_sums(e, op, x, gamma, stat, dy[0]) : -1;
    int dgamma = lower_grad(e, op, 0), dbeta = lower_grad(e, op, 1);
    int dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_layernorm_bwd);
    i->in.layernorm_bwd.x = x;
    i->in.layernorm_bwd.gamma = gamma;
    i->in.layernorm_bwd.stat = stat;
    i->in.layernorm_bwd.dy = dy[0];
    i->in.layernorm_bwd.sums = sums;
    i->out.layernorm_bwd.dx = dx;
    i->out.layernorm_bwd.dgamma = dgamma;
    i->out.layernorm_bwd.dbeta = dbeta;
    i->n.layernorm_bwd =
        (struct layernorm_bwd_n){.rows = rows,
                                 .n = n,
                                 .total = n * mesh_group_size(e->mesh, axes),
                                 .plain = dbeta < 0};
}

const struct lowering lower_layernorm = {forward, backward};
