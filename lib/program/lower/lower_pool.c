/* Pooling: the largest number of each window, the mean over all places. */
#include "program/lower/lower.h"

/* ---- maximum ----------------------------------------------------------------------- */

static struct maxpool_n numbers(const struct emit *e, int op, const struct windows *w) {
    return (struct maxpool_n){.batch = w->batch,
                              .ih = w->ih,
                              .iw = w->iw,
                              .c = w->c,
                              .oh = w->oh,
                              .ow = w->ow,
                              .kernel = (int64_t)op_of(e, op)->attr[ATTR_kernel],
                              .stride = w->stride,
                              .ph = w->ph,
                              .pw = w->pw};
}

static void maxpool_forward(struct emit *e, int op) {
    struct windows w = lower_windows(e, op, true);
    int x = lower_windows_operand(e, op, &w), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_maxpool);
    i->in.maxpool.x = x;
    i->out.maxpool.y = y;
    i->n.maxpool = numbers(e, op, &w);
}

/* The largest number of each window is found again in the operand. */
static void maxpool_backward(struct emit *e, int op, const int *dy) {
    struct windows w = lower_windows(e, op, true);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int x = lower_windows_operand(e, op, &w), dx = lower_windows_gradient(e, op, &w);
    struct instr *i = emit_instr(e, I_maxpool_dx);
    i->in.maxpool_dx.x = x;
    i->in.maxpool_dx.dy = dy[0];
    i->out.maxpool_dx.dx = dx;
    i->n.maxpool = numbers(e, op, &w);
    lower_windows_back(e, op, &w, dx);
}

const struct lowering lower_maxpool = {maxpool_forward, maxpool_backward};

/* ---- mean -------------------------------------------------------------------------- */

static struct avgpool_n places(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    return (struct avgpool_n){.batch = lower_size(e, op, 0),
                              .places = lower_role(e, op, ROLE_contracted),
                              .c = lower_size(e, op, o->space.n - 1)};
}

/* Where places are split, each rank has a part of the sum. */
static void avgpool_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_avgpool);
    i->in.avgpool.x = x;
    i->out.avgpool.y = y;
    i->n.avgpool = places(e, op);
}

static void avgpool_backward(struct emit *e, int op, const int *dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    int dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_avgpool_dx);
    i->in.avgpool_dx.dy = dy[0];
    i->out.avgpool_dx.dx = dx;
    i->n.avgpool = places(e, op);
}

const struct lowering lower_avgpool = {avgpool_forward, avgpool_backward};
