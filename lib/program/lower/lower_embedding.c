/* Rows of a table by id, and a parameter added to every row. Where the vocabulary is split, a rank
 * writes zeros for the ids of others, so the result is a part of a sum. */
#include "program/lower/lower.h"

/* Looks up the rows of an op's table whose numbers are in operand k. */
static struct instr *look_up(struct emit *e, int op, int k, int ids, int table, int y) {
    const struct model_op *o = op_of(e, op);
    struct instr *i = emit_instr(e, I_embedding);
    i->in.embedding.ids = ids;
    i->in.embedding.table = table;
    i->out.embedding.y = y;
    i->n.embedding.rows = lower_volume(e, op, &o->in_map[k]);
    i->n.embedding.vocab = lower_without(e, op, &o->param_map[0], &o->out_map[0]);
    i->n.embedding.width = lower_shared(e, op, &o->param_map[0], &o->out_map[0]);
    lower_about_param(e, i, op, 0);
    return i;
}

static void look_up_dw(struct emit *e, int op, int k, int dy) {
    const struct model_op *o = op_of(e, op);
    int ids = lower_operand(e, op, k), dtable = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_embedding_dw);
    i->in.embedding_dw.ids = ids;
    i->in.embedding_dw.dy = dy;
    i->out.embedding_dw.dtable = dtable;
    i->n.embedding_dw.rows = lower_volume(e, op, &o->in_map[k]);
    i->n.embedding_dw.vocab = lower_without(e, op, &o->param_map[0], &o->out_map[0]);
    i->n.embedding_dw.width = lower_shared(e, op, &o->param_map[0], &o->out_map[0]);
    lower_about_param(e, i, op, 0);
}

static void embedding_forward(struct emit *e, int op) {
    int ids = lower_operand(e, op, 0), table = lower_param(e, op, 0);
    int y = lower_result(e, op, 0);
    look_up(e, op, 0, ids, table, y)->axes = lower_axes(e, op, ROLE_contracted);
}

/* Ids have no gradient, so only the table is trained. */
static void embedding_backward(struct emit *e, int op, const int *dy) {
    look_up_dw(e, op, 0, dy[0]);
}

const struct lowering lower_embedding = {embedding_forward, embedding_backward};

/* ---- rows, and bias, at positions that an operand says: every rank has the whole table -------------------- */

static void rows_at_forward(struct emit *e, int op) {
    const int64_t elems = lower_volume(e, op, &op_of(e, op)->out_map[0]);
    int x = lower_operand(e, op, 0), at = lower_operand(e, op, 1);
    int table = lower_param(e, op, 0), rows = lower_values(e, elems);
    look_up(e, op, 1, at, table, rows);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_add);
    i->in.add.a = x;
    i->in.add.b = rows;
    i->out.add.y = y;
    i->n.add.elems = elems;
}

static void rows_at_backward(struct emit *e, int op, const int *dy) {
    if (lower_trains(e, op, 0))
        look_up_dw(e, op, 1, dy[0]);
    lower_pass_on(e, op, 0, dy[0]);
}

const struct lowering lower_rows_at = {rows_at_forward, rows_at_backward};
const struct lowering lower_bias_at = {rows_at_forward, rows_at_backward};

/* ---- bias --------------------------------------------------------------------------------------- */

static void bias_forward(struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    int x = lower_operand(e, op, 0), p = lower_param(e, op, 0), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_bias);
    i->in.bias.x = x;
    i->in.bias.p = p;
    i->out.bias.y = y;
    i->n.bias.elems = lower_volume(e, op, &o->out_map[0]);
    i->n.bias.inner = lower_volume(e, op, &o->param_map[0]);
}

static void bias_dw(struct emit *e, int op, int dy) {
    const struct model_op *o = op_of(e, op);
    int dp = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_bias_dw);
    i->in.bias_dw.dy = dy;
    i->out.bias_dw.dp = dp;
    i->n.bias_dw.elems = lower_volume(e, op, &o->out_map[0]);
    i->n.bias_dw.inner = lower_volume(e, op, &o->param_map[0]);
}

static void bias_backward(struct emit *e, int op, const int *dy) {
    if (lower_trains(e, op, 0))
        bias_dw(e, op, dy[0]);
    lower_pass_on(e, op, 0, dy[0]);
}

const struct lowering lower_bias = {bias_forward, bias_backward};
