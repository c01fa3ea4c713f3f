/* A plan from the words of Megatron-LM or the rules of Mesh-TensorFlow: all stages are alike, with as
 * many blocks. The document is checked as one that a person wrote. */
#include "plan_tool.h"

#include "common/opt.h"
#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

/* ---- meshes and layouts ---------------------------------------------------------------- */

enum { SPLIT_DIMS = 64 /* of a model, inside its blocks */ };

/* The same for every stage. */
struct split {
    json_t *layout;  /* axis -> dims */
    char mesh[256];  /* "dp:4 tp:8" */
    int64_t samples; /* that go through at once, one for each replica */
};

static void add_axis(struct split *s, const char *name, int64_t size) {
    size_t n = strlen(s->mesh);
    snprintf(s->mesh + n, sizeof s->mesh - n, "%s%s:%lld", n ? " " : "", name,
             (long long)size);
}

static void add_dims(struct split *s, const struct model *m, const char *axis,
                     const int *dims, int n) {
    json_t *list = json_object_get(s->layout, axis);
    if (!list)
        json_object_set_new(s->layout, axis, list = json_array());
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(m->dims[dims[i]].name));
}

/* An axis for a word of more than one device, for the dims that it means. */
static int add_word(struct split *s, const struct model *m, const char *word, int64_t size,
                    const int *dims, int n, const char *what, struct err *err) {
    if (size <= 1)
        return 0;
    if (!n)
        return err_usage(err, "--%s: the model %s has no %s", word, m->name, what);
    add_axis(s, word, size);
    add_dims(s, m, word, dims, n);
    return 0;
}

/* Is the dim of an operand that has one for each group of several of the queries' heads? Such are whole
 * on axes that do not divide them, and each device reads those that its queries need. */
static bool is_grouped(const struct model *m, int dim) {
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++) {
            const struct axis_map *map = &m->ops[i].in_map[k];
            const struct shape *x = &m->tensors[m->ops[i].in[k]].shape;
            if (map->grouped >= 0 && x->dim[map->axis[map->grouped]] == dim &&
                m->ops[i].space.dim[map->grouped] != dim)
                return true;
        }
    return false;
}

/* The inner dims that tp splits: heads of keys only where there are enough of them. */
static int tensor_dims(const struct model *m, const struct plan_dims *d, int64_t tp,
                       int *dims) {
    int n = 0;
    for (int i = 0; i < d->n_inner; i++)
        if (m->dims[d->inner[i]].size % (tp ? tp : 1) == 0 || !is_grouped(m, d->inner[i]))
            dims[n++] = d->inner[i];
    return n;
}

/* What cannot be split by position is split by an inner dim on the axis of cp, where tp leaves enough of
 * it; else all devices of the axis do all of it. */
static int context_dims(const struct model *m, const struct plan_dims *d,
                        const struct plan_words *w, int *dims) {
    int64_t tp = w->tp ? w->tp : 1;
    int n = 0;
    for (int i = 0; i < d->n_inner; i++)
        if (m->dims[d->inner[i]].size % (w->cp * tp) == 0)
            dims[n++] = d->inner[i];
    return n;
}

/* Megatron's order: tensor parallelism between neighbours, data parallelism farthest apart. What
 * cannot be split by position under cp, as attention, is split by an inner dim there. Experts are
 * spread over replicas: the rest of the model is data parallel on their axis. */
static int split_words(const struct plan_words *w, const struct model *m,
                       const struct plan_dims *d, struct split *s, struct err *err) {
    int64_t dp = w->dp ? w->dp : 1, ep = w->ep ? w->ep : 1;
    int dims[2 * SPLIT_DIMS],
        n = d->n_inner > SPLIT_DIMS ? -1 : tensor_dims(m, d, w->tp, dims);
    if (n < 0)
        return err_usage(err, "--tp: the model %s has more than %d dims inside its blocks",
                         m->name, SPLIT_DIMS);
    if (dp % ep)
        return err_usage(err, "--ep: %lld does not divide the %lld replicas of --dp",
                         (long long)ep, (long long)dp);
    s->samples = dp;
    if (add_word(s, m, "dp", dp / ep, &m->batch, 1, "batch", err) < 0 ||
        add_word(s, m, "ep", ep, d->experts, d->n_experts, "experts", err) < 0 ||
        add_word(s, m, "cp", w->cp, d->sequence, d->n_sequence, "sequence", err) < 0 ||
        add_word(s, m, "tp", w->tp, dims, n, "dim inside its blocks that can be split",
                 err) < 0)
        return -1;
    if (ep > 1)
        add_dims(s, m, "ep", &m->batch, 1);
    if (w->cp > 1)
        add_dims(s, m, "cp", dims + SPLIT_DIMS, context_dims(m, d, w, dims + SPLIT_DIMS));
    if (w->sp && w->tp > 1 && !d->n_sequence)
        return err_usage(err, "--sp: the model %s has no sequence", m->name);
    if (w->sp && w->tp > 1)
        add_dims(s, m, "tp", d->sequence, d->n_sequence);
    return 0;
}

/* A list of one dim is written as this dim. */
static void shorten(json_t *layout) {
    const char *axis;
    json_t *list;
    void *next;
    json_object_foreach_safe(layout, next, axis, list) {
        if (json_array_size(list) == 1)
            json_object_set(layout, axis, json_array_get(list, 0));
    }
}

/* "batch:rows": one rule of a layout. */
static int add_rule(struct split *s, const struct model *m, const struct mesh *mesh,
                    char *rule, struct err *err) {
    char *axis = strchr(rule, ':');
    if (!axis)
        return err_usage(err, "--layout: expected rules such as batch:rows, got \"%s\"",
                         rule);
    *axis++ = '\0';
    int a = mesh_axis_find(mesh, axis);
    if (a < 0)
        return err_usage(err, "--layout: the mesh has no axis \"%.64s\"", axis);
    int dim = model_dim_named(m, rule, err);
    if (dim < 0) {
        err_prefix(err, "--layout");
        err->status = EXIT_USAGE;
        return -1;
    }
    if (dim == m->batch)
        s->samples *= mesh->size[a];
    add_dims(s, m, axis, &dim, 1);
    return 0;
}

/* "rows:2,cols:4" and "batch:rows,heads:cols"; a semicolon parts rules as well. */
static int split_rules(const struct plan_words *w, const struct model *m, struct split *s,
                       struct err *err) {
    struct mesh mesh;
    s->samples = 1;
    snprintf(s->mesh, sizeof s->mesh, "%s", w->mesh ? w->mesh : "");
    for (char *c = s->mesh; (c = strpbrk(c, ",;"));)
        *c = ' ';
    if (mesh_parse(s->mesh, 1 << 20, &mesh, err) < 0) {
        err_usage(err, "--mesh: \"%.64s\": expected axes such as rows:2,cols:4", w->mesh);
        return -1;
    }
    char *rules = mem_strdup(w->layout ? w->layout : ""), *save = NULL;
    int rc = 0;
    for (char *r = strtok_r(rules, ",; ", &save); r && rc == 0;
         r = strtok_r(NULL, ",; ", &save))
        rc = add_rule(s, m, &mesh, r, err);
    free(rules);
    return rc;
}

/* ---- stages ------------------------------------------------------------------------------ */

/* Begins of the pipeline's stages among the ops: blocks in order, as many for each; the first ones
 * have one more where they do not divide, unless it is said how many each has. bounds has room for
 * pp + 1. */
static int cut_stages(const struct model *m, int pp, const int *blocks, int *bounds,
                      struct err *err) {
    int *first = mem_array((size_t)m->n_ops + 1, sizeof *first), n = 0;
    int after = m->n_ops; /* behind the last block */
    for (int i = 0, before = -1; i < m->n_ops; i++) {
        int b = plan_outer_block(m, i);
        if (b >= 0 && b != before)
            first[n++] = i;
        before = b >= 0 ? b : before;
        after = b >= 0 ? i + 1 : after;
    }
    int rc = 0;
    if (pp > 1 && pp > n && !blocks)
        rc = err_usage(err, "--pp: %d stages, but the model %s has %d block%s", pp, m->name,
                       n, n == 1 ? "" : "s");
    bounds[0] = 0;
    bounds[pp] = m->n_ops;
    for (int s = 1, block = 0; s < pp && rc == 0; s++) {
        block += blocks ? blocks[s - 1] : n / pp + (s <= n % pp);
        bounds[s] = block < n ? first[block] : after;
    }
    free(first);
    return rc;
}

/* ["wte", "layer.0-9"]: ops of no block by name, blocks as ranges. */
static json_t *name_ops(const struct model *m, int first, int end) {
    json_t *list = json_array();
    for (int i = first; i < end; i++) {
        int b = plan_outer_block(m, i), last = b;
        if (b < 0) {
            json_array_append_new(list, json_string(m->ops[i].name));
            continue;
        }
        i = m->blocks[b].end_op;
        while (i < end && plan_outer_block(m, i) >= 0 &&
               m->blocks[plan_outer_block(m, i)].repeat == m->blocks[b].repeat) {
            last = plan_outer_block(m, i);
            i = m->blocks[last].end_op;
        }
        i--;
        const struct model_block *x = &m->blocks[b];
        int stem = (int)(strrchr(x->name, '.') - x->name);
        json_array_append_new(list, last == b
                                        ? json_string(x->name)
                                        : json_sprintf("%.*s.%d-%d", stem, x->name,
                                                       x->index, m->blocks[last].index));
    }
    return list;
}

/* "optimizer,activations" as an array. */
static json_t *names_json(const char *words) {
    json_t *list = json_array();
    for (const char *w = words, *end; *w; w = *end ? end + 1 : end) {
        end = w + strcspn(w, ",");
        json_array_append_new(list, json_stringn(w, (size_t)(end - w)));
    }
    return list;
}

static json_t *stage_of(const struct plan_words *w, const struct model *m,
                        const struct split *s, const int *bounds, int stages) {
    json_t *stage = json_object();
    if (stages > 1)
        json_object_set_new(stage, "ops", name_ops(m, bounds[0], bounds[1]));
    if (s->mesh[0])
        json_object_set_new(stage, "mesh", json_string(s->mesh));
    if (json_object_size(s->layout))
        json_object_set(stage, "layout", s->layout);
    if (w->ring)
        json_object_set_new(stage, "ring", json_true());
    if (w->recompute)
        json_object_set_new(
            stage, "recompute",
            json_string(strcmp(w->recompute, "full") ? w->recompute : "all"));
    if (w->sp && w->tp > 1)
        json_object_set_new(stage, "regather", json_true());
    if (w->zero)
        json_object_set_new(stage, "zero", json_integer(w->zero));
    if (w->offload)
        json_object_set_new(stage, "offload", names_json(w->offload));
    return stage;
}

/* ---- the document -------------------------------------------------------------------------- */

enum { MICRO_BATCHES = 4 /* for each stage of a pipeline, where nothing is said */ };

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* A sample for each replica, and whole sample groups, which only ops that couple the batch share out
 * among replicas. */
static int64_t least_samples(const struct model *m, int64_t replicas) {
    int64_t least = replicas;
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        int64_t group = (int64_t)op->attr[ATTR_group];
        int k = op_space_find(&op->space, m->batch);
        bool shared = k >= 0 && op->space.role[k] == ROLE_coupled;
        if (group > 1)
            least = common_multiple(least, shared ? group : group * replicas);
    }
    return least;
}

static int choose_batch(const struct plan_words *w, const struct model *m,
                        const struct split *s, int pp, int64_t *batch, int64_t *micro,
                        struct err *err) {
    int64_t waves = pp > 1 ? MICRO_BATCHES * pp : 1;
    *micro = w->micro_batch ? w->micro_batch : least_samples(m, s->samples);
    *batch = w->batch ? w->batch : *micro * waves;
    if (!w->micro_batch && pp == 1)
        *micro = *batch;
    if (*batch % *micro && !w->micro_batch)
        return err_usage(
            err,
            "--global-batch: %lld samples are no multiple of %lld, the least that "
            "%lld replicas take at once",
            (long long)*batch, (long long)*micro, (long long)s->samples);
    if (*batch % *micro)
        return err_usage(err, "--micro-batch: %lld does not divide the batch of %lld",
                         (long long)*micro, (long long)*batch);
    return 0;
}

static void say_average(const struct plan_words *w, json_t *doc) {
    if (w->average)
        json_object_set_new(doc, "average", json_string(w->average));
    if (w->average_every)
        json_object_set_new(doc, "average_every", json_integer(w->average_every));
    if (w->average_axes)
        json_object_set_new(doc, "average_axes", names_json(w->average_axes));
}

static json_t *document(const struct plan_words *w, struct model *m, const struct split *s,
                        struct err *err) {
    int pp = w->pp ? (int)w->pp : 1, n = pp * (w->chunks ? (int)w->chunks : 1);
    int64_t batch, micro;
    int *bounds = mem_array((size_t)n + 1, sizeof *bounds);
    json_t *doc = json_pack("{s:s}", "format", "weft-plan/1"), *stages = json_array();
    json_object_set_new(doc, "model", m->ref ? json_string(m->ref) : json_copy(m->doc));
    if (!m->ref && m->preset[0])
        json_object_set_new(json_object_get(doc, "model"), "default",
                            json_string(m->preset));
    if (m->set[0])
        json_object_set_new(doc, "set", json_string(m->set));
    json_object_set_new(doc, "stages", stages);
    if (choose_batch(w, m, s, pp, &batch, &micro, err) < 0 ||
        cut_stages(m, n, w->blocks, bounds, err) < 0) {
        json_decref(doc);
        free(bounds);
        return NULL;
    }
    for (int k = 0; k < n; k++) {
        json_t *stage = stage_of(w, m, s, bounds + k, n);
        if (n > pp)
            json_object_set_new(stage, "group", json_integer(k % pp));
        json_array_append_new(stages, stage);
    }
    free(bounds);
    json_object_set_new(doc, "batch", json_integer(batch));
    json_object_set_new(doc, "micro_batch", json_integer(micro));
    if (w->schedule || n > pp)
        json_object_set_new(doc, "schedule",
                            json_string(w->schedule ? w->schedule : "interleaved"));
    if (w->dtype && plan_dtype_find(w->dtype) != DTYPE_f32)
        json_object_set_new(doc, "dtype", json_string(w->dtype));
    if (w->reduce && plan_dtype_find(w->reduce) != DTYPE_f32)
        json_object_set_new(doc, "reduce", json_string(w->reduce));
    if (w->aggregate)
        json_object_set_new(doc, "aggregate", json_string(w->aggregate));
    if (w->faulty)
        json_object_set_new(doc, "faulty", json_integer(w->faulty));
    say_average(w, doc);
    if (w->optimizer)
        json_object_set_new(doc, "optimizer", json_string(w->optimizer));
    if (w->overlap)
        json_object_set_new(doc, "overlap", json_true());
    if (w->logits)
        json_object_set_new(doc, "logits", json_integer(w->logits));
    json_object_set_new(doc, "provenance",
                        json_pack("{s:s}", "tool", "weft-plan " WEFT_VERSION));
    return doc;
}

/* Says where devices do the same work, which nobody asks for. */
static void note_replicated(const struct plan *p) {
    const struct model *m = p->model;
    const struct stage *st = &p->stages[p->n_stages / 2];
    for (int a = 0; a < st->mesh.n_axes; a++)
        for (int i = 0; i < st->n_ops && st->mesh.size[a] > 1; i++) {
            const struct model_op *op = &m->ops[st->ops[i]];
            if (st->layouts[i].dim[a] != PLACE_NONE || model_op_flops(m, op, 1) <= 0)
                continue;
            note("weft-plan: %s cannot be split over %s: %d devices do the same work",
                 op->name, st->mesh.name[a], st->mesh.size[a]);
            break;
        }
}

/* What is wrong with the document was wrong with the command line. */
static int check(json_t *doc, const struct plan_words *w, struct err *err) {
    struct plan *p = plan_from_json(doc, err);
    if (!p) {
        if (err)
            err->status = EXIT_USAGE;
        return -1;
    }
    if (!w->quiet)
        note_replicated(p);
    struct cluster c;
    int rc = w->cluster ? cluster_read(&c, w->cluster, err) : 0;
    if (rc == 0 && w->cluster && cluster_devices(&c) < p->devices)
        rc = err_usage(err, "--cluster: the plan needs %d devices, the cluster has %lld",
                       p->devices, (long long)cluster_devices(&c));
    if (rc == 0 && w->cluster)
        json_object_set_new(doc, "cluster", cluster_to_json(&c));
    plan_destroy(p);
    return rc;
}

/* Has the model anything to send round? */
static int check_ring(const struct model *m, struct err *err) {
    for (int i = 0; i < m->n_ops; i++)
        if (layout_ring(&m->ops[i].space) != PLACE_NONE)
            return 0;
    return err_usage(err,
                     "--ring: the model %s has no keys and values as tensors of their own",
                     m->name);
}

json_t *plan_make_for(const struct plan_words *w, struct model *m, struct err *err) {
    if (w->ring && check_ring(m, err) < 0)
        return NULL;
    struct plan_dims dims;
    struct split s = {.layout = json_object()};
    plan_dims_find(m, &dims);
    int rc = w->mesh ? split_rules(w, m, &s, err) : split_words(w, m, &dims, &s, err);
    shorten(s.layout);
    json_t *doc = rc == 0 ? document(w, m, &s, err) : NULL;
    if (doc && check(doc, w, err) < 0) {
        json_decref(doc);
        doc = NULL;
    }
    json_decref(s.layout);
    plan_dims_release(&dims);
    return doc;
}

json_t *plan_make(const struct plan_words *w, struct err *err) {
    struct model *m = model_load(w->model, w->set, err);
    json_t *doc = m ? plan_make_for(w, m, err) : NULL;
    model_destroy(m);
    return doc;
}
