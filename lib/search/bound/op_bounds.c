/* Lower bounds of ops (see op_bounds.h). */
#include "search/bound/op_bounds_impl.h"

#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Compiles each op once on one device, to find its traits. */
struct op_bounds *op_bounds_make(struct evaluate *ev, const struct device_class *class) {
    struct op_bounds *f = mem_alloc(sizeof *f);
    size_t n = (size_t)ev->space->blocks.x.model->n_ops;
    f->ev = ev;
    f->pinned = ev->space->p.pins != NULL;
    f->class = class ? *class : (struct device_class) { 0 };
    f->traits = mem_array(n, sizeof *f->traits);
    f->at = mem_array((size_t)ev->space->blocks.x.n_nodes, sizeof *f->at);
    op_bound_find_places(f);
    for (int i = 0; i < (int)n; i++)
        op_bound_find_traits(f, i);
    /* Compiling any op with parameters tells the graph what the gradient norm takes. */
    struct setting one = {.devices = 1,
                          .micro_batch = ev->space->p.micro[ev->space->p.n_micro - 1]};
    for (int i = 0; i < (int)n && ev->graph.norm_us <= 0; i++)
        graph_node(&ev->graph, &one, i, f->at);
    op_bound_share_kept(f);
    return f;
}

static void strategies_free(void *p) {
    struct strategies *w = p;
    for (; w->n >= 0; w++)
        free(w->p);
    free(p);
}

void op_bounds_free(struct op_bounds *f) {
    memo_release(&f->locals, free);
    memo_release(&f->sums, free);
    memo_release(&f->shares, free);
    memo_release(&f->strategies, strategies_free);
    free(f->traits);
    free(f->at);
    free(f);
}

/* ---- strategies -------------------------------------------------------------------------------- */

/* An op on a mesh. What does not depend on the micro-batch is computed once for all
 * micro-batches. */
struct spot {
    struct op_bounds *f;
    int op, devices;
    struct mesh mesh;
    unsigned intra_node; /* bits of the axes that lie within nodes */
    int64_t micro_batch;
    struct found { /* with the current micro-batch */
        double added_us;
        ARR(struct op_bound_strategy) strategies;
        double least_forward_us;
    } * found, *all; /* all: [micro-batches] */
};

static struct extents sizes_of(const struct spot *at, const struct shape *shape) {
    return model_extents(at->f->ev->space->blocks.x.model, shape, at->micro_batch);
}

/* A tensor under a layout: each device has one of `shards` parts. Partial sums are
 * reduced over the other devices. */
struct split {
    int tensor;
    int64_t shards;
    struct reach summed;
    double times; /* the share of the sum that this op is charged */
};

static int64_t elements_of(const struct spot *at, const struct split *x) {
    struct extents all =
        sizes_of(at, &at->f->ev->space->blocks.x.model->tensors[x->tensor].shape);
    return extents_count(&all) / x->shards;
}

static bool find_sum(const struct spot *at, int tensor, const struct axis_map *map,
                     const struct layout *l, double times, struct split *out) {
    struct placement p = placement_result(&at->mesh, l, map);
    unsigned axes = placement_axes(&at->mesh, p, PLACE_PARTIAL);
    *out = (struct split){tensor,
                          mesh_group_size(&at->mesh, placement_sharded_axes(&at->mesh, p)),
                          reach_of(&at->mesh, at->intra_node, axes), times};
    return axes && !at->f->pinned;
}

/* Lists the tensors that come out as partial sums; returns how many. */
static int find_sums(const struct spot *at, const struct layout *l,
                     struct split out[2 * KIND_MAX_SLOTS]) {
    const struct model *m = at->f->ev->space->blocks.x.model;
    const struct model_op *o = &m->ops[at->op];
    const struct trait *t = &at->f->traits[at->op];
    int n = 0;
    for (int k = 0; k < o->n_out; k++)
        if (t->read[k])
            n += find_sum(at, o->out[k], &o->out_map[k], l, 1, &out[n]);
    for (int k = 0; k < o->n_in; k++)
        if (m->tensors[o->in[k]].gradient && t->readers[k] > 0)
            n += find_sum(at, o->in[k], &o->in_map[k], l, 1 / t->readers[k], &out[n]);
    return n;
}

static double sums_us(const struct spot *at, const struct split *sums, int n) {
    double us = 0;
    for (int i = 0; i < n; i++)
        us += sums[i].times *
              op_bound_sum_us(at->f, at->devices, sums[i].summed,
                              plan_tensor_dtype(&at->f->ev->graph.plan, sums[i].tensor),
                              (double)elements_of(at, &sums[i]));
    return us;
}

/* Gradients from several readers are added up one by one: each reader but the first is
 * charged one addition. */
static double additions_us(const struct spot *at) {
    const struct graph *g = &at->f->ev->graph;
    const struct model_op *o = &g->b->x.model->ops[at->op];
    const struct trait *t = &at->f->traits[at->op];
    double us = 0;
    for (int k = 0; k < o->n_in; k++) {
        if (!(t->gives & t->later & 1u << k) || op_bound_operand(o, o->in[k]) != k)
            continue;
        struct extents x = sizes_of(at, &g->b->x.model->tensors[o->in[k]].shape);
        double elems = 1;
        for (int i = 0; i < x.rank; i++)
            elems *= (double)x.size[i];
        us += op_bounds_addition_us(at->f, at->devices,
                                    plan_tensor_dtype(&g->plan, o->in[k]), elems);
    }
    return us;
}

/* A parameter on a device. */
struct held {
    bool frozen;
    enum optimizer by; /* the one that steps it */
    /* with muon: whole matrices that a device makes orthogonal, without ZeRO and with it */
    struct matrix_sizes matrices, shared;
    double whole, share; /* elements as ops need it, and as ZeRO leaves it */
    /* over which devices its gradient is summed; over which of these ZeRO scatters the
     * sum; over which ZeRO shards the parameter */
    struct reach summed, scattered, spread;
};

/* The whole matrices of which a device has parts under a placement. */
static struct matrix_sizes matrices_of(const struct spot *at, const struct model_param *p,
                                       const struct extents *x, struct placement place) {
    struct extents local = *x;
    for (int i = 0; i < x->rank; i++)
        local.size[i] = placement_size(&at->mesh, x, placement_matrices(p, place), i);
    return model_matrix_sizes(p, &local);
}

/* The parameter in this slot of the op, under a layout. */
static struct held held_of(const struct spot *at, int slot, const struct layout *l) {
    const struct model *m = at->f->ev->space->blocks.x.model;
    const struct model_op *o = &m->ops[at->op];
    const struct model_param *param = &m->params[o->param[slot]];
    struct extents x = model_extents(m, &param->shape, 1);
    struct placement p = placement_operand(&at->mesh, l, &o->param_map[slot]);
    struct placement parts = placement_result(&at->mesh, l, &o->param_map[slot]);
    struct placement share = placement_scatter(&at->mesh, &x, p);
    struct held h = {.frozen = param->frozen,
                     .by = optimizer_of(at->f->ev->graph.plan.optimizer, param),
                     .whole = (double)placement_elements(&at->mesh, &x, p),
                     .share = (double)placement_elements(&at->mesh, &x, share)};
    if (h.by == OPTIMIZER_muon) {
        h.matrices = matrices_of(at, param, &x, p);
        h.shared = matrices_of(at, param, &x, share);
    }
    unsigned summed = placement_axes(&at->mesh, parts, PLACE_PARTIAL);
    unsigned rest = placement_axes(&at->mesh, share, PLACE_REPLICATE);
    unsigned same = placement_axes(&at->mesh, p, PLACE_REPLICATE);
    h.summed = reach_of(&at->mesh, at->intra_node, summed);
    h.scattered = reach_of(&at->mesh, at->intra_node, summed & ~rest);
    h.spread = reach_of(&at->mesh, at->intra_node, same & ~rest);
    return h;
}

/* The time of an instruction of the optimizer. */
static double update_us(const struct spot *at, enum opcode code, union instr_n n) {
    struct graph *g = &at->f->ev->graph;
    struct stage_program sp = {.stage = 0, .mesh = &g->stages[0].mesh};
    struct instr ins = instr_init(code);
    bool missing = false;
    stage_mesh(at->devices, NULL, &g->stages[0].mesh);
    ins.dtype = DTYPE_f32;
    ins.n = n;
    return op_bound_own_us(at->f, &sp, &ins, at->devices, &missing);
}

/* The optimizer's time for this many elements and, with muon, for these matrices. */
static double descend_us(const struct spot *at, const struct held *h, double elems,
                         const struct matrix_sizes *x) {
    static const enum opcode codes[] = {
#define X(name, states) I_##name,
        OPTIMIZERS(X)
#undef X
    };
    const union instr_n n = {.v = {(int64_t)elems}};
    const union instr_n matrices = {
        .orthogonalize = {x->outer, x->rows, x->inner, x->columns, 0}};
    double us = update_us(at, codes[h->by], n);
    if (h->by == OPTIMIZER_muon)
        us += update_us(at, I_momentum, n) + update_us(at, I_orthogonalize, matrices);
    return us;
}

/* The time and bytes of an op's parameter. */
struct param_cost {
    double us, step_us, fixed;
};
enum { ZERO_LEVELS = ZERO_PARAMETERS + 1 };

/* The least costs of a parameter that is not trained: it is held, and gathered. */
static struct param_cost frozen_share_of(struct spot *at, const struct held *h, int zero) {
    const struct space *sp = at->f->ev->space;
    bool shared = zero >= ZERO_PARAMETERS;
    struct param_cost out = {0};
    if (!at->f->pinned && !sp->p.offload)
        out.fixed = (double)dtype_size(sp->p.dtype) * (shared ? h->share : h->whole);
    if (!at->f->pinned && shared && !sp->hides)
        out.us = op_bound_steps_us(at->f, at->devices, h->spread, I_all_gather, sp->p.dtype,
                                   h->whole);
    return out;
}

/* The least costs of a parameter with a level of ZeRO. With pins, which may change
 * reductions and memory, only the optimizer's time is certain. */
static struct param_cost share_of(struct spot *at, const struct held *h, int zero) {
    const struct space *sp = at->f->ev->space;
    enum dtype dtype = sp->p.dtype;
    double wide = (double)dtype_size(DTYPE_f32), narrow = (double)dtype_size(dtype);
    double held = zero >= ZERO_PARAMETERS ? h->share : h->whole;
    double gradient = zero >= ZERO_GRADIENTS ? h->share : h->whole;
    double updated = zero >= ZERO_OPTIMIZER ? h->share : h->whole;
    int states = optimizer_states(h->by) + (dtype != DTYPE_f32 && zero < ZERO_PARAMETERS);
    struct param_cost out = {
        .step_us =
            descend_us(at, h, updated, zero >= ZERO_OPTIMIZER ? &h->shared : &h->matrices)};
    if (at->f->pinned)
        return out;
    if (!sp->p.offload) /* otherwise hosts may have room for it */
        out.fixed = narrow * held + wide * (gradient + states * updated);
    if (zero < ZERO_OPTIMIZER || reach_size(h->spread) == 1) {
        if (!sp->hides)
            out.step_us += op_bound_gradient_us(at->f, at->devices, h->summed, h->whole);
        return out;
    }
    /* With overlap, gradients are reduced and parameters gathered while other ops
     * compute. */
    if (!sp->hides || zero < ZERO_PARAMETERS)
        *(zero >= ZERO_PARAMETERS ? &out.us : &out.step_us) +=
            op_bound_steps_us(at->f, at->devices, h->spread, I_all_gather, dtype, h->whole);
    if (sp->hides)
        return out;
    if (zero >= ZERO_GRADIENTS)
        out.us += op_bound_sum_us(at->f, at->devices, h->scattered, DTYPE_f32, h->whole);
    else
        out.step_us += op_bound_sum_us(at->f, at->devices, h->summed, DTYPE_f32, h->whole);
    return out;
}

/* Returns the costs by level of ZeRO; equal parameters share them. */
static const struct param_cost *shares_of(struct spot *at, const struct held *h) {
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)at->devices), (uint64_t)h->whole);
    key = memo_mix(key, (uint64_t)h->share << 1 | h->frozen);
    key = memo_mix(key, hash_bytes(&h->matrices, sizeof h->matrices, (uint64_t)h->by));
    key = memo_mix(key, hash_bytes(&h->shared, sizeof h->shared, 0));
    for (int i = 0; i < 3; i++) {
        struct reach g = i ? i > 1 ? h->spread : h->scattered : h->summed;
        key = memo_mix(key, (uint64_t)g.near << 32 | (uint64_t)g.far);
    }
    void **slot = memo_slot(&at->f->shares, key);
    if (!*slot) {
        struct param_cost *out = mem_array(ZERO_LEVELS, sizeof *out);
        *slot = out; /* nothing else is looked up in this memo meanwhile */
        for (int zero = 0; zero < space_zero_levels(at->f->ev->space); zero++)
            out[zero] = (h->frozen ? frozen_share_of : share_of)(at, h, zero);
    }
    return *slot;
}

/* Sums the costs of the parameters that belong to this op alone, by level of ZeRO. */
static void add_params(struct spot *at, const struct layout *l, int levels,
                       struct param_cost to[ZERO_LEVELS]) {
    const struct model *m = at->f->ev->space->blocks.x.model;
    const struct model_op *o = &m->ops[at->op];
    for (int k = 0; k < o->n_param; k++) {
        int param = o->param[k];
        if (param < 0 || m->params[param].running || m->params[param].first_op != at->op)
            continue;
        struct held held = held_of(at, k, l);
        const struct param_cost *shares = shares_of(at, &held);
        for (int zero = 0; zero < levels; zero++) {
            to[zero].us += shares[zero].us;
            to[zero].step_us += shares[zero].step_us;
            to[zero].fixed += shares[zero].fixed;
        }
    }
}

/* Finds how the kept operands are split; entries of other operands are not set. */
static void find_kept(const struct spot *at, const struct layout *l,
                      struct split out[KIND_MAX_SLOTS]) {
    const struct model_op *o = &at->f->ev->space->blocks.x.model->ops[at->op];
    for (int k = 0; k < o->n_in; k++) {
        if (!(at->f->traits[at->op].counts >> k & 1))
            continue;
        struct placement p = placement_operand(&at->mesh, l, &o->in_map[k]);
        out[k] = (struct split){
            .tensor = o->in[k],
            .shards = mesh_group_size(&at->mesh, placement_sharded_axes(&at->mesh, p))};
    }
}

/* Adds the bytes that the op keeps for its backward pass. None are certain with pins,
 * offloading or logits in pieces. */
static void add_kept(const struct spot *at, const struct split *kept,
                     const struct local *local, struct op_bound_strategy *to) {
    const struct graph *g = &at->f->ev->graph;
    const struct model_op *o = &g->b->x.model->ops[at->op];
    if (at->f->pinned || !space_keeps_all(at->f->ev->space))
        return;
    to->kept[OP_BOUND_OWN] = fmax(local->own, 0);
    for (int k = 0; k < o->n_in; k++) {
        if (!(at->f->traits[at->op].counts >> k & 1))
            continue;
        double elems = (double)elements_of(at, &kept[k]);
        /* it may keep shards alone and gather them again */
        if (space_may_regather(at->f->ev->space))
            elems = fmin(elems, elems * (double)kept[k].shards / at->devices);
        to->kept[k] = elems * (double)dtype_size(plan_tensor_dtype(&g->plan, o->in[k]));
    }
}

static bool no_worse(const struct op_bound_strategy *a, const struct op_bound_strategy *b) {
    if (a->us > b->us || a->step_us > b->step_us || a->fixed > b->fixed)
        return false;
    for (int k = 0; k < OP_BOUND_ITEMS; k++)
        if (a->kept[k] > b->kept[k])
            return false;
    return true;
}

/* Appends the strategy, unless another one is no worse. Drops those that it is no worse
 * than; the others keep their order. */
static void add_strategy(struct found *to, const struct op_bound_strategy *w) {
    int64_t n = 0;
    for (int64_t i = 0; i < to->strategies.n; i++)
        if (no_worse(&to->strategies.p[i], w))
            return;
    for (int64_t i = 0; i < to->strategies.n; i++)
        if (!no_worse(w, &to->strategies.p[i]))
            to->strategies.p[n++] = to->strategies.p[i];
    to->strategies.n = n;
    arr_push(&to->strategies, *w);
}

/* Returns into how many parts the batch is split. */
static int64_t batch_parts(const struct spot *at, const struct layout *l) {
    const struct model *m = at->f->ev->space->blocks.x.model;
    int k = op_space_find(&m->ops[at->op].space, m->batch);
    int64_t parts = 1;
    for (int a = 0; a < at->mesh.n_axes && k >= 0; a++)
        parts *= l->dim[a] == k ? at->mesh.size[a] : 1;
    return parts;
}

static void use_micro_batch(struct spot *at, int i) {
    at->micro_batch = at->f->ev->space->p.micro[i];
    at->found = &at->all[i];
}

static bool is_legal(const struct spot *at, const struct layout *l) {
    const struct model *m = at->f->ev->space->blocks.x.model;
    return layout_check(m, &m->ops[at->op], &at->mesh, l, at->micro_batch, NULL) == 0;
}

/* Returns whether the layout may be legal with some micro-batch. Axes that are not laid out
 * yet split nothing. */
static bool may_be_legal(struct spot *at, const struct layout *l) {
    const struct search_problem *p = &at->f->ev->space->p;
    int64_t parts = batch_parts(at, l);
    for (int i = 0; i < p->n_micro; i++) {
        use_micro_batch(at, i);
        if (p->micro[i] % parts == 0 && is_legal(at, l))
            return true;
    }
    return false;
}

/* The part of a layout's costs that is the same for every micro-batch. */
struct laid_out {
    int levels, n_sums;
    struct param_cost params[ZERO_LEVELS];
    struct split sums[2 * KIND_MAX_SLOTS], kept[KIND_MAX_SLOTS];
};

/* Adds the layout with every level of ZeRO, unless another strategy is no worse in
 * anything. */
static void add_strategies(struct spot *at, const struct layout *l,
                           const struct laid_out *x) {
    const struct local *local =
        op_bound_local(at->f, at->op, &at->mesh, l, at->micro_batch, at->devices);
    struct found *to = at->found;
    if (local->missing)
        return;
    double us = local->forward_us + local->backward_us + sums_us(at, x->sums, x->n_sums) +
                to->added_us;
    struct op_bound_strategy w = {0};
    add_kept(at, x->kept, local, &w);
    to->least_forward_us = fmin(to->least_forward_us, local->forward_us);
    for (int zero = 0; zero < x->levels; zero++) {
        w.us = us + x->params[zero].us;
        w.step_us = x->params[zero].step_us;
        w.fixed = x->params[zero].fixed;
        add_strategy(to, &w);
    }
}

/* Adds a layout with all micro-batches. Except where ops have sample groups, it is legal
 * with all those that its split of the batch divides. */
static void add_layout(struct spot *at, const struct layout *l) {
    const struct space *sp = at->f->ev->space;
    const struct model_op *o = &sp->blocks.x.model->ops[at->op];
    struct laid_out x = {.levels =
                             o->n_param && at->devices > 1 ? space_zero_levels(sp) : 1,
                         .n_sums = find_sums(at, l, x.sums)};
    int64_t parts = batch_parts(at, l);
    add_params(at, l, x.levels, x.params);
    find_kept(at, l, x.kept);
    for (int i = 0; i < sp->p.n_micro; i++) {
        use_micro_batch(at, i);
        if (sp->p.micro[i] % parts == 0 && (o->attr[ATTR_group] <= 1 || is_legal(at, l)))
            add_strategies(at, l, &x);
    }
}

/* Tries all layouts of the axes from this one on. Neighbouring axes of equal size take
 * dims in one order only. When time is up, some are left out; then there is no bound. */
static void add_layouts(struct spot *at, struct layout *l, int axis) {
    const struct op_space *space = &at->f->ev->space->blocks.x.model->ops[at->op].space;
    if (axis == at->mesh.n_axes) {
        if (!budget_out_of_time(at->f->ev->budget))
            add_layout(at, l);
        return;
    }
    bool same = axis > 0 && at->mesh.size[axis] == at->mesh.size[axis - 1] &&
                !((at->intra_node >> axis ^ at->intra_node >> (axis - 1)) & 1);
    for (int d = same ? l->dim[axis - 1] : PLACE_NONE; d < space->n; d++) {
        l->dim[axis] = (int8_t)d;
        if (d < 0 || (role_splits(space->role[d]) && may_be_legal(at, l)))
            add_layouts(at, l, axis + 1);
    }
    l->dim[axis] = PLACE_NONE;
}

static uint64_t spot_hash(const struct op_bounds *f, int op, int devices) {
    const struct trait *t = &f->traits[op];
    uint64_t h = memo_mix(memo_mix(1, f->ev->space->blocks.xs.alike[op]), t->counts);
    for (int k = 0; k < KIND_MAX_SLOTS; k++)
        h = memo_mix(h, (uint64_t)t->readers[k] << 1 | t->read[k]);
    h = memo_mix(h, (uint64_t)t->gives << 32 | t->later);
    return memo_mix(h, (uint64_t)devices);
}

/* Finds the strategies of an op on all meshes with this many devices, for all
 * micro-batches. */
static void find_strategies(struct spot *at) {
    struct mesh meshes[2];
    struct layout l;
    memset(&l, PLACE_NONE, sizeof l);
    for (int i = 0; i < at->f->ev->space->p.n_micro; i++) {
        use_micro_batch(at, i);
        at->found->added_us = at->f->pinned ? 0 : additions_us(at);
        at->found->least_forward_us = INFINITY;
    }
    for (int i = op_bound_meshes(at->devices, meshes) - 1; i >= 0; i--) {
        at->mesh = meshes[i];
        at->intra_node = op_bound_intra_node_axes(at->f, &at->mesh);
        /* If no axes differ in their links, one mesh has all layouts. */
        if (i == 0 || at->intra_node + 1 != 1u << at->mesh.n_axes)
            add_layouts(at, &l, 0);
    }
}

/* Returns an array by micro-batch of the problem; its last entry has n = -1. */
static const struct strategies *strategies_of(struct op_bounds *f, int op, int devices) {
    void **slot = memo_slot(&f->strategies, spot_hash(f, op, devices));
    if (!*slot) {
        size_t n = (size_t)f->ev->space->p.n_micro;
        struct strategies *out = mem_array(n + 1, sizeof *out);
        struct spot at = {.f = f, .op = op, .devices = devices};
        at.all = mem_array(n, sizeof *at.all);
        find_strategies(&at);
        for (size_t i = 0; i < n; i++)
            out[i] =
                (struct strategies){(int)at.all[i].strategies.n, at.all[i].strategies.p,
                                    at.all[i].least_forward_us};
        out[n].n = -1;
        free(at.all);
        *slot = out;
    }
    return *slot;
}

struct op_bound op_bounds_at(struct op_bounds *f, int op, int64_t micro_batch,
                             int devices) {
    const struct trait *t = &f->traits[op];
    int i = 0;
    while (f->ev->space->p.micro[i] != micro_batch)
        i++;
    const struct strategies *w = &strategies_of(f, op, devices)[i];
    struct op_bound out = {.n = w->n, .strategies = w->p, .forward_us = w->forward_us};
    for (int k = 0; k < OP_BOUND_ITEMS; k++)
        out.recompute_us[k] =
            t->maker[k] < 0
                ? INFINITY
                : strategies_of(f, t->maker[k], devices)[i].forward_us / t->shares[k];
    return out;
}

double op_bound_least(const struct op_bound *o, double micro_batches, double in_flight,
                      double us_per_byte) {
    double least = INFINITY;
    for (int i = 0; i < o->n; i++) {
        const struct op_bound_strategy *w = &o->strategies[i];
        double us = micro_batches * w->us + w->step_us + us_per_byte * w->fixed;
        for (int k = 0; k < OP_BOUND_ITEMS && us_per_byte > 0; k++)
            us += fmin(us_per_byte * in_flight * w->kept[k],
                       micro_batches * o->recompute_us[k]);
        least = fmin(least, us);
    }
    return least;
}

/* Returns how often p divides all dims together: no op can be split by it more often. */
static int divides(const struct model *m, int64_t micro_batch, int p) {
    int times = 0;
    for (int d = 0; d < m->n_dims; d++)
        for (int64_t n = model_dim_size(m, d, micro_batch); n > 0 && n % p == 0; n /= p)
            times++;
    return times;
}

bool op_bounds_of_use(const struct op_bounds *f, int64_t micro_batch, int devices) {
    const struct model *m = f->ev->space->blocks.x.model;
    for (int p = 2; devices > 1; p++) {
        int left = devices % p ? 0 : divides(m, micro_batch, p);
        for (; devices % p == 0; devices /= p)
            if (left-- == 0)
                return false;
    }
    return true;
}
