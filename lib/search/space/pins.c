/* What pins leave of the space: numbers of stages, cuts, meshes, layouts. Recompute and ZeRO of
 * pinned ops are no choice at all, and are put in where the strategy graph compiles them.
 *
 * Stages are runs of ops, so what pins say of stages is where cuts must be, where none may be, and
 * from where to where the k-th one may lie. */
#include "search/space/order.h"

int64_t search_pinned(const struct search *s, enum pin_field field) {
    return s->p.pins ? pins_value(s->p.pins, field, 0) : PIN_FREE;
}

/* ---- layouts --------------------------------------------------------------------------- */

bool search_pins_allow(const struct search *s, int op, const struct mesh *pinned,
                       const struct mesh *mesh, const struct layout *l) {
    int from = s->graph.x.from[op];
    if (!s->p.pins)
        return true;
    const struct mesh *own = pins_mesh(s->p.pins, from);
    return (!own || own == pinned) && pins_allow(s->p.pins, from, mesh, l, NULL) == 0;
}

struct obey {
    const struct search *s;
    int op;
    const struct mesh *pinned, *mesh;
    int64_t micro_batch;
    int tries; /* left */
    struct layout l;
};

/* Changes so many of the axes 0 .. axis, the inner ones first. */
static bool change_axes(struct obey *o, int axis, int changes) {
    const struct model *m = o->s->graph.x.model;
    const struct op_space *space = &m->ops[o->op].space;
    if (changes > axis + 1 || o->tries <= 0)
        return false;
    if (axis < 0) {
        o->tries--;
        return search_pins_allow(o->s, o->op, o->pinned, o->mesh, &o->l) &&
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

void search_obey(const struct search *s, int op, const struct mesh *pinned,
                 const struct mesh *mesh, int64_t micro_batch, struct layout *l) {
    enum { TRIES = 20000 };
    if (search_pins_allow(s, op, pinned, mesh, l))
        return;
    int from = s->graph.x.from[op];
    const struct mesh *own = pins_mesh(s->p.pins, from);
    struct obey o = {s, op, pinned, mesh, micro_batch, TRIES, *l};
    if (pins_value(s->p.pins, PIN_ring, from) == 1)
        o.l.ring = (int8_t)layout_ring(&s->p.model->ops[from].space);
    for (int n = 0; n <= mesh->n_axes && (!own || own == pinned); n++)
        if (change_axes(&o, mesh->n_axes - 1, n)) {
            *l = o.l;
            return;
        }
}

void search_put_pins(const struct search *s, struct plan *plan) {
    plan->pins = s->p.order ? s->p.order->whole_pins : s->p.pins;
    plan->overlap = search_pinned(s, PIN_overlap) == 1;
    int64_t reduce = search_pinned(s, PIN_reduce);
    plan->reduce = reduce == PIN_FREE ? DTYPE_f32 : (enum dtype)reduce;
}

/* ---- stages ---------------------------------------------------------------------------- */

enum schedule search_first_schedule(const struct search *s) {
    int64_t pinned = search_pinned(s, PIN_schedule);
    return pinned == PIN_FREE ? search_plain_schedule(s) : (enum schedule)pinned;
}

unsigned search_schedules_of(const struct search *s, const struct candidate *c) {
    unsigned interleaved = 1u << SCHEDULE_interleaved;
    if (c->n_groups < c->n_stages)
        return s->p.schedules & interleaved;
    return c->n_stages > 1 ? s->p.schedules & ~interleaved : 1u << search_first_schedule(s);
}

static bool may_have_schedule(const struct search *s, enum schedule schedule) {
    int64_t pinned = search_pinned(s, PIN_schedule);
    return pinned == PIN_FREE || pinned == schedule;
}

bool search_may_have_stages(const struct search *s, int n_stages) {
    return s->pinned.n_stages ? n_stages == s->pinned.n_stages
                              : n_stages > s->pinned.last_stage;
}

bool search_may_be_stage(const struct search *s, int first, int end) {
    const struct pinned *p = &s->pinned;
    return !p->cut || (!p->whole[first] && !p->whole[end] && p->until[first] >= end);
}

bool search_may_cut(const struct search *s, int n_stages, int k, int before, int op) {
    const struct pinned *p = &s->pinned;
    int n_ops = s->p.model->n_ops;
    return k == n_stages ? op == n_ops
                         : !p->cut || (search_may_be_stage(s, before, op) &&
                                       op >= p->least[k] && op <= p->most[k]);
}

const struct mesh *search_pinned_mesh(const struct search *s, int first, int end) {
    int op = s->pinned.meshed ? s->pinned.meshed[first] : end;
    return op < end ? pins_mesh(s->p.pins, op) : NULL;
}

bool search_obeys(const struct search *s, const struct candidate *c) {
    if (!s->p.pins)
        return true;
    bool may = search_may_have_stages(s, c->n_stages) && may_have_schedule(s, c->schedule);
    for (int k = 0; k < c->n_stages && may; k++)
        may = search_may_be_stage(s, c->stages[k].first, c->stages[k].end) &&
              search_may_cut(s, c->n_stages, k + 1, c->stages[k].first, c->stages[k].end);
    return may;
}

int search_allowed_end(const struct search *s, int n_stages, int k, int first, int wanted) {
    if (!s->pinned.cut || k == n_stages - 1)
        return wanted;
    for (int end = wanted; end > first; end--)
        if (search_may_cut(s, n_stages, k + 1, first, end))
            return end;
    for (int end = wanted + 1; end < s->p.model->n_ops; end++)
        if (search_may_cut(s, n_stages, k + 1, first, end))
            return end;
    return wanted;
}
