/* RMS norm (Zhang and Sennrich 2019). Where the dim that it crosses is split, sums over the local
 * columns are reduced: of squares forward, of x gamma dy backward. */
#include "program/lower/lower.h"

static void sum_up(struct emit *e, int op, int sums) {
    emit_collective(e, I_all_reduce, lower_axes(e, op, ROLE_coupled), sums, sums,
                    lower_role(e, op, ROLE_parallel));
}

/* Columns of a row on all ranks together. */
static int64_t total_columns(const struct emit *e, int op) {
    return lower_role(e, op, ROLE_coupled) *
           mesh_group_size(e->mesh, lower_axes(e, op, ROLE_coupled));
}

static int reduced_squares(struct emit *e, int op, int x) {
    int64_t rows = lower_role(e, op, ROLE_parallel);
    int squares = lower_scratch(e, rows);
    struct instr *i = emit_instr(e, I_rmsnorm_squares);
    i->in.rmsnorm_squares.x = x;
    i->out.rmsnorm_squares.squares = squares;
    i->n.rmsnorm_squares =
        (struct rmsnorm_squares_n){.rows = rows, .n = lower_role(e, op, ROLE_coupled)};
    sum_up(e, op, squares);
    return squares;
}

static void forward(struct emit *e, int op) {
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0);
    int y = lower_result(e, op, 0), stat = lower_scratch(e, rows);
    int squares = lower_axes(e, op, ROLE_coupled) ? reduced_squares(e, op, x) : -1;
    struct instr *i = emit_instr(e, I_rmsnorm);
    i->in.rmsnorm.x = x;
    i->in.rmsnorm.gamma = gamma;
    i->in.rmsnorm.squares = squares;
    i->out.rmsnorm.y = y;
    i->out.rmsnorm.stat = stat;
    i->n.rmsnorm = (struct rmsnorm_n){.rows = rows, .n = n, .total = total_columns(e, op)};
    lower_save(e, op, stat);
}

/* The sum of x gamma dy over the local columns, added up over the group. */
static int reduced_sums(struct emit *e, int op, int x, int gamma, int dy) {
    int64_t rows = lower_role(e, op, ROLE_parallel);
    int sums = lower_scratch(e, rows);
    struct instr *i = emit_instr(e, I_rmsnorm_bwd_sums);
    i->in.rmsnorm_bwd_sums.x = x;
    i->in.rmsnorm_bwd_sums.gamma = gamma;
    i->in.rmsnorm_bwd_sums.dy = dy;
    i->out.rmsnorm_bwd_sums.sums = sums;
    i->n.rmsnorm_bwd_sums =
        (struct rmsnorm_bwd_sums_n){.rows = rows, .n = lower_role(e, op, ROLE_coupled)};
    sum_up(e, op, sums);
    return sums;
}

static void backward(struct emit *e, int op, const int *dy) {
    int64_t n = lower_role(e, op, ROLE_coupled), rows = lower_role(e, op, ROLE_parallel);
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int x = lower_operand(e, op, 0), gamma = lower_param(e, op, 0), stat = saved_get(e, op);
    int sums = axes ? reduced_sums(e, op, x, gamma, dy[0]) : -1;
    int dgamma = lower_grad(e, op, 0), dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_rmsnorm_bwd);
    i->in.rmsnorm_bwd.x = x;
    i->in.rmsnorm_bwd.gamma = gamma;
    i->in.rmsnorm_bwd.stat = stat;
    i->in.rmsnorm_bwd.dy = dy[0];
    i->in.rmsnorm_bwd.sums = sums;
    i->out.rmsnorm_bwd.dx = dx;
    i->out.rmsnorm_bwd.dgamma = dgamma;
    i->n.rmsnorm_bwd =
        (struct rmsnorm_bwd_n){.rows = rows, .n = n, .total = total_columns(e, op)};
}

const struct lowering lower_rmsnorm = {forward, backward};
