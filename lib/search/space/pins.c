/* What pins leave of the space: numbers of stages, cuts, meshes, layouts. Recompute
 * and ZeRO of pinned ops are no choice at all; they are inserted when the strategy
 * graph compiles the ops.
 *
 * Stages are ranges of ops, so what pins say about stages is where cuts must be, where
 * none may be, and between which ops the k-th cut may be. */
#include "search/space/order.h"
#include "search/space/space.h"

int64_t space_pinned(const struct space *sp, enum pin_field field) {
    return sp->p.pins ? pins_value(sp->p.pins, field, 0) : PIN_FREE;
}

/* ---- layouts --------------------------------------------------------------------------- */

bool space_pins_allow(const struct space *sp, int op, const struct mesh *pinned,
                      const struct mesh *mesh, const struct layout *l) {
    int from = sp->blocks.x.from[op];
    if (!sp->p.pins)
        return true;
    const struct mesh *own = pins_mesh(sp->p.pins, from);
    return (!own || own == pinned) && pins_allow(sp->p.pins, from, mesh, l, NULL) == 0;
}

struct obey {
    const struct space *sp;
    int op;
    const struct mesh *pinned, *mesh;
    int64_t micro_batch;
    int tries; /* attempts that are left */
    struct layout l;
};

/* Changes this many of the axes 0 .. axis, the inner ones first. */
static bool change_axes(struct obey *o, int axis, int changes) {
    const struct model *m = o->sp->blocks.x.model;
    const struct op_space *space = &m->ops[o->op].space;
    if (changes > axis + 1 || o->tries <= 0)
        return false;
    if (axis < 0) {
        o->tries--;
        return space_pins_allow(o->sp, o->op, o->pinned, o->mesh, &o->l) &&
               layout_check(m, &m->ops[o->op], o->mesh, &o->l, o->micro_batch, NULL) == 0;
    }
    int8_t *dim = &o->l.dim[axis], was = *dim;
    for (int d = 0; d <= space->n && changes > 0; d++) {
        *dim = (int8_t)(d < space->n ? d : PLACE_NONE);
        if (*dim != was && (*dim == PLACE_NONE || role_splits(space->role[d])) &&
            change_axes(o, axis - 1, changes - 1))
            return true;
    }
    *dim = was;
    return change_axes(o, axis - 1, changes);
}

/* Changes no axis, then one, two, ... until the layout is legal and obeys. After TRIES
 * attempts, some milliseconds, the layout stays as it is and the candidate is illegal. */
void space_obey(const struct space *sp, int op, const struct mesh *pinned,
                const struct mesh *mesh, int64_t micro_batch, struct layout *l) {
    enum { TRIES = 20000 };
    if (space_pins_allow(sp, op, pinned, mesh, l))
        return;
    int from = sp->blocks.x.from[op];
    const struct mesh *own = pins_mesh(sp->p.pins, from);
    struct obey o = {sp, op, pinned, mesh, micro_batch, TRIES, *l};
    if (pins_value(sp->p.pins, PIN_ring, from) == 1)
        o.l.ring = (int8_t)layout_ring(&sp->p.model->ops[from].space);
    for (int n = 0; n <= mesh->n_axes && (!own || own == pinned); n++)
        if (change_axes(&o, mesh->n_axes - 1, n)) {
            *l = o.l;
            return;
        }
}

void space_put_pins(const struct space *sp, struct plan *plan) {
    plan->pins = sp->p.order ? sp->p.order->whole_pins : sp->p.pins;
    plan->overlap = space_pinned(sp, PIN_overlap) == 1;
    int64_t reduce = space_pinned(sp, PIN_reduce);
    plan->reduce = reduce == PIN_FREE ? DTYPE_f32 : (enum dtype)reduce;
}

/* ---- stages ---------------------------------------------------------------------------- */

static bool may_have_schedule(const struct space *sp, enum schedule schedule) {
    int64_t pinned = space_pinned(sp, PIN_schedule);
    return pinned == PIN_FREE || pinned == schedule;
}

bool space_may_have_stages(const struct space *sp, int n_stages) {
    return sp->pinned.n_stages ? n_stages == sp->pinned.n_stages
                               : n_stages > sp->pinned.last_stage;
}

bool space_may_be_stage(const struct space *sp, int first, int end) {
    const struct pinned *p = &sp->pinned;
    return !p->cut || (!p->whole[first] && !p->whole[end] && p->until[first] >= end);
}

bool space_may_cut(const struct space *sp, int n_stages, int k, int before, int op) {
    const struct pinned *p = &sp->pinned;
    int n_ops = sp->p.model->n_ops;
    return k == n_stages ? op == n_ops
                         : !p->cut || (space_may_be_stage(sp, before, op) &&
                                       op >= p->least[k] && op <= p->most[k]);
}

const struct mesh *space_pinned_mesh(const struct space *sp, int first, int end) {
    int op = sp->pinned.meshed ? sp->pinned.meshed[first] : end;
    return op < end ? pins_mesh(sp->p.pins, op) : NULL;
}

bool space_obeys(const struct space *sp, const struct candidate *c) {
    if (!sp->p.pins)
        return true;
    bool may = space_may_have_stages(sp, c->n_stages) && may_have_schedule(sp, c->schedule);
    for (int k = 0; k < c->n_stages && may; k++)
        may = space_may_be_stage(sp, c->stages[k].first, c->stages[k].end) &&
              space_may_cut(sp, c->n_stages, k + 1, c->stages[k].first, c->stages[k].end);
    return may;
}

int space_allowed_end(const struct space *sp, int n_stages, int k, int first, int wanted) {
    if (!sp->pinned.cut || k == n_stages - 1)
        return wanted;
    for (int end = wanted; end > first; end--)
        if (space_may_cut(sp, n_stages, k + 1, first, end))
            return end;
    for (int end = wanted + 1; end < sp->p.model->n_ops; end++)
        if (space_may_cut(sp, n_stages, k + 1, first, end))
            return end;
    return wanted;
}
