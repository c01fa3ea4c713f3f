/* Convolution. Split over input channels it gives parts of a sum, as any product does;
 * split over height or width, the windows of a rank reach into its neighbours' rows
 * (lower_windows.c). */
#include "program/lower/lower.h"

/* The numbers that all three instructions have. */
static struct conv2d_n numbers(const struct emit *e, int op, const struct windows *w) {
    enum { TAPS_H = 4, TAPS_W, COUT }; /* behind the dims of the operand */
    return (struct conv2d_n){.batch = w->batch,
                             .ih = w->ih,
                             .iw = w->iw,
                             .cin = w->c,
                             .oh = w->oh,
                             .ow = w->ow,
                             .cout = lower_size(e, op, COUT),
                             .kh = lower_size(e, op, TAPS_H),
                             .kw = lower_size(e, op, TAPS_W),
                             .stride = w->stride,
                             .ph = w->ph,
                             .pw = w->pw};
}

static void forward(struct emit *e, int op) {
    struct windows w = lower_windows(e, op, false);
    int x = lower_windows_operand(e, op, &w), weight = lower_param(e, op, 0);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_conv2d);
    i->in.conv2d.x = x;
    i->in.conv2d.w = weight;
    i->out.conv2d.y = y;
    i->n.conv2d = numbers(e, op, &w);
}

static void weight_gradient(struct emit *e, int op, const struct windows *w, int dy) {
    int x = lower_windows_operand(e, op, w), dw = lower_grad(e, op, 0);
    struct instr *i = emit_instr(e, I_conv2d_dw);
    i->in.conv2d_dw.x = x;
    i->in.conv2d_dw.dy = dy;
    i->out.conv2d_dw.dw = dw;
    i->n.conv2d = numbers(e, op, w);
}

static void backward(struct emit *e, int op, const int *dy) {
    struct windows w = lower_windows(e, op, false);
    if (lower_trains(e, op, 0))
        weight_gradient(e, op, &w, dy[0]);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int weight = lower_param(e, op, 0), dx = lower_windows_gradient(e, op, &w);
    struct instr *i = emit_instr(e, I_conv2d_dx);
    i->in.conv2d_dx.dy = dy[0];
    i->in.conv2d_dx.w = weight;
    i->out.conv2d_dx.dx = dx;
    i->n.conv2d = numbers(e, op, &w);
    lower_windows_back(e, op, &w, dx);
}

const struct lowering lower_conv2d = {forward, backward};
