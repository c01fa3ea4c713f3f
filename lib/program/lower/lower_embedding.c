/* Rows of a table by id, and a parameter added to every row. Where the vocabulary is split, a rank
 * writes zeros for the ids of others, so the result is a part of a sum. */
#include "program/lower/lower.h"

static void embedding_forward(struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *ids_map = &o->in_map[0], *w = &o->param_map[0];
    int ids = lower_operand(e, op, 0), table = lower_param(e, op, 0);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_embedding);
    i->in.embedding.ids = ids;
    i->in.embedding.table = table;
    i->out.embedding.y = y;
    i->n.embedding.rows = lower_volume(e, op, ids_map);
    i->n.embedding.vocab = lower_without(e, op, w, &o->out_map[0]);
    i->n.embedding.width = lower_shared(e, op, w, &o->out_map[0]);
    i->axes = lower_axes(e, op, ROLE_contracted);
    lower_about_param(e, i, op, 0);
}

/* Ids have no gradient, so the table is trained. */
static void embedding_backward(struct emit *e, int op, const int *dy) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *w = &o->param_map[0];
    int ids = lower_operand(e, op, 0), dtable = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_embedding_dw);
    i->in.embedding_dw.ids = ids;
    i->in.embedding_dw.dy = dy[0];
    i->out.embedding_dw.dtable = dtable;
    i->n.embedding_dw.rows = lower_volume(e, op, &o->in_map[0]);
    i->n.embedding_dw.vocab = lower_without(e, op, w, &o->out_map[0]);
    i->n.embedding_dw.width = lower_shared(e, op, w, &o->out_map[0]);
    lower_about_param(e, i, op, 0);
}

const struct lowering lower_embedding = {embedding_forward, embedding_backward};

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
