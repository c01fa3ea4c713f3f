/* Random changes of a candidate, one function for each thing that it decides. A change
 * is about as likely as its reverse. Cuts are the exception: after most other changes
 * they are balanced half of the time, because a step that makes the plan much worse at
 * first is hardly ever accepted. */
#include "search/algorithms/improve.h"
#include "search/algorithms/mcmc.h"

#include <stdlib.h>
#include <string.h>

static int pick(struct rng *r, int n) {
    return (int)rng_below(r, n);
}

static bool one_in(struct rng *r, int n) {
    return pick(r, n) == 0;
}

/* One of 1, 2, 4, ... up to n (n >= 1), with equal probability. */
static int pick_power(struct rng *r, int n) {
    int powers = 0;
    while (n >> powers)
        powers++;
    return 1 << pick(r, powers);
}

/* A change being made: *to began as a copy of *from. */
struct change {
    struct search *s;
    struct rng *r;
    const struct candidate *from;
    struct candidate *to;
};

static struct search_stage *random_stage(const struct change *x) {
    return &x->to->stages[pick(x->r, x->to->n_stages)];
}

static bool balance(struct change *x) {
    return eval_legal(&x->s->eval, x->to) && search_balance(x->s, x->to, INFINITY);
}

/* ---- stages -------------------------------------------------------------------------- */

static bool move_cut(struct change *x) {
    if (x->to->n_stages < 2)
        return false;
    struct search_stage *st = &x->to->stages[pick(x->r, x->to->n_stages - 1)];
    int lo = st->first + 1, hi = st[1].end - 1, cut = st->end;
    int by = pick_power(x->r, hi - lo + 1), to = cut + (one_in(x->r, 2) ? by : -by);
    to = to < lo ? lo : to > hi ? hi : to;
    bool snap = one_in(x->r, 2);
    while (snap && to > lo && to < hi && !structure_begins_unit(&x->s->space.blocks.s, to))
        to += to > cut ? 1 : -1;
    st->end = st[1].first = to;
    return to != cut;
}

/* Sets the devices and the preset of all stages of a group. */
static void set_devices(struct change *x, int group, int devices, struct preset preset) {
    for (int k = group; k < x->to->n_stages; k += x->to->n_groups) {
        x->to->stages[k].devices = devices;
        space_apply_preset(&x->s->space, &x->to->stages[k], x->to->micro_batch, preset);
    }
}

static bool trade_devices(struct change *x) {
    const struct candidate *c = x->from;
    int from = pick(x->r, c->n_groups), to = pick(x->r, c->n_groups);
    int have = c->stages[from].devices;
    if (from == to || have < 2)
        return false;
    int n = pick_power(x->r, have - 1);
    struct preset taker = space_preset_of(&x->s->space, &c->stages[to]);
    taker.model_axes += one_in(x->r, 2);
    set_devices(x, to, c->stages[to].devices + n, taker);
    set_devices(x, from, have - n, space_preset_of(&x->s->space, &c->stages[from]));
    return true;
}

static bool swap_places(struct change *x) {
    struct candidate *c = x->to;
    int a = pick(x->r, c->n_groups), b = pick(x->r, c->n_groups);
    if (a != b)
        candidate_swap(c, a, b);
    return a != b;
}

/* Splits a stage at a random op and halves its devices. */
static bool split_stage(struct change *x) {
    struct candidate *c = x->to;
    int k = pick(x->r, c->n_stages);
    struct search_stage *st = &c->stages[k], all = *st;
    if (all.devices < 2 || c->n_groups < c->n_stages || all.end - all.first < 2 ||
        c->n_stages >= space_max_groups(&x->s->space))
        return false;
    struct preset preset = space_preset_of(&x->s->space, st);
    memmove(st + 1, st, sizeof *st * (size_t)(c->n_stages - k));
    c->n_groups = ++c->n_stages;
    st[0].end = st[1].first = all.first + 1 + pick(x->r, all.end - all.first - 1);
    preset.model_axes -= preset.model_axes > 0 && one_in(x->r, 2);
    set_devices(x, k, all.devices - all.devices / 2, preset);
    set_devices(x, k + 1, all.devices / 2, preset);
    return true;
}

/* Merges two neighbouring stages. */
static bool merge_stages(struct change *x) {
    struct candidate *c = x->to;
    if (c->n_groups < c->n_stages || c->n_stages < 2)
        return false;
    int k = pick(x->r, c->n_stages - 1);
    struct search_stage *st = &c->stages[k];
    struct preset preset = space_preset_of(&x->s->space, st);
    preset.model_axes += one_in(x->r, 2);
    int devices = st[0].devices + st[1].devices;
    st[0].end = st[1].end;
    memmove(st + 1, st + 2, sizeof *st * (size_t)(c->n_stages - k - 2));
    c->n_groups = --c->n_stages;
    if (c->n_stages == 1)
        c->schedule = space_first_schedule(&x->s->space);
    set_devices(x, k, devices, preset);
    return true;
}

/* Makes the pipeline twice or half as deep, all stages alike: single splits and merges
 * hardly ever lead there. */
static bool change_depth(struct change *x) {
    struct candidate *c = x->to;
    struct search_stage first = c->stages[0];
    int n = one_in(x->r, 2) ? 2 * c->n_groups : c->n_groups / 2;
    struct preset preset = space_preset_of(&x->s->space, &first);
    preset.model_axes += pick(x->r, 3) - 1;
    preset.model_axes = preset.model_axes < 0 ? 0 : preset.model_axes;
    if (n < 1 || !space_even(&x->s->space, n, c->micro_batch, preset, c))
        return false;
    for (int k = 0; k < n; k++)
        c->stages[k].zero = first.zero;
    return balance(x);
}

/* ---- layouts ------------------------------------------------------------------------- */

/* Draws a preset for the stage's devices. The odds favour what is often good: a quarter
 * of the draws split the sequence, and half of them split experts if there are any. */
static struct preset random_preset(struct change *x, const struct search_stage *st) {
    struct preset preset;
    int n = 0, inner = space_inner_dims(&x->s->space);
    while (space_preset(&x->s->space, st, n, &preset))
        n++;
    space_preset(&x->s->space, st, pick(x->r, n), &preset);
    int left = space_mesh_axes(&x->s->space, st) - preset.model_axes;
    if (left > 0 && space_has_context(&x->s->space) && one_in(x->r, 4))
        preset.context_axes = 1 + pick(x->r, left);
    left -= preset.context_axes;
    if (left > 0 && space_has_experts(&x->s->space) && one_in(x->r, 2))
        preset.expert_axes = 1 + pick(x->r, left);
    preset.outer = one_in(x->r, 8);
    if (one_in(x->r, 6))
        /* All devices of the model axes do the same work, which pays on slow links. */
        preset.inner = 0;
    else if (inner && one_in(x->r, 3))
        preset.inner &= ~(1u << (pick(x->r, inner) & 31));
    return preset;
}

/* Changes the preset of one stage, or of all. */
static bool change_preset(struct change *x) {
    struct search_stage *st = random_stage(x);
    const struct layout *before = st->layouts;
    struct preset preset = random_preset(x, st);
    space_apply_preset(&x->s->space, st, x->to->micro_batch, preset);
    bool all = one_in(x->r, 2);
    for (int k = 0; all && k < x->to->n_stages; k++)
        space_apply_preset(&x->s->space, &x->to->stages[k], x->to->micro_batch, preset);
    return st->layouts != before;
}

/* Returns whether the node of this op may have this layout. Asking first spares
 * summing the stage up with an illegal one. */
static bool may_have(struct change *x, const struct search_stage *st, int op,
                     const struct layout *l) {
    const struct model *m = x->s->space.p.model;
    struct mesh mesh;
    stage_mesh(st->devices, st->mesh, &mesh);
    return layout_check(m, &m->ops[op], &mesh, l, x->to->micro_batch, NULL) == 0 &&
           space_pins_allow(&x->s->space, x->s->space.blocks.x.of[op], st->mesh, &mesh, l);
}

/* Gives the stage these layouts and, half of the time, also all stages that were laid
 * out like it. */
static bool put_layouts(struct change *x, struct search_stage *st,
                        const struct layout *layouts) {
    const struct search_stage before = *st;
    bool all = one_in(x->r, 2);
    for (int k = 0; k < x->to->n_stages; k++) {
        struct search_stage *to = &x->to->stages[k];
        if (to == st || (all && to->layouts == before.layouts &&
                         to->devices == before.devices && to->mesh == before.mesh))
            to->layouts = layouts;
    }
    return layouts != before.layouts;
}

static struct layout *copy_layouts(const struct change *x, const struct search_stage *st) {
    size_t n = (size_t)x->s->space.blocks.x.n_nodes;
    struct layout *copy = mem_array(n, sizeof *copy);
    memcpy(copy, st->layouts, n * sizeof *copy);
    return copy;
}

/* Changes the layout of one op on one axis to another dim. */
static bool change_layout(struct change *x) {
    struct search_stage *st = random_stage(x);
    int op = st->first + pick(x->r, st->end - st->first);
    int axes = space_mesh_axes(&x->s->space, st),
        node = x->s->space.blocks.x.node_of[x->s->space.blocks.x.of[op]];
    const struct op_space *space = &x->s->space.p.model->ops[op].space;
    if (!axes)
        return false;
    struct layout l = st->layouts[node];
    int dim = pick(x->r, space->n + 1) - 1;
    l.dim[pick(x->r, axes)] = (int8_t)(dim < 0 ? PLACE_NONE : dim);
    if ((dim >= 0 && !role_splits(space->role[dim])) || !may_have(x, st, op, &l))
        return false;
    struct layout *layouts = copy_layouts(x, st);
    layouts[node] = l;
    bool changed = put_layouts(x, st, space_layouts(&x->s->space, layouts));
    free(layouts);
    return changed;
}

/* Lays out a range of ops as a random uniform preset does. */
static bool change_stretch(struct change *x) {
    struct search_stage *st = random_stage(x), uniform = *st;
    int n_nodes = x->s->space.blocks.x.n_nodes;
    int first = st->first + pick(x->r, st->end - st->first), left = st->end - first;
    int end = first + pick_power(x->r, left < n_nodes ? left : n_nodes);
    space_apply_preset(&x->s->space, &uniform, x->to->micro_batch, random_preset(x, st));
    if (uniform.mesh != st->mesh)
        return false;
    struct layout *layouts = copy_layouts(x, st);
    for (int i = first; i < end; i++) {
        int node = x->s->space.blocks.x.node_of[x->s->space.blocks.x.of[i]];
        layouts[node] = uniform.layouts[node];
    }
    bool changed = put_layouts(x, st, space_layouts(&x->s->space, layouts));
    free(layouts);
    return changed;
}

/* ---- memory -------------------------------------------------------------------------- */

/* One more or one fewer block is recomputed, or any number of blocks at any level. */
static bool change_recompute(struct change *x) {
    struct search_stage *st = random_stage(x);
    int blocks = space_stage_blocks(&x->s->space, st), level = st->recompute_level;
    if (!blocks)
        return false;
    int n = st->recompute_blocks + (one_in(x->r, 2) ? 1 : -1);
    if (!level || one_in(x->r, 2)) {
        level = pick(x->r, RECOMPUTE_LEVELS);
        n = one_in(x->r, 3) ? blocks : pick(x->r, blocks + 1);
    }
    n = n < 0 || !level ? 0 : n > blocks ? blocks : n;
    st->recompute_blocks = n;
    st->recompute_level = n ? level : 0;
    return true;
}

/* Turns regathering on or off in one stage, or in all. */
static bool change_regather(struct change *x, struct search_stage *st) {
    bool to = !st->regather, all = one_in(x->r, 2);
    for (int k = 0; all && k < x->to->n_stages; k++)
        x->to->stages[k].regather = to;
    st->regather = to;
    return true;
}

/* Changes the level of ZeRO in one stage, or in all. */
static bool change_zero(struct change *x) {
    struct search_stage *st = random_stage(x);
    /* the stage already pays time for memory */
    bool saves_memory = st->recompute_blocks > 0 || st->regather;
    if (saves_memory && space_may_regather(&x->s->space) && one_in(x->r, 3))
        return change_regather(x, st);
    int before = st->zero, zero = pick(x->r, space_zero_levels(&x->s->space));
    bool all = one_in(x->r, 2);
    for (int k = 0; all && k < x->to->n_stages; k++)
        x->to->stages[k].zero = zero;
    st->zero = zero;
    return all || zero != before;
}

/* ---- the whole ----------------------------------------------------------------------- */

/* Half of the time the presets are laid out anew for the new micro-batch. */
static bool change_micro_batch(struct change *x) {
    const struct search_problem *p = space_problem_of(&x->s->space);
    x->to->micro_batch = p->micro[pick(x->r, p->n_micro)];
    bool anew = one_in(x->r, 2);
    for (int k = 0; anew && k < x->to->n_stages; k++)
        space_apply_preset(&x->s->space, &x->to->stages[k], x->to->micro_batch,
                           space_preset_of(&x->s->space, &x->from->stages[k]));
    return x->to->micro_batch != x->from->micro_batch;
}

/* Draws among the schedules that scores can tell apart and, where this search has them,
 * those that run further ahead. */
static enum schedule pick_schedule(struct change *x) {
    int n = 0, some[SCHEDULE_COUNT];
    for (int s = 0; s < SCHEDULE_COUNT; s++)
        if (schedule_traits((enum schedule)s)->further <= 1 ||
            space_has_schedule(&x->s->space, (enum schedule)s))
            some[n++] = s;
    return (enum schedule)some[pick(x->r, n)];
}

static bool change_schedule(struct change *x) {
    enum schedule f = pick_schedule(x);
    if (schedules_round(1u << f))
        return space_has_schedule(&x->s->space, f) &&
               space_chunk(&x->s->space, x->from, 1 + pick(x->r, MOST_CHUNKS), x->to);
    x->to->schedule = f;
    return f != x->from->schedule && space_schedules_of(&x->s->space, x->to) >> f & 1;
}

/* How often each change is drawn, whether cuts may be balanced afterwards, and in
 * which spaces it is drawn at all (NULL: in all). */
static const struct {
    bool (*change)(struct change *x);
    int weight;
    bool balanced;
    bool (*applies)(const struct space *sp);
} changes[] = {
    {move_cut, 6, false, NULL},        {trade_devices, 3, true, NULL},
    {split_stage, 2, true, NULL},      {merge_stages, 2, true, NULL},
    {change_preset, 4, true, NULL},    {change_layout, 6, true, NULL},
    {change_stretch, 4, true, NULL},   {change_recompute, 4, false, NULL},
    {change_zero, 2, true, NULL},      {change_micro_batch, 2, true, NULL},
    {change_schedule, 2, false, NULL}, {change_depth, 1, false, NULL},
    {balance, 1, false, NULL},         {swap_places, 3, true, space_has_places},
};

/* Draws one of the changes by its weight. */
bool mcmc_propose(struct search *s, struct rng *r, const struct candidate *from,
                  struct candidate *to) {
    struct change x = {s, r, from, to};
    enum { N = sizeof changes / sizeof *changes };
    int weight[N], all = 0, at = 0;
    for (int i = 0; i < N; i++) {
        bool applies = !changes[i].applies || changes[i].applies(&s->space);
        all += weight[i] = applies ? changes[i].weight : 0;
    }
    for (int left = pick(r, all); left >= weight[at]; at++)
        left -= weight[at];
    candidate_copy(to, from);
    if (!changes[at].change(&x))
        return false;
    if (changes[at].balanced && one_in(r, 2))
        balance(&x);
    return true;
}

/* ---- starts -------------------------------------------------------------------------- */

/* Draws a number of stages up to the most groups; powers of two are more likely. */
static int random_depth(const struct space *sp, struct rng *r) {
    int most = space_max_groups(sp), n = pick_power(r, most);
    if (sp->pinned.n_stages)
        return sp->pinned.n_stages;
    return one_in(r, 2) ? n : 1 + pick(r, n < most ? n + 1 : most);
}

bool mcmc_draw(struct search *s, struct rng *r, struct candidate *out) {
    const struct search_problem *p = space_problem_of(&s->space);
    int n = random_depth(&s->space, r), zero = pick(r, space_zero_levels(&s->space));
    struct search_stage first = {.end = p->model->n_ops,
                                 .devices = (p->devices + n - 1) / n};
    struct change x = {.s = s, .r = r, .to = out};
    int64_t micro_batch = p->micro[pick(r, p->n_micro)];
    struct preset preset = random_preset(&x, &first);
    if (!space_may_have_stages(&s->space, n) ||
        !space_even(&s->space, n, micro_batch, preset, out))
        return false;
    for (int k = 0; k < n; k++)
        out->stages[k].zero = zero;
    return balance(&x) || eval_legal(&s->eval, out);
}
