/* Ops over positions: a table's rows are added to them, rows are put in front of them, one
 * of them is taken, and they are exchanged with the dim behind them. Where positions are
 * split, a rank adds to or exchanges its own; the other two ops need all of them. */
#include "program/lower/lower.h"

/* ---- rows: of the space, as in the kind's pattern, from its end: s, h, n ---------------------- */

/* Positions that share one row of the table are counted in `outer`. */
static struct rows_n rows_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const int s = o->space.n - 3;
    const int64_t rows = o->attr[ATTR_step] != 0 ? lower_size(e, op, s) : 1;
    const int64_t inner = lower_size(e, op, s + 1);
    return (struct rows_n){.outer = lower_volume(e, op, &o->out_map[0]) / (rows * inner),
                           .rows = rows,
                           .inner = inner,
                           .extra = lower_size(e, op, s + 2) - rows};
}

static void rows_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), table = lower_param(e, op, 0);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_rows);
    i->in.rows.x = x;
    i->in.rows.table = table;
    i->out.rows.y = y;
    i->n.rows = rows_shape(e, op);
    lower_about_operand(e, i, op, 0);
}

static void rows_dw(struct emit *e, int op, int dy) {
    int dtable = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_rows_dw);
    i->in.rows_dw.dy = dy;
    i->out.rows_dw.dtable = dtable;
    i->n.rows = rows_shape(e, op);
    lower_about_operand(e, i, op, 0);
}

static void rows_backward(struct emit *e, int op, const int *dy) {
    if (lower_trains(e, op, 0))
        rows_dw(e, op, dy[0]);
    lower_pass_on(e, op, 0, dy[0]);
}

const struct lowering lower_rows = {rows_forward, rows_backward};

/* ---- prepend: from the end of the space, s, h, r, t ------------------------------------------- */

static struct prepend_n prepend_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const int s = o->space.n - 4;
    const int64_t rows = lower_size(e, op, s), inner = lower_size(e, op, s + 1);
    return (struct prepend_n){.outer = lower_volume(e, op, &o->in_map[0]) / (rows * inner),
                              .rows = rows,
                              .inner = inner,
                              .front = lower_size(e, op, s + 2)};
}

static void prepend_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), table = lower_param(e, op, 0);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_prepend);
    i->in.prepend.x = x;
    i->in.prepend.table = table;
    i->out.prepend.y = y;
    i->n.prepend = prepend_shape(e, op);
}

static void prepend_backward(struct emit *e, int op, const int *dy) {
    struct prepend_n n = prepend_shape(e, op);
    int dx = lower_wants_gradient(e, op, 0) ? lower_gradient(e, op, 0)
                                            : lower_values(e, n.outer * n.rows * n.inner);
    int dtable = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_prepend_bwd);
    i->in.prepend_bwd.dy = dy[0];
    i->out.prepend_bwd.dx = dx;
    i->out.prepend_bwd.dtable = dtable;
    i->n.prepend = n;
}

const struct lowering lower_prepend = {prepend_forward, prepend_backward};

/* ---- select: from the end of the space, s, h --------------------------------------------------- */

static struct select_n select_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const int64_t inner = lower_size(e, op, o->space.n - 1);
    return (struct select_n){.outer = lower_volume(e, op, &o->out_map[0]) / inner,
                             .rows = lower_size(e, op, o->space.n - 2),
                             .inner = inner};
}

static void select_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_select);
    i->in.select.x = x;
    i->out.select.y = y;
    i->n.select = select_shape(e, op);
}

static void select_backward(struct emit *e, int op, const int *dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    int dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_select_dx);
    i->in.select_dx.dy = dy[0];
    i->out.select_dx.dx = dx;
    i->n.select = select_shape(e, op);
}

const struct lowering lower_select = {select_forward, select_backward};

/* ---- transpose: from the end of the space, s, t ------------------------------------------------ */

/* y [outer, t, s] of x [outer, s, t]. */
static void turn(struct emit *e, int x, int y, int64_t outer, int64_t s, int64_t t) {
    struct instr *i = emit_instr(e, I_copy);
    i->in.copy.x = x;
    i->out.copy.y = y;
    i->n.copy = (struct copy_n){.elems = outer * s * t, .inner = 1};
    i->copy = (struct copy){
        .rank = 3, .size = {outer, t, s}, .src = {s * t, 1, t}, .dst = {s * t, s, 1}};
}

struct turned {
    int64_t outer, s, t;
};
static struct turned turned_shape(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    struct turned n = {.s = lower_size(e, op, o->space.n - 2),
                       .t = lower_size(e, op, o->space.n - 1)};
    n.outer = lower_volume(e, op, &o->out_map[0]) / (n.s * n.t);
    return n;
}

static void transpose_forward(struct emit *e, int op) {
    const struct turned n = turned_shape(e, op);
    int x = lower_operand(e, op, 0);
    turn(e, x, lower_result(e, op, 0), n.outer, n.s, n.t);
}

static void transpose_backward(struct emit *e, int op, const int *dy) {
    const struct turned n = turned_shape(e, op);
    if (lower_wants_gradient(e, op, 0))
        turn(e, dy[0], lower_gradient(e, op, 0), n.outer, n.t, n.s);
}

const struct lowering lower_transpose = {transpose_forward, transpose_backward};
