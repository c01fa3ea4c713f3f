/* Fused attention over qkv[b, s, 3, h, k]: heads and batch may be split, the rest is whole. */
#include "program/lower.h"

enum {
    BATCH,
    SEQ,
    THREE,
    HEADS,
    DIM
}; /* of the iteration space, as in the kind's pattern */

static void forward(struct emit *e, int op) {
    int64_t b = lower_size(e, op, BATCH), h = lower_size(e, op, HEADS);
    int64_t s = lower_size(e, op, SEQ);
    int qkv = lower_operand(e, op, 0), o = lower_result(e, op, 0);
    int lse = lower_scratch(e, b * h * s);
    struct instr *i = emit_instr(e, I_attention);
    i->in.attention.qkv = qkv;
    i->out.attention.o = o;
    i->out.attention.lse = lse;
    i->n.attention.batch = b;
    i->n.attention.heads = h;
    i->n.attention.seq = s;
    i->n.attention.dim = lower_size(e, op, DIM);
    i->n.attention.causal = op_of(e, op)->attr[ATTR_causal] != 0;
    lower_keep(e, op, lse);
}

/* Reads the result and the log-sum-exp of each row, kept or recomputed, so that the weights of
 * attention need not be stored. */
static void backward(struct emit *e, int op, const int *dy) {
    int qkv = lower_operand(e, op, 0), lse = aux_get(e, op);
    int o = value_get(e, op_of(e, op)->out[0], result_place(e, op, 0));
    int dqkv = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_attention_bwd);
    i->in.attention_bwd.qkv = qkv;
    i->in.attention_bwd.o = o;
    i->in.attention_bwd.lse = lse;
    i->in.attention_bwd.dy = dy[0];
    i->out.attention_bwd.dqkv = dqkv;
    i->n.attention_bwd.batch = lower_size(e, op, BATCH);
    i->n.attention_bwd.heads = lower_size(e, op, HEADS);
    i->n.attention_bwd.seq = lower_size(e, op, SEQ);
    i->n.attention_bwd.dim = lower_size(e, op, DIM);
    i->n.attention_bwd.causal = op_of(e, op)->attr[ATTR_causal] != 0;
}

const struct lowering lower_attention = {forward, backward};
