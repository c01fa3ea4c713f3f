/* Attention over separate q, k and v, or over one qkv[b, s, 3, h, d]. Queries may be split
 * along their sequence. Then keys and values are whole there, and their gradients parts of
 * a sum, or they go round a ring (Liu et al., Ring Attention, 2023). Starts of documents
 * are positions in the whole sequence, for queries only: a rank needs those of its own.
 *
 * In a ring, keys and values are split like the queries. A rank begins with its own part
 * and has seen all parts after as many steps as there are ranks: while it computes with one
 * part, that part goes on to the next rank and another comes from the rank before, so it
 * holds at most two beside its own. In the forward pass each step continues from the result
 * over the parts before. In the backward pass keys and values go round once more, and the
 * gradients of each part one step behind it: a rank adds what its own queries contribute
 * and passes the sum on, and the last step brings it home. Parts are in order of position.
 * Under a causal mask a rank does nothing where all keys lie behind its queries, but the
 * last rank has to see them all. */
#include "program/lower/lower.h"

/* Dims of the iteration spaces, as in the kinds' patterns. */
enum { BATCH, SEQ, HEADS, DIM, KV_SEQ, VALUE, BUCKETS };
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

/* The keys that a rank holds: all heads where an axis cannot split them, and its part of
 * the sequence where they go round. */
static struct attention_n separate_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *keys = &o->in_map[1];
    struct extents k = emit_extents(e, &e->m->tensors[o->in[1]].shape);
    struct placement place = operand_place(e, op, 1);
    const int64_t dim = lower_size(e, op, DIM), value = lower_size(e, op, VALUE);
    return (struct attention_n){
        .batch = lower_size(e, op, BATCH),
        .heads = lower_size(e, op, HEADS),
        .group = e->m->dims[o->space.dim[HEADS]].size / keys->groups,
        .kv_heads = placement_size(e->mesh, &k, place, keys->axis[HEADS]),
        .seq = lower_size(e, op, SEQ),
        .kv_seq = placement_size(e->mesh, &k, place, keys->axis[KV_SEQ]),
        .dim = dim,
        .value = value == dim ? 0 : value};
}

/* The window of an attention; 0 where it covers all keys of the sequence. */
static int64_t window_of(const struct emit *e, const struct model_op *o) {
    const struct shape *keys = &e->m->tensors[o->in[o->n_in > 2]].shape;
    const double window = o->attr[ATTR_window];
    return window < (double)e->m->dims[keys->dim[1]].size ? (int64_t)window : 0;
}

/* The operand that says where the documents of queries start, or 0. */
static int starts_of(const struct model_op *o) {
    return o->kind == OP_attention_inside                  ? 3
           : o->kind == OP_attention_packed && o->n_in > 1 ? 1
                                                           : 0;
}

static struct attention_n shape_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    bool packed = o->kind == OP_attention_packed;
    struct attention_n n = packed ? packed_shape(e, op) : separate_shape(e, op);
    n.causal = o->attr[ATTR_causal] != 0;
    n.lengths = o->kind == OP_attention && o->n_in > 3;
    n.starts = starts_of(o) > 0;
    n.document = model_document_length(e->m, o);
    n.window = window_of(e, o);
    n.capped = o->attr[ATTR_softcap] != 0;
    n.sloped = o->attr[ATTR_slope] != 0;
    if (o->param[0] >= 0)
        n.buckets = lower_size(e, op, packed ? PACKED_BUCKETS : BUCKETS);
    return n;
}

/* Keys and values, or their gradients. */
struct pair {
    int k, v; /* buffers */
};

/* An op and what its steps have in common. */
struct attention {
    int op;
    struct attention_n n; /* of one step */
    unsigned axes;        /* on which keys and values go round */
    int steps;            /* 1: they stay */
    int q, lengths, starts, positions, o, lse;
    struct pair own;
};

static struct attention attention_of(struct emit *e, int op) {
    struct attention a = {.op = op, .n = shape_of(e, op)};
    if (op_layout(e, op)->ring != PLACE_NONE)
        a.axes = lower_dim_axes(e, op, SEQ);
    a.steps = mesh_group_size(e->mesh, a.axes);
    a.q = lower_operand(e, op, 0);
    a.own.k = a.n.packed ? -1 : lower_operand(e, op, 1);
    a.own.v = a.n.packed ? -1 : lower_operand(e, op, 2);
    a.lengths = a.n.lengths ? lower_operand(e, op, 3) : -1;
    a.starts = a.n.starts ? lower_operand(e, op, starts_of(op_of(e, op))) : -1;
    a.positions = lower_param(e, op, 0);
    return a;
}

/* ---- what goes round ------------------------------------------------------------------- */

/* A pair that comes from the rank before, and the instructions that wait for it. */
struct coming {
    struct pair pair;
    struct instr wait[2];
};

static int like(struct emit *e, int buffer) {
    struct buffer like = e->buffers.p[buffer];
    return emit_buffer(e, like.elems, like.dtype, MEM_temporaries);
}

static struct pair pair_like(struct emit *e, struct pair p) {
    int k = like(e, p.k), v = like(e, p.v);
    return (struct pair){k, v};
}

static struct instr start_shift(struct emit *e, unsigned axes, int x, int y) {
    emit_collective(e, I_shift, axes, x, y, e->buffers.p[x].elems);
    return emit_start(e, &arr_last(&e->instrs));
}

/* Sends the pair to the next rank while another comes into `to`. */
static struct coming pass_on(struct emit *e, const struct attention *a, struct pair p,
                             struct pair to) {
    struct coming c = {.pair = to};
    c.wait[0] = start_shift(e, a->axes, p.k, to.k);
    c.wait[1] = start_shift(e, a->axes, p.v, to.v);
    return c;
}

static struct pair arrive(struct emit *e, const struct coming *c) {
    arr_push(&e->instrs, c->wait[0]);
    arr_push(&e->instrs, c->wait[1]);
    return c->pair;
}

static struct attention_more_n without_packed(const struct attention_n *n) {
    return (struct attention_more_n){.batch = n->batch,
                                     .heads = n->heads,
                                     .group = n->group,
                                     .kv_heads = n->kv_heads,
                                     .seq = n->seq,
                                     .kv_seq = n->kv_seq,
                                     .dim = n->dim,
                                     .causal = n->causal,
                                     .buckets = n->buckets,
                                     .lengths = n->lengths,
                                     .window = n->window,
                                     .capped = n->capped,
                                     .starts = n->starts,
                                     .sloped = n->sloped,
                                     .value = n->value,
                                     .document = n->document};
}

/* Emits an instruction over the keys of the rank `step` before this one. All but the first
 * continue from the one before; their operands are the same. */
static struct instr *emit_step(struct emit *e, const struct attention *a, int step,
                               enum opcode first, enum opcode more) {
    struct instr *i = emit_instr(e, step ? more : first);
    if (step)
        i->n.attention_more = without_packed(&a->n);
    else
        i->n.attention = a->n;
    i->axes = a->axes;
    i->step = step;
    lower_about_operand(e, i, a->op, 0);
    return i;
}

/* ---- forward --------------------------------------------------------------------------- */

static void emit_forward(struct emit *e, const struct attention *a, int step,
                         struct pair kv) {
    struct instr *i = emit_step(e, a, step, I_attention, I_attention_more);
    i->in.attention.q = a->q;
    i->in.attention.k = kv.k;
    i->in.attention.v = kv.v;
    i->in.attention.lengths = a->lengths;
    i->in.attention.starts = a->starts;
    i->in.attention.positions = a->positions;
    i->out.attention.o = a->o;
    i->out.attention.lse = a->lse;
}

static void forward(struct emit *e, int op) {
    struct attention a = attention_of(e, op);
    struct pair kv = a.own;
    a.o = lower_result(e, op, 0);
    a.lse = lower_scratch(e, a.n.batch * a.n.heads * a.n.seq);
    for (int step = 0; step < a.steps; step++) {
        struct coming next;
        bool last = step + 1 == a.steps;
        if (!last)
            next = pass_on(e, &a, kv, pair_like(e, a.own));
        emit_forward(e, &a, step, kv);
        if (!last)
            kv = arrive(e, &next);
    }
    lower_save(e, op, a.lse);
}

/* ---- backward -------------------------------------------------------------------------- */

/* Gradients of what stays, and of a part of what goes round. */
struct slopes {
    int dy, dq, dpositions;
    struct pair d;
};

static void emit_backward(struct emit *e, const struct attention *a, int step,
                          struct pair kv, const struct slopes *s) {
    struct instr *i = emit_step(e, a, step, I_attention_bwd, I_attention_more_bwd);
    i->in.attention_bwd.q = a->q;
    i->in.attention_bwd.k = kv.k;
    i->in.attention_bwd.v = kv.v;
    i->in.attention_bwd.lengths = a->lengths;
    i->in.attention_bwd.starts = a->starts;
    i->in.attention_bwd.positions = a->positions;
    i->in.attention_bwd.o = a->o;
    i->in.attention_bwd.lse = a->lse;
    i->in.attention_bwd.dy = s->dy;
    i->out.attention_bwd.dq = s->dq;
    i->out.attention_bwd.dk = s->d.k;
    i->out.attention_bwd.dv = s->d.v;
    i->out.attention_bwd.dpositions = s->dpositions;
}

static struct pair add_pair(struct emit *e, struct pair a, struct pair b) {
    int k = emit_add(e, a.k, b.k, e->buffers.p[a.k].elems);
    int v = emit_add(e, a.v, b.v, e->buffers.p[a.v].elems);
    return (struct pair){k, v};
}

/* Sends keys and values round again; sums of gradients are under way in the next step. */
static void go_round_back(struct emit *e, const struct attention *a, struct slopes s) {
    const struct pair home = s.d;
    struct pair kv = a->own;
    struct coming next, sum;
    for (int step = 0; step < a->steps; step++) {
        bool last = step + 1 == a->steps;
        if (!last)
            next = pass_on(e, a, kv, pair_like(e, a->own));
        s.d = pair_like(e, home);
        emit_backward(e, a, step, kv, &s);
        if (step)
            s.d = add_pair(e, arrive(e, &sum), s.d);
        if (!last)
            kv = arrive(e, &next);
        sum = pass_on(e, a, s.d, last ? home : pair_like(e, home));
    }
    arrive(e, &sum);
}

/* Reads the result and the log-sum-exp of each row, kept or recomputed, so that the weights of
 * attention need not be stored. */
static void backward(struct emit *e, int op, const int *dy) {
    struct attention a = attention_of(e, op);
    struct slopes s = {.dy = dy[0]};
    a.lse = saved_get(e, op);
    a.o = value_get(e, op_of(e, op)->out[0], result_place(e, op, 0));
    s.dpositions = lower_grad(e, op, 0);
    s.dq = lower_gradient(e, op, 0);
    s.d.k = a.n.packed ? -1 : lower_gradient(e, op, 1);
    s.d.v = a.n.packed ? -1 : lower_gradient(e, op, 2);
    if (a.steps > 1)
        go_round_back(e, &a, s);
    else
        emit_backward(e, &a, 0, a.own, &s);
}

const struct lowering lower_attention = {forward, backward};
const struct lowering lower_attention_inside = {forward, backward};
const struct lowering lower_attention_packed = {forward, backward};
