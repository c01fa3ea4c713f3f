/* Writing weft-plan(5) short enough to read: per stage one default layout that covers most ops,
 * exceptions for the rest, and op lists folded into patterns.
 *
 * Names tell ops and blocks apart (the reader of models sees to that), so the pattern of a block
 * covers just its ops, and "layer.*.qkv" just those of one op of the file. */
#include "plan/pin.h"

#include <stdlib.h>
#include <string.h>

/* ---- ops as patterns ------------------------------------------------------------------ */

/* Are ops[i..] the ops of block b, from its first to its last? */
static bool is_whole(const struct model *m, const int *ops, int n, int i, int b) {
    const struct model_block *block = &m->blocks[b];
    int count = block->end_op - block->first_op;
    return ops[i] == block->first_op && i + count <= n &&
           ops[i + count - 1] == block->end_op - 1;
}

/* The outermost block that is whole from ops[i] on, or -1. */
static int whole_block(const struct model *m, const int *ops, int n, int i) {
    int found = -1;
    for (int b = m->ops[ops[i]].block; b >= 0; b = m->blocks[b].parent)
        if (is_whole(m, ops, n, i, b))
            found = b;
    return found;
}

/* The instance that follows block b, whole from ops[i] on, or -1. */
static int next_instance(const struct model *m, const int *ops, int n, int i, int b) {
    if (i == n)
        return -1;
    int next = m->ops[ops[i]].block;
    while (next >= 0 && m->blocks[next].parent != m->blocks[b].parent)
        next = m->blocks[next].parent;
    bool follows = next >= 0 && m->blocks[next].repeat == m->blocks[b].repeat &&
                   m->blocks[next].index == m->blocks[b].index + 1 &&
                   is_whole(m, ops, n, i, next);
    return follows ? next : -1;
}

/* "enc.3" without its number. */
static int stem(const struct model_block *b) {
    return (int)(strrchr(b->name, '.') - b->name);
}

static json_t *range_pattern(const struct model_block *first,
                             const struct model_block *last) {
    if (first == last)
        return json_string(first->name);
    return json_sprintf("%.*s.%d-%d", stem(first), first->name, first->index, last->index);
}

/* ["wte", "enc.0-3", ...] */
static json_t *fold_ops(const struct model *m, const int *ops, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n;) {
        int first = whole_block(m, ops, n, i), last = first;
        if (first < 0) {
            json_array_append_new(list, json_string(m->ops[ops[i++]].name));
            continue;
        }
        for (int b = first; b >= 0; b = next_instance(m, ops, n, i, b)) {
            i += m->blocks[b].end_op - m->blocks[b].first_op;
            last = b;
        }
        json_array_append_new(list, range_pattern(&m->blocks[first], &m->blocks[last]));
    }
    return list;
}

/* Appends the name of a block, every number a star: "g.*.layer.*". */
static size_t star_block(const struct model *m, int b, char *buf, size_t n) {
    const struct model_block *block = &m->blocks[b];
    size_t used = block->parent < 0 ? 0 : star_block(m, block->parent, buf, n);
    size_t skip = block->parent < 0 ? 0 : strlen(m->blocks[block->parent].name);
    if (used >= n)
        return used;
    return used + (size_t)snprintf(buf + used, n - used, "%.*s.*", stem(block) - (int)skip,
                                   block->name + skip);
}

/* "layer.*.qkv": one op of the file, in all blocks. */
static json_t *file_op_pattern(const struct model *m, const struct model_op *op) {
    if (op->block < 0)
        return json_string(op->name);
    size_t size = 2 * strlen(op->name) + 1;
    char *buf = mem_alloc(size);
    star_block(m, op->block, buf, size);
    json_t *pattern =
        json_sprintf("%s%s", buf, op->name + strlen(m->blocks[op->block].name));
    free(buf);
    return pattern;
}

/* The ops of a stage that are one op of the file. */
struct file_op_run {
    int n, key;      /* how many so far; what is said of all of them, or MIXED */
    int first, last; /* ops of the stage: the run of blocks that is not written yet */
    bool open;       /* is there one? */
};
enum { MIXED = -1 };

/* "layer.0-3.qkv": one op of the file, in consecutive blocks. */
static json_t *run_pattern(const struct model *m, const struct model_op *first,
                           const struct model_op *last) {
    if (first == last)
        return json_string(first->name);
    const struct model_block *a = &m->blocks[first->block], *b = &m->blocks[last->block];
    return json_sprintf("%.*s.%d-%d%s", stem(a), a->name, a->index, b->index,
                        first->name + strlen(a->name));
}

static bool in_next_block(const struct model *m, const struct model_op *a,
                          const struct model_op *b) {
    const struct model_block *x = &m->blocks[a->block], *y = &m->blocks[b->block];
    return x->parent == y->parent && x->index + 1 == y->index;
}

static void write_run(const struct plan *p, const struct stage *st, const int *key,
                      struct file_op_run *r, json_t *lists) {
    const struct model_op *ops = p->model->ops;
    if (r->open)
        json_array_append_new(
            json_array_get(lists, (size_t)key[r->first] - 1),
            run_pattern(p->model, &ops[st->ops[r->first]], &ops[st->ops[r->last]]));
    r->open = false;
}

static void write_op(const struct plan *p, const struct stage *st, const int *key, int i,
                     struct file_op_run *r, json_t *lists) {
    const struct model *m = p->model;
    const struct model_op *op = &m->ops[st->ops[i]];
    if (r->key != MIXED) {
        if (r->n)
            json_array_append_new(json_array_get(lists, (size_t)key[i] - 1),
                                  file_op_pattern(m, op));
        r->n = 0; /* one pattern has said it for all */
        return;
    }
    if (!r->open || key[r->last] != key[i] ||
        !in_next_block(m, &m->ops[st->ops[r->last]], op)) {
        write_run(p, st, key, r, lists);
        r->first = i;
    }
    r->last = i;
    r->open = true;
}

/* For each key 1 .. n_keys the patterns of the ops of a stage that have it; key 0: nothing is
 * said. key[i] is that of st->ops[i]. */
static json_t *key_patterns(const struct plan *p, const struct stage *st, const int *key,
                            int n_keys) {
    json_t *lists = json_array();
    for (int k = 0; k < n_keys; k++)
        json_array_append_new(lists, json_array());
    struct file_op_run *runs = mem_array((size_t)p->model->n_file_ops, sizeof *runs);
    for (int i = 0; i < st->n_ops; i++) {
        struct file_op_run *r = &runs[p->model->ops[st->ops[i]].file_op];
        r->key = r->n++ && r->key != key[i] ? MIXED : key[i];
    }
    for (int i = 0; i < st->n_ops; i++)
        if (key[i])
            write_op(p, st, key, i, &runs[p->model->ops[st->ops[i]].file_op], lists);
    for (int k = 0; k < p->model->n_file_ops; k++)
        write_run(p, st, key, &runs[k], lists);
    free(runs);
    return lists;
}

/* ---- the default layout ---------------------------------------------------------------- */

enum { MAX_PREFERENCES = 32 };

/* What a stage says of one mesh axis: dims in order of preference. */
struct preference {
    int n, dim[MAX_PREFERENCES];
};

/* Ops that are one in the file, with one layout: counted together. */
struct group {
    const struct op_space *space;
    struct layout layout;
    int n, next; /* how many; the next group of this op, -1 = none */
};
struct groups {
    ARR(struct group) list;
};

/* Counts the layouts of ops that stand at one place in the file, for the choice of the stage's
 * defaults. */
static void group_ops(const struct plan *p, const struct stage *st, struct groups *g) {
    int *head =
        mem_array((size_t)p->model->n_file_ops, sizeof *head); /* 1 + group, 0 = none */
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &p->model->ops[st->ops[i]];
        int k = head[op->file_op] - 1;
        while (k >= 0 && memcmp(&g->list.p[k].layout, &st->layouts[i], sizeof *st->layouts))
            k = g->list.p[k].next;
        if (k >= 0) {
            g->list.p[k].n++;
            continue;
        }
        arr_push(&g->list,
                 (struct group){&op->space, st->layouts[i], 1, head[op->file_op] - 1});
        head[op->file_op] = (int)g->list.n;
    }
    free(head);
}

static int covered_ops(const struct groups *g, const struct preference *d, int axis) {
    int n = 0;
    for (int64_t i = 0; i < g->list.n; i++)
        if (layout_choose(g->list.p[i].space, d->dim, d->n) ==
            g->list.p[i].layout.dim[axis])
            n += g->list.p[i].n;
    return n;
}

static struct preference with_dim(const struct preference *d, int dim, int at) {
    struct preference t = *d;
    memmove(&t.dim[at + 1], &t.dim[at], sizeof *t.dim * (size_t)(t.n - at));
    t.dim[at] = dim;
    t.n++;
    return t;
}

/* The dims that some op is split on over this axis; returns their number. */
static int used_dims(const struct groups *g, int axis, int *dims) {
    int n = 0;
    for (int64_t i = 0; i < g->list.n; i++) {
        int k = g->list.p[i].layout.dim[axis], j = 0;
        if (k == PLACE_NONE)
            continue;
        while (j < n && dims[j] != g->list.p[i].space->dim[k])
            j++;
        if (j == n)
            dims[n++] = g->list.p[i].space->dim[k];
    }
    return n;
}

/* Greedy: insert the dim, where it covers most further ops, until none helps. `dims`
 * has room for all of the model. */
static struct preference choose_preference(const struct groups *g, int axis, int *dims) {
    struct preference d = {0};
    int n = used_dims(g, axis, dims), best = covered_ops(g, &d, axis), before = -1;
    while (best > before && d.n < MAX_PREFERENCES) {
        struct preference winner = d;
        before = best;
        for (int i = 0; i < n; i++) {
            for (int at = 0; at <= d.n; at++) {
                struct preference t = with_dim(&d, dims[i], at);
                int covered = covered_ops(g, &t, axis);
                if (covered > best) {
                    best = covered;
                    winner = t;
                }
            }
        }
        d = winner;
    }
    return d;
}

static json_t *preference_json(const struct model *m, const struct preference *d) {
    if (d->n == 1)
        return json_string(m->dims[d->dim[0]].name);
    json_t *list = json_array();
    for (int i = 0; i < d->n; i++)
        json_array_append_new(list, json_string(m->dims[d->dim[i]].name));
    return list;
}

/* Chooses the default of each axis; returns what the file says of it. */
static json_t *defaults_json(const struct plan *p, const struct stage *st,
                             struct preference *defaults) {
    json_t *obj = json_object();
    struct groups g = {{0}};
    int *dims = mem_array((size_t)p->model->n_dims, sizeof *dims);
    group_ops(p, st, &g);
    for (int a = 0; a < st->mesh.n_axes; a++) {
        defaults[a] = choose_preference(&g, a, dims);
        if (defaults[a].n)
            json_object_set_new(obj, st->mesh.name[a],
                                preference_json(p->model, &defaults[a]));
    }
    arr_release(&g.list);
    free(dims);
    return obj;
}

/* ---- exceptions ------------------------------------------------------------------------ */

/* A layout by dims of the model, as a file names them: what an op calls its third dim may be
 * another dim in the next block. */
struct named_layout {
    int dim[MESH_MAX_AXES]; /* or PLACE_NONE */
};

static struct named_layout name_layout(const struct model_op *op, const struct layout *l) {
    struct named_layout named;
    for (int a = 0; a < MESH_MAX_AXES; a++)
        named.dim[a] = l->dim[a] == PLACE_NONE ? PLACE_NONE : op->space.dim[l->dim[a]];
    return named;
}

static json_t *layout_json(const struct model *m, const struct mesh *mesh,
                           const struct named_layout *l) {
    json_t *obj = json_object();
    for (int a = 0; a < mesh->n_axes; a++)
        if (l->dim[a] != PLACE_NONE)
            json_object_set_new(obj, mesh->name[a], json_string(m->dims[l->dim[a]].name));
    return obj;
}

static bool follows(const struct preference *defaults, const struct mesh *mesh,
                    const struct op_space *space, const struct layout *l) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (layout_choose(space, defaults[a].dim, defaults[a].n) != l->dim[a])
            return false;
    return true;
}

/* One entry per layout that differs from the defaults, with patterns for all ops that have it. */
static json_t *exceptions_json(const struct plan *p, const struct stage *st,
                               const struct preference *defaults) {
    ARR(struct named_layout) layouts = {0};
    int *key = mem_array((size_t)st->n_ops, sizeof *key);
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &p->model->ops[st->ops[i]];
        if (follows(defaults, &st->mesh, &op->space, &st->layouts[i]))
            continue;
        struct named_layout named = name_layout(op, &st->layouts[i]);
        int k = 0;
        while (k < layouts.n && memcmp(&layouts.p[k], &named, sizeof named) != 0)
            k++;
        if (k == layouts.n)
            arr_push(&layouts, named);
        key[i] = k + 1;
    }
    json_t *list = json_array(), *patterns = key_patterns(p, st, key, (int)layouts.n);
    for (int k = 0; k < layouts.n; k++)
        json_array_append_new(
            list, json_pack("{s:O, s:o}", "ops", json_array_get(patterns, (size_t)k),
                            "layout", layout_json(p->model, &st->mesh, &layouts.p[k])));
    json_decref(patterns);
    arr_release(&layouts);
    free(key);
    return list;
}

/* Can something of the op go round, and does it? */
enum { RING_NEVER, RING_NO, RING_YES };
static int ring_of(const struct plan *p, const struct stage *st, int i) {
    if (layout_ring(&p->model->ops[st->ops[i]].space) == PLACE_NONE)
        return RING_NEVER;
    return st->layouts[i].ring == PLACE_NONE ? RING_NO : RING_YES;
}

/* What most ops of the stage do for which there is a choice. */
static int usual_ring(const struct plan *p, const struct stage *st) {
    int n[RING_YES + 1] = {0};
    for (int i = 0; i < st->n_ops; i++)
        n[ring_of(p, st, i)]++;
    return n[RING_YES] > n[RING_NO] ? RING_YES : RING_NO;
}

/* The ops of the stage that do otherwise. */
static void append_ring_exceptions(const struct plan *p, const struct stage *st,
                                   json_t *list) {
    int *key = mem_array((size_t)st->n_ops, sizeof *key), usual = usual_ring(p, st);
    for (int i = 0; i < st->n_ops; i++)
        key[i] = ring_of(p, st, i) == RING_NO + RING_YES - usual;
    json_t *patterns = key_patterns(p, st, key, 1), *ops = json_array_get(patterns, 0);
    if (json_array_size(ops))
        json_array_append_new(
            list, json_pack("{s:O, s:b}", "ops", ops, "ring", usual == RING_NO));
    json_decref(patterns);
    free(key);
}

/* What most ops of the stage have of a small number each: ZeRO's level, the set that is offloaded. */
static int usual(const struct stage *st, const int8_t *of) {
    int n[OFFLOAD_SETS] = {0}, most = 0;
    for (int i = 0; i < st->n_ops; i++)
        n[of[i]]++;
    for (int v = 0; v < OFFLOAD_SETS; v++)
        most = n[v] > n[most] ? v : most;
    return most;
}

static json_t *zero_json(int level) {
    return json_integer(level);
}

static json_t *offload_json(int set) {
    json_t *words = json_array();
#define X(name, bit)                                                                       \
    if (set & (bit))                                                                       \
        json_array_append_new(words, json_string(#name));
    OFFLOADS(X)
#undef X
    return words;
}

/* One more entry per number that differs from the usual one. */
static void append_exceptions(const struct plan *p, const struct stage *st,
                              const int8_t *of, const char *name, json_t *(*value)(int),
                              json_t *list) {
    int *key = mem_array((size_t)st->n_ops, sizeof *key), most = usual(st, of);
    for (int i = 0; i < st->n_ops; i++)
        key[i] = of[i] == most ? 0 : 1 + of[i];
    json_t *patterns = key_patterns(p, st, key, OFFLOAD_SETS);
    for (int v = 0; v < OFFLOAD_SETS; v++) {
        json_t *ops = json_array_get(patterns, (size_t)v);
        if (json_array_size(ops))
            json_array_append_new(list,
                                  json_pack("{s:O, s:o}", "ops", ops, name, value(v)));
    }
    json_decref(patterns);
    free(key);
}

static json_t *recompute_json(const struct plan *p, const struct stage *st) {
    int *key = mem_array((size_t)st->n_ops, sizeof *key);
    for (int i = 0; i < st->n_ops; i++)
        key[i] = st->recompute[i];
    json_t *lists = key_patterns(p, st, key, 1);
    json_t *list = json_incref(json_array_get(lists, 0));
    json_decref(lists);
    free(key);
    return list;
}

/* ---- the document ---------------------------------------------------------------------- */

static void set_unless_empty(json_t *obj, const char *key, json_t *v) {
    bool empty = json_is_object(v) ? !json_object_size(v) : !json_array_size(v);
    if (empty)
        json_decref(v);
    else
        json_object_set_new(obj, key, v);
}

/* Has every stage a group of its own, in their order? */
static bool own_groups(const struct plan *p) {
    int s = 0;
    while (s < p->n_stages && p->stages[s].group == s)
        s++;
    return s == p->n_stages;
}

/* Keys that say nothing beyond their default are left out. */
static json_t *stage_json(const struct plan *p, const struct stage *st) {
    json_t *obj = json_object();
    char mesh[MESH_MAX_AXES * 32];
    mesh_format(&st->mesh, mesh, sizeof mesh);
    json_object_set_new(obj, "mesh", json_string(mesh));
    if (!own_groups(p))
        json_object_set_new(obj, "group", json_integer(st->group));
    if (p->n_stages > 1)
        json_object_set_new(obj, "ops", fold_ops(p->model, st->ops, st->n_ops));
    struct preference defaults[MESH_MAX_AXES];
    set_unless_empty(obj, "layout", defaults_json(p, st, defaults));
    if (usual_ring(p, st) == RING_YES)
        json_object_set_new(obj, "ring", json_true());
    json_t *except = exceptions_json(p, st, defaults);
    append_ring_exceptions(p, st, except);
    append_exceptions(p, st, st->zero, "zero", zero_json, except);
    append_exceptions(p, st, st->offload, "offload", offload_json, except);
    set_unless_empty(obj, "except", except);
    set_unless_empty(obj, "recompute", recompute_json(p, st));
    if (st->regather)
        json_object_set_new(obj, "regather", json_true());
    if (usual(st, st->zero))
        json_object_set_new(obj, "zero", zero_json(usual(st, st->zero)));
    if (usual(st, st->offload))
        json_object_set_new(obj, "offload", offload_json(usual(st, st->offload)));
    return obj;
}

/* The axes on which replicas train apart, where those are not all. */
static json_t *average_axes_json(const struct plan *p) {
    json_t *seen = json_object(), *list = json_array();
    bool all = true;
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage *st = &p->stages[s];
        all &= !st->together;
        for (int a = 0; a < st->mesh.n_axes; a++)
            if (!(st->together >> a & 1) && !json_object_get(seen, st->mesh.name[a])) {
                json_object_set_new(seen, st->mesh.name[a], json_true());
                json_array_append_new(list, json_string(st->mesh.name[a]));
            }
    }
    json_decref(seen);
    if (all)
        json_array_clear(list);
    return list;
}

/* Shipped models by name; any other whole, so that everything needed to run is in the file. */
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
    if (p->dtype != DTYPE_f32)
        json_object_set_new(doc, "dtype", json_string(plan_dtype_name(p->dtype)));
    if (p->reduce != DTYPE_f32)
        json_object_set_new(doc, "reduce", json_string(plan_dtype_name(p->reduce)));
    if (p->aggregate != AGGREGATE_mean) {
        json_object_set_new(doc, "aggregate", json_string(aggregate_name(p->aggregate)));
        json_object_set_new(doc, "faulty", json_integer(p->faulty));
    }
    if (p->average != AVERAGE_none) {
        json_object_set_new(doc, "average", json_string(average_name(p->average)));
        json_object_set_new(doc, "average_every", json_integer(p->average_every));
        set_unless_empty(doc, "average_axes", average_axes_json(p));
    }
    if (p->overlap)
        json_object_set_new(doc, "overlap", json_true());
    if (p->logits > 1)
        json_object_set_new(doc, "logits", json_integer(p->logits));
    for (int s = 0; s < p->n_stages; s++)
        json_array_append_new(stages, stage_json(p, &p->stages[s]));
    json_object_set_new(doc, "stages", stages);
    if (p->pins && p->pins->own)
        json_object_set(doc, "pin", p->pins->own);
    if (p->cluster)
        json_object_set_new(doc, "cluster", cluster_to_json(p->cluster));
    if (p->provenance)
        json_object_set(doc, "provenance", p->provenance);
    return doc;
}
