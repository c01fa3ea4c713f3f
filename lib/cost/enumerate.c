/* Enumeration through the compiler.
 *
 * The model is reduced to one op per place of its file (all layers are one), every op is
 * made a stage of its own, and each stage is compiled under each split of its op: a mesh
 * with one axis per split dim. What its program holds is what any program holds for that op
 * and split, since lowering looks at nothing else. Conversions between ops and the update
 * come in any size and are keyed by curves; their ranges follow from the sizes of tensors
 * and parameters. */
#include "cost/enumerate.h"

#include "common/mem.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALLEST_ELEMS = 256,  /* below it is all latency */
    LARGEST_INNER = 16384, /* longer runs stream like one */
    SMALLEST_INNER = 4,
    GRADIENT_ALIGN = 16, /* elements */
    MAX_AXES = MESH_MAX_AXES,
};

struct range {
    int64_t lo, hi; /* hi = 0: none */
};

struct collector {
    struct enum_key *table; /* open addressing; code = OPCODE_COUNT is free */
    int64_t mask, used;
    struct range elems[OPCODE_COUNT], inner[OPCODE_COUNT];
    int64_t max_devices;
};

bool enumerate_factor(int64_t factor, int64_t max_devices) {
    return factor >= 1 && factor <= max_devices &&
           ((factor & (factor - 1)) == 0 || max_devices % factor == 0);
}

/* ---- the reduced model --------------------------------------------------- */

/* Ops of one place differ only in which operands are data (the first layer of some models). */
static bool same_class(const struct model *m, const struct model_op *a,
                       const struct model_op *b) {
    if (a->place != b->place)
        return false;
    for (int k = 0; k < a->n_in; k++)
        if ((m->tensors[a->in[k]].producer < 0) != (m->tensors[b->in[k]].producer < 0))
            return false;
    return true;
}

/* Of every op, the first of its class. */
static void find_classes(const struct model *m, int *first) {
    int n = 0, *classes = mem_array((size_t)m->n_ops, sizeof *classes);
    for (int i = 0; i < m->n_ops; i++) {
        int c = 0;
        while (c < n && !same_class(m, &m->ops[i], &m->ops[classes[c]]))
            c++;
        if (c == n)
            classes[n++] = i;
        first[i] = classes[c];
    }
    free(classes);
}

/* Number of `old` in the list of those kept, appended if it is new. */
static int renumber(int *new_of, int *count, int old) {
    if (new_of[old] < 0)
        new_of[old] = (*count)++;
    return new_of[old];
}

static void reduce_params(const struct model *m, struct model *r, int *param_of) {
    r->params = arena_array(&r->arena, (size_t)m->n_params + 1, sizeof *r->params);
    for (int i = 0; i < r->n_ops; i++) {
        for (int k = 0; k < r->ops[i].n_param; k++) {
            int old = r->ops[i].param[k], known = r->n_params;
            if (old < 0)
                continue;
            int id = r->ops[i].param[k] = renumber(param_of, &r->n_params, old);
            if (id == known) {
                r->params[id] = m->params[old];
                r->params[id].first_op = i;
            }
        }
    }
}

/* The tensor that stands for this one: a layer that is left out makes what the one that stands for
 * it makes. */
static int stand_in(const struct model *m, const int *first, int tensor) {
    int producer = m->tensors[tensor].producer;
    for (int k = 0; producer >= 0 && k < m->ops[producer].n_out; k++)
        if (m->ops[producer].out[k] == tensor)
            return m->ops[first[producer]].out[k];
    return tensor;
}

static void reduce_list(const struct model *m, struct model *r, const int *first,
                        const int *op_of, int *tensor_of, int *list, int n) {
    for (int k = 0; k < n; k++) {
        int old = stand_in(m, first, list[k]), producer = m->tensors[old].producer;
        list[k] = renumber(tensor_of, &r->n_tensors, old);
        r->tensors[list[k]] = m->tensors[old];
        if (producer >= 0)
            r->tensors[list[k]].producer = op_of[first[producer]];
    }
}

static void reduce_tensors(const struct model *m, struct model *r, const int *first,
                           const int *op_of, int *tensor_of) {
    r->tensors = arena_array(&r->arena, (size_t)m->n_tensors + 1, sizeof *r->tensors);
    for (int i = 0; i < r->n_ops; i++) {
        struct model_op *op = &r->ops[i];
        reduce_list(m, r, first, op_of, tensor_of, op->out, op->n_out);
        reduce_list(m, r, first, op_of, tensor_of, op->in, op->n_in);
    }
}

static int *copy_ids(struct arena *arena, const int *ids, int n) {
    int *copy = arena_array(arena, (size_t)n, sizeof *copy);
    if (n)
        memcpy(copy, ids, sizeof *copy * (size_t)n);
    return copy;
}

static int *unknown(int n) {
    int *p = mem_array((size_t)n + 1, sizeof *p);
    memset(p, -1, sizeof *p * ((size_t)n + 1));
    return p;
}

/* One op per class; release with arena_release(&r->arena). Names are borrowed from m. */
static void reduce_model(const struct model *m, struct model *r) {
    int *first = unknown(m->n_ops), *op_of = unknown(m->n_ops);
    int *tensor_of = unknown(m->n_tensors), *param_of = unknown(m->n_params);
    *r = *m;
    r->arena = (struct arena){0};
    r->n_ops = r->n_tensors = r->n_params = 0;
    r->ops = arena_array(&r->arena, (size_t)m->n_ops, sizeof *r->ops);
    find_classes(m, first);
    for (int i = 0; i < m->n_ops; i++) {
        if (first[i] != i)
            continue;
        struct model_op *op = &r->ops[r->n_ops];
        *op = m->ops[i];
        op->in = copy_ids(&r->arena, op->in, op->n_in);
        op->out = copy_ids(&r->arena, op->out, op->n_out);
        op->param = copy_ids(&r->arena, op->param, op->n_param);
        op_of[i] = r->n_ops++;
    }
    reduce_tensors(m, r, first, op_of, tensor_of);
    reduce_params(m, r, param_of);
    free(first);
    free(op_of);
    free(tensor_of);
    free(param_of);
}

/* ---- what programs hold -------------------------------------------------- */

static struct enum_key *find_slot(const struct collector *c, const struct enum_key *key) {
    uint64_t h = hash_bytes(key->n, sizeof key->n, (uint64_t)key->code);
    for (uint64_t i = h & (uint64_t)c->mask;; i = (i + 1) & (uint64_t)c->mask) {
        struct enum_key *s = &c->table[i];
        if (s->code == OPCODE_COUNT ||
            (s->code == key->code && !memcmp(s->n, key->n, sizeof s->n)))
            return s;
    }
}

static void resize(struct collector *c, int64_t size) {
    struct enum_key *old = c->table;
    int64_t n = old ? c->mask + 1 : 0;
    c->table = mem_array((size_t)size, sizeof *c->table);
    c->mask = size - 1;
    for (int64_t i = 0; i < size; i++)
        c->table[i].code = OPCODE_COUNT;
    for (int64_t i = 0; i < n; i++)
        if (old[i].code != OPCODE_COUNT)
            *find_slot(c, &old[i]) = old[i];
    free(old);
}

static void collect_key(struct collector *c, const struct enum_key *key) {
    struct enum_key *s = find_slot(c, key);
    if (s->code != OPCODE_COUNT)
        return;
    *s = *key;
    if (2 * ++c->used > c->mask)
        resize(c, 2 * (c->mask + 1));
}

static void widen(struct range *r, int64_t v) {
    if (v < 1)
        return;
    r->lo = r->hi && r->lo < v ? r->lo : v;
    r->hi = r->hi > v ? r->hi : v;
}

static void collect_instr(struct collector *c, const struct instr *i) {
    int rank = instr_info(i->code)->n_shape;
    if (opcode_key(i->code) == KEY_SHAPE) {
        struct enum_key key = {.code = i->code};
        memcpy(key.n, i->n.v, sizeof *key.n * (size_t)rank);
        collect_key(c, &key);
    } else if (opcode_key(i->code) == KEY_CURVE) {
        widen(&c->elems[i->code], i->n.v[0]);
        if (rank > 1)
            widen(&c->inner[i->code], i->n.v[1]);
    }
}

/* ---- every split of every op --------------------------------------------- */

struct walk {
    struct collector *c;
    struct plan *plan;
    int stage;
    const struct model_op *op;
};

static void compile_split(struct walk *w) {
    const struct stage *st = &w->plan->stages[w->stage];
    struct stage_program sp;
    if (layout_check(w->plan->model, w->op, &st->mesh, &st->layouts[0],
                     w->plan->micro_batch, NULL) < 0 ||
        stage_compile(w->plan, w->stage, &sp, NULL) < 0)
        return;
    for (int i = 0; i < sp.n_instrs; i++)
        collect_instr(w->c, &sp.instrs[i]);
    stage_program_release(&sp);
}

/* Splits dims of the op's space from k on in every way; `total` devices are in use by the dims
 * before. */
static void walk_splits(struct walk *w, int k, int64_t total) {
    const struct op_space *space = &w->op->space;
    struct stage *st = &w->plan->stages[w->stage];
    while (k < space->n && space->role[k] == ROLE_whole)
        k++;
    if (k == space->n) {
        compile_split(w);
        return;
    }
    walk_splits(w, k + 1, total);
    if (st->mesh.n_axes == MAX_AXES)
        return;
    int a = st->mesh.n_axes++;
    int64_t size = model_dim_size(w->plan->model, space->dim[k], w->plan->micro_batch);
    st->layouts[0].dim[a] = (int8_t)k;
    for (int64_t f = 2; f * total <= w->c->max_devices; f++) {
        if (size % f || !enumerate_factor(f * total, w->c->max_devices))
            continue;
        st->mesh.size[a] = (int)f;
        walk_splits(w, k + 1, f * total);
    }
    st->layouts[0].dim[a] = PLACE_NONE;
    st->mesh.n_axes--;
}

static void walk_ops(struct collector *c, struct model *m, int64_t micro_batch) {
    int *bounds = mem_array((size_t)m->n_ops + 1, sizeof *bounds);
    for (int i = 0; i <= m->n_ops; i++)
        bounds[i] = i;
    struct walk w = {.c = c, .plan = plan_create(m, m->n_ops, bounds)};
    w.plan->batch = w.plan->micro_batch = micro_batch;
    for (int s = 0; s < m->n_ops; s++) {
        w.stage = s;
        w.op = &m->ops[s];
        walk_splits(&w, 0, 1);
    }
    plan_destroy(w.plan);
    free(bounds);
}

/* ---- curves -------------------------------------------------------------- */

static int64_t smallest_share(int64_t elems, int64_t max_devices) {
    return elems / max_devices > 0 ? elems / max_devices : 1;
}

static void widen_share(struct collector *c, enum opcode code, int64_t elems) {
    widen(&c->elems[code], smallest_share(elems, c->max_devices));
    widen(&c->elems[code], elems);
}

/* Conversions copy whole tensors or shares; a run is at least a share of the last dim. */
static void widen_copy(struct collector *c, const struct model *m, const struct shape *s,
                       int64_t elems) {
    widen_share(c, I_copy, elems);
    int last = s->rank ? s->dim[s->rank - 1] : m->batch;
    int64_t run = last == m->batch ? 1 : m->dims[last].size;
    widen(&c->inner[I_copy], smallest_share(run, c->max_devices));
    widen(&c->inner[I_copy], elems);
}

/* Tensors that several ops read get their gradients added up. Returns the largest tensor.
 */
static int64_t widen_tensors(struct collector *c, const struct model *m, int64_t batch) {
    int64_t largest = 0;
    int *uses = mem_array((size_t)m->n_tensors, sizeof *uses);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_in; k++)
            uses[m->ops[i].in[k]]++;
    for (int t = 0; t < m->n_tensors; t++) {
        const struct shape *s = &m->tensors[t].shape;
        struct extents x = model_extents(m, s, batch);
        int64_t n = extents_count(&x);
        if (m->tensors[t].producer < 0 || !s->rank)
            continue;
        widen_copy(c, m, s, n);
        if (uses[t] > 1)
            widen_share(c, I_add, n);
        largest = largest > n ? largest : n;
    }
    free(uses);
    return largest;
}

/* Parameters: their update, the norm of their gradients, sums of tied ones. Returns the
 * most elements that all gradients of a stage can take: each use may have one of its own,
 * aligned. */
static int64_t widen_params(struct collector *c, const struct model *m) {
    int64_t all = 0;
    int *uses = mem_array((size_t)m->n_params + 1, sizeof *uses);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_param; k++)
            if (m->ops[i].param[k] >= 0)
                uses[m->ops[i].param[k]]++;
    for (int p = 0; p < m->n_params; p++) {
        const struct shape *s = &m->params[p].shape;
        struct extents x = model_extents(m, s, 1);
        int64_t n = extents_count(&x);
        static const enum opcode codes[] = {I_sum_squares, I_adamw, I_sgd};
        for (int k = 0; k < 3; k++)
            widen_share(c, codes[k], n);
        widen_copy(c, m, s, n);
        if (uses[p] > 1)
            widen_share(c, I_add, n);
        widen(&c->elems[I_fill], smallest_share(n, c->max_devices));
        all += uses[p] * (n + GRADIENT_ALIGN);
    }
    widen(&c->elems[I_fill], all);
    free(uses);
    return all;
}

static void add_sizes(struct collector *c, enum opcode code, int64_t inner) {
    int64_t lo = c->elems[code].lo, x = inner > SMALLEST_ELEMS ? inner : SMALLEST_ELEMS;
    while (2 * x <= lo)
        x *= 2;
    for (;; x *= 2) {
        struct enum_key key = {.code = code, .n = {x, inner}};
        collect_key(c, &key);
        if (x >= c->elems[code].hi)
            return;
    }
}

static void add_curve(struct collector *c, enum opcode code) {
    if (!c->elems[code].hi)
        return;
    if (instr_info(code)->n_shape == 1) {
        add_sizes(c, code, 0);
        return;
    }
    /* The classes around every use: between neighbours the nearer one is taken. */
    for (int64_t k = SMALLEST_INNER; k <= LARGEST_INNER; k *= 4)
        if (4 * k > c->inner[code].lo && (k < 4 * c->inner[code].hi || k == SMALLEST_INNER))
            add_sizes(c, code, k);
    if (c->inner[code].lo >= 4 * LARGEST_INNER)
        add_sizes(c, code, LARGEST_INNER);
}

/* ---- the list ------------------------------------------------------------ */

static int key_order(const void *pa, const void *pb) {
    const struct enum_key *a = pa, *b = pb;
    if (a->code != b->code)
        return a->code < b->code ? -1 : 1;
    for (int i = 0; i < INSTR_MAX_SHAPE; i++)
        if (a->n[i] != b->n[i])
            return a->n[i] < b->n[i] ? -1 : 1;
    return 0;
}

static void take_keys(struct collector *c, struct enumeration *out) {
    out->n = 0;
    out->p = mem_array((size_t)c->used + 1, sizeof *out->p);
    for (int64_t i = 0; i <= c->mask; i++)
        if (c->table[i].code != OPCODE_COUNT)
            out->p[out->n++] = c->table[i];
    qsort(out->p, (size_t)out->n, sizeof *out->p, key_order);
    free(c->table);
}

void enumerate_keys(const struct model *m, const int64_t *micro_batches,
                    int n_micro_batches, int64_t max_devices, struct enumeration *out) {
    struct collector c = {.max_devices = max_devices};
    struct model reduced;
    int64_t largest_batch = 1;
    resize(&c, 1024);
    reduce_model(m, &reduced);
    for (int i = 0; i < n_micro_batches; i++) {
        walk_ops(&c, &reduced, micro_batches[i]);
        largest_batch = micro_batches[i] > largest_batch ? micro_batches[i] : largest_batch;
        widen_tensors(&c, m, micro_batches[i]);
    }
    int64_t tensor = widen_tensors(&c, m, largest_batch), grads = widen_params(&c, m);
    out->largest_comm_elems = tensor > grads ? tensor : grads;
    for (int code = 0; code < OPCODE_COUNT; code++)
        if (opcode_key((enum opcode)code) == KEY_CURVE)
            add_curve(&c, (enum opcode)code);
    arena_release(&reduced.arena);
    take_keys(&c, out);
}

void enumeration_release(struct enumeration *e) {
    free(e->p);
    *e = (struct enumeration){0};
}

bool enumeration_covers(const struct enumeration *e, enum opcode code, const int64_t *n) {
    struct enum_key key = {.code = code};
    switch (opcode_key(code)) {
    case KEY_SHAPE:
        memcpy(key.n, n, sizeof *n * (size_t)instr_info(code)->n_shape);
        return bsearch(&key, e->p, (size_t)e->n, sizeof *e->p, key_order) != NULL;
    case KEY_CURVE:
        for (int64_t i = 0; i < e->n; i++)
            if (e->p[i].code == code && e->p[i].n[0] >= n[0])
                return true;
        return n[0] == 0;
    default: return true;
    }
}
