/* Partial plans as pins: what stands there is fixed, what does not is free. They are read as
 * whole ones are, stage by stage; the keys that are there say what of it counts. */
#include "plan/pin_impl.h"
#include "plan/plan_impl.h"

/* The ops that its stages name. One stage alone without "ops" has what no other names; of several
 * only their number is fixed. */
static int assign_ops(struct plan *plan, const json_t *stages, struct err *err) {
    int rest = -1, without = 0;
    for (int i = 0; i < plan->model->n_ops; i++)
        plan->stage_of[i] = -1;
    for (int s = 0; s < plan->n_stages; s++) {
        const json_t *v = json_array_get(stages, (size_t)s);
        const json_t *ops = json_object_get(v, "ops");
        if (!ops)
            rest = without++ ? -1 : s;
        else if (plan_claim_ops(plan, s, ops, err) < 0)
            return err_at(err, "stages[%d]", s);
    }
    for (int s = 0; s < plan->n_stages && without > 1; s++) {
        const json_t *v = json_array_get(stages, (size_t)s);
        if (!json_object_get(v, "ops") && json_object_size(v))
            return err_input(err,
                             "stages[%d].ops: missing: of a stage whose ops are free only "
                             "the number can be fixed",
                             s);
    }
    for (int i = 0; i < plan->model->n_ops; i++)
        plan->stage_of[i] = plan->stage_of[i] < 0 ? rest : plan->stage_of[i];
    return 0;
}

/* Does the stage have the key, or an exception of it? */
static bool says(const json_t *v, const char *key) {
    const json_t *except = json_object_get(v, "except");
    bool said = json_object_get(v, key) != NULL;
    for (size_t e = 0; e < json_array_size(except); e++)
        said |= json_object_get(json_array_get(except, e), key) != NULL;
    return said;
}

static int64_t value_at(const struct stage *st, int i, enum pin_field field) {
    switch (field) {
    case PIN_zero: return st->zero[i];
    case PIN_recompute: return st->recompute[i];
    case PIN_offload: return st->offload[i];
    default: return st->layouts[i].ring != PLACE_NONE;
    }
}

/* What is said of ops one by one. */
static void pin_ops(struct pins *p, struct pin *pin, const struct stage *st,
                    const json_t *v) {
    static const struct {
        enum pin_field field;
        const char *key;
    } each[] = {{PIN_zero, "zero"},
                {PIN_recompute, "recompute"},
                {PIN_offload, "offload"},
                {PIN_ring, "ring"}};
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        int8_t *values = says(v, each[k].key) ? pin_each(p, pin, each[k].field) : NULL;
        for (int i = 0; i < st->n_ops && values; i++)
            values[st->ops[i]] = (int8_t)value_at(st, i, each[k].field);
    }
    for (int i = 0; i < st->n_ops; i++) {
        pin->covers[st->ops[i]] = true;
        if (pin->layouts)
            pin->layouts[st->ops[i]] = st->layouts[i];
    }
}

/* The keys that are there say what the pin is to have. */
static int pin_stage(struct pins *p, struct plan *plan, int s, const json_t *v,
                     const char *where, struct err *err) {
    const struct stage *st = &plan->stages[s];
    size_t n = (size_t)p->model->n_ops;
    struct pin *pin = pins_push(p, where, arena_array(&p->arena, n, sizeof *pin->covers));
    bool mesh = json_object_get(v, "mesh"), layout = says(v, "layout");
    if (layout && !mesh)
        return err_input(err, "mesh: missing, the layout needs it");
    pin->value[PIN_stage] = s;
    if (json_opt_int(v, "group", 0, 1 << 16, &pin->value[PIN_group], err) < 0 ||
        pin_read_bool(v, "regather", &pin->value[PIN_regather], err) < 0)
        return -1;
    if (mesh)
        pin->value[PIN_mesh] = pins_add_mesh(p, &st->mesh);
    if (layout)
        pin->layouts = arena_array(&p->arena, n, sizeof *pin->layouts);
    pin_ops(p, pin, st, v);
    return 0;
}

static int read_stages(struct pins *p, struct plan *plan, const json_t *stages,
                       const char *name, struct err *err) {
    if (assign_ops(plan, stages, err) < 0)
        return -1;
    for (int s = 0; s < plan->n_stages; s++) {
        const json_t *v = json_array_get(stages, (size_t)s);
        struct stage *st = &plan->stages[s];
        int n = 0;
        for (int i = 0; i < plan->model->n_ops; i++)
            n += plan->stage_of[i] == s;
        plan_stage_room(plan, st, n);
        for (int i = 0, k = 0; i < plan->model->n_ops; i++)
            if (plan->stage_of[i] == s)
                st->ops[k++] = i;
        const char *at = arena_printf(&p->arena, "stages[%d]", s);
        if (plan_read_stage(plan, s, v, err) < 0 ||
            (n && pin_stage(p, plan, s, v, pins_place(p, name, at), err) < 0))
            return err_at(err, "%s", at);
    }
    return 0;
}

/* Of another model its patterns may mean something else. */
static int check_model(const struct pins *p, const json_t *doc, struct err *err) {
    if (!json_object_get(doc, "model"))
        return 0;
    struct model *m = plan_read_model(doc, err);
    bool same = m && m->hash == p->model->hash;
    if (m && !same)
        err_input(err, "model: another one than the plan is to be for");
    model_destroy(m);
    return same ? 0 : -1;
}

static int read_partial(struct pins *p, const json_t *doc, const char *name,
                        struct err *err) {
    json_t *stages = json_object_get(doc, "stages");
    size_t n = json_array_size(stages);
    if (json_keys(doc, PLAN_KEYS, err) < 0 || json_format(doc, "weft-plan/1", err) < 0 ||
        check_model(p, doc, err) < 0)
        return -1;
    if (stages && (!json_is_array(stages) || n < 1 || n > 1 << 16))
        return err_input(err, "stages: expected an array of 1 to %d", 1 << 16);
    struct pin *pin = pins_push(p, name, NULL);
    if (pin_read_plan(pin, doc, err) < 0)
        return -1;
    if (!stages)
        return 0;
    pin->value[PIN_stages] = (int64_t)n;
    struct plan *plan = plan_room((struct model *)p->model, (int)n);
    int rc = read_stages(p, plan, stages, name, err);
    plan_destroy(plan);
    return rc;
}

int pins_read_partial(struct pins *p, const json_t *doc, const char *name,
                      struct err *err) {
    return read_partial(p, doc, name, err) < 0 ? err_prefix(err, "%s", name) : 0;
}
