/* Cross-entropy. Where the vocabulary is split, every rank takes the maximum, the sum and
 * the target's logit of its columns, gathers those of all, and finishes like the others. */
#include "program/lower/lower.h"

/* Rows of the local logits, columns of a row. */
static int64_t rows_of(const struct emit *e, int op) {
    return lower_volume(e, op, &op_of(e, op)->in_map[1]);
}

static int64_t columns_of(const struct emit *e, int op) {
    return lower_role(e, op, ROLE_coupled);
}

/* With the vocabulary split over `axes`. */
static void forward_split(struct emit *e, int op, int x, int targets, int lse,
                          unsigned axes) {
    int64_t rows = rows_of(e, op);
    int g = mesh_group_size(e->mesh, axes);
    int part = lower_scratch(e, 3 * rows), parts = lower_scratch(e, 3 * rows * g);
    struct instr *i = emit_instr(e, I_cross_entropy_part);
    i->in.cross_entropy_part.logits = x;
    i->in.cross_entropy_part.targets = targets;
    i->out.cross_entropy_part.part = part;
    i->n.cross_entropy_part.rows = rows;
    i->n.cross_entropy_part.n = columns_of(e, op);
    lower_about_operand(e, i, op, 0);
    emit_collective(e, I_all_gather, axes, part, parts, 3 * rows * g);
    i = emit_instr(e, I_cross_entropy_finish);
    i->in.cross_entropy_finish.part = parts;
    i->out.cross_entropy_finish.lse = lse;
    i->n.cross_entropy_finish.rows = rows;
    i->n.cross_entropy_finish.parts = g;
    /* Every rank of the group knows the whole loss. */
    i->axes = axes | lower_idle_axes(e, op);
}

static void forward(struct emit *e, int op) {
    unsigned axes = lower_axes(e, op, ROLE_coupled);
    int x = lower_operand(e, op, 0), targets = lower_operand(e, op, 1);
    int lse = lower_scratch(e, rows_of(e, op));
    lower_save(e, op, lse);
    if (axes) {
        forward_split(e, op, x, targets, lse, axes);
        return;
    }
    struct instr *i = emit_instr(e, I_cross_entropy);
    i->in.cross_entropy.logits = x;
    i->in.cross_entropy.targets = targets;
    i->out.cross_entropy.lse = lse;
    i->n.cross_entropy.rows = rows_of(e, op);
    i->n.cross_entropy.n = columns_of(e, op);
    i->axes = lower_idle_axes(e, op);
}

static void backward(struct emit *e, int op, const int *dy) {
    (void)dy; /* the loss is where gradients begin */
    int x = lower_operand(e, op, 0), targets = lower_operand(e, op, 1);
    int lse = saved_get(e, op);
    if (!lower_wants_gradient(e, op, 0))
        return;
    int dlogits = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_cross_entropy_dx);
    i->in.cross_entropy_dx.logits = x;
    i->in.cross_entropy_dx.targets = targets;
    i->in.cross_entropy_dx.lse = lse;
    i->out.cross_entropy_dx.dlogits = dlogits;
    i->n.cross_entropy_dx.rows = rows_of(e, op);
    i->n.cross_entropy_dx.n = columns_of(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_cross_entropy = {forward, backward};
