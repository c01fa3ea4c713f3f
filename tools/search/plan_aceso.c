/* From Aceso: a mesh for each stage on whose axes every (tp, dp) of its ops can be said, and each op's
 * layout on it. */
#include "plan_aceso.h"

#include "plan_tool.h"

#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 1 << 12, MAX_DEVICES = 1 << 20, MAX_LAYERS = 1 << 14 };

/* The document, stage by stage: numbers of position i of the whole chain. */
struct config {
    const json_t *doc;
    struct aceso_chain *chain;
    int stages;
    int *first;   /* [stages + 1] positions */
    int *devices; /* [stages] */
    int *tp, *dp, *algorithm;
    bool *marks; /* recomputation */
};

/* ---- reading ------------------------------------------------------------------------------ */

/* Sizes of the document as --set takes them: those that the preset has otherwise. */
static int read_sizes(const json_t *doc, const struct model *preset, char *set, size_t n,
                      struct err *err) {
    static const struct {
        const char *key, *size;
        int64_t most;
    } sizes[] = {{"num_layers", "layers", MAX_LAYERS},
                 {"hidden_size", "hidden", 1 << 24},
                 {"num_attention_heads", "heads", 1 << 24},
                 {"seq_length", "seq", 1 << 24}};
    set[0] = '\0';
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t value = 0;
        int dim = model_dim_find(preset, sizes[k].size);
        if (json_int(doc, sizes[k].key, 1, sizes[k].most, &value, err) < 0)
            return -1;
        size_t used = strlen(set);
        if (value != (dim < 0 ? preset->n_blocks : preset->dims[dim].size))
            snprintf(set + used, n - used, "%s%s=%lld", used ? "," : "", sizes[k].size,
                     (long long)value);
    }
    return 0;
}

/* The preset that the document names, or the usual one, with its sizes. */
static struct model *read_model(const json_t *doc, struct err *err) {
    const char *name = "", *size = "";
    char ref[64], set[128];
    if (json_str(doc, "model_name", &name, err) < 0 ||
        json_str(doc, "model_size", &size, err) < 0)
        return NULL;
    if (strcmp(name, "gpt") != 0) {
        err_input(err, "model_name: Aceso's form is known for gpt, got \"%.32s\"", name);
        return NULL;
    }
    bool named = size[0] && strspn(size, "0123456789_BM") == strlen(size);
    snprintf(ref, sizeof ref, "gpt:%.32s", named ? size : "1_3B");
    for (char *c = ref; (c = strchr(c, '_'));)
        *c = '.';
    struct model *preset = model_load(ref, NULL, NULL), *m = NULL;
    if (!preset) {
        snprintf(ref, sizeof ref, "gpt:1.3B");
        preset = model_load(ref, NULL, err);
    }
    if (preset && read_sizes(doc, preset, set, sizeof set, err) == 0)
        m = model_load(ref, set, err);
    model_destroy(preset);
    return m;
}

/* A list with a whole number from lo to hi for each of n. */
static int read_list(const json_t *doc, const char *key, int n, int lo, int hi, int *out,
                     struct err *err) {
    json_t *list;
    if (json_array_member(doc, key, &list, err) < 0)
        return -1;
    if (json_array_size(list) != (size_t)n)
        return err_input(err, "%s: expected %d numbers, got %zu", key, n,
                         json_array_size(list));
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
            return err_input(err, "%s[%d]: expected a whole number from %d to %d", key, i,
                             lo, hi);
        out[i] = (int)json_integer_value(v);
    }
    return 0;
}

/* The same for every position: a list in a list for each stage. */
static int read_lists(const struct config *c, const char *key, int lo, int hi, int *out,
                      struct err *err) {
    json_t *lists;
    if (json_array_member(c->doc, key, &lists, err) < 0)
        return -1;
    if (json_array_size(lists) != (size_t)c->stages)
        return err_input(err, "%s: expected %d lists, got %zu", key, c->stages,
                         json_array_size(lists));
    for (int s = 0; s < c->stages; s++) {
        char at[64];
        snprintf(at, sizeof at, "%s[%d]", key, s);
        json_t *one = json_object();
        json_object_set(one, at, json_array_get(lists, (size_t)s));
        int rc = read_list(one, at, c->first[s + 1] - c->first[s], lo, hi,
                           out + c->first[s], err);
        json_decref(one);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int read_stages(struct config *c, struct err *err) {
    int64_t stages;
    if (json_int(c->doc, "num_stages", 1, MAX_STAGES, &stages, err) < 0)
        return -1;
    c->stages = (int)stages;
    c->first = mem_array((size_t)stages + 1, sizeof *c->first);
    c->devices = mem_array((size_t)stages, sizeof *c->devices);
    if (read_list(c->doc, "num_gpus", c->stages, 1, MAX_DEVICES, c->devices, err) < 0 ||
        read_list(c->doc, "num_ops_in_each_stage", c->stages, 1, c->chain->n, c->first + 1,
                  err) < 0)
        return -1;
    for (int s = 0; s < c->stages; s++)
        c->first[s + 1] += c->first[s];
    if (c->first[c->stages] != c->chain->n)
        return err_input(err, "num_ops_in_each_stage: %d ops in all, the model has %d",
                         c->first[c->stages], c->chain->n);
    return 0;
}

static int read_ops(struct config *c, struct err *err) {
    size_t n = (size_t)c->chain->n;
    int *marks = mem_array(n, sizeof *marks);
    c->tp = mem_array(n, sizeof *c->tp);
    c->dp = mem_array(n, sizeof *c->dp);
    c->algorithm = mem_array(n, sizeof *c->algorithm);
    c->marks = mem_array(n, sizeof *c->marks);
    int rc = 0;
    if (read_lists(c, "model_parallel_size_of_each_op", 1, MAX_DEVICES, c->tp, err) < 0 ||
        read_lists(c, "data_parallel_size_of_each_op", 1, MAX_DEVICES, c->dp, err) < 0 ||
        read_lists(c, "recompute_ops", 0, 1, marks, err) < 0 ||
        read_lists(c, "algo_of_each_op", 0, 1, c->algorithm, err) < 0)
        rc = -1;
    for (size_t i = 0; i < n; i++)
        c->marks[i] = marks[i];
    free(marks);
    for (int s = 0; s < c->stages && rc == 0; s++)
        for (int i = c->first[s]; i < c->first[s + 1] && rc == 0; i++)
            if ((int64_t)c->tp[i] * c->dp[i] != c->devices[s])
                rc = err_input(err, "stage %d: %s: %d x %d devices, the stage has %d", s,
                               c->chain->ops[i]->name, c->tp[i], c->dp[i], c->devices[s]);
    return rc;
}

static void release(struct config *c) {
    aceso_chain_destroy(c->chain);
    free(c->first);
    free(c->devices);
    free(c->tp);
    free(c->dp);
    free(c->algorithm);
    free(c->marks);
}

/* ---- meshes -------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* The innermost axis is the least tp, each further one what leads to the next larger, and the
 * outermost the rest of the devices: an op with tp is split over the inner axes up to it. */
static int make_mesh(const struct config *c, int s, struct mesh *mesh, struct err *err) {
    int n = c->first[s + 1] - c->first[s], sizes[MESH_MAX_AXES], axes = 0, before = 1;
    int *tp = mem_array((size_t)n + 1, sizeof *tp), rc = 0;
    memcpy(tp, c->tp + c->first[s], (size_t)n * sizeof *tp);
    tp[n] = c->devices[s];
    qsort(tp, (size_t)n + 1, sizeof *tp, by_size);
    for (int i = 0; i <= n && rc == 0; i++) {
        if (tp[i] == before)
            continue;
        if (tp[i] % before || axes == MESH_MAX_AXES)
            rc = err_input(err,
                           "stage %d: model_parallel_size_of_each_op: %d and %d do not "
                           "divide each other",
                           s, before, tp[i]);
        else
            sizes[axes++] = tp[i] / before;
        before = tp[i];
    }
    free(tp);
    *mesh = (struct mesh){.n_axes = rc == 0 ? axes : 0};
    for (int a = 0; a < mesh->n_axes; a++) {
        int from_inside = axes - 1 - a;
        mesh->size[a] = sizes[from_inside];
        snprintf(mesh->name[a], sizeof mesh->name[a], "x%d", from_inside);
    }
    return rc;
}

/* The outermost axis is called dp where no op is split over it by tp, the innermost tp where every
 * op is. */
static void name_axes(const struct config *c, int s, struct mesh *mesh) {
    int least = c->devices[s], most = 1;
    for (int i = c->first[s]; i < c->first[s + 1]; i++) {
        least = c->tp[i] < least ? c->tp[i] : least;
        most = c->tp[i] > most ? c->tp[i] : most;
    }
    if (mesh->n_axes && most < c->devices[s])
        snprintf(mesh->name[0], sizeof mesh->name[0], "dp");
    if (mesh->n_axes && least > 1)
        snprintf(mesh->name[mesh->n_axes - 1], sizeof *mesh->name, "tp");
}

static struct layout make_layout(const struct config *c, const struct model *m,
                                 const struct mesh *mesh, int op) {
    struct layout l;
    memset(&l, PLACE_NONE, sizeof l);
    int i = c->chain->at[op], inside = 1;
    const struct op_space *space = &m->ops[op].space;
    const char *split = c->chain->ops[i]->split[c->algorithm[i]];
    int dim = split ? model_dim_find(m, split) : -1;
    int k = dim < 0 ? -1 : op_space_find(space, dim);
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        bool tensor = inside < c->tp[i];
        inside *= mesh->size[a];
        if (!tensor)
            l.dim[a] = (int8_t)op_space_find(space, m->batch);
        else if (k >= 0 && space->role[k] != ROLE_whole)
            l.dim[a] = (int8_t)k;
    }
    return l;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Where a stage begins inside of what is one op here, it begins behind it. */
static int cut(const struct config *c, int *bounds, struct err *err) {
    bounds[0] = 0;
    for (int s = 1; s <= c->stages; s++) {
        int i = c->first[s];
        bounds[s] = c->chain->of[i];
        if (i < c->chain->n && !c->chain->ops[i]->ops[0])
            note(
                "weft-plan: stage %d begins at %s, a part of one op here: it begins behind it",
                s, c->chain->ops[i]->name);
        if (bounds[s] == bounds[s - 1])
            return err_input(err,
                             "num_ops_in_each_stage[%d]: only a part of %s, which is "
                             "one op here",
                             s - 1, c->chain->ops[i ? i - 1 : 0]->name);
    }
    return 0;
}

static int fill_stage(const struct config *c, struct plan *p, int s, struct err *err) {
    struct stage *st = &p->stages[s];
    if (make_mesh(c, s, &st->mesh, err) < 0)
        return -1;
    name_axes(c, s, &st->mesh);
    for (int i = 0; i < st->n_ops; i++) {
        int at = c->chain->at[st->ops[i]];
        st->layouts[i] = make_layout(c, p->model, &st->mesh, st->ops[i]);
        st->recompute[i] = aceso_drops(c->chain, c->marks, aceso_chain_end(c->chain, at),
                                       c->first[s + 1]) &&
                           !op_is(&p->model->ops[st->ops[i]], KIND_LOSS);
    }
    return 0;
}

static json_t *convert(const struct config *c, struct model *m, struct err *err) {
    int *bounds = mem_array((size_t)c->stages + 1, sizeof *bounds);
    struct plan *p = cut(c, bounds, err) < 0 ? NULL : plan_create(m, c->stages, bounds);
    free(bounds);
    if (!p)
        return NULL;
    int rc = 0;
    p->schedule = SCHEDULE_DEFAULT;
    if (json_int(c->doc, "global_batch_size", 1, (int64_t)1 << 40, &p->batch, err) < 0 ||
        json_int(c->doc, "micro_batch_size", 1, p->batch, &p->micro_batch, err) < 0)
        rc = -1;
    for (int s = 0; s < c->stages && rc == 0; s++)
        rc = fill_stage(c, p, s, err);
    if (rc == 0)
        rc = plan_check(p, err);
    json_t *doc = rc == 0 ? plan_to_json(p) : NULL;
    plan_destroy(p);
    return doc;
}

json_t *plan_from_aceso(const json_t *doc, struct err *err) {
    struct model *m = read_model(doc, err);
    struct config c = {.doc = doc};
    c.chain = m ? aceso_chain_create(m, err) : NULL;
    json_t *plan = NULL;
    if (c.chain && read_stages(&c, err) == 0 && read_ops(&c, err) == 0)
        plan = convert(&c, m, err);
    release(&c);
    model_destroy(m);
    return plan;
}
