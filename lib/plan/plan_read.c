/* Reading weft-plan(5). Defaults per stage first, then exceptions by pattern. */
#include "model/pattern.h"
#include "plan/pin.h"
#include "plan/plan_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEVICES = 1 << 20,
    MAX_STAGES = 1 << 16,
    AVERAGE_MOST_STEPS = 1 << 30,
    PLAN_MOST_PIECES = 1 << 20
};

/* A name, or the document itself. */
struct model *plan_read_model(const json_t *doc, struct err *err) {
    const char *set = NULL, *ref = NULL;
    json_t *model = json_object_get(doc, "model");
    if (json_opt_str(doc, "set", &set, err) < 0)
        return NULL;
    struct model *m = NULL;
    if (json_is_object(model))
        m = model_from_json(model, NULL, set, err);
    else if (json_str(doc, "model", &ref, err) == 0)
        m = model_load(ref, set, err);
    else
        return NULL;
    if (!m)
        err_prefix(err, "model");
    return m;
}

static int no_such_axis(const struct mesh *mesh, const char *name, struct err *err) {
    char axes[256];
    mesh_format(mesh, axes, sizeof axes);
    return err_input(err, "layout: the mesh \"%s\" has no axis \"%.64s\"", axes, name);
}

/* One axis of a layout: a dim or an ordered list of dims; the first that the op may split. */
static int choose_dim(const struct model *m, const struct op_space *space, const json_t *v,
                      int8_t *out, struct err *err) {
    *out = PLACE_NONE;
    if (json_is_null(v))
        return 0;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!name)
            return err_input(err, "expected a dim, a list of dims or null");
        int d = model_dim_named(m, name, err);
        if (d < 0)
            return -1;
        if (*out == PLACE_NONE)
            *out = (int8_t)layout_choose(space, &d, 1);
    }
    return 0;
}

/* The op's layout from "layout": on each axis the first of the listed dims that the op has. */
static int apply_layout(const struct model *m, const struct mesh *mesh,
                        const json_t *layout, const struct model_op *op, struct layout *out,
                        struct err *err) {
    if (!json_is_object(layout))
        return err_input(err, "layout: expected an object, got %s", json_type_name(layout));
    memset(out->dim, PLACE_NONE, sizeof out->dim);
    const char *axis;
    json_t *v;
    json_object_foreach((json_t *)layout, axis, v) {
        int a = mesh_axis_find(mesh, axis);
        if (a < 0)
            return no_such_axis(mesh, axis, err);
        if (choose_dim(m, &op->space, v, &out->dim[a], err) < 0)
            return err_prefix(err, "layout.%s", axis);
    }
    return 0;
}

int plan_cover(const struct model *m, const int *ops, int n, const json_t *v,
               const char *key, const char *whole, bool *covered, struct err *err) {
    bool list = json_is_array(v);
    for (size_t k = 0; k < (list ? json_array_size(v) : 1); k++) {
        const char *pattern = json_string_value(list ? json_array_get(v, k) : v);
        char at[32] = "";
        if (list)
            snprintf(at, sizeof at, "[%zu]", k);
        if (!pattern || !pattern_valid(pattern))
            return err_input(err,
                             "%s%s: expected op names or patterns such as \"layer.0-3.*\"",
                             key, at);
        struct pattern p = {.text = pattern};
        bool used = false;
        for (int i = 0; i < n; i++)
            if (pattern_covers(&p, m->ops[ops ? ops[i] : i].name))
                used = covered[i] = true;
        if (!used)
            return err_input(err, "%s%s: \"%.64s\" covers no op of %s", key, at, pattern,
                             whole);
    }
    return 0;
}

bool plan_recomputes(const struct model *m, enum recompute word, int op) {
    const struct model_op *o = &m->ops[op];
    if (op_is(o, KIND_LOSSES))
        return false;
    if (word == RECOMPUTE_selective)
        return op_is(o, KIND_BULKY);
    return word == RECOMPUTE_all && o->block >= 0 && m->blocks[o->block].end_op != op + 1;
}

/* A word, or patterns. */
static int read_recompute(const struct plan *p, struct stage *st, const json_t *v,
                          struct err *err) {
    const struct model *m = p->model;
    const char *text = v ? json_string_value(v) : "none";
    int word = text ? recompute_find(text) : -1;
    if (word < 0 && plan_cover(m, st->ops, st->n_ops, v, "recompute", "this stage",
                               st->recompute, err) < 0)
        return -1;
    for (int i = 0; i < st->n_ops; i++)
        st->recompute[i] =
            word < 0 ? st->recompute[i] && !op_is(&m->ops[st->ops[i]], KIND_LOSSES)
                     : plan_recomputes(m, (enum recompute)word, st->ops[i]);
    return 0;
}

int plan_read_offload(const json_t *v, int *out, struct err *err) {
    const json_t *list = json_object_get(v, "offload");
    if (!list)
        return 0;
    if (!json_is_array(list))
        return err_input(err, "offload: expected an array, got %s", json_type_name(list));
    *out = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        int bit = 0;
#define X(name, value) bit = word && !strcmp(word, #name) ? value : bit;
        OFFLOADS(X)
#undef X
        if (!bit)
            return err_input(
                err, "offload[%zu]: expected optimizer, parameters or activations", i);
        *out |= bit;
    }
    return 0;
}

static int8_t ring_of(const struct plan *p, int op, bool ring) {
    return (int8_t)(ring ? layout_ring(&p->model->ops[op].space) : PLACE_NONE);
}

/* What it does not say stays as it is. */
static int read_exception(const struct plan *p, struct stage *st, const json_t *v,
                          bool *covered, struct err *err) {
    const json_t *layout = json_object_get(v, "layout"),
                 *rings = json_object_get(v, "ring");
    int64_t zero = -1;
    int offload = -1;
    bool ring = false;
    if (json_keys(v, "ops layout ring zero offload", err) < 0 ||
        json_opt_bool(v, "ring", &ring, err) < 0 ||
        json_opt_int(v, "zero", ZERO_NONE, ZERO_PARAMETERS, &zero, err) < 0 ||
        plan_read_offload(v, &offload, err) < 0 ||
        plan_cover(p->model, st->ops, st->n_ops, json_object_get(v, "ops"), "ops",
                   "this stage", covered, err) < 0)
        return -1;
    if (!layout && !rings && zero < 0 && offload < 0)
        return err_input(err, "ops: expected \"layout\", \"ring\", \"zero\" or "
                              "\"offload\" beside it");
    for (int i = 0; i < st->n_ops; i++) {
        if (!covered[i])
            continue;
        if (layout && apply_layout(p->model, &st->mesh, layout, &p->model->ops[st->ops[i]],
                                   &st->layouts[i], err) < 0)
            return -1;
        if (rings)
            st->layouts[i].ring = ring_of(p, st->ops[i], ring);
        if (zero >= 0)
            st->zero[i] = (int8_t)zero;
        if (offload >= 0)
            st->offload[i] = (int8_t)offload;
    }
    return 0;
}

static int read_exceptions(const struct plan *p, struct stage *st, const json_t *list,
                           struct err *err) {
    if (list && !json_is_array(list))
        return err_input(err, "except: expected an array, got %s", json_type_name(list));
    for (size_t e = 0; e < json_array_size(list); e++) {
        bool *covered = mem_array((size_t)st->n_ops, sizeof *covered);
        int rc = read_exception(p, st, json_array_get(list, e), covered, err);
        free(covered);
        if (rc < 0)
            return err_at(err, "except[%zu]", e);
    }
    return 0;
}

/* What the stage says holds for all of its ops, then exceptions replace it for some. */
int plan_read_stage(struct plan *p, int s, const json_t *v, struct err *err) {
    struct stage *st = &p->stages[s];
    const char *mesh = "";
    int64_t zero = ZERO_NONE;
    int offload = 0;
    bool ring = false;
    if (json_keys(v, "ops group mesh layout ring except recompute regather zero offload",
                  err) < 0 ||
        plan_read_offload(v, &offload, err) < 0 ||
        json_opt_str(v, "mesh", &mesh, err) < 0 ||
        json_opt_bool(v, "ring", &ring, err) < 0 ||
        json_opt_int(v, "zero", ZERO_NONE, ZERO_PARAMETERS, &zero, err) < 0 ||
        json_opt_bool(v, "regather", &st->regather, err) < 0 ||
        mesh_parse(mesh, MAX_DEVICES, &st->mesh, err) < 0)
        return -1;
    const json_t *layout = json_object_get(v, "layout");
    for (int i = 0; i < st->n_ops; i++) {
        st->layouts[i].ring = ring_of(p, st->ops[i], ring);
        st->zero[i] = (int8_t)zero;
        st->offload[i] = (int8_t)offload;
        if (layout && apply_layout(p->model, &st->mesh, layout, &p->model->ops[st->ops[i]],
                                   &st->layouts[i], err) < 0)
            return -1;
    }
    if (read_exceptions(p, st, json_object_get(v, "except"), err) < 0)
        return -1;
    return read_recompute(p, st, json_object_get(v, "recompute"), err);
}

int plan_claim_ops(struct plan *p, int s, const json_t *ops, struct err *err) {
    const struct model *m = p->model;
    bool *covered = mem_array((size_t)m->n_ops, sizeof *covered);
    int rc = plan_cover(m, NULL, m->n_ops, ops, "ops", "the model", covered, err);
    for (int i = 0; i < m->n_ops && rc == 0; i++) {
        if (covered[i] && p->stage_of[i] >= 0)
            rc = err_input(err, "ops: %s is in stages[%d] too", m->ops[i].name,
                           p->stage_of[i]);
        else if (covered[i])
            p->stage_of[i] = s;
    }
    free(covered);
    return rc;
}

/* Which stage an op belongs to; a stage without "ops" takes what no other names. */
static int assign_ops(struct plan *p, const json_t *stages, struct err *err) {
    const struct model *m = p->model;
    int rest = -1;
    for (int i = 0; i < m->n_ops; i++)
        p->stage_of[i] = -1;
    for (int s = 0; s < p->n_stages; s++) {
        const json_t *ops = json_object_get(json_array_get(stages, (size_t)s), "ops");
        if (!ops && rest >= 0)
            return err_input(
                err, "stages[%d].ops: missing (only one stage may leave it out)", s);
        if (!ops)
            rest = s;
        else if (plan_claim_ops(p, s, ops, err) < 0)
            return err_at(err, "stages[%d]", s);
    }
    for (int i = 0; i < m->n_ops; i++) {
        if (p->stage_of[i] < 0)
            p->stage_of[i] = rest;
        if (rest < 0 && p->stage_of[i] < 0)
            return err_input(err, "stages: no stage holds the op %s", m->ops[i].name);
        p->stages[p->stage_of[i]].n_ops++;
    }
    return 0;
}

/* Room for the ops of each stage, and the ops. */
static int fill_stages(struct plan *p, struct err *err) {
    for (int s = 0; s < p->n_stages; s++) {
        struct stage *st = &p->stages[s];
        if (!st->n_ops)
            return err_input(err, "stages[%d].ops: no op of the model is covered", s);
        plan_stage_room(p, st, st->n_ops);
        st->n_ops = 0;
    }
    for (int i = 0; i < p->model->n_ops; i++) {
        struct stage *st = &p->stages[p->stage_of[i]];
        st->ops[st->n_ops++] = i;
    }
    return 0;
}

int plan_read_schedule(const json_t *doc, int64_t *out, struct err *err) {
    const char *name = NULL;
    if (json_opt_str(doc, "schedule", &name, err) < 0)
        return -1;
    int s = name ? schedule_find(name) : (int)*out;
    if (name && s < 0)
        return err_input(err, "schedule: expected one of %s, got \"%.64s\"", SCHEDULE_NAMES,
                         name);
    *out = s;
    return 0;
}

int plan_read_optimizer(const json_t *doc, int64_t *out, struct err *err) {
    const char *name = NULL;
    if (json_opt_str(doc, "optimizer", &name, err) < 0)
        return -1;
    int o = name ? optimizer_find(name) : (int)*out;
    if (name && o < 0)
        return err_input(err, "optimizer: expected " OPTIMIZER_NAMES ", got \"%.64s\"",
                         name);
    *out = o;
    return 0;
}

int plan_read_dtype(const json_t *doc, const char *key, int64_t *out, struct err *err) {
    const char *name = NULL;
    if (json_opt_str(doc, key, &name, err) < 0)
        return -1;
    int d = name ? plan_dtype_find(name) : (int)*out;
    if (name && d < 0)
        return err_input(err, "%s: expected " PLAN_DTYPES ", got \"%.64s\"", key, name);
    *out = d;
    return 0;
}

/* A rule that trusts no replica guards against one bad one, unless the plan says against how many. */
static int read_aggregate(struct plan *p, const json_t *doc, struct err *err) {
    const char *name = "mean";
    int64_t faulty = -1;
    if (json_opt_str(doc, "aggregate", &name, err) < 0 ||
        json_opt_int(doc, "faulty", 0, AGGREGATE_MOST, &faulty, err) < 0)
        return -1;
    int rule = aggregate_find(name);
    if (rule < 0)
        return err_input(err, "aggregate: expected " AGGREGATE_NAMES ", got \"%.64s\"",
                         name);
    if (rule == AGGREGATE_mean && faulty >= 0)
        return err_input(err,
                         "faulty: one bad replica spoils the mean; expected \"aggregate\": "
                         "\"median\", \"trimmed\" or \"fair\" beside it");
    p->aggregate = (enum aggregate)rule;
    p->faulty = rule == AGGREGATE_mean ? 0 : faulty < 0 ? 1 : (int)faulty;
    return 0;
}

static int read_average(struct plan *p, const json_t *doc, struct err *err) {
    const char *name = "none";
    int64_t every = 0;
    if (json_opt_str(doc, "average", &name, err) < 0 ||
        json_opt_int(doc, "average_every", 1, AVERAGE_MOST_STEPS, &every, err) < 0)
        return -1;
    int how = average_find(name);
    if (how < 0)
        return err_input(err, "average: expected " AVERAGE_NAMES ", got \"%.64s\"", name);
    if (how == AVERAGE_none && (every || json_object_get(doc, "average_axes")))
        return err_input(
            err,
            "%s: replicas that sum their gradients do not train apart; expected "
            "\"average\": \"all\" or \"pairs\" beside it",
            every ? "average_every" : "average_axes");
    p->average = (enum average)how;
    p->average_every = every ? every : 1;
    return 0;
}

/* On which axes replicas train apart; without a list, on all. */
static int read_average_axes(struct plan *p, const json_t *list, struct err *err) {
    if (!list)
        return 0;
    if (!json_is_array(list) || !json_array_size(list))
        return err_input(err, "average_axes: expected a list of mesh axes");
    for (int s = 0; s < p->n_stages; s++)
        p->stages[s].together = (1u << p->stages[s].mesh.n_axes) - 1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        bool found = false;
        for (int s = 0; s < p->n_stages && name; s++) {
            int a = mesh_axis_find(&p->stages[s].mesh, name);
            found |= a >= 0;
            p->stages[s].together &= a >= 0 ? ~(1u << a) : ~0u;
        }
        if (!name)
            return err_input(err, "average_axes[%zu]: expected the name of a mesh axis", i);
        if (!found)
            return err_input(err, "average_axes[%zu]: no mesh has an axis \"%.64s\"", i,
                             name);
    }
    return 0;
}

/* What holds for all stages. */
static int read_header(struct plan *p, const json_t *doc, struct err *err) {
    int64_t schedule = SCHEDULE_DEFAULT, optimizer = OPTIMIZER_adamw, dtype = DTYPE_f32,
            reduce = DTYPE_f32;
    if (json_int(doc, "batch", 1, (int64_t)1 << 40, &p->batch, err) < 0)
        return -1;
    p->micro_batch = p->batch;
    p->logits = 1;
    if (json_opt_int(doc, "micro_batch", 1, p->batch, &p->micro_batch, err) < 0 ||
        plan_read_schedule(doc, &schedule, err) < 0 ||
        plan_read_optimizer(doc, &optimizer, err) < 0 ||
        plan_read_dtype(doc, "dtype", &dtype, err) < 0 ||
        plan_read_dtype(doc, "reduce", &reduce, err) < 0 ||
        json_opt_bool(doc, "overlap", &p->overlap, err) < 0 ||
        json_opt_int(doc, "logits", 1, PLAN_MOST_PIECES, &p->logits, err) < 0 ||
        read_aggregate(p, doc, err) < 0 || read_average(p, doc, err) < 0)
        return -1;
    p->schedule = (enum schedule)schedule;
    p->optimizer = (enum optimizer)optimizer;
    p->dtype = (enum dtype)dtype;
    p->reduce = (enum dtype)reduce;
    json_t *provenance = json_object_get(doc, "provenance");
    if (provenance && !json_is_object(provenance))
        return err_input(err, "provenance: expected an object");
    p->provenance = json_incref(provenance);
    return 0;
}

/* Read last: it must have devices enough for the stages. */
static int read_cluster(struct plan *p, const json_t *doc, struct err *err) {
    struct cluster c;
    if (!doc)
        return 0;
    if (!json_is_object(doc) && !json_is_string(doc))
        return err_input(err, "cluster: expected an object or a string, got %s",
                         json_type_name(doc));
    if (cluster_from_json(&c, doc, err) < 0)
        return json_is_string(doc) ? -1 : err_at(err, "cluster");
    if (cluster_devices(&c) < p->devices)
        return err_input(err, "cluster: the plan needs %d devices, the cluster has %lld",
                         p->devices, (long long)cluster_devices(&c));
    struct cluster *kept = arena_alloc(&p->arena, sizeof *kept);
    *kept = c;
    p->cluster = kept;
    return 0;
}

/* Either every stage says which group of devices it is on, or each has one of its own. */
static int read_groups(struct plan *p, const json_t *stages, struct err *err) {
    size_t given = 0, n = (size_t)p->n_stages;
    for (size_t s = 0; s < n; s++)
        given += json_object_get(json_array_get(stages, s), "group") != NULL;
    p->n_groups = given ? 0 : p->n_stages;
    for (size_t s = 0; s < n; s++) {
        const json_t *v = json_array_get(stages, s);
        int64_t group = (int64_t)s;
        if (given && !json_object_get(v, "group"))
            return err_input(err,
                             "stages[%zu].group: missing (all stages have it, or none)", s);
        if (json_opt_int(v, "group", 0, p->n_stages - 1, &group, err) < 0)
            return err_at(err, "stages[%zu]", s);
        p->stages[s].group = (int)group;
        if (p->n_groups <= group)
            p->n_groups = (int)group + 1;
    }
    return 0;
}

static int read_plan(struct plan *p, const json_t *doc, const json_t *stages,
                     struct err *err) {
    if (read_header(p, doc, err) < 0 || assign_ops(p, stages, err) < 0 ||
        fill_stages(p, err) < 0 || read_groups(p, stages, err) < 0)
        return -1;
    for (int s = 0; s < p->n_stages; s++)
        if (plan_read_stage(p, s, json_array_get(stages, (size_t)s), err) < 0)
            return err_at(err, "stages[%d]", s);
    if (read_average_axes(p, json_object_get(doc, "average_axes"), err) < 0)
        return -1;
    struct pins *pins = pins_of_model(p->model, "model", err);
    p->pins = pins;
    if (!pins || pins_add(pins, doc, NULL, false, err) < 0)
        return -1;
    return plan_check(p, err) < 0 ? -1
                                  : read_cluster(p, json_object_get(doc, "cluster"), err);
}

struct plan *plan_from_json(const json_t *doc, struct err *err) {
    json_t *stages;
    if (json_keys(doc, PLAN_WHOLE_KEYS, err) < 0 ||
        json_format(doc, "weft-plan/1", err) < 0 ||
        json_array_member(doc, "stages", &stages, err) < 0)
        return NULL;
    size_t n = json_array_size(stages);
    if (n < 1 || n > MAX_STAGES) {
        err_input(err, "stages: expected 1 to %d stages, got %zu", MAX_STAGES, n);
        return NULL;
    }
    struct model *m = plan_read_model(doc, err);
    if (!m)
        return NULL;
    struct plan *p = plan_room(m, (int)n);
    p->owns_model = true;
    if (read_plan(p, doc, stages, err) < 0) {
        plan_destroy(p);
        return NULL;
    }
    return p;
}

struct plan *plan_read(const char *path, struct err *err) {
    json_t *doc = json_read(path, err);
    if (!doc)
        return NULL;
    struct plan *p = plan_from_json(doc, err);
    json_decref(doc);
    if (!p)
        err_prefix(err, "%s", strcmp(path, "-") ? path : "standard input");
    return p;
}
