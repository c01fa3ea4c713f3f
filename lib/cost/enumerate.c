/* Enumeration through the compiler.
 *
 * Of the ops of a model that are one op in its file and have the same sizes, the first
 * stands for all. It becomes a stage of its own, which is compiled under each split: a mesh
 * with one axis per split dim (two where an operand counts groups of the dim), without a
 * ring and, where there can be one, with it. What that program holds is what any program
 * holds for that op and split, since lowering looks at nothing else. Conversions between
 * ops, messages and the update come in any size and are keyed by curves; their ranges
 * follow from the sizes of tensors and parameters. */
#include "cost/enumerate.h"

#include "common/hashtable.h"
#include "common/mem.h"
#include "cost/estimate.h"

#include <stdlib.h>
#include <string.h>

enum {
    LARGEST_INNER = 16384, /* longer runs are no faster */
    SMALLEST_INNER = 4,
};

struct range {
    int64_t lo, hi; /* hi = 0: none */
};

struct collector {
    ARR(struct instr_key) keys; /* no two alike */
    struct hashtable table;     /* over keys */
    ARR(struct instr) forms;
    struct range elems[OPCODE_COUNT][DTYPE_COUNT], inner[OPCODE_COUNT][DTYPE_COUNT];
    enum dtype dtype; /* of tensors */
    int64_t max_devices;
    struct compile_scratch scratch;
};

bool enumerate_factor(int64_t factor, int64_t max_devices) {
    return factor >= 1 && factor <= max_devices &&
           ((factor & (factor - 1)) == 0 || max_devices % factor == 0);
}

/* ---- what programs hold -------------------------------------------------- */

static bool same_key(const void *keys, int64_t i, const void *key) {
    return instr_key_equal((const struct instr_key *)keys + i, key);
}

static void collect_key(struct collector *c, const struct instr_key *key) {
    int64_t i = hashtable_put(&c->table, instr_key_hash(key), same_key, c->keys.p, key);
    if (i == c->keys.n)
        arr_push(&c->keys, *key);
}

static void widen(struct range *r, int64_t v) {
    if (v < 1)
        return;
    r->lo = r->hi && r->lo < v ? r->lo : v;
    r->hi = r->hi > v ? r->hi : v;
}

static void collect(struct collector *c, const struct instr_key *k) {
    if (opcode_key(k->code) == KEY_SHAPE) {
        collect_key(c, k);
    } else if (opcode_key(k->code) == KEY_CURVE) {
        widen(&c->elems[k->code][k->dtype], k->n.v[0]);
        if (instr_info(k->code)->n_shape > 1)
            widen(&c->inner[k->code][k->dtype], k->n.v[1]);
    }
}

static bool same_form(const struct instr *a, const struct instr *b) {
    const struct instr_key p = instr_key(a->code, a->dtype, &a->n);
    const struct instr_key q = instr_key(b->code, b->dtype, &b->n);
    return instr_key_equal(&p, &q) &&
           !memcmp(&a->matrices, &b->matrices, sizeof a->matrices);
}

/* Keeps one of each instruction that its key does not fully describe: how its matrices lie,
 * or whether its inner dim is split. */
static void collect_form(struct collector *c, const struct instr *ins) {
    const bool by_strides = ins->code == I_matmul || ins->code == I_matmul_dw;
    if (!by_strides && (ins->code != I_linear || !ins->axes))
        return;
    for (int64_t i = 0; i < c->forms.n; i++)
        if (same_form(&c->forms.p[i], ins))
            return;
    arr_push(&c->forms, *ins);
}

/* ---- every split of every op --------------------------------------------- */

struct walk {
    struct collector *c;
    struct plan *plan; /* stage 1 is the op alone */
    const struct model_op *op;
};

static void compile_split(const struct walk *w) {
    const struct plan *p = w->plan;
    const struct stage *st = &p->stages[1];
    struct stage_program sp;
    if (layout_check(p->model, w->op, &st->mesh, &st->layouts[0], p->micro_batch, NULL) < 0)
        return;
    stage_compile(&w->c->scratch, p, 1, false, &sp);
    for (int i = 0; i < sp.n_instrs; i++) {
        const struct instr *ins = &sp.instrs[i];
        struct instr_key key = instr_key(ins->code, ins->dtype, &ins->n);
        collect(w->c, &key);
        collect_form(w->c, ins);
    }
}

/* Whether an operand has one element for each group of several of the dim. Of a split of
 * the dim, outer axes can then cut it while inner ones do not. */
static bool is_grouped(const struct model_op *op, int k) {
    for (int i = 0; i < op->n_in; i++)
        if (op->in_map[i].grouped == k)
            return true;
    return false;
}

/* Splits dims of the op's space from k on in every way; those before use `total`
 * devices. */
static void walk_splits(const struct walk *w, int k, int64_t total) {
    struct stage *st = &w->plan->stages[1];
    const struct op_space *space = &w->op->space;
    while (k < space->n && !role_splits(space->role[k]))
        k++;
    if (k == space->n) {
        compile_split(w);
        return;
    }
    walk_splits(w, k + 1, total);
    if (st->mesh.n_axes == MESH_MAX_AXES)
        return;
    int64_t size = model_dim_size(w->plan->model, space->dim[k], w->plan->micro_batch);
    int a = st->mesh.n_axes++;
    st->layouts[0].dim[a] = (int8_t)k;
    for (int64_t f = 2; f * total <= w->c->max_devices; f++) {
        if (size % f || !enumerate_factor(f * total, w->c->max_devices))
            continue;
        st->mesh.size[a] = (int)f;
        bool again = is_grouped(w->op, k) && (!a || st->layouts[0].dim[a - 1] != k);
        walk_splits(w, again ? k : k + 1, f * total);
    }
    st->layouts[0].dim[a] = PLACE_NONE;
    st->mesh.n_axes--;
}

static bool same_shape(const struct model *m, const struct shape *a,
                       const struct shape *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++)
        same = m->dims[a->dim[i]].size == m->dims[b->dim[i]].size;
    return same;
}

static bool same_param(const struct model *m, int a, int b) {
    const struct model_param *p = &m->params[a], *q = &m->params[b];
    return p->frozen == q->frozen && same_shape(m, &p->shape, &q->shape);
}

/* Ops that are one in the file may differ in which operands have gradients (the first layer of some
 * models), in what is trained, and in sizes (instances of a block with other dims). */
static bool same_class(const struct model *m, const struct model_op *a,
                       const struct model_op *b) {
    bool same = a->file_op == b->file_op && a->n_in == b->n_in;
    for (int k = 0; k < ATTR_COUNT && same; k++)
        same = a->attr[k] == b->attr[k];
    for (int k = 0; k < a->space.n && same; k++)
        same = m->dims[a->space.dim[k]].size == m->dims[b->space.dim[k]].size;
    for (int k = 0; k < a->n_in && same; k++)
        same = m->tensors[a->in[k]].gradient == m->tensors[b->in[k]].gradient &&
               same_shape(m, &m->tensors[a->in[k]].shape, &m->tensors[b->in[k]].shape);
    for (int k = 0; k < a->n_param && same; k++)
        same = (a->param[k] < 0) == (b->param[k] < 0) &&
               (a->param[k] < 0 || same_param(m, a->param[k], b->param[k]));
    return same;
}

/* Lists the first op of each class. Returns how many there are. */
static int find_classes(const struct model *m, int *first) {
    int n = 0;
    for (int i = 0; i < m->n_ops; i++) {
        int k = 0;
        while (k < n && !same_class(m, &m->ops[first[k]], &m->ops[i]))
            k++;
        if (k == n)
            first[n++] = i;
    }
    return n;
}

static void walk_ops(struct collector *c, struct model *m, int64_t micro_batch) {
    int *first = mem_array((size_t)m->n_ops, sizeof *first);
    int n = find_classes(m, first);
    for (int k = 0; k < n; k++) {
        int op = first[k], bounds[] = {0, op, op + 1, m->n_ops};
        struct walk w = {c, plan_create(m, 3, bounds), &m->ops[op]};
        w.plan->batch = w.plan->micro_batch = micro_batch;
        w.plan->dtype = c->dtype;
        walk_splits(&w, 0, 1);
        w.plan->stages[1].layouts[0].ring = (int8_t)layout_ring(&w.op->space);
        if (w.plan->stages[1].layouts[0].ring != PLACE_NONE)
            walk_splits(&w, 0, 1);
        plan_destroy(w.plan);
    }
    free(first);
}

/* ---- curves -------------------------------------------------------------- */

static int64_t smallest_share(int64_t elems, int64_t max_devices) {
    return elems / max_devices > 0 ? elems / max_devices : 1;
}

static void widen_share(struct collector *c, enum opcode code, enum dtype dtype,
                        int64_t elems) {
    widen(&c->elems[code][dtype], smallest_share(elems, c->max_devices));
    widen(&c->elems[code][dtype], elems);
}

/* Conversions copy whole tensors or shares; a run is at least a share of the last dim. */
static void widen_copy(struct collector *c, enum dtype dtype, const struct extents *x,
                       int64_t elems) {
    widen_share(c, I_copy, dtype, elems);
    int64_t run = x->rank > 1 ? x->size[x->rank - 1] : 1;
    widen(&c->inner[I_copy][dtype], smallest_share(run, c->max_devices));
    widen(&c->inner[I_copy][dtype], elems);
}

/* How many ops read each tensor or, if `param` is set, use each parameter. */
static int *count_uses(const struct model *m, bool param) {
    int *uses = mem_array((size_t)(param ? m->n_params : m->n_tensors) + 1, sizeof *uses);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        const int *ids = param ? op->param : op->in;
        for (int k = 0; k < (param ? op->n_param : op->n_in); k++)
            if (ids[k] >= 0)
                uses[ids[k]]++;
    }
    return uses;
}

/* Tensors that several ops read get their gradients added up; those that go to another stage are
 * packed, by one rank for up to all others. Returns the largest tensor. */
static int64_t widen_tensors(struct collector *c, const struct model *m, int64_t batch) {
    int64_t largest = 0, others = c->max_devices > 1 ? c->max_devices - 1 : 1;
    int *uses = count_uses(m, false);
    for (int t = 0; t < m->n_tensors; t++) {
        struct extents x = model_extents(m, &m->tensors[t].shape, batch);
        int64_t n = extents_count(&x);
        if (m->tensors[t].producer < 0 || !x.rank)
            continue;
        widen_copy(c, c->dtype, &x, n);
        widen(&c->elems[I_copy][c->dtype], others * n);
        widen(&c->inner[I_copy][c->dtype], others * n);
        if (uses[t] > 1)
            widen_share(c, I_add, c->dtype, n);
        largest = largest > n ? largest : n;
    }
    free(uses);
    return largest;
}

/* Collects the parts of orthogonalizing a parameter's matrices; passes come in any size. */
static void collect_matrices(struct collector *c, const struct model_param *p,
                             const struct extents *x) {
    const struct matrix_sizes n = model_matrix_sizes(p, x);
    const struct instr_key key = {
        .code = I_orthogonalize,
        .n.orthogonalize = {n.outer, n.rows, n.inner, n.columns, 0}};
    struct instr_part parts[INSTR_MAX_PARTS];
    const int count = instr_parts(&key, parts);
    for (int i = 0; i < count; i++)
        collect(c, &parts[i].key);
}

/* Parameters: their update, the norm of their gradients, adding to shares of these, and
 * setting one or all of them to zero, all in f32. Returns the most elements that all
 * gradients of a stage can take, since each use may have an aligned one of its own. */
static int64_t widen_params(struct collector *c, const struct model *m) {
    static const enum opcode codes[] = {I_sum_squares, I_momentum,
#define X(name, states) I_##name,
                                        OPTIMIZERS(X)
#undef X
    };
    int64_t all = 0, align = memory_aligned(1) / dtype_size(DTYPE_f32);
    int *uses = count_uses(m, true);
    for (int p = 0; p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        int64_t n = extents_count(&x);
        for (size_t k = 0; k < sizeof codes / sizeof *codes; k++)
            widen_share(c, codes[k], DTYPE_f32, n);
        if (m->params[p].matrix)
            collect_matrices(c, &m->params[p], &x);
        widen_copy(c, DTYPE_f32, &x, n);
        widen_share(c, I_add, DTYPE_f32, n);
        widen_share(c, I_fill, DTYPE_f32, n);
        if (c->dtype != DTYPE_f32) {
            widen_copy(c, c->dtype, &x, n);
            widen_share(c, I_narrow, c->dtype, n);
        }
        all += uses[p] * (n + align);
    }
    free(uses);
    widen(&c->elems[I_fill][DTYPE_f32], all);
    return all;
}

static void add_sizes(struct collector *c, enum opcode code, enum dtype dtype,
                      int64_t inner) {
    int64_t lo = c->elems[code][dtype].lo,
            x = inner > PROFILE_LATENCY_ELEMS ? inner : PROFILE_LATENCY_ELEMS;
    while (2 * x <= lo)
        x *= 2;
    for (;; x *= 2) {
        struct instr_key key = {.code = code, .dtype = dtype, .n.v = {x, inner}};
        collect_key(c, &key);
        if (x >= c->elems[code][dtype].hi)
            return;
    }
}

static void add_curve(struct collector *c, enum opcode code, enum dtype dtype) {
    struct range inner = c->inner[code][dtype];
    if (!c->elems[code][dtype].hi)
        return;
    if (instr_info(code)->n_shape == 1) {
        add_sizes(c, code, dtype, 0);
        return;
    }
    /* The runs around every use: a lookup takes the nearer of two neighbours. */
    for (int64_t k = SMALLEST_INNER; k <= LARGEST_INNER; k *= 4)
        if (4 * k > inner.lo && (k < 4 * inner.hi || k == SMALLEST_INNER))
            add_sizes(c, code, dtype, k);
    if (inner.lo >= 4 * LARGEST_INNER)
        add_sizes(c, code, dtype, LARGEST_INNER);
}

/* ---- the list ------------------------------------------------------------ */

static int key_order(const void *pa, const void *pb) {
    return instr_key_compare(pa, pb);
}

static void take_keys(struct collector *c, struct enumeration *out) {
    out->n = c->keys.n;
    out->p = c->keys.p;
    if (out->n)
        qsort(out->p, (size_t)out->n, sizeof *out->p, key_order);
    out->n_forms = c->forms.n;
    out->forms = c->forms.p;
    hashtable_release(&c->table);
    compile_scratch_release(&c->scratch);
}

static void finish(struct collector *c, struct enumeration *out) {
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int dtype = 0;
             dtype < DTYPE_COUNT && opcode_key((enum opcode)code) == KEY_CURVE; dtype++)
            add_curve(c, (enum opcode)code, (enum dtype)dtype);
    take_keys(c, out);
}

void enumerate_model(const struct model *m, const int64_t *micro_batches,
                     int n_micro_batches, int64_t max_devices, enum dtype dtype,
                     struct enumeration *out) {
    struct collector c = {.max_devices = max_devices, .dtype = dtype};
    int64_t tensor = 0, grads = widen_params(&c, m);
    *out = (struct enumeration){0};
    for (int i = 0; i < n_micro_batches; i++) {
        walk_ops(&c, (struct model *)m, micro_batches[i]);
        int64_t largest = widen_tensors(&c, m, micro_batches[i]);
        tensor = largest > tensor ? largest : tensor;
    }
    tensor *= dtype_size(dtype);
    grads *= dtype_size(DTYPE_f32);
    out->largest_comm_bytes = tensor > grads ? tensor : grads;
    finish(&c, out);
}

void enumerate_program(const struct program *g, const struct cluster *cluster,
                       struct enumeration *out) {
    struct collector c = {.max_devices = g->plan->devices};
    struct cost cost;
    *out = (struct enumeration){0};
    cost_init(&cost, NULL, cluster);
    cost_program(&cost, g);
    estimate_program_us(g, &cost);
    out->comm = mem_array((size_t)cost.n_missing + 1, sizeof *out->comm);
    for (int64_t i = 0; i < cost.n_missing; i++) {
        const struct cost_key *k = &cost.missing[i];
        if (cost_key_is_comm(k)) {
            out->comm[out->n_comm++] = k->comm;
            if (k->comm.bytes > out->largest_comm_bytes)
                out->largest_comm_bytes = k->comm.bytes;
            continue;
        }
        collect(&c, &k->instr);
        if (opcode_key(k->instr.code) == KEY_CURVE)
            widen(&c.elems[k->instr.code][k->instr.dtype], PROFILE_LATENCY_ELEMS);
    }
    cost_release(&cost);
    for (int k = 0; k < g->plan->n_stages; k++)
        for (int i = 0; i < g->stages[k].n_instrs; i++)
            arr_push(&c.forms, g->stages[k].instrs[i]);
    finish(&c, out);
}

void enumeration_release(struct enumeration *e) {
    free(e->p);
    free(e->forms);
    free(e->comm);
    *e = (struct enumeration){0};
}
