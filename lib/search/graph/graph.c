/* Windows: a few ops compiled as a stage.
 *
 * The scratch plan has two stages: the window, and everything else. So the compiler
 * itself decides what is received, converted, kept, reduced and sent. */
#include "search/graph/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Temporaries do not add up: the larger ones count. */
void load_add(struct load *to, const struct load *l, double times) {
    for (int i = 0; i < LOAD_PARTS; i++)
        to->v[i] += times * l->v[i];
    for (int i = 0; i < LOAD_REDUCTIONS && l->over[i]; i++) {
        int k = 0;
        while (k + 1 < LOAD_REDUCTIONS && to->over[k] && to->over[k] != l->over[i])
            k++;
        if (!to->over[k])
            to->over[k] = l->over[i];
        to->elems[k] += times * l->elems[i];
    }
    to->groups |= l->groups;
    if (l->temp > to->temp)
        to->temp = l->temp;
    if (l->update_temp > to->update_temp)
        to->update_temp = l->update_temp;
}

_Static_assert(MESH_MAX_AXES <= 6,
               "a set of axes is one byte, a set of sets of axes one word");

/* ---- compiling a window ---------------------------------------------------------------- */

struct window {
    int n;
    const int *ops;               /* of the deduplicated model, ascending */
    const struct layout *layouts; /* [nodes] */
    const bool *recompute;        /* [nodes], or NULL */
};

/* Makes the window stage 0 of the scratch plan. */
static void set_stage(struct graph *g, const struct setting *st, const struct window *w) {
    struct stage *stage = &g->stages[0];
    stage_mesh(st->devices, st->mesh, &stage->mesh);
    stage->first_rank = st->first_rank;
    stage->n_ops = w->n;
    stage->regather = blocks_regather(g->b, w->ops[0], st->regather);
    for (int i = 0; i < w->n; i++) {
        int node = g->b->x.node_of[w->ops[i]];
        stage->ops[i] = w->ops[i];
        stage->layouts[i] = w->layouts[node];
        stage->recompute[i] = w->recompute && w->recompute[node];
        stage->zero[i] = (int8_t)blocks_zero(g->b, w->ops[i], st->zero);
        stage->offload[i] = (int8_t)blocks_offload(g->b, w->ops[i]);
        g->plan.stage_of[w->ops[i]] = 0;
    }
    g->plan.batch = g->plan.micro_batch = st->micro_batch;
}

static void clear_stage(struct graph *g) {
    for (int i = 0; i < g->stages[0].n_ops; i++)
        g->plan.stage_of[g->stages[0].ops[i]] = 1;
}

static void count_reduction(struct load *l, unsigned axes, double elems) {
    struct load one = {.over = {(uint8_t)axes}, .elems = {elems}};
    load_add(l, &one, 1);
}

static bool is_gradient(const struct stage_program *sp, int buffer) {
    return buffer >= 0 && sp->buffers[buffer].mem == MEM_gradients;
}

/* Adds an instruction to the part of the load that its segment belongs to. Reductions
 * of gradients and their filling are counted in elements, because a stage does them in
 * one go. */
static void add_instr(struct graph *g, const struct stage_program *sp, int i, bool *norm,
                      struct load *l) {
    const struct instr *ins = &sp->instrs[i];
    bool update = i >= sp->seg[SEG_REDUCE];
    if (opcode_is_collective(ins->code))
        l->groups |= UINT64_C(1) << ins->axes;
    if (ins->code == I_norm) {
        *norm = true;
        g->norm_us = cost_instr(g->cost, &g->plan, sp, ins).us;
        g->norm_missing = g->cost->n_missing > 0;
        cost_forget(g->cost);
    } else if (update && ins->code == I_all_reduce &&
               is_gradient(sp, ins->in.all_reduce.x)) {
        count_reduction(l, ins->axes, (double)ins->n.all_reduce.elems);
    } else if (ins->code == I_fill && update) {
        l->v[LOAD_filled] += (double)ins->n.fill.elems;
    } else {
        double us = cost_instr(g->cost, &g->plan, sp, ins).us;
        l->v[i < sp->seg[SEG_BACKWARD]  ? LOAD_forward
             : i < sp->seg[SEG_WEIGHTS] ? LOAD_backward
             : !update                  ? LOAD_weights
             : *norm                    ? LOAD_update
                                        : LOAD_before_norm] += us;
        if (i < sp->seg[SEG_WEIGHTS])
            l->behind_us = ins->code == I_send ? 0 : l->behind_us + us;
        if (g->cost->n_missing) {
            l->v[LOAD_missing]++;
            cost_forget(g->cost);
        }
    }
}

/* Counts the update's memory by lifetimes found anew, because reductions are merged after
 * the lifetimes in the buffers are set. */
static void count_update_memory(const struct stage_program *sp, struct load *l) {
    int from = sp->seg[SEG_REDUCE], n = sp->n_instrs - from, norm = from;
    int *first = mem_array(2 * (size_t)sp->n_buffers + 1, sizeof *first);
    int *last = first + sp->n_buffers;
    int64_t *held = mem_array((size_t)n + 1, sizeof *held);
    while (norm < sp->n_instrs && sp->instrs[norm].code != I_norm)
        norm++;
    for (int i = from; i < sp->n_instrs; i++) {
        int b[INSTR_MAX_BUFFERS], touched = instr_buffers(&sp->instrs[i], b);
        for (int k = 0; k < touched; k++) {
            if (sp->buffers[b[k]].mem != MEM_temporaries)
                continue;
            first[b[k]] = first[b[k]] ? first[b[k]] : i;
            last[b[k]] = i;
        }
    }
    for (int b = 0; b < sp->n_buffers; b++) {
        int64_t bytes = buffer_bytes(&sp->buffers[b]);
        if (first[b] && first[b] < norm && last[b] > norm)
            l->v[LOAD_across] += (double)bytes;
        else
            for (int i = first[b]; i && i <= last[b]; i++)
                held[i - from] += bytes;
    }
    for (int i = 0; i < n; i++)
        if (held[i] > l->update_temp)
            l->update_temp = held[i];
    free(held);
    free(first);
}

static void count_memory(const struct stage_program *sp, struct load *l) {
    for (int p = 0; p < POOL_COUNT; p++)
        l->v[LOAD_slot + p] = (double)sp->slots[p].bytes;
    l->v[LOAD_fixed] = (double)(sp->bytes[MEM_parameters] + sp->bytes[MEM_gradients] +
                                sp->bytes[MEM_optimizer]);
    l->temp = sp->temporaries[0];
    count_update_memory(sp, l);
}

static struct load compile_window(struct graph *g, const struct setting *st,
                                  const struct window *w) {
    struct stage_program sp;
    struct load l = {0};
    bool norm = false;
    set_stage(g, st, w);
    cost_forget(g->cost);
    stage_compile(&g->scratch, &g->plan, 0, st->apart, &sp);
    for (int i = 0; i < sp.n_instrs; i++)
        add_instr(g, &sp, i, &norm, &l);
    count_memory(&sp, &l);
    clear_stage(g);
    g->compiled++;
    return l;
}

void graph_compile(struct graph *g, const struct setting *st, int op,
                   const struct layout *layouts, struct stage_program *out) {
    set_stage(g, st, &(struct window){1, &op, layouts, NULL});
    stage_compile(&g->scratch, &g->plan, 0, st->apart, out);
    clear_stage(g);
}

double graph_reduce_us(struct graph *g, const struct setting *st, unsigned axes,
                       double elems, bool *missing) {
    struct stage_program sp = {.stage = 0, .mesh = &g->stages[0].mesh};
    struct instr ins = instr_init(axes ? I_all_reduce : I_fill);
    ins.axes = axes;
    ins.n.v[0] = (int64_t)elems;
    stage_mesh(st->devices, st->mesh, &g->stages[0].mesh);
    g->stages[0].first_rank = st->first_rank;
    cost_forget(g->cost);
    double us = elems >= 1 ? cost_instr(g->cost, &g->plan, &sp, &ins).us : 0;
    *missing |= g->cost->n_missing > 0;
    cost_forget(g->cost);
    return us;
}

/* ---- keeping what was compiled --------------------------------------------------------- */

uint64_t graph_setting_hash(const struct setting *st, uint64_t h) {
    h = memo_mix(h, (uint64_t)st->devices << 3 | (uint64_t)st->zero << 1 | st->apart);
    h = memo_mix(memo_mix(h, (uint64_t)st->micro_batch), (uint64_t)st->first_rank);
    h = st->regather ? memo_mix(h, 1) : h;
    return st->mesh ? memo_mix(h, (uint64_t)(uintptr_t)st->mesh) : h;
}

static uint64_t layout_word(const struct layout *l) {
    uint64_t word = 0;
    memcpy(&word, l, sizeof *l);
    return word;
}
_Static_assert(sizeof(struct layout) <= 8, "a layout is one word");

struct setting graph_without_zero(const struct setting *st) {
    struct setting plain = *st;
    plain.zero = 0;
    return plain;
}

/* The load that is kept under this key; NULL if none is. */
static const struct load *kept_load(struct graph *g, uint64_t key) {
    return *memo_slot(&g->loads, key);
}

static const struct load *keep_load(struct graph *g, uint64_t key, const struct load *l) {
    struct load *kept = arena_alloc(&g->arena, sizeof *kept);
    *kept = *l;
    *memo_slot(&g->loads, key) = kept;
    return kept;
}

const struct load *graph_node(struct graph *g, const struct setting *st, int op,
                              const struct layout *layouts) {
    struct setting plain = graph_without_zero(st);
    const struct setting *as = g->b->x.model->ops[op].n_param ? st : &plain;
    uint64_t key = memo_mix(graph_setting_hash(as, g->b->xs.alike[op]),
                            layout_word(&layouts[g->b->x.node_of[op]]));
    const struct load *kept = kept_load(g, key);
    if (kept)
        return kept;
    struct load l = compile_window(g, as, &(struct window){1, &op, layouts, NULL});
    return keep_load(g, key, &l);
}

/* ---- edges ----------------------------------------------------------------------------- */

/* Readers that are equal, have one layout, and read the tensor in the same way. */
struct group {
    int node;
    uint64_t alike;
    int m;           /* how many there are */
    int most, taken; /* how many choose_ops may take, and has taken */
};
enum { MOST_ALIKE = 3 };

struct members {
    const struct edge *small; /* the edge in the deduplicated model */
    int origin;               /* op of the deduplicated model; -1 = outside */
    ARR(struct group) groups;
};

/* Returns as bits which operands or parameters of an op are the edge's. */
static uint64_t read_as(const struct model *m, int op, const struct edge *e) {
    const struct model_op *o = &m->ops[op];
    uint64_t bits = 0;
    for (int k = 0; k < o->n_in; k++)
        bits |= (uint64_t)(o->in[k] == e->tensor) << k;
    for (int k = 0; k < o->n_param; k++)
        bits |= (uint64_t)(o->param[k] == e->param) << (k + 32);
    return bits;
}

static struct group *find_group(const struct members *mb, int node, uint64_t alike) {
    for (int64_t i = 0; i < mb->groups.n; i++)
        if (mb->groups.p[i].node == node && mb->groups.p[i].alike == alike)
            return &mb->groups.p[i];
    return NULL;
}

static void add_member(const struct blocks *g, struct members *mb, const struct edge *e,
                       int op) {
    int node = g->x.node_of[g->x.of[op]];
    uint64_t alike = memo_mix(g->s.alike[op], read_as(g->whole, op, e));
    struct group *group = find_group(mb, node, alike);
    if (group)
        group->m++;
    else
        arr_push(&mb->groups, (struct group){.node = node, .alike = alike, .m = 1});
}

static int find_members(const struct blocks *g, const struct edge *e, int first, int end,
                        struct members *mb) {
    int n = 0;
    mb->small = blocks_small_edge(g, e);
    mb->origin = e->origin >= first && e->origin < end ? g->x.of[e->origin] : -1;
    mb->groups.n = 0;
    for (int i = edge_reader_from(e, first); i < e->n && e->readers[i] < end; i++, n++)
        add_member(g, mb, e, e->readers[i]);
    return n + (mb->origin >= 0);
}

/* Lists ops of the deduplicated model for these members, with at most the given number
 * of each group. */
static int choose_ops(const struct blocks *g, struct members *mb, int *ops) {
    int n = 0;
    for (int64_t i = 0; i < mb->groups.n; i++)
        mb->groups.p[i].taken = 0;
    if (mb->origin >= 0)
        ops[n++] = mb->origin;
    for (int i = 0; i < mb->small->n; i++) {
        int op = mb->small->readers[i];
        uint64_t alike = memo_mix(g->xs.alike[op], read_as(g->x.model, op, mb->small));
        struct group *group = find_group(mb, g->x.node_of[op], alike);
        if (group && group->taken < group->most) {
            group->taken++;
            ops[n++] = op;
        }
    }
    return n;
}

/* The load of the members compiled together, less the load of each alone; `temp` is
 * that of all together. */
static struct load compile_joint(struct graph *g, const struct setting *st,
                                 struct members *mb, const struct layout *layouts) {
    int *ops = mem_array((size_t)mb->small->n + 1, sizeof *ops);
    int n = choose_ops(g->b, mb, ops);
    struct load l = compile_window(g, st, &(struct window){n, ops, layouts, NULL});
    int64_t temp = l.temp, update_temp = l.update_temp;
    for (int i = 0; i < n; i++)
        load_add(&l, graph_node(g, st, ops[i], layouts), -1);
    l.temp = temp;
    l.update_temp = update_temp;
    free(ops);
    return l;
}

/* Hashes what choose_ops chooses, and its layouts. */
static uint64_t members_hash(const struct blocks *g, const struct members *mb,
                             const struct layout *layouts, uint64_t h) {
    h = memo_mix(h, (uint64_t)(mb->small->param >= 0) << 1 | (mb->origin >= 0));
    h = memo_mix(h, g->xs.alike[mb->small->origin]);
    h = memo_mix(h,
                 (uint64_t)(mb->small - &g->xs.edges[g->xs.edges_of[mb->small->origin]]));
    if (mb->origin >= 0)
        h = memo_mix(h, layout_word(&layouts[g->x.node_of[mb->origin]]));
    for (int64_t i = 0; i < mb->groups.n; i++) {
        const struct group *group = &mb->groups.p[i];
        h = memo_mix(memo_mix(h, group->alike), (uint64_t)group->most);
        h = memo_mix(h, layout_word(&layouts[group->node]));
    }
    return h;
}

static const struct load *joint_load(struct graph *g, const struct setting *st,
                                     struct members *mb, const struct layout *layouts) {
    uint64_t key = members_hash(g->b, mb, layouts, graph_setting_hash(st, 7));
    const struct load *kept = kept_load(g, key);
    if (kept)
        return kept;
    struct load l = compile_joint(g, st, mb, layouts);
    return keep_load(g, key, &l);
}

/* With more than three readers of a kind, each further one adds as much as the third. */
static struct load many_load(struct graph *g, const struct setting *st, struct members *mb,
                             const struct load *base, const struct layout *layouts) {
    struct load l = *base;
    for (int64_t i = 0; i < mb->groups.n; i++) {
        double more = mb->groups.p[i].m - MOST_ALIKE;
        if (more <= 0)
            continue;
        mb->groups.p[i].most--;
        const struct load *fewer = joint_load(g, st, mb, layouts);
        mb->groups.p[i].most++;
        load_add(&l, base, more);
        load_add(&l, fewer, -more);
    }
    return l;
}

static const struct load *edge_load(struct graph *g, const struct setting *st,
                                    struct members *mb, const struct layout *layouts) {
    uint64_t many = 0; /* hash of the numbers of readers that exceed MOST_ALIKE */
    for (int64_t i = 0; i < mb->groups.n; i++) {
        struct group *group = &mb->groups.p[i];
        group->most = group->m < MOST_ALIKE ? group->m : MOST_ALIKE;
        many = group->m > MOST_ALIKE
                   ? memo_mix(many, (uint64_t)group->m << 32 | (uint64_t)i)
                   : many;
    }
    const struct load *base = joint_load(g, st, mb, layouts);
    if (!many)
        return base;
    uint64_t key = memo_mix(many, (uint64_t)(uintptr_t)base);
    const struct load *kept = kept_load(g, key);
    if (kept)
        return kept;
    struct load l = many_load(g, st, mb, base, layouts);
    return keep_load(g, key, &l);
}

const struct load *graph_edge(struct graph *g, const struct setting *st,
                              const struct edge *e, int first, int end,
                              const struct layout *layouts) {
    static const struct load nothing;
    struct setting plain = graph_without_zero(st);
    bool passed = e->origin < first && (e->n < 2 || e->readers[e->n - 2] < first);
    if (passed || find_members(g->b, e, first, end, g->members) < 2)
        return &nothing;
    return edge_load(g, e->param >= 0 ? st : &plain, g->members, layouts);
}

/* Subtracts what the prefix sums have for the range, and for tensors from in front of it
 * that several of its ops read. */
static void subtract_plain(struct graph *g, const struct setting *st, int first, int end,
                           const struct layout *layouts, struct load *l) {
    int from = g->b->x.from[first], to = from + end - first;
    for (int i = first; i < end; i++)
        load_add(l, graph_node(g, st, i, layouts), -1);
    for (int e = 0; e < g->b->s.edges_of[to]; e++)
        load_add(l, graph_edge(g, st, &g->b->s.edges[e], from, to, layouts), -1);
}

const struct load *graph_recompute(struct graph *g, const struct setting *st, int first,
                                   int end, const bool *recompute,
                                   const struct layout *layouts) {
    /* Recomputing an op gathers its parameters once for both its value and its
     * gradient, so ZeRO matters. */
    struct setting plain = st->zero > ZERO_OPTIMIZER ? *st : graph_without_zero(st);
    uint64_t key =
        memo_mix(memo_mix(graph_setting_hash(&plain, 9), (uint64_t)first), (uint64_t)end);
    for (int i = first; i < end; i++) {
        int node = g->b->x.node_of[i];
        key = memo_mix(memo_mix(key, layout_word(&layouts[node])), recompute[node]);
    }
    const struct load *kept = kept_load(g, key);
    if (kept)
        return kept;
    int *ops = mem_array((size_t)(end - first), sizeof *ops);
    for (int i = first; i < end; i++)
        ops[i - first] = i;
    struct load l =
        compile_window(g, &plain, &(struct window){end - first, ops, layouts, recompute});
    free(ops);
    subtract_plain(g, &plain, first, end, layouts, &l);
    l.update_temp = 0;
    return keep_load(g, key, &l);
}

void graph_borrow(struct graph *g, const struct graph *from) {
    for (int64_t i = 0; i < from->loads.cap; i++) {
        const struct memo_entry *known = &from->loads.entries[i];
        void **slot = known->value ? memo_slot(&g->loads, known->key) : NULL;
        if (slot && !*slot)
            *slot = known->value;
    }
    g->norm_us = from->norm_us;
    g->norm_missing = from->norm_missing;
}

/* ---- setting up ------------------------------------------------------------------------ */

/* The scratch plan has all ops in stage 1; windows move theirs to stage 0. */
void graph_init(struct graph *g, const struct blocks *b, struct cost *cost, int devices,
                enum optimizer optimizer, enum dtype dtype) {
    *g = (struct graph){.b = b, .cost = cost, .members = mem_alloc(sizeof *g->members)};
    int n = g->b->x.model->n_ops;
    g->plan = (struct plan){.model = g->b->x.model,
                            .optimizer = optimizer,
                            .dtype = dtype,
                            .n_stages = 2,
                            .stages = g->stages,
                            .devices = devices};
    g->plan.stage_of = mem_array((size_t)n, sizeof *g->plan.stage_of);
    for (int i = 0; i < n; i++)
        g->plan.stage_of[i] = 1;
    g->stages[0].ops = mem_array((size_t)n, sizeof *g->stages[0].ops);
    g->stages[0].layouts = mem_array((size_t)n, sizeof *g->stages[0].layouts);
    g->stages[0].recompute = mem_array((size_t)n, sizeof *g->stages[0].recompute);
    g->stages[0].zero = mem_array((size_t)n, sizeof *g->stages[0].zero);
    g->stages[0].offload = mem_array((size_t)n, sizeof *g->stages[0].offload);
}

void graph_release(struct graph *g) {
    memo_release(&g->loads, NULL);
    compile_scratch_release(&g->scratch);
    arena_release(&g->arena);
    arr_release(&g->members->groups);
    free(g->members);
    free(g->plan.stage_of);
    free(g->stages[0].ops);
    free(g->stages[0].layouts);
    free(g->stages[0].recompute);
    free(g->stages[0].zero);
    free(g->stages[0].offload);
}
