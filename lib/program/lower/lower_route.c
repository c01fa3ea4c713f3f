/* Experts: tokens are routed within sample groups, moved to the slots of their experts, and back.
 * Every group is whole on a rank, so all of this is local; where experts are split over an axis
 * that also splits the batch, the conversion between dispatch's layout and that of the experts'
 * products is the all-to-all. */
#include "program/lower/lower.h"

/* The size of a dim that is not split, by its axis in a tensor of the op. */
static int64_t whole(const struct emit *e, const struct shape *s, int axis) {
    return e->m->dims[s->dim[axis]].size;
}

static const struct shape *shape_of(const struct emit *e, int tensor) {
    return &e->m->tensors[tensor].shape;
}

/* Local sample groups, the tokens of one, the choices of a token. */
struct routing {
    int64_t groups, tokens, choices;
};

/* The routing in slots[batch, .., t, k], under this map of the op. */
static struct routing routing_of(const struct emit *e, int op, int slots,
                                 const struct axis_map *map) {
    const struct shape *s = shape_of(e, slots);
    int64_t samples = (int64_t)op_of(e, op)->attr[ATTR_group];
    struct routing r = {.tokens = samples * whole(e, s, s->rank - 2),
                        .choices = whole(e, s, s->rank - 1)};
    r.groups = lower_volume(e, op, map) / (r.tokens * r.choices);
    return r;
}

/* ---- route -------------------------------------------------------------------------------- */

static struct route_n route_numbers(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    struct routing r = routing_of(e, op, o->out[1], &o->out_map[1]);
    const struct shape *logits = shape_of(e, o->in[0]);
    const int64_t parts = (int64_t)o->attr[ATTR_parts];
    return (struct route_n){.groups = r.groups,
                            .tokens = r.tokens,
                            .experts = whole(e, logits, logits->rank - 1),
                            .choices = r.choices,
                            .normalize = o->attr[ATTR_normalize] != 0,
                            .sigmoid = o->attr[ATTR_sigmoid] != 0,
                            .parts = parts > 1 ? parts : 0,
                            .kept = parts > 1 ? (int64_t)o->attr[ATTR_kept] : 0,
                            .best = parts > 1 ? (int64_t)o->attr[ATTR_best] : 0,
                            .biased = o->param[0] >= 0};
}

static void route_forward(struct emit *e, int op) {
    int logits = lower_operand(e, op, 0), bias = lower_param(e, op, 0);
    int gates = lower_result(e, op, 0), slots = lower_result(e, op, 1);
    struct instr *i = emit_instr(e, I_route);
    i->in.route.logits = logits;
    i->in.route.bias = bias;
    i->out.route.gates = gates;
    i->out.route.slots = slots;
    i->n.route = route_numbers(e, op);
}

static void route_backward(struct emit *e, int op, const int *dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    const struct model_op *o = op_of(e, op);
    int logits = lower_operand(e, op, 0);
    int slots = value_get(e, o->out[1], result_place(e, op, 1));
    int dlogits = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_route_dx);
    i->in.route_dx.logits = logits;
    i->in.route_dx.slots = slots;
    i->in.route_dx.dgates = dy[0];
    i->out.route_dx.dlogits = dlogits;
    const struct route_n n = route_numbers(e, op);
    i->n.route_dx = (struct route_dx_n){.groups = n.groups,
                                        .tokens = n.tokens,
                                        .experts = n.experts,
                                        .choices = n.choices,
                                        .normalize = n.normalize,
                                        .sigmoid = n.sigmoid};
}

const struct lowering lower_route = {route_forward, route_backward};

/* ---- dispatch and combine ----------------------------------------------------------------- */

/* The numbers of an instruction that moves tokens between x[batch, .., t, h] and the slots'
 * tensor y[e, batch, .., c, h], whichever of them is the operand. */
static struct dispatch_n moving_numbers(const struct emit *e, int op, int in_slots,
                                        const struct axis_map *slots_map, int experts,
                                        const struct axis_map *experts_map) {
    const struct model_op *o = op_of(e, op);
    struct routing r = routing_of(e, op, o->in[in_slots], slots_map);
    const struct shape *y = shape_of(e, experts);
    int64_t capacity = (int64_t)o->attr[ATTR_group] * whole(e, y, y->rank - 2);
    struct dispatch_n n = {.groups = r.groups,
                           .tokens = r.tokens,
                           .choices = r.choices,
                           .total = whole(e, y, 0),
                           .capacity = capacity};
    for (int k = 0; k < o->space.n; k++) {
        if (experts_map->axis[k] == 0)
            n.experts = lower_size(e, op, k);
        if (experts_map->axis[k] == y->rank - 1)
            n.width = lower_size(e, op, k);
    }
    return n;
}

static struct dispatch_n dispatch_numbers(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    return moving_numbers(e, op, 1, &o->in_map[1], o->out[0], &o->out_map[0]);
}

static struct dispatch_n combine_numbers(const struct emit *e, int op) {
    const struct model_op *o = op_of(e, op);
    return moving_numbers(e, op, 2, &o->in_map[2], o->in[0], &o->in_map[0]);
}

/* Counts what finds no slot. One of the ranks that know it counts, and only once: not again
 * when the op is recomputed. */
static void count_dropped(struct emit *e, int op, int slots, const struct dispatch_n *n) {
    const struct axis_map *map = &op_of(e, op)->in_map[1];
    const struct layout *l = op_layout(e, op);
    struct instr *i = emit_instr(e, I_dropped);
    i->in.dropped.slots = slots;
    i->n.dropped.elems = n->groups * n->tokens * n->choices;
    i->n.dropped.limit = n->total * n->capacity;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] == PLACE_NONE || map->axis[l->dim[a]] < 0)
            i->axes |= 1u << a;
    lower_about_operand(e, i, op, 1);
}

static void dispatch_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), slots = lower_operand(e, op, 1);
    int y = lower_result(e, op, 0);
    struct dispatch_n n = dispatch_numbers(e, op);
    if (e->seg == SEG_FORWARD)
        count_dropped(e, op, slots, &n);
    struct instr *i = emit_instr(e, I_dispatch);
    i->in.dispatch.x = x;
    i->in.dispatch.slots = slots;
    i->out.dispatch.y = y;
    i->n.dispatch = n;
    lower_about_result(e, i, op, 0);
}

static void dispatch_backward(struct emit *e, int op, const int *dy) {
    if (!lower_wants_gradient(e, op, 0))
        return;
    int slots = lower_operand(e, op, 1), dx = lower_gradient(e, op, 0);
    struct instr *i = emit_instr(e, I_dispatch_dx);
    i->in.dispatch_dx.dy = dy[0];
    i->in.dispatch_dx.slots = slots;
    i->out.dispatch_dx.dx = dx;
    i->n.dispatch = dispatch_numbers(e, op);
    lower_about_result(e, i, op, 0);
}

const struct lowering lower_dispatch = {dispatch_forward, dispatch_backward};

static void combine_forward(struct emit *e, int op) {
    int x = lower_operand(e, op, 0), gates = lower_operand(e, op, 1);
    int slots = lower_operand(e, op, 2), y = lower_result(e, op, 0);
    struct instr *i = emit_instr(e, I_combine);
    i->in.combine.x = x;
    i->in.combine.gates = gates;
    i->in.combine.slots = slots;
    i->out.combine.y = y;
    i->n.dispatch = combine_numbers(e, op);
    lower_about_operand(e, i, op, 0);
}

static void combine_backward(struct emit *e, int op, const int *dy) {
    int x = lower_operand(e, op, 0), gates = lower_operand(e, op, 1);
    int slots = lower_operand(e, op, 2);
    int dx = lower_gradient(e, op, 0), dgates = lower_gradient(e, op, 1);
    struct instr *i = emit_instr(e, I_combine_bwd);
    i->in.combine_bwd.x = x;
    i->in.combine_bwd.gates = gates;
    i->in.combine_bwd.slots = slots;
    i->in.combine_bwd.dy = dy[0];
    i->out.combine_bwd.dx = dx;
    i->out.combine_bwd.dgates = dgates;
    i->n.dispatch = combine_numbers(e, op);
    lower_about_operand(e, i, op, 0);
}

const struct lowering lower_combine = {combine_forward, combine_backward};
