/* Lower bounds: the least time of instructions, wherever groups of this many devices
 * stand. */
#include "search/bound/op_bounds_impl.h"

#include <math.h>
#include <stdlib.h>

/* ---- one device, or a group ---------------------------------------------------------------- */

static void add_first(struct op_bounds *f, int64_t rank) {
    for (int i = 0; i < f->n_first; i++)
        if (f->first[i] == rank)
            return;
    if (f->n_first < MOST_FIRST)
        f->first[f->n_first++] = (int)rank;
}

/* Finds the first ranks that matter: where groups of equal devices begin and, if a link
 * between nodes is faster than one inside a node, all ranks of the first two nodes and of
 * the last node of each such group. */
void op_bound_find_places(struct op_bounds *f) {
    const struct cluster *c = &f->ev->space->p.cluster;
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
        for (int64_t r = 0; r < all && r < f->ev->space->p.devices - k->first_rank; r++)
            if (r < 2 * k->devices || r >= all - k->devices)
                add_first(f, k->first_rank + r);
    }
}

/* The time on this many devices from a rank on; INFINITY if the profile lacks it. */
static double us_at(struct op_bounds *f, const struct stage_program *sp,
                    const struct instr *ins, int devices, int first) {
    struct graph *g = &f->ev->graph;
    int last = f->ev->space->p.devices - devices;
    g->stages[0].first_rank = first < last ? first : last;
    cost_forget(g->cost);
    double us = cost_instr(g->cost, &g->plan, sp, ins).us;
    bool known = g->cost->n_missing == 0;
    cost_forget(g->cost);
    return known ? us : INFINITY;
}

/* The time of an instruction on this many devices, where that is least. */
static double best_us(struct op_bounds *f, const struct stage_program *sp,
                      const struct instr *ins, int devices, bool *missing) {
    double best = INFINITY;
    for (int i = 0; i < f->n_first; i++)
        best = fmin(best, us_at(f, sp, ins, devices, f->first[i]));
    *missing |= !isfinite(best);
    return isfinite(best) ? best : 0;
}

/* The time of what every device computes alone; a group is as slow as its slowest kind
 * of device. */
double op_bound_own_us(struct op_bounds *f, const struct stage_program *sp,
                       const struct instr *ins, int devices, bool *missing) {
    if (devices > f->class.end - f->class.first)
        return best_us(f, sp, ins, devices, missing);
    double us = us_at(f, sp, ins, devices, f->class.first);
    *missing |= !isfinite(us);
    return isfinite(us) ? us : 0;
}

/* Rounds down to 1 part in 16, so that fewer different sizes are asked for. */
static int64_t rounded(double elems) {
    int e;
    double x = frexp(elems, &e);
    return e > 5 ? (int64_t)ldexp(floor(x * 32), e - 5) : (int64_t)elems;
}

/* The time of a collective over these axes of the mesh; 0 if the profile lacks it. */
static double collective_us(struct op_bounds *f, const struct mesh *mesh, unsigned axes,
                            enum opcode code, enum dtype dtype, int64_t elems) {
    struct graph *g = &f->ev->graph;
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

/* On many devices every axis counts as within a node, to keep the number of layouts
 * small. */
unsigned op_bound_intra_node_axes(const struct op_bounds *f, const struct mesh *mesh) {
    const struct cluster *c = &f->ev->space->p.cluster;
    int64_t node = 0, reach = 1;
    unsigned axes = 0;
    for (int g = 0; g < c->n_groups; g++)
        node = c->groups[g].devices > node ? c->groups[g].devices : node;
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        reach *= mesh->size[a];
        axes |= (unsigned)(reach <= node || f->ev->space->p.devices > BOUND_PLACED_DEVICES)
                << a;
    }
    return axes;
}

static uint64_t reach_hash(int what, int devices, struct reach g, enum opcode code,
                           enum dtype dtype, int64_t elems) {
    uint64_t h = memo_mix((uint64_t)what, (uint64_t)g.near << 32 | (uint64_t)g.far);
    h = memo_mix(memo_mix(h, (uint64_t)devices), (uint64_t)code << 8 | (uint64_t)dtype);
    return memo_mix(h, (uint64_t)elems);
}

int op_bound_meshes(int devices, struct mesh meshes[2]) {
    stage_mesh_descending(devices, &meshes[0]);
    stage_mesh_ascending(devices, &meshes[1]);
    return search_mesh_has_orders(devices) ? 2 : 1;
}

/* The least time of this collective over any axes that make such a group. */
static double group_us(struct op_bounds *f, int devices, struct reach g, enum opcode code,
                       enum dtype dtype, double elems) {
    if (reach_size(g) == 1)
        return 0;
    int64_t n = rounded(elems);
    void **slot = memo_slot(&f->sums, reach_hash(1, devices, g, code, dtype, n));
    if (!*slot) {
        double *best = mem_alloc(sizeof *best);
        struct mesh meshes[2];
        *best = INFINITY;
        for (int i = op_bound_meshes(devices, meshes) - 1; i >= 0; i--)
            for (unsigned axes = 1; axes < 1u << meshes[i].n_axes && n; axes++) {
                struct reach has =
                    reach_of(&meshes[i], op_bound_intra_node_axes(f, &meshes[i]), axes);
                if (has.near == g.near && has.far == g.far)
                    *best = fmin(*best, collective_us(f, &meshes[i], axes, code, dtype, n));
            }
        *best = isfinite(*best) ? *best : 0;
        *slot = best;
    }
    return *(double *)*slot;
}

/* Scatters a sum, or gathers shards, over such groups: in one collective, or over some
 * axes first and then over the others. */
double op_bound_steps_us(struct op_bounds *f, int devices, struct reach g, enum opcode code,
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
                best = fmin(best, group_us(f, devices, part, code, dtype, (double)n) +
                                      op_bound_steps_us(f, devices, rest, code, dtype,
                                                        (double)n / size));
        }
    double *out = mem_alloc(sizeof *out);
    *out = best;
    *memo_slot(&f->sums, key) = out;
    return best;
}

double op_bound_sum_us(struct op_bounds *f, int devices, struct reach g, enum dtype dtype,
                       double elems) {
    return fmin(op_bound_steps_us(f, devices, g, I_reduce_scatter, dtype, elems),
                op_bound_steps_us(f, devices, g, I_all_reduce, dtype, elems));
}

/* All gradients that are reduced over the same devices share one collective. So a gradient
 * is charged the least time per element of any collective of about its size or more. */
double op_bound_gradient_us(struct op_bounds *f, int devices, struct reach g,
                            double elems) {
    if (reach_size(g) == 1)
        return 0;
    double least = INFINITY, n = 16;
    while (2 * n < elems)
        n *= 2;
    uint64_t key = reach_hash(2, devices, g, I_all_reduce, DTYPE_COUNT, (int64_t)n);
    double **known = (double **)memo_slot(&f->sums, key);
    if (*known)
        return **known * elems;
    while (n < 1e12) {
        least = fmin(least, group_us(f, devices, g, I_all_reduce, DTYPE_f32, n) / n);
        n *= 2;
    }
    double *out = mem_alloc(sizeof *out);
    *out = isfinite(least) ? least : 0;
    *memo_slot(&f->sums, key) = out;
    return *out * elems;
}

/* ---- gradients of several readers ----------------------------------------------------------- */

/* The least time of bringing this many bytes to another device: within or between the
 * first two nodes of each kind, or between kinds. */
static double message_us(struct op_bounds *f, int64_t bytes) {
    const struct cluster *c = &f->ev->space->p.cluster;
    struct cost *cost = f->ev->graph.cost;
    double best = INFINITY;
    for (int g = 0; g < c->n_groups; g++) {
        int64_t first = c->groups[g].first_rank, end = first + 2 * c->groups[g].devices;
        for (int64_t r = first > 0 ? first : 1; r < end && r < f->ev->space->p.devices;
             r++) {
            best = fmin(best, cost_message_us(cost, r - 1, r, 1, bytes));
            best = fmin(best, cost_message_us(cost, 0, r, 1, bytes));
        }
    }
    best = cost->n_missing ? 0 : best;
    cost_forget(cost);
    return best;
}

/* Either a device adds at least the smallest part of the tensor that it may have, or the
 * reader is in a stage of its own, which has received the tensor by a message. */
double op_bounds_addition_us(struct op_bounds *f, int devices, enum dtype dtype,
                             double elems) {
    struct graph *g = &f->ev->graph;
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
    stage_mesh(devices, NULL, &g->stages[0].mesh);
    ins.dtype = dtype;
    ins.n.add.elems = n;
    *out = n ? best_us(f, &sp, &ins, devices, &missing) : 0;
    *out = fmin(missing ? 0 : *out, message_us(f, n * dtype_size(dtype)));
    *memo_slot(&f->sums, key) = out;
    return *out;
}
