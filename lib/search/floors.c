/* Floors: see floors.h. */
#include "search/floors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIRST = 512 };

/* What of an op alone depends on its local sizes only. */
struct local {
    double forward_us, backward_us;
    double own; /* bytes that it keeps beside its operands */
    bool missing;
};

/* What no layout changes. */
struct trait {
    bool looked;
    unsigned keeps;  /* operands, as bits, */
    bool keeps_own;  /* and results */
    unsigned counts; /* of the operands that it keeps: those that no op before it counts */
    int maker[FLOOR_ITEMS];  /* op that made what it keeps; -1: it cannot be made again */
    int shares[FLOOR_ITEMS]; /* among so many the price of making it again is shared */
    double readers[KIND_MAX_SLOTS]; /* uses of an operand's tensor in the whole model */
    unsigned gives;                 /* operands, as bits: those that it gives a gradient, */
    unsigned later;                 /* and those whose tensor an op before it reads, too */
    bool read[KIND_MAX_SLOTS];      /* results that somebody reads */
};

/* The ways of all ops that are alike in this. */
struct ways {
    int n;
    struct floor_way *p;
    double forward_us; /* the least */
};

struct floors {
    struct search *s;
    struct trait *traits; /* [ops of the excerpt] */
    struct memo locals, sums, shares, ways;
    struct layout *at; /* [nodes] scratch */
    bool pinned;       /* what pins do to communication and memory is not looked into */
    int n_first, first[MOST_FIRST];
    struct device_class class; /* end 0: all devices */
};

/* ---- prices ---------------------------------------------------------------------------- */

static void add_first(struct floors *f, int64_t rank) {
    for (int i = 0; i < f->n_first; i++)
        if (f->first[i] == rank)
            return;
    if (f->n_first < MOST_FIRST)
        f->first[f->n_first++] = (int)rank;
}

/* Where stages may stand, as far as it matters: at the bounds of groups of equal devices; all
 * places in and between the first two nodes and in the last one of each group if a link between nodes is
 * faster than one inside. */
static void find_firsts(struct floors *f) {
    const struct cluster *c = &f->s->p.cluster;
    double inside = INFINITY, between = 0;
    for (int g = 0; g < c->n_groups; g++) {
        for (int i = 0; i < c->groups[g].n_links; i++)
            inside = fmin(inside, c->groups[g].links[i].bandwidth);
        add_first(f, c->groups[g].first_rank);
    }
    for (int i = 0; i < c->n_links; i++)
        between = fmax(between, c->links[i].bandwidth);
    for (int g = 0; g < c->n_groups && between > inside && cluster_nodes(c) > 1; g++) {
        const struct cluster_group *k = &c->groups[g];
        int64_t all = k->nodes * k->devices;
        for (int64_t r = 0; r < all && r < f->s->p.devices - k->first_rank; r++)
            if (r < 2 * k->devices || r >= all - k->devices)
                add_first(f, k->first_rank + r);
    }
}

/* On so many devices from a rank on; INFINITY where the profile lacks it. */
static double us_at(struct floors *f, const struct stage_program *sp,
                    const struct instr *ins, int devices, int first) {
    struct graph *g = &f->s->graph;
    int last = f->s->p.devices - devices;
    g->stages[0].first_rank = first < last ? first : last;
    cost_forget(g->cost);
    double us = cost_instr(g->cost, &g->plan, sp, ins).us;
    bool known = g->cost->n_missing == 0;
    cost_forget(g->cost);
    return known ? us : INFINITY;
}

/* Of an instruction on so many devices, where they stand best. */
static double best_us(struct floors *f, const struct stage_program *sp,
                      const struct instr *ins, int devices, bool *missing) {
    double best = INFINITY;
    for (int i = 0; i < f->n_first; i++)
        best = fmin(best, us_at(f, sp, ins, devices, f->first[i]));
    *missing |= !isfinite(best);
    return isfinite(best) ? best : 0;
}

/* What is computed on each device alone: the slowest kind that a group touches decides. */
static double own_us(struct floors *f, const struct stage_program *sp,
                     const struct instr *ins, int devices, bool *missing) {
    if (devices > f->class.end - f->class.first)
        return best_us(f, sp, ins, devices, missing);
    double us = us_at(f, sp, ins, devices, f->class.first);
    *missing |= !isfinite(us);
    return isfinite(us) ? us : 0;
}

/* Rounded down, so that few are asked for: to 1 part in 16. */
static int64_t rounded(double elems) {
    int e;
    double x = frexp(elems, &e);
    return e > 5 ? (int64_t)ldexp(floor(x * 32), e - 5) : (int64_t)elems;
}

/* A collective over these axes of the mesh; 0 where the profile lacks it. */
static double collective_us(struct floors *f, const struct mesh *mesh, unsigned axes,
                            enum opcode code, enum dtype dtype, int64_t elems) {
    struct graph *g = &f->s->graph;
    struct stage_program sp = {.stage = 0, .mesh = &g->stages[0].mesh};
    struct instr ins = instr_init(code);
    int devices = mesh_devices(mesh);
    bool missing = false;
    g->stages[0].mesh = *mesh;
    ins.axes = axes;
    ins.dtype = dtype;
    ins.n.v[0] = elems;
    return best_us(f, &sp, &ins, devices, &missing);
}

/* How many devices take part in a collective: as axes within nodes have it, and as those that lead to
 * other nodes do. */
struct reach {
    int near, far;
};

static int reach_size(struct reach g) {
    return g.near * g.far;
}

/* Axes along which groups may lie within a node. On many devices no such difference is made, to keep
 * layouts few. */
static unsigned near_axes(const struct floors *f, const struct mesh *mesh) {
    enum { MOST = 64 };
    const struct cluster *c = &f->s->p.cluster;
    int64_t node = 0, reach = 1;
    unsigned axes = 0;
    for (int g = 0; g < c->n_groups; g++)
        node = c->groups[g].devices > node ? c->groups[g].devices : node;
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        reach *= mesh->size[a];
        axes |= (unsigned)(reach <= node || mesh_devices(mesh) > MOST) << a;
    }
    return axes;
}

static struct reach reach_of(const struct mesh *mesh, unsigned near, unsigned axes) {
    return (struct reach){mesh_group_size(mesh, axes & near),
                          mesh_group_size(mesh, axes & ~near)};
}

static uint64_t reach_hash(int what, int devices, struct reach g, enum opcode code,
                           enum dtype dtype, int64_t elems) {
    uint64_t h = memo_mix((uint64_t)what, (uint64_t)g.near << 32 | (uint64_t)g.far);
    h = memo_mix(memo_mix(h, (uint64_t)devices), (uint64_t)code << 8 | (uint64_t)dtype);
    return memo_mix(h, (uint64_t)elems);
}

/* Those that a stage may have; returns how many. */
static int meshes_of(int devices, struct mesh meshes[2]) {
    graph_mesh_descending(devices, &meshes[0]);
    graph_mesh_ascending(devices, &meshes[1]);
    return search_mesh_has_orders(devices) ? 2 : 1;
}

/* Of this kind, over any axes that make such a group. */
static double group_us(struct floors *f, int devices, struct reach g, enum opcode code,
                       enum dtype dtype, double elems) {
    if (reach_size(g) == 1)
        return 0;
    int64_t n = rounded(elems);
    void **slot = memo_slot(&f->sums, reach_hash(1, devices, g, code, dtype, n));
    if (!*slot) {
        double *best = mem_alloc(sizeof *best);
        struct mesh meshes[2];
        *best = INFINITY;
        for (int i = meshes_of(devices, meshes) - 1; i >= 0; i--)
            for (unsigned axes = 1; axes < 1u << meshes[i].n_axes && n; axes++) {
                struct reach has = reach_of(&meshes[i], near_axes(f, &meshes[i]), axes);
                if (has.near == g.near && has.far == g.far)
                    *best = fmin(*best, collective_us(f, &meshes[i], axes, code, dtype, n));
            }
        *best = isfinite(*best) ? *best : 0;
        *slot = best;
    }
    return *(double *)*slot;
}

/* A sum is scattered, or shards gathered, over such groups: at once, or over some axes and then over the
 * others. */
static double steps_us(struct floors *f, int devices, struct reach g, enum opcode code,
                       enum dtype dtype, double elems) {
    if (reach_size(g) == 1)
        return 0;
    int64_t n = rounded(elems);
    uint64_t key = reach_hash(2, devices, g, code, dtype, n);
    double **known = (double **)memo_slot(&f->sums, key);
    if (*known)
        return **known;
    double best = group_us(f, devices, g, code, dtype, (double)n);
    for (struct reach part = {1, 1}; part.near <= g.near; part.near++)
        for (part.far = 1; g.near % part.near == 0 && part.far <= g.far; part.far++) {
            int size = reach_size(part);
            struct reach rest = {g.near / part.near, g.far / part.far};
            if (g.far % part.far == 0 && size > 1 && size < reach_size(g))
                best = fmin(best,
                            group_us(f, devices, part, code, dtype, (double)n) +
                                steps_us(f, devices, rest, code, dtype, (double)n / size));
        }
    double *out = mem_alloc(sizeof *out);
    *out = best;
    *memo_slot(&f->sums, key) = out;
    return best;
}

/* Parts of a sum become shards, or the whole. */
static double sum_us(struct floors *f, int devices, struct reach g, enum dtype dtype,
                     double elems) {
    return fmin(steps_us(f, devices, g, I_reduce_scatter, dtype, elems),
                steps_us(f, devices, g, I_all_reduce, dtype, elems));
}

/* All gradients that are summed over the same devices go in one collective: what one of them adds is
 * the least that an element takes in any number of them. */
static double gradient_us(struct floors *f, int devices, struct reach g, double elems) {
    if (reach_size(g) == 1)
        return 0;
    double least = INFINITY, n = 16;
    while (2 * n < elems)
        n *= 2;
    uint64_t key = reach_hash(2, devices, g, I_all_reduce, DTYPE_COUNT, (int64_t)n);
    double **known = (double **)memo_slot(&f->sums, key);
    if (*known)
        return **known * elems;
    for (double more = n; more < 1e12; more *= 2)
        least = fmin(least, group_us(f, devices, g, I_all_reduce, DTYPE_f32, more) / more);
    double *out = mem_alloc(sizeof *out);
    *out = isfinite(least) ? least : 0;
    *memo_slot(&f->sums, key) = out;
    return *out * elems;
}

/* ---- one op alone ------------------------------------------------------------------------ */

/* Not what brings a value into another placement, or adds up gradients of several readers. */
static bool is_its_own(const struct model_op *o, const struct instr *ins) {
    enum key_kind key = opcode_key(ins->code);
    return (key == KEY_SHAPE || key == KEY_CURVE) && ins->code != I_copy &&
           (ins->code != I_add || o->kind == OP_add);
}

static int operand_of(const struct model_op *o, int tensor) {
    for (int k = 0; k < o->n_in; k++)
        if (o->in[k] == tensor)
            return k;
    return -1;
}

static bool is_kept(const struct stage_program *sp, int buffer) {
    return buffer >= 0 && sp->buffers[buffer].mem == MEM_activations;
}

static void look(struct floors *f, const struct stage_program *sp, int op, int devices,
                 struct trait *t, struct local *out) {
    const struct model_op *o = &f->s->graph.x.model->ops[op];
    *out = (struct local){0};
    for (int p = 0; p < POOL_COUNT; p++)
        out->own += (double)sp->slots[p].bytes;
    for (int i = 0; i < sp->seg[SEG_REDUCE]; i++) {
        const struct instr *ins = &sp->instrs[i];
        bool forward = i < sp->seg[SEG_BACKWARD];
        if (is_its_own(o, ins))
            *(forward ? &out->forward_us : &out->backward_us) +=
                own_us(f, sp, ins, devices, &out->missing);
        bool taken = ins->code == I_recv || ins->code == I_input;
        int k = forward && taken ? operand_of(o, ins->tensor) : -1;
        if (k >= 0 && is_kept(sp, ins->out.v[0])) {
            out->own -= (double)buffer_bytes(&sp->buffers[ins->out.v[0]]);
            t->keeps |= 1u << k;
        }
        t->keeps_own |= forward && ins->code == I_send && is_kept(sp, ins->in.send.x);
        int given = !forward && ins->code == I_send ? operand_of(o, ins->tensor) : -1;
        t->gives |= given >= 0 ? 1u << given : 0;
    }
}

/* Local sizes, and whether what is not simply parallel is split. */
static uint64_t local_hash(const struct floors *f, int op, const struct mesh *mesh,
                           const struct layout *l, int64_t micro_batch) {
    const struct graph *g = &f->s->graph;
    const struct op_space *space = &g->x.model->ops[op].space;
    uint64_t h = memo_mix(1, g->xs.alike[op]);
    for (int k = 0; k < space->n; k++) {
        int64_t n = model_dim_size(g->x.model, space->dim[k], micro_batch);
        int64_t size = layout_size(mesh, l, k, n);
        bool split = space->role[k] != ROLE_parallel && size < n;
        h = memo_mix(h, (uint64_t)size << 1 | split);
        /* How far axes divide what has one element for each group of several. */
        for (int a = 0; a < mesh->n_axes && size < n && g->x.model->ops[op].n_in > 1; a++)
            h = l->dim[a] == k ? memo_mix(h, (uint64_t)mesh->size[a]) : h;
    }
    return h;
}

static const struct local *local_of(struct floors *f, int op, const struct mesh *mesh,
                                    const struct layout *l, int64_t micro_batch,
                                    int devices) {
    struct graph *g = &f->s->graph;
    uint64_t key = local_hash(f, op, mesh, l, micro_batch);
    void **slot = memo_slot(&f->locals, key);
    if (!*slot) {
        struct local *out = mem_alloc(sizeof *out);
        struct setting st = {.devices = devices,
                             .micro_batch = micro_batch,
                             .mesh = mesh,
                             .regather = search_may_regather(f->s)};
        struct stage_program sp;
        f->at[g->x.node_of[op]] = *l;
        graph_compile(g, &st, op, f->at, &sp);
        look(f, &sp, op, devices, &f->traits[op], out);
        stage_program_release(&sp);
        *slot = out;
    }
    return *slot;
}

/* ---- traits ------------------------------------------------------------------------------ */

static void look_whole(struct floors *f, int op) {
    struct graph *g = &f->s->graph;
    const struct model_op *o = &g->x.model->ops[op];
    struct trait *t = &f->traits[op];
    struct setting st = {.devices = 1, .micro_batch = f->s->p.micro[f->s->p.n_micro - 1]};
    struct stage_program sp;
    struct local unused;
    memset(&f->at[g->x.node_of[op]], PLACE_NONE, sizeof *f->at);
    graph_compile(g, &st, op, f->at, &sp);
    look(f, &sp, op, 1, t, &unused);
    stage_program_release(&sp);
    for (int k = 0; k < o->n_in; k++) {
        const struct model_op *whole = &g->whole->ops[g->x.from[op]];
        int producer = g->whole->tensors[whole->in[k]].producer;
        t->readers[k] = 0;
        if (producer < 0)
            continue;
        for (int e = g->s.edges_of[producer]; e < g->s.edges_of[producer + 1]; e++)
            if (g->s.edges[e].tensor == whole->in[k]) {
                t->readers[k] = g->s.edges[e].n;
                t->later |= (unsigned)(g->s.edges[e].readers[0] < g->x.from[op]) << k;
            }
        double times = 0;
        for (int j = 0; j < o->n_in; j++)
            times += o->in[j] == o->in[k];
        t->readers[k] *= times;
    }
    for (int e = g->xs.edges_of[op]; e < g->xs.edges_of[op + 1]; e++)
        for (int k = 0; k < o->n_out; k++)
            t->read[k] |= g->xs.edges[e].tensor == o->out[k] && g->xs.edges[e].n > 0;
}

/* The tensor whose bytes it has. */
static int root_of(const struct model *m, int tensor) {
    for (;;) {
        int op = m->tensors[tensor].producer;
        if (op < 0 || !op_is(&m->ops[op], KIND_FREE))
            return tensor;
        tensor = m->ops[op].in[0];
    }
}

static bool may_be_made_again(const struct search *s, int op) {
    int node = s->graph.x.node_of[op];
    return s->again[0][node] || s->again[1][node] || s->again[2][node];
}

/* Who counts what is kept: of a tensor's maker and readers the first one that keeps it. */
static void share_kept(struct floors *f) {
    const struct model *m = f->s->graph.x.model;
    bool *counted = mem_array((size_t)m->n_tensors, sizeof *counted);
    int *items = mem_array((size_t)m->n_ops, sizeof *items);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *o = &m->ops[i];
        struct trait *t = &f->traits[i];
        for (int k = 0; k < FLOOR_ITEMS; k++)
            t->maker[k] = -1;
        for (int k = 0; k < o->n_in; k++) {
            int root = root_of(m, o->in[k]), maker = m->tensors[root].producer;
            if (!(t->keeps >> k & 1) || counted[root])
                continue;
            counted[root] = true;
            t->counts |= 1u << k;
            t->maker[k] = maker >= 0 && may_be_made_again(f->s, maker) ? maker : -1;
        }
        for (int k = 0; k < o->n_out && t->keeps_own; k++)
            counted[root_of(m, o->out[k])] = true;
        t->maker[FLOOR_OWN] = may_be_made_again(f->s, i) ? i : -1;
        for (int k = 0; k < FLOOR_ITEMS; k++)
            if (t->maker[k] >= 0)
                items[t->maker[k]]++;
    }
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < FLOOR_ITEMS; k++)
            if (f->traits[i].maker[k] >= 0)
                f->traits[i].shares[k] = items[f->traits[i].maker[k]];
    free(counted);
    free(items);
}

struct floors *floors_make(struct search *s, const struct device_class *class) {
    struct floors *f = mem_alloc(sizeof *f);
    size_t n = (size_t)s->graph.x.model->n_ops;
    f->s = s;
    f->pinned = s->p.pins != NULL;
    f->class = class ? *class : (struct device_class) { 0 };
    f->traits = mem_array(n, sizeof *f->traits);
    f->at = mem_array((size_t)s->graph.x.n_nodes, sizeof *f->at);
    find_firsts(f);
    for (int i = 0; i < (int)n; i++)
        look_whole(f, i);
    /* So that the graph knows what the norm takes. */
    struct setting one = {.devices = 1, .micro_batch = s->p.micro[s->p.n_micro - 1]};
    for (int i = 0; i < (int)n && s->graph.norm_us <= 0; i++)
        graph_node(&s->graph, &one, i, f->at);
    share_kept(f);
    return f;
}

static void ways_free(void *p) {
    free(((struct ways *)p)->p);
    free(p);
}

void floors_free(struct floors *f) {
    memo_release(&f->locals, free);
    memo_release(&f->sums, free);
    memo_release(&f->shares, free);
    memo_release(&f->ways, ways_free);
    free(f->traits);
    free(f->at);
    free(f);
}

/* ---- ways -------------------------------------------------------------------------------- */

/* An op on a mesh. */
struct spot {
    struct floors *f;
    int op, devices;
    int64_t micro_batch;
    struct mesh mesh;
    unsigned near; /* its axes within nodes */
    ARR(struct floor_way) ways;
    double least_forward_us;
};

static struct extents sizes_of(const struct spot *at, const struct shape *shape) {
    return model_extents(at->f->s->graph.x.model, shape, at->micro_batch);
}

/* Summing what comes out as parts of a sum. */
static double parts_us(struct spot *at, int tensor, const struct axis_map *map,
                       const struct layout *l) {
    const struct graph *g = &at->f->s->graph;
    struct placement p = placement_result(&at->mesh, l, map);
    unsigned axes = placement_axes(&at->mesh, p, PLACE_PARTIAL);
    if (!axes || at->f->pinned)
        return 0;
    struct extents x = sizes_of(at, &g->x.model->tensors[tensor].shape);
    return sum_us(at->f, at->devices, reach_of(&at->mesh, at->near, axes),
                  plan_tensor_dtype(&g->plan, tensor),
                  (double)placement_elements(&at->mesh, &x, p));
}

static double sums_us(struct spot *at, const struct layout *l) {
    const struct model *m = at->f->s->graph.x.model;
    const struct model_op *o = &m->ops[at->op];
    const struct trait *t = &at->f->traits[at->op];
    double us = 0;
    for (int k = 0; k < o->n_out; k++)
        if (t->read[k])
            us += parts_us(at, o->out[k], &o->out_map[k], l);
    for (int k = 0; k < o->n_in; k++)
        if (model_has_gradient(m, o->in[k]) && t->readers[k] > 0)
            us += parts_us(at, o->in[k], &o->in_map[k], l) / t->readers[k];
    return us;
}

/* What it takes to bring so many bytes to another device, where that is fastest: in or between the
 * first two nodes of each kind, or between kinds. */
static double message_us(struct floors *f, int64_t bytes) {
    const struct cluster *c = &f->s->p.cluster;
    struct cost *cost = f->s->graph.cost;
    double best = INFINITY;
    for (int g = 0; g < c->n_groups; g++) {
        int64_t first = c->groups[g].first_rank, end = first + 2 * c->groups[g].devices;
        for (int64_t r = first > 0 ? first : 1; r < end && r < f->s->p.devices; r++) {
            best = fmin(best, cost_message_us(cost, r - 1, r, 1, bytes));
            best = fmin(best, cost_message_us(cost, 0, r, 1, bytes));
        }
    }
    best = cost->n_missing ? 0 : best;
    cost_forget(cost);
    return best;
}

/* On the least that a device may have of the tensor; or having taken the tensor from another stage, whose
 * work adding is then. */
double floors_addition_us(struct floors *f, int devices, enum dtype dtype, double elems) {
    struct graph *g = &f->s->graph;
    int64_t n = (int64_t)(elems / devices);
    uint64_t key =
        memo_mix(memo_mix(3, (uint64_t)n), (uint64_t)devices << 8 | (uint64_t)dtype);
    double **known = (double **)memo_slot(&f->sums, key);
    if (*known)
        return **known;
    struct stage_program sp = {.stage = 0, .mesh = &g->stages[0].mesh};
    struct instr ins = instr_init(I_add);
    bool missing = false;
    double *out = mem_alloc(sizeof *out);
    graph_mesh(devices, NULL, &g->stages[0].mesh);
    ins.dtype = dtype;
    ins.n.add.elems = n;
    *out = n ? best_us(f, &sp, &ins, devices, &missing) : 0;
    *out = fmin(missing ? 0 : *out, message_us(f, n * dtype_size(dtype)));
    *memo_slot(&f->sums, key) = out;
    return *out;
}

/* Contributions to one gradient are added up one by one: each reader but the first costs an addition. */
static double additions_us(struct spot *at) {
    const struct graph *g = &at->f->s->graph;
    const struct model_op *o = &g->x.model->ops[at->op];
    const struct trait *t = &at->f->traits[at->op];
    double us = 0;
    for (int k = 0; k < o->n_in; k++) {
        if (!(t->gives & t->later & 1u << k) || operand_of(o, o->in[k]) != k)
            continue;
        struct extents x = sizes_of(at, &g->x.model->tensors[o->in[k]].shape);
        double elems = 1;
        for (int i = 0; i < x.rank; i++)
            elems *= (double)x.size[i];
        us += floors_addition_us(at->f, at->devices, plan_tensor_dtype(&g->plan, o->in[k]),
                                 elems);
    }
    return us;
}

/* Elements of a parameter as ops want it, as ZeRO leaves them to a device; over how many it is
 * summed, and shared. */
struct held {
    double whole, share;
    struct reach summed, scattered,
        spread; /* scattered: of those over which it is summed */
};

static struct held held_of(const struct spot *at, int slot, const struct layout *l) {
    const struct model *m = at->f->s->graph.x.model;
    const struct model_op *o = &m->ops[at->op];
    struct extents x = sizes_of(at, &m->params[o->param[slot]].shape);
    struct placement p = placement_operand(&at->mesh, l, &o->param_map[slot]);
    struct placement parts = placement_result(&at->mesh, l, &o->param_map[slot]);
    struct placement share = placement_scatter(&at->mesh, &x, p);
    struct held h = {.whole = (double)placement_elements(&at->mesh, &x, p),
                     .share = (double)placement_elements(&at->mesh, &x, share)};
    unsigned summed = placement_axes(&at->mesh, parts, PLACE_PARTIAL);
    unsigned rest = placement_axes(&at->mesh, share, PLACE_REPLICATE);
    unsigned same = placement_axes(&at->mesh, p, PLACE_REPLICATE);
    h.summed = reach_of(&at->mesh, at->near, summed);
    h.scattered = reach_of(&at->mesh, at->near, summed & ~rest);
    h.spread = reach_of(&at->mesh, at->near, same & ~rest);
    return h;
}

/* The optimizer's work on so many elements. */
static double descend_us(const struct spot *at, double elems) {
    struct graph *g = &at->f->s->graph;
    struct stage_program sp = {.stage = 0, .mesh = &g->stages[0].mesh};
    struct instr ins = instr_init(g->plan.optimizer == OPTIMIZER_adamw ? I_adamw : I_sgd);
    bool missing = false;
    graph_mesh(at->devices, NULL, &g->stages[0].mesh);
    ins.dtype = DTYPE_f32;
    ins.n.v[0] = (int64_t)elems;
    return own_us(at->f, &sp, &ins, at->devices, &missing);
}

/* A parameter's part of an op: its time, and bytes. */
struct param_cost {
    double us, step_us, fixed;
};

static struct param_cost share_of(struct spot *at, const struct held *h, int zero) {
    const struct search *s = at->f->s;
    enum dtype dtype = s->p.dtype;
    double wide = (double)dtype_size(DTYPE_f32), narrow = (double)dtype_size(dtype);
    double held = zero >= ZERO_PARAMETERS ? h->share : h->whole;
    double gradient = zero >= ZERO_GRADIENTS ? h->share : h->whole;
    double updated = zero >= ZERO_OPTIMIZER ? h->share : h->whole;
    int states =
        optimizer_states(s->p.optimizer) + (dtype != DTYPE_f32 && zero < ZERO_PARAMETERS);
    struct param_cost out = {.step_us = descend_us(at, updated)};
    if (at->f->pinned)
        return out;
    if (!s->p.offload) /* hosts have room */
        out.fixed = narrow * held + wide * (gradient + states * updated);
    if (zero < ZERO_OPTIMIZER || reach_size(h->spread) == 1) {
        if (!s->hides)
            out.step_us += gradient_us(at->f, at->devices, h->summed, h->whole);
        return out;
    }
    /* With overlap gradients are summed, and parameters gathered, while others compute. */
    if (!s->hides || zero < ZERO_PARAMETERS)
        *(zero >= ZERO_PARAMETERS ? &out.us : &out.step_us) +=
            steps_us(at->f, at->devices, h->spread, I_all_gather, dtype, h->whole);
    if (s->hides)
        return out;
    if (zero >= ZERO_GRADIENTS)
        out.us += sum_us(at->f, at->devices, h->scattered, DTYPE_f32, h->whole);
    else
        out.step_us += sum_us(at->f, at->devices, h->summed, DTYPE_f32, h->whole);
    return out;
}

static void add_param(struct spot *at, const struct held *h, int zero,
                      struct floor_way *to) {
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)at->devices << 2 | (uint64_t)zero),
                            (uint64_t)h->whole);
    key = memo_mix(key, (uint64_t)h->share);
    for (int i = 0; i < 3; i++) {
        struct reach g = i ? i > 1 ? h->spread : h->scattered : h->summed;
        key = memo_mix(key, (uint64_t)g.near << 32 | (uint64_t)g.far);
    }
    void **slot = memo_slot(&at->f->shares, key);
    if (!*slot) {
        struct param_cost *out = mem_alloc(sizeof *out);
        *slot = out; /* nothing else is asked for here meanwhile */
        *out = share_of(at, h, zero);
    }
    const struct param_cost *add = *slot;
    to->us += add->us;
    to->step_us += add->step_us;
    to->fixed += add->fixed;
}

/* Of the parameters that the op has for itself; returns how many. */
static int find_params(const struct spot *at, const struct layout *l,
                       struct held held[KIND_MAX_SLOTS]) {
    const struct model *m = at->f->s->graph.x.model;
    const struct model_op *o = &m->ops[at->op];
    int n = 0;
    for (int k = 0; k < o->n_param; k++) {
        int param = o->param[k];
        if (param >= 0 && !m->params[param].running && m->params[param].first_op == at->op)
            held[n++] = held_of(at, k, l);
    }
    return n;
}

static void add_kept(const struct spot *at, const struct layout *l,
                     const struct local *local, struct floor_way *to) {
    const struct graph *g = &at->f->s->graph;
    const struct model_op *o = &g->x.model->ops[at->op];
    const struct trait *t = &at->f->traits[at->op];
    if (at->f->pinned || at->f->s->p.offload)
        return;
    to->kept[FLOOR_OWN] = fmax(local->own, 0);
    for (int k = 0; k < o->n_in; k++) {
        if (!(t->counts >> k & 1))
            continue;
        struct extents x = sizes_of(at, &g->x.model->tensors[o->in[k]].shape);
        struct placement p = placement_operand(&at->mesh, l, &o->in_map[k]);
        double elems = (double)placement_elements(&at->mesh, &x, p);
        if (search_may_regather(at->f->s)) /* then it may be kept in shards */
            elems = fmin(elems, (double)extents_count(&x) / at->devices);
        to->kept[k] = elems * (double)dtype_size(plan_tensor_dtype(&g->plan, o->in[k]));
    }
}

static bool no_worse(const struct floor_way *a, const struct floor_way *b) {
    bool good = a->us <= b->us && a->step_us <= b->step_us && a->fixed <= b->fixed;
    for (int k = 0; k < FLOOR_ITEMS; k++)
        good &= a->kept[k] <= b->kept[k];
    return good;
}

static void keep_way(struct spot *at, const struct floor_way *w) {
    int64_t n = 0;
    for (int64_t i = 0; i < at->ways.n; i++)
        if (no_worse(&at->ways.p[i], w))
            return;
    for (int64_t i = 0; i < at->ways.n; i++)
        if (!no_worse(w, &at->ways.p[i]))
            at->ways.p[n++] = at->ways.p[i];
    at->ways.n = n;
    arr_push(&at->ways, *w);
}

static void add_layout(struct spot *at, const struct layout *l) {
    struct floors *f = at->f;
    const struct model *m = f->s->graph.x.model;
    const struct model_op *o = &m->ops[at->op];
    if (layout_check(m, o, &at->mesh, l, at->micro_batch, NULL) < 0)
        return;
    const struct local *local =
        local_of(f, at->op, &at->mesh, l, at->micro_batch, at->devices);
    if (local->missing)
        return;
    int levels = o->n_param && at->devices > 1 ? search_zero_levels(f->s) : 1;
    double sums = sums_us(at, l), added = at->f->pinned ? 0 : additions_us(at);
    struct held held[KIND_MAX_SLOTS];
    int n_held = find_params(at, l, held);
    at->least_forward_us = fmin(at->least_forward_us, local->forward_us);
    for (int zero = 0; zero < levels; zero++) {
        struct floor_way w = {.us = local->forward_us + local->backward_us + sums + added};
        for (int k = 0; k < n_held; k++)
            add_param(at, &held[k], zero, &w);
        add_kept(at, l, local, &w);
        keep_way(at, &w);
    }
}

/* Equal axes next to each other: dims in one order only. */
static void add_layouts(struct spot *at, struct layout *l, int axis) {
    const struct op_space *space = &at->f->s->graph.x.model->ops[at->op].space;
    if (axis == at->mesh.n_axes) {
        add_layout(at, l);
        return;
    }
    bool same = axis > 0 && at->mesh.size[axis] == at->mesh.size[axis - 1] &&
                !((at->near >> axis ^ at->near >> (axis - 1)) & 1);
    for (int d = same ? l->dim[axis - 1] : PLACE_NONE; d < space->n; d++) {
        l->dim[axis] = (int8_t)d;
        if (d < 0 || role_splits(space->role[d]))
            add_layouts(at, l, axis + 1);
    }
    l->dim[axis] = PLACE_NONE;
}

static uint64_t spot_hash(const struct floors *f, int op, int64_t micro_batch,
                          int devices) {
    const struct trait *t = &f->traits[op];
    uint64_t h = memo_mix(memo_mix(1, f->s->graph.xs.alike[op]), t->counts);
    for (int k = 0; k < KIND_MAX_SLOTS; k++)
        h = memo_mix(h, (uint64_t)t->readers[k] << 1 | t->read[k]);
    h = memo_mix(h, (uint64_t)t->gives << 32 | t->later);
    return memo_mix(memo_mix(h, (uint64_t)micro_batch), (uint64_t)devices);
}

static const struct ways *ways_of(struct floors *f, int op, int64_t micro_batch,
                                  int devices) {
    void **slot = memo_slot(&f->ways, spot_hash(f, op, micro_batch, devices));
    if (!*slot) {
        struct spot at = {.f = f,
                          .op = op,
                          .devices = devices,
                          .micro_batch = micro_batch,
                          .least_forward_us = INFINITY};
        struct ways *out = mem_alloc(sizeof *out);
        struct mesh meshes[2];
        struct layout l;
        memset(&l, PLACE_NONE, sizeof l);
        for (int i = meshes_of(devices, meshes) - 1; i >= 0; i--) {
            at.mesh = meshes[i];
            at.near = near_axes(f, &at.mesh);
            /* Where no axes are told apart one mesh has all there is. */
            if (i == 0 || at.near + 1 != 1u << at.mesh.n_axes)
                add_layouts(&at, &l, 0);
        }
        *out = (struct ways){(int)at.ways.n, at.ways.p, at.least_forward_us};
        *slot = out;
    }
    return *slot;
}

struct floor_op floors_at(struct floors *f, int op, int64_t micro_batch, int devices) {
    const struct trait *t = &f->traits[op];
    const struct ways *w = ways_of(f, op, micro_batch, devices);
    struct floor_op out = {.n = w->n, .ways = w->p, .forward_us = w->forward_us};
    for (int k = 0; k < FLOOR_ITEMS; k++)
        out.again_us[k] =
            t->maker[k] < 0
                ? INFINITY
                : ways_of(f, t->maker[k], micro_batch, devices)->forward_us / t->shares[k];
    return out;
}

double floor_least(const struct floor_op *o, double micro_batches, double in_flight,
                   double us_per_byte) {
    double least = INFINITY;
    for (int i = 0; i < o->n; i++) {
        const struct floor_way *w = &o->ways[i];
        double us = micro_batches * w->us + w->step_us + us_per_byte * w->fixed;
        for (int k = 0; k < FLOOR_ITEMS && us_per_byte > 0; k++)
            us +=
                fmin(us_per_byte * in_flight * w->kept[k], micro_batches * o->again_us[k]);
        least = fmin(least, us);
    }
    return least;
}

/* How often p divides all dims together: no op is split further by it. */
static int divides(const struct model *m, int64_t micro_batch, int p) {
    int times = 0;
    for (int d = 0; d < m->n_dims; d++)
        for (int64_t n = model_dim_size(m, d, micro_batch); n > 0 && n % p == 0; n /= p)
            times++;
    return times;
}

bool floors_of_use(const struct floors *f, int64_t micro_batch, int devices) {
    const struct model *m = f->s->graph.x.model;
    for (int p = 2; devices > 1; p++) {
        int left = devices % p ? 0 : divides(m, micro_batch, p);
        for (; devices % p == 0; devices /= p)
            if (left-- == 0)
                return false;
    }
    return true;
}
