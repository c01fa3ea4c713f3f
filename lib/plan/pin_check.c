/* Do pins contradict each other, and does a plan obey them? */
#include "plan/pin_impl.h"

#include <string.h>

/* ---- contradictions ------------------------------------------------------------------- */

static const char *field_name(enum pin_field field) {
    static const char *const names[] = {
#define X(id) #id,
        PIN_FIELDS(X)
#undef X
    };
    return names[field];
}

/* "[optimizer parameters]" */
static const char *offload_text(int64_t set, char *buf, size_t n) {
    static const char *const names[] = {
#define X(name, bit) [bit] = #name,
        OFFLOADS(X)
#undef X
    };
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int64_t bit = 1; bit < OFFLOAD_SETS; bit *= 2)
        if (set & bit)
            used += (size_t)snprintf(buf + used, n - used, "%s%s", used > 1 ? " " : "",
                                     names[bit]);
    snprintf(buf + used, n - used, "]");
    return buf;
}

static const char *value_text(const struct pins *p, enum pin_field field, int64_t value,
                              char *buf, size_t n) {
    bool word = field == PIN_overlap || field == PIN_recompute || field == PIN_regather ||
                field == PIN_ring;
    if (field == PIN_schedule)
        return schedule_name((enum schedule)value);
    if (field == PIN_optimizer)
        return optimizer_name((enum optimizer)value);
    if (field == PIN_dtype || field == PIN_reduce)
        return plan_dtype_name((enum dtype)value);
    if (word)
        return value ? "true" : "false";
    if (field == PIN_offload)
        return offload_text(value, buf, n);
    if (field == PIN_mesh && value >= 0)
        mesh_format(&p->meshes.p[value], buf, n);
    else
        snprintf(buf, n, "%lld", (long long)value);
    return buf;
}

enum { TEXT = MESH_MAX_AXES * 32 };

static int contradict(const struct pins *p, enum pin_field field, int op,
                      const struct pin *a, const struct pin *b, struct err *err) {
    char x[TEXT], y[TEXT];
    err_input(err, "%s: %s, but %s says %s%s%s", field_name(field),
              value_text(p, field, pin_value(b, field, op), x, sizeof x), a->where,
              value_text(p, field, pin_value(a, field, op), y, sizeof y),
              b->covers ? " of " : "", b->covers ? p->model->ops[op].name : "");
    return err_prefix(err, "%s", b->where);
}

/* Pins of one op that fix a field must fix it alike. */
static int check_field(const struct pins *p, enum pin_field field, int op,
                       struct err *err) {
    const struct pin *first = NULL;
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct pin *pin = &p->list.p[i];
        int64_t value = pin_value(pin, field, op);
        if (value == PIN_FREE)
            continue;
        if (first && value != pin_value(first, field, op))
            return contradict(p, field, op, first, pin, err);
        first = first ? first : pin;
    }
    return 0;
}

/* As many parts, or both more than one. */
static bool agree(int a, int b) {
    return a == b || (!a && b > 1) || (!b && a > 1);
}

static int check_parts(const struct pins *p, int op, const struct pin *a,
                       const struct pin *b, struct err *err) {
    for (int i = 0; i < a->n_splits; i++)
        for (int k = 0; k < b->n_splits; k++) {
            const struct pin_split *x = &a->splits[i], *y = &b->splits[k];
            if (x->dim != y->dim || agree(x->parts, y->parts) ||
                layout_choose(&p->model->ops[op].space, &x->dim, 1) == PLACE_NONE)
                continue;
            err_input(err, "%s: other parts than %s says of %s",
                      p->model->dims[x->dim].name, a->where, p->model->ops[op].name);
            return err_prefix(err, "%s", b->where);
        }
    return 0;
}

static int check_layouts(const struct pins *p, int op, struct err *err) {
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct pin *a = &p->list.p[i];
        if (!a->covers || !a->covers[op])
            continue;
        if (a->layouts &&
            pins_allow(p, op, &p->meshes.p[a->value[PIN_mesh]], &a->layouts[op], err) < 0)
            return -1;
        for (int64_t k = i + 1; k < p->list.n && a->n_splits; k++) {
            const struct pin *b = &p->list.p[k];
            if (b->covers && b->covers[op] && check_parts(p, op, a, b, err) < 0)
                return -1;
        }
    }
    return 0;
}

int pins_agree(const struct pins *p, struct err *err) {
    for (enum pin_field f = 0; f < PIN_FIELD_COUNT; f++)
        for (int op = 0; op < (f < PIN_stage ? 1 : p->model->n_ops); op++)
            if (check_field(p, f, op, err) < 0)
                return -1;
    for (int op = 0; op < p->model->n_ops; op++)
        if (check_layouts(p, op, err) < 0)
            return -1;
    return 0;
}

/* ---- plans ---------------------------------------------------------------------------- */

static int parts_of(const struct mesh *mesh, const struct layout *l, int k) {
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        n *= l->dim[a] == k ? mesh->size[a] : 1;
    return n;
}

static int check_split(const struct pins *p, int op, const struct pin_split *split,
                       const struct mesh *mesh, const struct layout *l, struct err *err) {
    const struct model *m = p->model;
    int k = layout_choose(&m->ops[op].space, &split->dim, 1);
    int parts = k == PLACE_NONE ? 1 : parts_of(mesh, l, k);
    if (k == PLACE_NONE || agree(parts, split->parts))
        return 0;
    if (!split->parts)
        return err_input(err, "%s: %s is not split on it", m->dims[split->dim].name,
                         m->ops[op].name);
    return err_input(err, "%s: %s has %d part%s instead of %d", m->dims[split->dim].name,
                     m->ops[op].name, parts, parts == 1 ? "" : "s", split->parts);
}

static const char *dim_name(const struct model *m, int op, int k) {
    return k == PLACE_NONE ? "nothing" : m->dims[m->ops[op].space.dim[k]].name;
}

static int check_axis(const struct pins *p, int op, const char *axis, int want,
                      const struct mesh *mesh, const struct layout *l, struct err *err) {
    int a = mesh_axis_find(mesh, axis);
    if (a < 0)
        return err_input(err, "layout: the mesh of %s has no axis \"%.64s\"",
                         p->model->ops[op].name, axis);
    if (l->dim[a] != want)
        return err_input(err, "layout.%s: %s is split on %s instead of %s", axis,
                         p->model->ops[op].name, dim_name(p->model, op, l->dim[a]),
                         dim_name(p->model, op, want));
    return 0;
}

int pins_allow(const struct pins *p, int op, const struct mesh *mesh,
               const struct layout *l, struct err *err) {
    const struct op_space *space = &p->model->ops[op].space;
    bool ring = l->ring != PLACE_NONE;
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct pin *pin = &p->list.p[i];
        if (!pin->covers || !pin->covers[op])
            continue;
        int64_t goes_round = pin_value(pin, PIN_ring, op);
        if (goes_round != PIN_FREE && goes_round != ring) {
            err_input(err, "ring: %s has %s instead of %s", p->model->ops[op].name,
                      ring ? "true" : "false", ring ? "false" : "true");
            return err_prefix(err, "%s", pin->where);
        }
        for (int k = 0; k < pin->n_splits; k++)
            if (check_split(p, op, &pin->splits[k], mesh, l, err) < 0)
                return err_prefix(err, "%s", pin->where);
        for (int k = 0; k < pin->n_axes; k++)
            if (check_axis(p, op, pin->axes[k].axis,
                           layout_choose(space, pin->axes[k].dims, pin->axes[k].n), mesh, l,
                           err) < 0)
                return err_prefix(err, "%s", pin->where);
        const struct mesh *own = pin->layouts ? &p->meshes.p[pin->value[PIN_mesh]] : NULL;
        for (int a = 0; own && a < own->n_axes; a++)
            if (check_axis(p, op, own->name[a], pin->layouts[op].dim[a], mesh, l, err) < 0)
                return err_prefix(err, "%s", pin->where);
    }
    return 0;
}

/* An op and its place in the stage. */
struct place {
    const struct stage *stage;
    int at;
};

static int64_t plan_value(const struct pins *p, const struct plan *plan, struct place at,
                          enum pin_field field) {
    switch (field) {
    case PIN_batch: return plan->batch;
    case PIN_micro_batch: return plan->micro_batch;
    case PIN_schedule: return plan->schedule;
    case PIN_optimizer: return plan->optimizer;
    case PIN_dtype: return plan->dtype;
    case PIN_reduce: return plan->reduce;
    case PIN_overlap: return plan->overlap;
    case PIN_stages: return plan->n_stages;
    case PIN_stage: return at.stage - plan->stages;
    case PIN_group: return at.stage->group;
    case PIN_zero: return at.stage->zero[at.at];
    case PIN_recompute: return at.stage->recompute[at.at];
    case PIN_regather: return at.stage->regather;
    case PIN_offload: return at.stage->offload[at.at];
    case PIN_ring: return at.stage->layouts[at.at].ring != PLACE_NONE;
    case PIN_mesh:
    case PIN_FIELD_COUNT: break;
    }
    for (int64_t i = 0; i < p->meshes.n; i++)
        if (!memcmp(&p->meshes.p[i], &at.stage->mesh, sizeof at.stage->mesh))
            return i;
    return p->meshes.n; /* another one */
}

static int check_value(const struct pins *p, const struct plan *plan, struct place at,
                       enum pin_field field, struct err *err) {
    int op = at.stage->ops[at.at];
    int64_t has = plan_value(p, plan, at, field);
    for (int64_t i = 0; i < p->list.n; i++) {
        const struct pin *pin = &p->list.p[i];
        int64_t want = pin_value(pin, field, op);
        char x[TEXT], y[TEXT];
        if (want == PIN_FREE || want == has)
            continue;
        if (field == PIN_mesh)
            mesh_format(&at.stage->mesh, x, sizeof x);
        err_input(err, "%s: %s%s%s instead of %s", field_name(field),
                  pin->covers ? p->model->ops[op].name : "", pin->covers ? " has " : "",
                  field == PIN_mesh ? x : value_text(p, field, has, x, sizeof x),
                  value_text(p, field, want, y, sizeof y));
        return err_prefix(err, "%s", pin->where);
    }
    return 0;
}

static int check_stage(const struct pins *p, const struct plan *plan,
                       const struct stage *st, struct err *err) {
    for (int i = 0; i < st->n_ops; i++) {
        for (enum pin_field f = PIN_stage; f < PIN_FIELD_COUNT; f++)
            if (check_value(p, plan, (struct place){st, i}, f, err) < 0)
                return -1;
        if (pins_allow(p, st->ops[i], &st->mesh, &st->layouts[i], err) < 0)
            return -1;
    }
    return 0;
}

static int check_cuts(const struct pins *p, const struct plan *plan, const struct pin *pin,
                      struct err *err) {
    int first = 0;
    while (!pin->covers[first])
        first++;
    const struct model_op *ops = p->model->ops;
    int s = plan->stage_of[first];
    if (pin->begins && plan->stages[s].ops[0] != first)
        return err_input(err, "stage: none begins with %s", ops[first].name);
    for (int i = first; pin->one && i < p->model->n_ops; i++)
        if (pin->covers[i] && plan->stage_of[i] != s)
            return err_input(err, "stage: %s is in stage %d, %s in stage %d",
                             ops[first].name, s, ops[i].name, plan->stage_of[i]);
    return 0;
}

int pins_check(const struct pins *p, const struct plan *plan, struct err *err) {
    for (enum pin_field f = 0; f < PIN_stage; f++)
        if (check_value(p, plan, (struct place){plan->stages, 0}, f, err) < 0)
            return -1;
    for (int s = 0; s < plan->n_stages && p->list.n; s++)
        if (check_stage(p, plan, &plan->stages[s], err) < 0)
            return -1;
    for (int64_t i = 0; i < p->list.n; i++)
        if (p->list.p[i].covers && check_cuts(p, plan, &p->list.p[i], err) < 0)
            return err_prefix(err, "%s", p->list.p[i].where);
    return 0;
}
