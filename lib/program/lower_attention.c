/* Attention over q, k and v, each of its own, or over one qkv[b, s, 3, h, d]. Queries may be split
 * along their sequence: keys and values are whole there, and their gradients parts of a sum. */
#include "program/lower.h"

/* Of the iteration spaces, as in the kinds' patterns. */
enum { BATCH, SEQ, HEADS, DIM, KV_SEQ, BUCKETS };
enum { PACKED_BATCH, PACKED_SEQ, PACKED_THREE, PACKED_HEADS, PACKED_DIM, PACKED_BUCKETS };

static struct attention_n packed_shape(const struct emit *e, int op) {
    int64_t heads = lower_size(e, op, PACKED_HEADS), seq = lower_size(e, op, PACKED_SEQ);
    return (struct attention_n){.batch = lower_size(e, op, PACKED_BATCH),
                                .heads = heads,
                                .group = 1,
                                .kv_heads = heads,
                                .seq = seq,
                                .kv_seq = seq,
                                .dim = lower_size(e, op, PACKED_DIM),
                                .packed = 1};
}

/* Heads of keys that the rank holds: all of those on whose number an axis did not go into. */
static struct attention_n separate_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    struct extents k = emit_extents(e, &e->m->tensors[o->in[1]].shape);
    int axis = o->in_map[1].axis[HEADS];
    return (struct attention_n){
        .batch = lower_size(e, op, BATCH),
        .heads = lower_size(e, op, HEADS),
        .group = e->m->dims[o->space.dim[HEADS]].size / o->in_map[1].groups,
        .kv_heads = placement_size(e->mesh, &k, operand_place(e, op, 1), axis),
        .seq = lower_size(e, op, SEQ),
        .kv_seq = lower_size(e, op, KV_SEQ),
        .dim = lower_size(e, op, DIM)};
}

static struct attention_n shape_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    bool packed = o->kind == OP_attention_packed;
    struct attention_n n = packed ? packed_shape(e, op) : separate_shape(e, op);
    n.causal = o->attr[ATTR_causal] != 0;
    n.lengths = o->n_in > 3;
    if (o->param[0] >= 0)
        n.buckets = lower_size(e, op, packed ? PACKED_BUCKETS : BUCKETS);
    return n;
}

static int optional_operand(struct emit *e, int op, int k) {
    return k < op_of(e, op)->n_in ? lower_operand(e, op, k) : -1;
}

static void forward(struct emit *e, int op) {
    struct attention_n n = shape_of(e, op);
    int q = lower_operand(e, op, 0), k = optional_operand(e, op, 1);
    int v = optional_operand(e, op, 2), lengths = optional_operand(e, op, 3);
    int positions = lower_param(e, op, 0);
    int o = lower_result(e, op, 0), lse = lower_scratch(e, n.batch * n.heads * n.seq);
    struct instr *i = emit_instr(e, I_attention);
    i->in.attention.q = q;
    i->in.attention.k = k;
    i->in.attention.v = v;
    i->in.attention.lengths = lengths;
    i->in.attention.positions = positions;
    i->out.attention.o = o;
    i->out.attention.lse = lse;
    i->n.attention = n;
    lower_about_operand(e, i, op, 0);
    lower_keep(e, op, lse);
}

static int optional_gradient(struct emit *e, int op, int k) {
    return k < op_of(e, op)->n_in ? lower_gradient(e, op, k) : -1;
}

/* Reads the result and the log-sum-exp of each row, kept or recomputed, so that the weights of
 * attention need not be stored. */
static void backward(struct emit *e, int op, const int *dy) {
    struct attention_n n = shape_of(e, op);
    int q = lower_operand(e, op, 0), k = optional_operand(e, op, 1);
    int v = optional_operand(e, op, 2), lengths = optional_operand(e, op, 3);
    int positions = lower_param(e, op, 0);
    int lse = aux_get(e, op);
    int o = value_get(e, op_of(e, op)->out[0], result_place(e, op, 0));
    int dpositions = lower_grad(e, op, 0), dq = lower_gradient(e, op, 0);
    int dk = optional_gradient(e, op, 1), dv = optional_gradient(e, op, 2);
    struct instr *i = emit_instr(e, I_attention_bwd);
    i->in.attention_bwd.q = q;
    i->in.attention_bwd.k = k;
    i->in.attention_bwd.v = v;
    i->in.attention_bwd.lengths = lengths;
    i->in.attention_bwd.positions = positions;
    i->in.attention_bwd.o = o;
    i->in.attention_bwd.lse = lse;
    i->in.attention_bwd.dy = dy[0];
    i->out.attention_bwd.dq = dq;
    i->out.attention_bwd.dk = dk;
    i->out.attention_bwd.dv = dv;
    i->out.attention_bwd.dpositions = dpositions;
    i->n.attention = n; /* attention_bwd has the same numbers */
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_attention = {forward, backward};
const struct lowering lower_attention_packed = {forward, backward};
