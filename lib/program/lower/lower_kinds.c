/* The table of lowerings: what each kind of op becomes. */
#include "program/lower/lower.h"

static const struct lowering *lowering_of(const struct emit *e, int op) {
    static const struct lowering *const table[] = {
#define X(id, ...) [OP_##id] = &lower_##id,
        KINDS(X)
#undef X
    };
    return table[op_of(e, op)->kind];
}

void lower_forward(struct emit *e, int op) {
    int caller = e->op;
    e->op = op;
    lowering_of(e, op)->forward(e, op);
    e->op = caller;
}

void lower_backward(struct emit *e, int op, const int *dy) {
    lowering_of(e, op)->backward(e, op, dy);
}
