/* What all lowerings use: local sizes, buffers, what an instruction is about. */
#include "program/lower/lower.h"

const struct model_op *op_of(const struct emit *e, int op) {
    return &e->m->ops[op];
}

/* ---- sizes -------------------------------------------------------------------------------- */

int64_t lower_size(const struct emit *e, int op, int k) {
    const struct op_space *s = &op_of(e, op)->space;
    return layout_size(e->mesh, op_layout(e, op), k,
                       model_dim_size(e->m, s->dim[k], e->plan->micro_batch));
}

int64_t lower_volume(const struct emit *e, int op, const struct axis_map *map) {
    return lower_shared(e, op, map, map);
}

int64_t lower_shared(const struct emit *e, int op, const struct axis_map *a,
                     const struct axis_map *b) {
    int64_t n = 1;
    for (int k = 0; k < op_of(e, op)->space.n; k++)
        if (a->axis[k] >= 0 && b->axis[k] >= 0)
            n *= lower_size(e, op, k);
    return n;
}

int64_t lower_without(const struct emit *e, int op, const struct axis_map *a,
                      const struct axis_map *b) {
    int64_t n = 1;
    for (int k = 0; k < op_of(e, op)->space.n; k++)
        if (a->axis[k] >= 0 && b->axis[k] < 0)
            n *= lower_size(e, op, k);
    return n;
}

int64_t lower_role(const struct emit *e, int op, enum role role) {
    const struct op_space *s = &op_of(e, op)->space;
    int64_t n = 1;
    for (int k = 0; k < s->n; k++)
        if (s->role[k] == role)
            n *= lower_size(e, op, k);
    return n;
}

unsigned lower_axes(const struct emit *e, int op, enum role role) {
    const struct layout *l = op_layout(e, op);
    unsigned axes = 0;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] >= 0 && e->mesh->size[a] > 1 &&
            op_of(e, op)->space.role[l->dim[a]] == role)
            axes |= 1u << a;
    return axes;
}

unsigned lower_dim_axes(const struct emit *e, int op, int k) {
    const struct layout *l = op_layout(e, op);
    unsigned axes = 0;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] == k && e->mesh->size[a] > 1)
            axes |= 1u << a;
    return axes;
}

unsigned lower_idle_axes(const struct emit *e, int op) {
    const struct layout *l = op_layout(e, op);
    unsigned axes = 0;
    for (int a = 0; a < e->mesh->n_axes; a++)
        if (l->dim[a] == PLACE_NONE)
            axes |= 1u << a;
    return axes;
}

/* ---- buffers -------------------------------------------------------------------------------- */

int lower_operand(struct emit *e, int op, int k) {
    return value_get(e, op_of(e, op)->in[k], operand_place(e, op, k));
}

/* A parameter that is added once, after a sum, takes no part in it: axes that split the
 * summed dims do not concern it. */
static struct layout param_layout(const struct emit *e, int op, int slot) {
    const struct model_op *o = op_of(e, op);
    struct layout l = *op_layout(e, op);
    for (int a = 0; a < MESH_MAX_AXES && kind_of(o->kind)->param[slot].once; a++)
        if (l.dim[a] >= 0 && o->space.role[l.dim[a]] == ROLE_contracted)
            l.dim[a] = PLACE_NONE;
    return l;
}

static struct placement param_place(const struct emit *e, int op, int slot) {
    struct layout l = param_layout(e, op, slot);
    return placement_operand(e->mesh, &l, &op_of(e, op)->param_map[slot]);
}

int lower_param(struct emit *e, int op, int slot) {
    return op_of(e, op)->param[slot] < 0 ? -1
                                         : param_get(e, op, slot, param_place(e, op, slot));
}

bool lower_trains(const struct emit *e, int op, int slot) {
    int param = op_of(e, op)->param[slot];
    return param >= 0 && !e->m->params[param].frozen;
}

int lower_grad(struct emit *e, int op, int slot) {
    const struct model_op *o = op_of(e, op);
    if (o->param[slot] < 0)
        return -1;
    struct layout l = param_layout(e, op, slot);
    return grad_get(e, o->param[slot], param_place(e, op, slot),
                    placement_result(e->mesh, &l, &o->param_map[slot]));
}

int lower_result(struct emit *e, int op, int k) {
    const struct model_op *o = op_of(e, op);
    struct placement p = result_place(e, op, k);
    int buffer = emit_value(e, o->out[k], p);
    avail_add(e, e->seg == SEG_FORWARD ? e->forward : e->backward, o->out[k], p, buffer);
    return buffer;
}

int lower_scratch(struct emit *e, int64_t elems) {
    return emit_buffer(e, elems, DTYPE_f32, MEM_temporaries);
}

int lower_values(struct emit *e, int64_t elems) {
    return emit_buffer(e, elems, e->plan->dtype, MEM_temporaries);
}

void lower_save(struct emit *e, int op, int buffer) {
    e->saved[2 * e->op_index[op] + (e->seg != SEG_FORWARD)] = buffer;
}

/* ---- gradients ------------------------------------------------------------------------------ */

/* A gradient comes out as a result does: Partial on axes that split a dim that it lacks. */
static struct placement produced_place(const struct emit *e, int op, int k) {
    return placement_result(e->mesh, op_layout(e, op), &op_of(e, op)->in_map[k]);
}

bool lower_wants_gradient(const struct emit *e, int op, int k) {
    return e->m->tensors[op_of(e, op)->in[k]].gradient;
}

int lower_gradient(struct emit *e, int op, int k) {
    int tensor = op_of(e, op)->in[k];
    struct placement p = produced_place(e, op, k);
    int buffer = emit_value(e, tensor, p);
    if (lower_wants_gradient(e, op, k))
        gradient_add(e, tensor, p, buffer);
    return buffer;
}

void lower_pass_on(struct emit *e, int op, int k, int dy) {
    if (lower_wants_gradient(e, op, k))
        gradient_add(e, op_of(e, op)->in[k], produced_place(e, op, k), dy);
}

/* ---- what an instruction is about --------------------------------------------------------- */

void lower_about_param(struct emit *e, struct instr *i, int op, int slot) {
    i->param = op_of(e, op)->param[slot];
    i->place = param_place(e, op, slot);
}

void lower_about_operand(struct emit *e, struct instr *i, int op, int k) {
    i->tensor = op_of(e, op)->in[k];
    i->place = operand_place(e, op, k);
}

void lower_about_result(struct emit *e, struct instr *i, int op, int k) {
    i->tensor = op_of(e, op)->out[k];
    i->place = result_place(e, op, k);
}
