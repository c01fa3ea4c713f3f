/* Writing weft-plan(5) short enough to read: per stage one default layout that covers most ops,
 * exceptions for the rest, and op lists folded into patterns. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Calls it "layer.0-3" when ops[i..] are whole blocks; returns how many ops are covered. */
static int whole_blocks(const struct model *m, const int *ops, int n, int i, int *blocks) {
    const struct model_op *op = &m->ops[ops[i]];
    int covered = 0, b = op->block;
    *blocks = 0;
    while (i + covered < n && m->ops[ops[i + covered]].block == b) {
        int start = i + covered, id = ops[start], k = 0;
        /* The block must begin here and be here to its end. */
        if (id > 0 && m->ops[id - 1].block == b)
            break;
        while (start + k < n && ops[start + k] == id + k &&
               m->ops[ops[start + k]].block == b)
            k++;
        int next = id + k;
        if (next < m->n_ops && m->ops[next].block == b)
            break;
        covered += k;
        b++;
        ++*blocks;
        if (next >= m->n_ops || m->ops[next].block != b)
            break;
    }
    return covered;
}

/* "layer.3.qkv" without what follows the block number: "layer". */
static int block_prefix(const char *name) {
    return (int)strcspn(name, ".");
}

static json_t *fold_ops(const struct model *m, const int *ops, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n;) {
        const struct model_op *op = &m->ops[ops[i]];
        int blocks = 0, covered = op->block >= 0 ? whole_blocks(m, ops, n, i, &blocks) : 0;
        if (!covered) {
            json_array_append_new(list, json_string(op->name));
            i++;
            continue;
        }
        char range[32] = "";
        if (blocks > 1)
            snprintf(range, sizeof range, "-%d", op->block + blocks - 1);
        json_array_append_new(list, json_sprintf("%.*s.%d%s", block_prefix(op->name),
                                                 op->name, op->block, range));
        i += covered;
    }
    return list;
}

/* ---- layouts ---------------------------------------------------------------------------- */

/* The default of a stage: per axis an ordered list of dims. */
struct defaults {
    int n[MESH_MAX_AXES];
    int dim[MESH_MAX_AXES][MODEL_MAX_DIMS];
};

static int default_dim(const struct defaults *d, int axis, const struct model_op *op) {
    for (int i = 0; i < d->n[axis]; i++)
        if (op->splittable >> d->dim[axis][i] & 1)
            return d->dim[axis][i];
    return PLACE_NONE;
}

static bool follows_default(const struct defaults *d, const struct mesh *mesh,
                            const struct model_op *op, const struct layout *l) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (default_dim(d, a, op) != l->dim[a])
            return false;
    return true;
}

/* Ops of the stage that the default covers on one axis. */
static int covered_ops(const struct plan *p, const struct stage *st,
                       const struct defaults *d, int axis) {
    int n = 0;
    for (int i = 0; i < st->n_ops; i++)
        n += default_dim(d, axis, &p->model->ops[st->ops[i]]) == st->layouts[i].dim[axis];
    return n;
}

/* Greedy: insert the dim, at the place, that covers most further ops, until none helps. */
static void choose_defaults(const struct plan *p, const struct stage *st,
                            struct defaults *d) {
    *d = (struct defaults){{0}, {{0}}};
    for (int a = 0; a < st->mesh.n_axes; a++) {
        int best = covered_ops(p, st, d, a);
        for (;;) {
            struct defaults winner = *d;
            int before = best;
            for (int dim = 0; dim < p->model->n_dims; dim++) {
                for (int at = 0; at <= d->n[a]; at++) {
                    struct defaults t = *d;
                    memmove(&t.dim[a][at + 1], &t.dim[a][at],
                            sizeof(int) * (size_t)(t.n[a] - at));
                    t.dim[a][at] = dim;
                    t.n[a]++;
                    int covered = covered_ops(p, st, &t, a);
                    if (covered > best) {
                        best = covered;
                        winner = t;
                    }
                }
            }
            *d = winner;
            if (best == before || d->n[a] == MODEL_MAX_DIMS - 1)
                break;
        }
    }
}

static json_t *default_json(const struct model *m, const struct mesh *mesh,
                            const struct defaults *d) {
    json_t *obj = json_object();
    for (int a = 0; a < mesh->n_axes; a++) {
        json_t *list = json_array();
        for (int i = 0; i < d->n[a]; i++)
            json_array_append_new(list, json_string(m->dims[d->dim[a][i]].name));
        if (d->n[a] == 1) {
            json_object_set(obj, mesh->name[a], json_array_get(list, 0));
            json_decref(list);
        } else if (d->n[a]) {
            json_object_set_new(obj, mesh->name[a], list);
        } else {
            json_decref(list);
        }
    }
    return obj;
}

static json_t *layout_json(const struct model *m, const struct mesh *mesh,
                           const struct layout *l) {
    json_t *obj = json_object();
    for (int a = 0; a < mesh->n_axes; a++)
        if (l->dim[a] != PLACE_NONE)
            json_object_set_new(obj, mesh->name[a], json_string(m->dims[l->dim[a]].name));
    return obj;
}

/* Do all ops of this place in the stage have the same value at data[i * size]? */
static bool uniform_place(const struct plan *p, const struct stage *st, int i,
                          const void *data, size_t size) {
    const char *bytes = data;
    int place = p->model->ops[st->ops[i]].place;
    for (int j = 0; j < st->n_ops; j++)
        if (p->model->ops[st->ops[j]].place == place &&
            memcmp(bytes + size * (size_t)i, bytes + size * (size_t)j, size))
            return false;
    return true;
}

/* "layer.*.qkv" for a place, the name alone for an op outside blocks. */
static json_t *place_pattern(const struct model_op *op) {
    if (op->block < 0)
        return json_string(op->name);
    int prefix = block_prefix(op->name);
    const char *rest = strchr(op->name + prefix + 1, '.');
    return json_sprintf("%.*s.*%s", prefix, op->name, rest ? rest : "");
}

/* Adds the pattern to the entry of `list` that has this layout, or makes one. */
static void add_exception(json_t *list, json_t *layout, json_t *pattern) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *e = json_array_get(list, i);
        if (json_equal(json_object_get(e, "layout"), layout)) {
            json_array_append_new(json_object_get(e, "ops"), pattern);
            json_decref(layout);
            return;
        }
    }
    json_array_append_new(list,
                          json_pack("{s:[o], s:o}", "ops", pattern, "layout", layout));
}

static json_t *exceptions_json(const struct plan *p, const struct stage *st,
                               const struct defaults *d) {
    json_t *list = json_array();
    bool *seen = mem_array((size_t)p->model->n_places, sizeof *seen);
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &p->model->ops[st->ops[i]];
        if (follows_default(d, &st->mesh, op, &st->layouts[i]) || seen[op->place])
            continue;
        bool uniform = uniform_place(p, st, i, st->layouts, sizeof *st->layouts);
        seen[op->place] = uniform;
        add_exception(list, layout_json(p->model, &st->mesh, &st->layouts[i]),
                      uniform ? place_pattern(op) : json_string(op->name));
    }
    free(seen);
    return list;
}

static json_t *recompute_json(const struct plan *p, const struct stage *st) {
    json_t *list = json_array();
    bool *seen = mem_array((size_t)p->model->n_places, sizeof *seen);
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &p->model->ops[st->ops[i]];
        if (!st->recompute[i] || seen[op->place])
            continue;
        bool uniform = uniform_place(p, st, i, st->recompute, sizeof *st->recompute);
        seen[op->place] = uniform;
        json_array_append_new(list, uniform ? place_pattern(op) : json_string(op->name));
    }
    free(seen);
    return list;
}

static void set_unless_empty(json_t *obj, const char *key, json_t *v) {
    bool empty = json_is_object(v) ? !json_object_size(v) : !json_array_size(v);
    if (empty)
        json_decref(v);
    else
        json_object_set_new(obj, key, v);
}

static json_t *stage_json(const struct plan *p, const struct stage *st) {
    json_t *obj = json_object();
    char mesh[MESH_MAX_AXES * 32];
    mesh_format(&st->mesh, mesh, sizeof mesh);
    json_object_set_new(obj, "mesh", json_string(mesh));
    if (p->n_stages > 1)
        json_object_set_new(obj, "ops", fold_ops(p->model, st->ops, st->n_ops));
    struct defaults d;
    choose_defaults(p, st, &d);
    set_unless_empty(obj, "layout", default_json(p->model, &st->mesh, &d));
    set_unless_empty(obj, "except", exceptions_json(p, st, &d));
    set_unless_empty(obj, "recompute", recompute_json(p, st));
    if (st->zero)
        json_object_set_new(obj, "zero", json_integer(st->zero));
    return obj;
}

json_t *plan_to_json(const struct plan *p) {
    const struct model *m = p->model;
    json_t *doc = json_object(), *stages = json_array();
    json_object_set_new(doc, "format", json_string("weft-plan/1"));
    if (m->ref) {
        json_object_set_new(doc, "model", json_string(m->ref));
    } else {
        json_t *model = json_copy(m->doc);
        if (m->preset[0])
            json_object_set_new(model, "default", json_string(m->preset));
        json_object_set_new(doc, "model", model);
    }
    if (m->set[0])
        json_object_set_new(doc, "set", json_string(m->set));
    json_object_set_new(doc, "batch", json_integer(p->batch));
    json_object_set_new(doc, "micro_batch", json_integer(p->micro_batch));
    json_object_set_new(doc, "schedule", json_string(schedule_name(p->schedule)));
    json_object_set_new(doc, "optimizer", json_string(optimizer_name(p->optimizer)));
    for (int s = 0; s < p->n_stages; s++)
        json_array_append_new(stages, stage_json(p, &p->stages[s]));
    json_object_set_new(doc, "stages", stages);
    if (p->provenance)
        json_object_set(doc, "provenance", p->provenance);
    return doc;
}

int plan_write(const struct plan *p, const char *path, struct err *err) {
    json_t *doc = plan_to_json(p);
    int rc = json_write_file(doc, path, err);
    json_decref(doc);
    return rc;
}
