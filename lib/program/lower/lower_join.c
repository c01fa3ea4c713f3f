/* Joins each head of x with the head of z that its group has in common. Where heads are
 * split finer than z has heads, z is whole and its gradient a part of a sum, like
 * attention's keys. */
#include "program/lower/lower.h"

static struct join_n shape_of(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    const struct axis_map *z = &o->in_map[1];
    const struct extents all = emit_extents(e, &e->m->tensors[o->in[1]].shape);
    const int heads = z->grouped; /* of the space */
    const int axis = z->axis[heads];
    const struct shape *x = &e->m->tensors[o->in[0]].shape;
    struct join_n n = {.heads = lower_size(e, op, heads),
                       .group = e->m->dims[o->space.dim[heads]].size / z->groups,
                       .few = placement_size(e->mesh, &all, operand_place(e, op, 1), axis),
                       .dim = e->m->dims[x->dim[x->rank - 1]].size,
                       .behind = all.size[axis + 1]};
    n.rows = lower_volume(e, op, &o->in_map[0]) / (n.heads * n.dim);
    return n;
}

static void forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), z = lower_operand(e, op, 1);
    int y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_join);
    i->in.join.x = x;
    i->in.join.z = z;
    i->out.join.y = y;
    i->n.join = shape_of(e, op);
    lower_about_operand(e, i, op, 0);
}

static void backward(struct emit *e, int op, const int *dy) {
    int dx = lower_gradient(e, op, 0), dz = lower_gradient(e, op, 1);
    struct instr *i = emit_instr(e, I_join_bwd);
    i->in.join_bwd.dy = dy[0];
    i->out.join_bwd.dx = dx;
    i->out.join_bwd.dz = dz;
    i->n.join = shape_of(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_join = {forward, backward};
