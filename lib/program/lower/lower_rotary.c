/* Rotary positions (Su et al., RoFormer, 2021). A turn's gradient is the turn back: nothing
 * is kept. */
#include "program/lower/lower.h"

enum { BATCH, SEQ, HEADS, DIM }; /* of the iteration space, as in the kind's pattern */

static void turn(struct emit *e, int op, int x, int y, bool back) {
    struct instr *i = emit_instr(e, I_rotary);
    i->in.rotary.x = x;
    i->out.rotary.y = y;
    i->n.rotary = (struct rotary_n){.batch = lower_size(e, op, BATCH),
                                    .seq = lower_size(e, op, SEQ),
                                    .heads = lower_size(e, op, HEADS),
                                    .dim = lower_size(e, op, DIM),
                                    .back = back};
    lower_about_operand(e, i, op, 0);
}

static void forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0);
    turn(e, op, x, lower_result(e, op, 0), false);
}

static void backward(struct emit *e, int op, const int *dy) {
    if (lower_wants_gradient(e, op, 0))
        turn(e, op, dy[0], lower_gradient(e, op, 0), true);
}

const struct lowering lower_rotary = {forward, backward};
