/* Reading "pin" of a model or a plan: objects by pattern, and what holds for the whole plan. */
#include "plan/pin_impl.h"
#include "plan/plan_impl.h"

#include <string.h>

/* ---- of ops --------------------------------------------------------------------------- */

/* "wte layer.0-3": patterns, separated by blanks. */
static int cover_ops(const struct model *m, const char *patterns, bool *covers,
                     struct err *err) {
    json_t *list = json_array();
    for (const char *p = patterns + strspn(patterns, " "); *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        json_array_append_new(list, json_stringn(p, n));
        p += n;
    }
    json_t *one = json_array_get(list, 0);
    int rc = plan_cover(m, NULL, m->n_ops, json_array_size(list) == 1 ? one : list, "pin",
                        "the model", covers, err);
    if (rc == 0 && !one)
        rc = err_input(err, "pin: expected patterns of ops, got \"%.64s\"", patterns);
    json_decref(list);
    return rc;
}

static bool splits(const struct model *m, const struct pin *pin, int dim) {
    for (int i = 0; i < m->n_ops; i++)
        if (pin->covers[i] && layout_choose(&m->ops[i].space, &dim, 1) != PLACE_NONE)
            return true;
    return false;
}

/* true: in more than one part; false: in one. */
static int read_parts(const struct model *m, int dim, const json_t *v, int *parts,
                      struct err *err) {
    int64_t n = json_is_integer(v) ? json_integer_value(v) : json_is_false(v);
    int64_t size = dim == m->batch ? 0 : m->dims[dim].size;
    if ((!json_is_integer(v) && !json_is_boolean(v)) || n > 1 << 20 ||
        (json_is_integer(v) && n < 1))
        return err_input(err, "%s: expected a number of parts, true or false",
                         m->dims[dim].name);
    if (n && size % n)
        return err_input(err, "%s: %lld do not divide by %lld", m->dims[dim].name,
                         (long long)size, (long long)n);
    *parts = (int)n;
    return 0;
}

/* "split": dims with the number of their parts. */
static int read_split(struct pins *p, struct pin *pin, const json_t *v, struct err *err) {
    const struct model *m = p->model;
    const char *name;
    json_t *parts;
    if (!json_is_object(v))
        return err_input(err, "split: expected an object, got %s", json_type_name(v));
    pin->splits = arena_array(&p->arena, json_object_size(v), sizeof *pin->splits);
    json_object_foreach((json_t *)v, name, parts) {
        struct pin_split *split = &pin->splits[pin->n_splits++];
        split->dim = model_dim_named(m, name, err);
        if (split->dim < 0)
            return err_prefix(err, "split");
        if (!splits(m, pin, split->dim))
            return err_input(err, "split: none of the ops can be split on %s", name);
        if (read_parts(m, split->dim, parts, &split->parts, err) < 0)
            return -1;
    }
    return 0;
}

static int read_dims(struct pins *p, struct pin_axis *axis, const json_t *v,
                     struct err *err) {
    size_t n = json_is_array(v) ? json_array_size(v) : !json_is_null(v);
    axis->dims = arena_array(&p->arena, n, sizeof *axis->dims);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!name)
            return err_input(err, "expected a dim, a list of dims or null");
        int dim = model_dim_named(p->model, name, err);
        if (dim < 0)
            return -1;
        axis->dims[axis->n++] = dim;
    }
    return 0;
}

/* "layout": mesh axes as in a stage; those that it does not name are free. */
static int read_layout(struct pins *p, struct pin *pin, const json_t *v, struct err *err) {
    const char *name;
    json_t *dims;
    if (!json_is_object(v))
        return err_input(err, "layout: expected an object, got %s", json_type_name(v));
    pin->axes = arena_array(&p->arena, json_object_size(v), sizeof *pin->axes);
    json_object_foreach((json_t *)v, name, dims) {
        struct pin_axis *axis = &pin->axes[pin->n_axes++];
        axis->axis = arena_strdup(&p->arena, name);
        if (read_dims(p, axis, dims, err) < 0)
            return err_prefix(err, "layout.%.64s", name);
    }
    return 0;
}

int8_t *pin_each(struct pins *p, struct pin *pin, enum pin_field field) {
    size_t n = (size_t)p->model->n_ops;
    return pin->each[field] = arena_array(&p->arena, n, sizeof **pin->each);
}

/* Of ops of which a dim may go round. */
static int read_ring(struct pins *p, struct pin *pin, const json_t *v, struct err *err) {
    if (!json_is_boolean(v))
        return err_input(err, "ring: expected true or false, got %s", json_type_name(v));
    int8_t *each = pin_each(p, pin, PIN_ring);
    for (int i = 0; i < p->model->n_ops; i++)
        each[i] = json_is_true(v) && layout_ring(&p->model->ops[i].space) != PLACE_NONE;
    return 0;
}

/* true, false, or a word of the plan, which says it op by op. */
static int read_recompute(struct pins *p, struct pin *pin, const json_t *v,
                          struct err *err) {
    const struct model *m = p->model;
    int word = json_is_string(v) ? recompute_find(json_string_value(v)) : -1;
    if (word < 0 && !json_is_boolean(v))
        return err_input(err,
                         "recompute: expected true, false, none, selective or all, got %s",
                         json_is_string(v) ? json_string_value(v) : json_type_name(v));
    int8_t *each = pin_each(p, pin, PIN_recompute);
    for (int i = 0; i < m->n_ops; i++)
        each[i] = word < 0 ? json_is_true(v) && !op_is(&m->ops[i], KIND_LOSSES)
                           : plan_recomputes(m, (enum recompute)word, i);
    return 0;
}

/* Its number, or what it has to do with the ops. */
static int read_stage(struct pin *pin, const json_t *v, struct err *err) {
    const char *word = json_string_value(v);
    pin->begins = word && !strcmp(word, "begins");
    pin->one = word && !strcmp(word, "one");
    int64_t n = json_is_integer(v) ? json_integer_value(v) : PIN_FREE;
    if (!pin->begins && !pin->one && (n < 0 || n >= 1 << 16))
        return err_input(err, "stage: expected its number, \"begins\" or \"one\"");
    pin->value[PIN_stage] = n;
    return 0;
}

static int read_mesh(struct pins *p, struct pin *pin, const char *text, struct err *err) {
    struct mesh mesh;
    if (mesh_parse(text, 1 << 20, &mesh, err) < 0)
        return -1;
    pin->value[PIN_mesh] = pins_add_mesh(p, &mesh);
    return 0;
}

int pin_read_bool(const json_t *v, const char *key, int64_t *out, struct err *err) {
    bool flag = *out == 1;
    if (json_opt_bool(v, key, &flag, err) < 0)
        return -1;
    if (json_object_get(v, key))
        *out = flag;
    return 0;
}

static int read_ops_pin(struct pins *p, const char *where, const char *patterns,
                        const json_t *v, struct err *err) {
    bool *covers = arena_array(&p->arena, (size_t)p->model->n_ops, sizeof *covers);
    const char *mesh = NULL;
    json_t *split = json_object_get(v, "split"), *layout = json_object_get(v, "layout");
    json_t *recompute = json_object_get(v, "recompute");
    json_t *stage = json_object_get(v, "stage"), *ring = json_object_get(v, "ring");
    int offload = PIN_FREE;
    if (cover_ops(p->model, patterns, covers, err) < 0)
        return -1;
    struct pin *pin = pins_push(p, where, covers);
    int rc =
        json_keys(v, "split layout ring mesh recompute regather stage zero offload", err);
    if (rc < 0 || (split && read_split(p, pin, split, err) < 0) ||
        (layout && read_layout(p, pin, layout, err) < 0) ||
        (ring && read_ring(p, pin, ring, err) < 0) ||
        json_opt_str(v, "mesh", &mesh, err) < 0 ||
        (mesh && read_mesh(p, pin, mesh, err) < 0) ||
        (recompute && read_recompute(p, pin, recompute, err) < 0) ||
        pin_read_bool(v, "regather", &pin->value[PIN_regather], err) < 0 ||
        (stage && read_stage(pin, stage, err) < 0) ||
        json_opt_int(v, "zero", ZERO_NONE, ZERO_PARAMETERS, &pin->value[PIN_zero], err) <
            0 ||
        plan_read_offload(v, &offload, err) < 0)
        return err_prefix(err, "pin \"%.64s\"", patterns);
    pin->value[PIN_offload] = offload;
    return 0;
}

/* ---- of the plan ---------------------------------------------------------------------- */

int pin_read_plan(struct pin *pin, const json_t *v, struct err *err) {
    int64_t *value = pin->value;
    if (json_opt_int(v, "batch", 1, (int64_t)1 << 40, &value[PIN_batch], err) < 0 ||
        json_opt_int(v, "micro_batch", 1, (int64_t)1 << 40, &value[PIN_micro_batch], err) <
            0 ||
        plan_read_schedule(v, &value[PIN_schedule], err) < 0 ||
        plan_read_optimizer(v, &value[PIN_optimizer], err) < 0 ||
        plan_read_dtype(v, "dtype", &value[PIN_dtype], err) < 0 ||
        plan_read_dtype(v, "reduce", &value[PIN_reduce], err) < 0)
        return -1;
    return pin_read_bool(v, "overlap", &value[PIN_overlap], err);
}

const char *pins_place(struct pins *p, const char *name, const char *what) {
    return arena_printf(&p->arena, "%s%s%s", name ? name : "", name ? ": " : "", what);
}

static bool is_of_plan(const char *key) {
    static const char *const keys[] = {"micro_batch", "reduce", "overlap", "schedule",
                                       "stages"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

/* One member: of the plan, which goes to `rest`, or of ops. */
static int read_member(struct pins *p, const char *key, json_t *v, const char *name,
                       json_t *rest, struct err *err) {
    if (is_of_plan(key))
        return json_object_set(rest, key, v);
    if (!json_is_object(v))
        return err_input(err, "pin \"%.64s\": expected an object, got %s", key,
                         json_type_name(v));
    const char *what = arena_printf(&p->arena, "pin \"%.64s\"", key);
    return read_ops_pin(p, pins_place(p, name, what), key, v, err);
}

static int read_members(struct pins *p, const json_t *v, const char *name,
                        struct err *err) {
    const char *key;
    json_t *member, *rest = json_object();
    int rc = 0;
    json_object_foreach((json_t *)v, key, member) {
        if (rc == 0)
            rc = read_member(p, key, member, name, rest, err);
    }
    struct pin *pin = pins_push(p, pins_place(p, name, "pin"), NULL);
    if (rc == 0 &&
        (json_opt_int(rest, "stages", 1, 1 << 16, &pin->value[PIN_stages], err) < 0 ||
         pin_read_plan(pin, rest, err) < 0))
        rc = err_prefix(err, "pin");
    json_decref(rest);
    return rc;
}

int pins_read_object(struct pins *p, const json_t *v, const char *name, struct err *err) {
    int rc = json_is_object(v)
                 ? read_members(p, v, name, err)
                 : err_input(err, "pin: expected an object, got %s", json_type_name(v));
    return rc < 0 && name ? err_prefix(err, "%s", name) : rc;
}
