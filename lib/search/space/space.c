/* The space: what a model offers to split, families of layouts that make good starts, and
 * from a candidate to a plan. */
#include "search/graph/far.h"
#include "search/space/devices.h"
#include "search/space/order.h"

#include <stdlib.h>
#include <string.h>

/* ---- candidates ---------------------------------------------------------------------- */

const struct search_problem *search_problem_of(const struct search *s) {
    return &s->p;
}

int search_max_groups(const struct search *s) {
    return s->max_groups;
}

int search_room(const struct search *s) {
    return s->max_stages;
}

bool search_has_schedule(const struct search *s, enum schedule schedule) {
    return s->p.schedules >> schedule & 1;
}

enum schedule search_plain_schedule(const struct search *s) {
    static const enum schedule best[] = {SCHEDULE_1f1b, SCHEDULE_zero_bubble};
    for (size_t i = 0; i < sizeof best / sizeof *best; i++)
        if (search_has_schedule(s, best[i]))
            return best[i];
    return SCHEDULE_gpipe;
}

struct candidate candidate_make(const struct search *s) {
    return (struct candidate){
        .stages = mem_array((size_t)s->max_stages, sizeof(struct search_stage))};
}

void candidate_release(struct candidate *c) {
    free(c->stages);
    *c = (struct candidate){0};
}

void candidate_copy(struct candidate *to, const struct candidate *from) {
    struct search_stage *stages = to->stages;
    memcpy(stages, from->stages, sizeof *stages * (size_t)from->n_stages);
    *to = *from;
    to->stages = stages;
}

/* Groups that several stages go round on: they divide the micro-batches, and where all devices are alike
 * they are of one size, as Megatron's are; the bound rests on that (bound_turns.h). */
static bool may_go_round(const struct search *s, const struct candidate *c) {
    bool even = search_has_places(s) || c->stages[0].devices * c->n_groups == s->p.devices;
    for (int g = 1; g < c->n_groups && !search_has_places(s); g++)
        even &= c->stages[g].devices == c->stages[0].devices;
    return even && (s->p.batch / c->micro_batch) % c->n_groups == 0;
}

bool search_legal(struct search *s, const struct candidate *c) {
    if (s->p.source)
        return source_legal(s, c);
    if (!search_obeys(s, c) || (c->n_groups < c->n_stages && !may_go_round(s, c)))
        return false;
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        const struct search_stage *home = &c->stages[k % c->n_groups];
        if (st->first >= st->end || st->devices < 1 || st->devices != home->devices ||
            st->place != home->place)
            return false;
    }
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    bool legal = true;
    candidate_ranks(c, rank);
    for (int k = 0; k < c->n_stages && legal; k++)
        legal = prefix_legal(s, candidate_prefix(s, c, k, rank[k]), c->stages[k].first,
                             c->stages[k].end);
    free(rank);
    return legal;
}

/* ---- what the model offers ----------------------------------------------------------- */

/* Does the op's result leave its instance of a block? */
static bool leaves(const struct structure *st, int op) {
    const struct edge *e = &st->edges[st->edges_of[op]];
    int end = st->runs[st->run_of[op]].first +
              (structure_instance(st, op) + 1) * st->runs[st->run_of[op]].period;
    for (; e < &st->edges[st->edges_of[op + 1]]; e++)
        if (e->tensor >= 0 && e->n > 0 && e->readers[e->n - 1] >= end)
            return true;
    return false;
}

static void mark_dims(const struct shape *s, bool *marked) {
    for (int i = 0; i < s->rank; i++)
        marked[s->dim[i]] = true;
}

/* Dims of the tensors that pass from block to block (or, without blocks, of the first
 * result). */
static void mark_passing(const struct search *s, bool *passing) {
    const struct model *m = s->p.model;
    const struct structure *st = &s->graph.s;
    if (!st->n_runs)
        mark_dims(&m->tensors[m->ops[0].out[0]].shape, passing);
    for (int i = 0; i < m->n_ops; i++)
        for (int k = 0; k < m->ops[i].n_out && st->run_of[i] >= 0 && leaves(st, i); k++)
            mark_dims(&m->tensors[m->ops[i].out[k]].shape, passing);
}

/* May every op that has the dim be split on it? False where none has it. */
static bool always_splittable(const struct model *m, int dim) {
    bool any = false;
    for (int i = 0; i < m->n_ops; i++) {
        int k = op_space_find(&m->ops[i].space, dim);
        if (k >= 0 && !role_splits(m->ops[i].space.role[k]))
            return false;
        any |= k >= 0;
    }
    return any;
}

/* A dim that operand, weight and result of a product share counts products off: experts. */
static void mark_experts(const struct model_op *op, bool *marked) {
    bool product = false;
    for (int pass = 0; pass < 2 && op->n_param > 0 && op->param[0] >= 0; pass++)
        for (int k = 0; k < op->space.n; k++) {
            bool both = op->in_map[0].axis[k] >= 0 && op->param_map[0].axis[k] >= 0;
            product |= both && op->space.role[k] == ROLE_contracted;
            if (pass && product && both && op->out_map[0].axis[k] >= 0 &&
                role_splits(op->space.role[k]))
                marked[op->space.dim[k]] = true;
        }
}

static void add_dim(int *dims, int *n, int dim) {
    for (int i = 0; i < *n; i++)
        if (dims[i] == dim)
            return;
    dims[(*n)++] = dim;
}

/* A source says itself which they are. */
static void take_dims(struct search *s, const struct source *src) {
    s->inner = mem_array((size_t)src->n_inner, sizeof *s->inner);
    while (s->n_inner < src->n_inner) {
        s->inner[s->n_inner] = src->inner[s->n_inner];
        s->n_inner++;
    }
}

/* Heights and widths of images: what windows of the first kind of halo slide along, then of the second.
 * Tensors between windows have them under the same names. */
static void find_images(struct search *s) {
    const struct model *x = s->graph.x.model;
    s->images = mem_array((size_t)x->n_dims, sizeof *s->images);
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < x->n_ops; i++) {
            const struct op_space *space = &x->ops[i].space;
            for (int k = 0, n = 0; k < space->n; k++) {
                if (space->role[k] != ROLE_halo || n++ != which)
                    continue;
                add_dim(s->images, &s->n_images, space->dim[k]);
                if (space->alias[k] >= 0)
                    add_dim(s->images, &s->n_images, space->alias[k]);
            }
        }
}

/* Inner dims: in no passing tensor, splittable wherever they occur, and more than one
 * unit. */
static void find_dims(struct search *s) {
    const struct model *m = s->p.model, *x = s->graph.x.model;
    size_t n = (size_t)m->n_dims;
    bool *passing = mem_array(n, sizeof *passing), *data = mem_array(n, sizeof *data);
    bool *experts = mem_array(n, sizeof *experts);
    mark_passing(s, passing);
    for (int i = 0; i < x->n_ops; i++)
        mark_experts(&x->ops[i], experts);
    for (int t = 0; t < m->n_tensors; t++)
        if (m->tensors[t].producer < 0)
            mark_dims(&m->tensors[t].shape, data);
    s->inner = mem_array(n, sizeof *s->inner);
    s->sequences = mem_array(n, sizeof *s->sequences);
    s->experts = mem_array(n, sizeof *s->experts);
    for (int d = 0; d < m->n_dims; d++) {
        if (!passing[d] && !data[d] && m->dims[d].size > 1 && always_splittable(x, d))
            s->inner[s->n_inner++] = d;
        if (passing[d] && data[d] && d != m->batch)
            s->sequences[s->n_sequences++] = d;
        else if (experts[d] && !data[d] && m->dims[d].size > 1)
            s->experts[s->n_experts++] = d;
    }
    find_images(s);
    free(passing);
    free(data);
    free(experts);
}

/* The edges that pass each cut of the list of ops. */
static void find_crossings(struct search *s) {
    const struct structure *st = &s->graph.s;
    s->crossings = mem_array((size_t)st->n_ops + 1, sizeof *s->crossings);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < st->n_edges; i++) {
            const struct edge *e = &st->edges[i];
            int last = e->n ? e->readers[e->n - 1] : e->origin;
            for (int cut = e->origin + 1; cut <= last; cut++) {
                struct crossing *x = &s->crossings[cut];
                if (pass)
                    ((int *)x->edges)[x->n] = i;
                x->n++;
            }
        }
        int64_t n = 0;
        for (int cut = 0; cut <= st->n_ops && pass == 0; cut++)
            n += s->crossings[cut].n;
        if (pass)
            break;
        s->crossing_edges = mem_array((size_t)n + 1, sizeof *s->crossing_edges);
        n = 0;
        for (int cut = 0; cut <= st->n_ops; cut++) {
            s->crossings[cut].edges = s->crossing_edges + n;
            n += s->crossings[cut].n;
            s->crossings[cut].n = 0;
        }
    }
}

static void sum_flops(struct search *s) {
    const struct model *m = s->p.model;
    s->flops = mem_array((size_t)m->n_ops + 1, sizeof *s->flops);
    for (int i = 0; i < m->n_ops; i++)
        s->flops[i + 1] = s->flops[i] + (s->p.source ? s->p.source->work_us[i]
                                                     : model_op_flops(m, &m->ops[i], 1));
}

static void find_again(struct search *s) {
    const struct graph *g = &s->graph;
    for (int level = 0; level < AGAIN_LEVELS; level++)
        s->again[level] = mem_array((size_t)g->x.n_nodes, sizeof(bool));
    for (int i = 0; i < g->x.model->n_ops; i++) {
        int op = g->x.from[i], node = g->x.node_of[i];
        if (g->s.run_of[op] < 0)
            continue;
        s->again[1][node] |= op_is(&g->whole->ops[op], KIND_CHEAP);
        if (structure_instance(&g->s, op) == 0)
            s->again[2][node] = !leaves(&g->s, op);
    }
    for (int i = 0; g->pins && i < g->x.model->n_ops; i++) {
        int64_t pinned = pins_value(g->pins, PIN_recompute, g->x.from[i]);
        for (int level = 0; pinned != PIN_FREE && level < AGAIN_LEVELS; level++)
            s->again[level][g->x.node_of[i]] = pinned;
        s->pinned.again |= pinned == 1;
    }
}

/* A group has up to MOST_CHUNKS stages. */
static void count_stages(struct search *s) {
    int n_ops = s->p.model->n_ops, limit = s->p.max_stages ? s->p.max_stages : n_ops;
    limit = limit < n_ops ? limit : n_ops;
    s->max_groups = s->p.devices < limit ? s->p.devices : limit;
    s->max_stages = s->max_groups;
    if (search_has_schedule(s, SCHEDULE_interleaved) && s->max_groups > 1 && !s->p.pins)
        s->max_stages =
            limit / MOST_CHUNKS < s->p.devices ? limit : MOST_CHUNKS * s->p.devices;
}

/* Every tensor twice and every parameter with four numbers of state, all of the batch on each
 * device: with temporaries and copies under other placements no device ever holds a multiple of
 * that. */
static bool is_tight(const struct search *s) {
    const struct model *m = s->p.model;
    double elems = 0, multiple = 4 * MOST_CHUNKS;
    int64_t least = search_memory(&s->p, 0, s->p.devices);
    for (int t = 0; t < m->n_tensors; t++) {
        struct extents x = model_extents(m, &m->tensors[t].shape, s->p.batch);
        elems += 2 * (double)extents_count(&x);
    }
    for (int k = 0; k < m->n_params; k++) {
        struct extents x = model_extents(m, &m->params[k].shape, 1);
        elems += 4 * (double)extents_count(&x);
    }
    return least && multiple * elems * (double)dtype_size(DTYPE_f32) > (double)least;
}

void search_survey(struct search *s) {
    graph_init(&s->graph, s->p.model, &s->cost, s->p.devices, s->p.optimizer, s->p.dtype,
               s->p.pins);
    s->graph.offload = s->p.offload;
    s->tight = !s->p.source && is_tight(s);
    count_stages(s);
    sum_flops(s);
    if (s->p.source)
        take_dims(s, s->p.source);
    else
        find_dims(s);
    find_crossings(s);
    find_again(s);
    s->has_far = far_any(s);
}

void search_forget(struct search *s) {
    search_forget_starts(s);
    search_forget_prefixes(s);
    memo_release(&s->sums, free);
    memo_release(&s->styles, NULL);
    memo_release(&s->made_in, free);
    memo_release(&s->meshes, free);
    memo_release(&s->in_flight, free);
    memo_release(&s->verdicts, free);
    memo_release(&s->layouts, free);
    graph_release(&s->graph);
    for (int level = 0; level < AGAIN_LEVELS; level++)
        free(s->again[level]);
    arr_release(&s->passing);
    free(s->crossings);
    free(s->crossing_edges);
    free(s->inner);
    free(s->sequences);
    free(s->images);
    free(s->experts);
    free(s->flops);
    search_forget_pins(s);
}

int search_inner_dims(const struct search *s) {
    return s->n_inner;
}

bool search_has_sequence(const struct search *s) {
    return s->n_sequences > 0;
}

bool search_has_context(const struct search *s) {
    return s->n_sequences > 0 || s->n_images > 0;
}

bool search_has_experts(const struct search *s) {
    return s->n_experts > 0;
}

/* ---- choices of a stage ------------------------------------------------------------------ */

int search_next_distinct(const struct search *s, int first, int op) {
    const struct structure *st = &s->graph.s;
    const struct run *r = st->run_of[op] < 0 ? NULL : &st->runs[st->run_of[op]];
    if (!r || op + 1 < (first > r->first ? first : r->first) + r->period)
        return op + 1;
    return r->first + r->period * r->count;
}

bool search_may_regather(const struct search *s) {
    return s->tight && search_pinned(s, PIN_regather) == PIN_FREE;
}

int search_zero_levels(const struct search *s) {
    int most = s->p.memory_bytes ? ZERO_PARAMETERS : ZERO_OPTIMIZER;
    return 1 + (s->p.max_zero < most ? s->p.max_zero : most);
}

/* ---- blocks that are recomputed ------------------------------------------------------- */

/* Calls for each instance of a block in the stage would be long: this is their number up
 * to op `end`, counted from the stage's first op. */
static int instances(const struct structure *st, int first, int end) {
    int n = 0;
    for (int i = first; i < end;) {
        int r = st->run_of[i];
        if (r < 0) {
            i++;
            continue;
        }
        int last = st->runs[r].first + st->runs[r].period * st->runs[r].count;
        last = last < end ? last : end;
        n += structure_instance(st, last - 1) - structure_instance(st, i) + 1;
        i = last;
    }
    return n;
}

int search_stage_blocks(const struct search *s, const struct search_stage *st) {
    return instances(&s->graph.s, st->first, st->end);
}

static bool is_recomputed(const struct search *s, const struct search_stage *st, int op) {
    const struct graph *g = &s->graph;
    bool chosen = st->again_level && g->s.run_of[op] >= 0 &&
                  instances(&g->s, st->first, op + 1) <= st->again_blocks;
    return s->again[chosen ? st->again_level : 0][g->x.node_of[g->x.of[op]]];
}

/* A plan's groups are numbered in the order of their ranks. */
static void number_groups(const struct candidate *c, struct plan *plan) {
    int *order = mem_array((size_t)c->n_groups, sizeof *order);
    candidate_order(c, order);
    for (int i = 0; i < c->n_groups; i++)
        for (int k = order[i]; k < c->n_stages; k += c->n_groups)
            plan->stages[k].group = i;
    free(order);
}

struct plan *search_plan_of(struct search *s, const struct candidate *c) {
    const struct graph *g = &s->graph;
    int *bounds = mem_array((size_t)c->n_stages + 1, sizeof *bounds);
    for (int k = 0; k < c->n_stages; k++)
        bounds[k + 1] = c->stages[k].end;
    const struct order *order = s->p.order;
    struct plan *plan = order ? order_plan(order, c->n_stages, bounds)
                              : plan_create(s->p.model, c->n_stages, bounds);
    free(bounds);
    plan->batch = s->p.batch;
    plan->micro_batch = c->micro_batch;
    plan->schedule = c->schedule;
    plan->n_groups = c->n_groups;
    plan->optimizer = s->p.optimizer;
    plan->dtype = s->p.dtype;
    number_groups(c, plan);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *from = &c->stages[k];
        struct stage *st = &plan->stages[k];
        graph_mesh(from->devices, from->mesh, &st->mesh);
        st->regather = graph_regather(g, g->x.of[from->first], from->regather);
        for (int i = 0; i < st->n_ops; i++) {
            int op = order ? order->place[st->ops[i]] : st->ops[i];
            int node = g->x.node_of[g->x.of[op]];
            st->layouts[i] = from->layouts[node];
            st->recompute[i] = is_recomputed(s, from, op);
            st->zero[i] = (int8_t)graph_zero(g, g->x.of[op], search_zero_of(from));
            st->offload[i] = (int8_t)graph_offload(g, g->x.of[op]);
        }
    }
    search_put_pins(s, plan);
    return plan;
}

/* Ops first .. end-1 of one instance of a run; all instances are as the second one. */
static const struct load *again_of(struct search *s, const struct prefix *t, int level,
                                   int first, int end) {
    struct graph *g = &s->graph;
    const struct run *r = &g->s.runs[g->s.run_of[first]];
    int back = (structure_instance(&g->s, first) - 1) * r->period;
    int from = g->x.of[first - back];
    return graph_again(g, &t->st, from, from + end - first, s->again[level], t->layouts);
}

/* Ops outside of runs are recomputed where that is pinned; returns the end of the stretch. */
static int add_pinned_again(struct search *s, const struct prefix *t, int first, int end,
                            struct load *sum) {
    struct graph *g = &s->graph;
    int i = first, from = g->x.of[first];
    bool any = false;
    for (; i < end && g->s.run_of[i] < 0; i++)
        any |= s->again[0][g->x.node_of[g->x.of[i]]];
    if (any)
        load_add(sum,
                 graph_again(g, &t->st, from, from + i - first, s->again[0], t->layouts),
                 1);
    return i;
}

struct load search_again(struct search *s, const struct prefix *t,
                         const struct search_stage *st) {
    struct load sum = {0};
    int left = st->again_level ? st->again_blocks : 0;
    for (int i = st->first; i < st->end && (left > 0 || s->pinned.again);) {
        int r = s->graph.s.run_of[i];
        if (r < 0) {
            i = add_pinned_again(s, t, i, st->end, &sum);
            continue;
        }
        const struct run *run = &s->graph.s.runs[r];
        int next = run->first + (structure_instance(&s->graph.s, i) + 1) * run->period;
        int end = next < st->end ? next : st->end, times = 1;
        int run_end = run->first + run->period * run->count;
        if (end - i == run->period) { /* whole ones, all alike */
            times = ((run_end < st->end ? run_end : st->end) - i) / run->period;
            times = times < left || !left ? times : left;
        }
        load_add(&sum, again_of(s, t, left ? st->again_level : 0, i, end), times);
        left -= left ? times : 0;
        i = times > 1 ? i + times * run->period : end;
    }
    return sum;
}

/* ---- whole candidates ---------------------------------------------------------------- */

/* Where the flops of the ops before reach this share of all. */
static int op_at_share(const struct search *s, double share) {
    int lo = 0, hi = s->p.model->n_ops;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->flops[mid] < share * s->flops[s->p.model->n_ops] * (1 - 1e-9))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The ops as evenly as the devices of the stages: each up to its share of flops, then on to the end of
 * the instance, with ops left for those behind. */
static void cut_evenly(const struct search *s, struct candidate *c) {
    const struct structure *st = &s->graph.s;
    int n_ops = s->p.model->n_ops, op = 0, before = 0;
    int chunks = c->n_stages / c->n_groups, all = chunks * s->p.devices;
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *to = &c->stages[k];
        int most = n_ops - (c->n_stages - 1 - k);
        before += to->devices;
        int end = op_at_share(s, (double)before / all);
        end = end > op ? end : op + 1;
        end = structure_next_unit(st, end);
        to->first = op;
        op = to->end = k == c->n_stages - 1 ? n_ops : end < most ? end : most;
    }
}

bool search_even(struct search *s, int n_stages, int64_t micro_batch, struct style style,
                 struct candidate *out) {
    int left = s->p.devices;
    if (n_stages > s->max_groups)
        return false;
    out->n_stages = out->n_groups = n_stages;
    out->micro_batch = micro_batch;
    out->schedule = search_first_schedule(s);
    for (int k = 0; k < n_stages; k++) {
        out->stages[k] = (struct search_stage){.devices = left / (n_stages - k)};
        left -= out->stages[k].devices;
    }
    cut_evenly(s, out);
    if (!search_place_stages(s, out))
        return false;
    for (int k = 0; k < n_stages; k++)
        search_apply_style(s, &out->stages[k], micro_batch, style);
    return true;
}

bool search_chunk(struct search *s, const struct candidate *c, int chunks,
                  struct candidate *out) {
    int groups = c->n_groups, n = chunks * groups;
    if (s->p.pins || groups < 2 || n > s->max_stages ||
        (chunks > 1 && n > structure_units(&s->graph.s)))
        return false;
    candidate_copy(out, c);
    out->n_stages = n;
    out->schedule = chunks > 1 ? SCHEDULE_interleaved : search_plain_schedule(s);
    for (int k = groups; k < n; k++)
        out->stages[k] = out->stages[k % groups];
    cut_evenly(s, out);
    for (int k = 0; k < n; k++) {
        struct search_stage *st = &out->stages[k];
        int blocks = search_stage_blocks(s, st);
        st->again_blocks = blocks < st->again_blocks ? blocks : st->again_blocks;
    }
    return true;
}
