/* Logits in pieces.
 *
 * The logits that a head makes, one number a row for every word of the vocabulary, are
 * often the largest tensor of a model, and would be kept until the backward pass begins,
 * though only their loss reads them. But gradients begin at the loss, so there is nothing
 * to wait for: a head, its loss and the gradients of both are made together, in the forward
 * pass, for one piece of the rows after the other. A piece's logits are temporary. For the
 * backward pass the gradient of what the head reads is kept, instead of what it reads and
 * of all logits. No product is computed twice (Hsu et al., Liger Kernel, 2024).
 *
 * A chain is a product of rows and a weight, a soft cap or a scale if the model has one,
 * and the loss, all under placements that agree, of tensors that nobody else reads. Other
 * losses stay as they are. Evaluating leaves out what is only for gradients. */
#include "program/lower/lower.h"
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

/* Ops from a loss back to its head. */
enum { CHAIN_MAX = 4 };
struct chain {
    int ops[CHAIN_MAX], n;
    int64_t rows, piece; /* on this rank: all of them, those of a piece */
    int x, targets;      /* buffers: what the head and the loss read */
};

/* ---- which ops ---------------------------------------------------------------------------- */

static bool is_here(const struct emit *e, int op) {
    return op >= 0 && e->plan->stage_of[op] == e->stage;
}

/* Whether this op is the only reader of the tensor, and reads it once. */
static bool reads_alone(const struct emit *e, int op, int tensor) {
    int readers = 0;
    for (int i = 0; i < e->m->n_ops; i++)
        for (int k = 0; k < e->m->ops[i].n_in; k++)
            readers += e->m->ops[i].in[k] == tensor;
    return readers == 1 && e->m->ops[op].in[0] == tensor;
}

/* Whether one op's result goes to the next without a conversion, and its gradient back. */
static bool agree(const struct emit *e, int from, int to) {
    struct placement back =
        placement_result(e->mesh, op_layout(e, to), &e->m->ops[to].in_map[0]);
    return placement_equal(result_place(e, from, 0), operand_place(e, to, 0)) &&
           placement_equal(back, gradient_place(e, from, 0));
}

static bool find_chain(const struct emit *e, int loss, struct chain *c) {
    *c = (struct chain){.ops = {loss}, .n = 1};
    for (int op = loss; c->n < CHAIN_MAX;) {
        const int tensor = e->m->ops[op].in[0], from = e->m->tensors[tensor].producer;
        if (!is_here(e, from) || !e->m->tensors[tensor].gradient ||
            !reads_alone(e, op, tensor) || !agree(e, from, op))
            return false;
        c->ops[c->n++] = op = from;
        if (e->m->ops[op].kind == OP_einsum)
            return true;
        if (e->m->ops[op].kind != OP_softcap && e->m->ops[op].kind != OP_scale)
            return false;
    }
    return false;
}

static bool has_op(const struct chain *c, int op) {
    for (int i = 0; i < c->n; i++)
        if (c->ops[i] == op)
            return true;
    return false;
}

/* ---- which instructions ------------------------------------------------------------------- */

/* Whether it works on each row by itself; its first number counts rows, or their
 * elements. */
static bool by_rows(enum opcode code) {
    return code == I_linear || code == I_linear_dx || code == I_linear_dw ||
           code == I_bias_dw || code == I_softcap || code == I_softcap_dx ||
           code == I_scale || code == I_cross_entropy || code == I_cross_entropy_part ||
           code == I_cross_entropy_finish || code == I_cross_entropy_dx ||
           code == I_all_gather;
}

/* The instruction that the chain begins with: its head's product. */
static bool begins(const struct chain *c, const struct instr *ins) {
    return ins->op == c->ops[c->n - 1] && ins->code == I_linear;
}

/* Marks the instructions of the chain, the product and what follows from it, and what they make:
 * made[buffer]. False where one is not by rows. */
static bool mark(const struct emit *e, const struct chain *c, bool *part, bool *made) {
    bool begun = false;
    for (int64_t i = 0; i < e->instrs.n; i++) {
        const struct instr *ins = &e->instrs.p[i];
        if (!has_op(c, ins->op))
            continue;
        part[i] = begins(c, ins);
        for (int k = 0; k < INSTR_MAX_IN; k++)
            part[i] |= ins->in.v[k] >= 0 && made[ins->in.v[k]];
        begun |= begins(c, ins);
        if (part[i] && !by_rows(ins->code))
            return false;
        for (int k = 0; k < INSTR_MAX_OUT && part[i]; k++)
            if (ins->out.v[k] >= 0 && !(instr_info(ins->code)->out[k].flags & OPERAND_ADD))
                made[ins->out.v[k]] = true;
    }
    return begun;
}

/* The rows that a piece must have, or a multiple, so that each begins where buffers may. */
static int64_t unit_of(const struct emit *e, int buffer, int64_t rows) {
    const struct buffer *b = &e->buffers.p[buffer];
    const int64_t row = b->elems / rows * dtype_size(b->dtype);
    int64_t unit = 1;
    while (memory_aligned(unit * row) != unit * row)
        unit *= 2;
    return unit;
}

/* Reads off the forward pass what the chain works on; false where pieces would be no smaller. */
static bool measure(const struct emit *e, const bool *part, struct chain *c) {
    for (int64_t i = 0; i < e->instrs.n; i++) {
        const struct instr *ins = &e->instrs.p[i];
        if (part[i] && ins->code == I_linear) {
            c->x = ins->in.linear.x;
            c->rows = ins->n.linear.m;
        }
        if (part[i] && ins->code == I_cross_entropy)
            c->targets = ins->in.cross_entropy.targets;
        if (part[i] && ins->code == I_cross_entropy_part)
            c->targets = ins->in.cross_entropy_part.targets;
    }
    const int64_t a = unit_of(e, c->x, c->rows), b = unit_of(e, c->targets, c->rows);
    const int64_t unit = a > b ? a : b, wanted = (c->rows - 1) / e->plan->logits + 1;
    c->piece = (wanted - 1) / unit * unit + unit;
    return c->piece < c->rows;
}

/* Whether the forward pass can be cut as it stands. */
static bool can_cut(const struct emit *e, struct chain *c) {
    bool *part = mem_array((size_t)e->instrs.n, sizeof *part);
    bool *made = mem_array((size_t)e->buffers.n, sizeof *made);
    bool can = mark(e, c, part, made) && measure(e, part, c);
    free(part);
    free(made);
    return can;
}

/* ---- pieces ------------------------------------------------------------------------------- */

/* Makes the instruction do only so many of the rows. */
static void set_rows(struct instr *ins, int64_t all, int64_t rows) {
    ins->n.v[0] = ins->n.v[0] / all * rows;
}

struct cut {
    struct emit *e;
    const struct chain *c;
    const bool *made;    /* [n] buffers that only the chain has */
    int *now;            /* [n] the piece at hand of each buffer, or -1 */
    int64_t n;           /* buffers */
    int64_t first, rows; /* of the piece */
};

/* The buffer of this piece: a part of a whole one, or a temporary for the piece alone. */
static int piece_of(struct cut *t, int buffer, int64_t elems) {
    if (t->now[buffer] >= 0)
        return t->now[buffer];
    struct buffer b = t->e->buffers.p[buffer];
    if (!t->made[buffer]) {
        b.part_of = 1 + buffer;
        b.first = b.elems / t->c->rows * t->first;
    }
    b.elems = elems;
    arr_push(&t->e->buffers, b);
    return t->now[buffer] = (int)t->e->buffers.n - 1;
}

/* Emits the instruction for one piece: operands whose size depends on the rows are cut. */
static void push_piece(struct cut *t, struct instr ins) {
    struct instr_work none, some;
    struct instr nothing = ins;
    set_rows(&nothing, t->c->rows, 0);
    set_rows(&ins, t->c->rows, t->rows);
    instr_work(ins.code, &nothing.n, &none);
    instr_work(ins.code, &ins.n, &some);
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins.in.v[k] >= 0 && some.in[k] != none.in[k])
            ins.in.v[k] = piece_of(t, ins.in.v[k], some.in[k]);
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        if (ins.out.v[k] >= 0 && some.out[k] != none.out[k])
            ins.out.v[k] = piece_of(t, ins.out.v[k], some.out[k]);
    arr_push(&t->e->instrs, ins);
}

/* What is not of the chain comes first, since it needs nothing that the chain makes. */
static void cut(struct emit *e, const struct chain *c, const bool *part, const bool *made) {
    struct cut t = {e, c, made, .n = e->buffers.n};
    struct instr *old = e->instrs.p;
    const int64_t n = e->instrs.n;
    t.now = mem_array((size_t)t.n, sizeof *t.now);
    memset(&e->instrs, 0, sizeof e->instrs);
    for (int64_t i = 0; i < n; i++)
        if (!part[i])
            arr_push(&e->instrs, old[i]);
    for (; t.first < c->rows; t.first += t.rows) {
        const int64_t left = c->rows - t.first;
        t.rows = left < c->piece ? left : c->piece;
        memset(t.now, -1, (size_t)t.n * sizeof *t.now);
        for (int64_t i = 0; i < n; i++)
            if (part[i])
                push_piece(&t, old[i]);
    }
    free(t.now);
    free(old);
}

/* Others want the gradient of what the head reads, as a whole. */
static void keep_gradient(const struct emit *e, const struct chain *c, bool *made) {
    for (int64_t i = 0; i < e->instrs.n; i++) {
        const struct instr *ins = &e->instrs.p[i];
        if (ins->code == I_linear_dx && ins->op == c->ops[c->n - 1])
            made[ins->out.linear_dx.dx] = false;
    }
}

static void cut_chain(struct emit *e, const struct chain *c) {
    bool *part = mem_array((size_t)e->instrs.n, sizeof *part);
    bool *made = mem_array((size_t)e->buffers.n, sizeof *made);
    mark(e, c, part, made);
    keep_gradient(e, c, made);
    cut(e, c, part, made);
    free(part);
    free(made);
}

/* ---- the backward pass of a chain --------------------------------------------------------- */

static void lower_early(struct emit *e, const struct chain *c) {
    for (int i = 0; i < c->n; i++) {
        const int op = e->op = c->ops[i];
        int dy[KIND_MAX_SLOTS] = {-1};
        if (i > 0)
            dy[0] = gradient_combine(e, e->m->ops[op].out[0], gradient_place(e, op, 0));
        lower_backward(e, op, dy);
        e->early[e->op_index[op]] = 1;
    }
}

/* Whether all but the optimizer's state is on the device: pass_offload.c sees whole
 * buffers. */
static bool stays_on_device(const struct emit *e) {
    for (int i = 0; i < e->st->n_ops; i++)
        if (e->st->offload[i] & ~OFFLOAD_optimizer)
            return false;
    return true;
}

void pass_logits(struct emit *e) {
    struct chain c;
    e->seg = SEG_FORWARD;
    for (int i = 0; i < e->st->n_ops && stays_on_device(e); i++) {
        const int op = e->st->ops[i];
        if (e->m->ops[op].kind != OP_cross_entropy || !model_has_backward(e->m, op) ||
            !find_chain(e, op, &c) || !can_cut(e, &c))
            continue;
        e->trains = true;
        lower_early(e, &c);
        cut_chain(e, &c);
        grads_reduce(e);
        e->trains = false;
    }
    emit_end_segment(e, SEG_FORWARD);
}
