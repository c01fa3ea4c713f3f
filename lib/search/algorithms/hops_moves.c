/* The primitives of hops. Each changes something in a copy of the plan and offers the
 * result.
 *
 * An offer is scored as it is and with its ops balanced; the best few of those that
 * were not visited before are kept as options. */
#include "search/algorithms/hops.h"
#include "search/algorithms/improve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY_DEVICES = 32 };

/* ---- options ------------------------------------------------------------------------- */

/* Returns the time above which an offer is of no use: it is not better than hp->limit, not
 * followed further, and not among the pool's best. The last hop follows no offer
 * further, and a shake, at level 0, may follow any. */
static double useful_us(const struct hops *hp) {
    const struct options *o = hp->options, *any = &hp->levels[0], *last = &hp->levels[1];
    const struct score *worst = o->n == WIDTH ? &o->p[WIDTH - 1].score : NULL;
    if (o == any || hp->limit.overflow || (o != last && (!worst || worst->overflow)))
        return INFINITY;
    double us = fmax(hp->limit.time_us, pool_last_us(&hp->s->pool));
    return o == last ? us : fmax(us, worst->time_us);
}

/* Returns whether one stage alone takes so long that the offer is of no use. CUT allows
 * for the little that cuts may save of what prefix sums count. */
static bool is_slow(struct hops *hp, const struct candidate *c) {
    static const double CUT = 1.01;
    struct evaluate *ev = &hp->s->eval;
    double micro_batches = (double)(ev->space->p.batch / c->micro_batch), longest = 0;
    double useful = useful_us(hp);
    if (isinf(useful))
        return false;
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    candidate_ranks(c, rank);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        const struct prefix *t = candidate_prefix(ev, c, k, rank[k]);
        longest = fmax(longest, prefix_time_us(ev->space, t, st->end) -
                                    prefix_time_us(ev->space, t, st->first));
    }
    free(rank);
    return longest * micro_batches > CUT * useful;
}

/* Returns the plan's score, unknown if the plan was visited before or is not legal. A
 * slow plan is not scored but counts as work all the same, because phases end after a
 * certain amount of work. */
static struct score consider(struct hops *hp, const struct candidate *c) {
    struct score score = {.unknown = true};
    void **seen = memo_slot(&hp->seen, candidate_hash(c));
    if (*seen)
        return score;
    *seen = hp;
    if (!eval_legal(&hp->s->eval, c))
        return score;
    if (is_slow(hp, c)) {
        hp->s->budget.work += c->n_stages;
        return (struct score){.time_us = INFINITY};
    }
    score = pool_score(&hp->s->pool, c);
    options_insert(hp->options->p, &hp->options->n, WIDTH, c, score);
    return score;
}

/* Considers the plan hp->next, as it is and balanced. */
static void offer(struct hops *hp) {
    if (budget_stopped(&hp->s->budget))
        return;
    struct score score = consider(hp, &hp->next);
    if (score.unknown || hp->balanced)
        return;
    candidate_copy(&hp->balanced_next, &hp->next);
    if (search_balance(hp->s, &hp->balanced_next, useful_us(hp)))
        consider(hp, &hp->balanced_next);
}

static struct search_stage *begin(struct hops *hp, const struct candidate *c, int k) {
    candidate_copy(&hp->next, c);
    return &hp->next.stages[k];
}

/* Sets the devices and the preset of all stages of a group. */
static void set_devices(struct hops *hp, int group, int devices, struct preset preset) {
    for (int k = group; k < hp->next.n_stages; k += hp->next.n_groups) {
        hp->next.stages[k].devices = devices;
        space_apply_preset(&hp->s->space, &hp->next.stages[k], hp->next.micro_batch,
                           preset);
    }
}

/* ---- primitives ---------------------------------------------------------------------- */

/* Returns the number of ops of the block in the middle of the stage, or a quarter of the
 * stage's ops if no block repeats there. */
static int block_length(const struct space *sp, const struct search_stage *st) {
    const struct structure *g = &sp->blocks.s;
    int r = g->repeat_of[st->first + (st->end - st->first) / 2];
    return r >= 0 ? g->repeats[r].period : (st->end - st->first) / 4;
}

/* The number of ops between one end of a stage and the nearest bound of a block inside
 * it. */
static int to_boundary(const struct space *sp, const struct search_stage *st, bool at_end) {
    const struct structure *g = &sp->blocks.s;
    return at_end ? st->end - structure_unit_of(g, st->end - 1)
                  : structure_next_unit(g, st->first + 1) - st->first;
}

/* Moves ops from stage k to its neighbour: up to the next bound of a block, one or two
 * ops, blocks, or shares of the stage. */
static void move_ops(struct hops *hp, const struct candidate *c, int k, int to) {
    const struct search_stage *st = &c->stages[k];
    int len = st->end - st->first, block = block_length(&hp->s->space, st);
    int counts[] = {to_boundary(&hp->s->space, st, to > k),
                    1,
                    2,
                    block / 2,
                    block,
                    2 * block,
                    len / 4,
                    len / 2};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int n = counts[i];
        if (n < 1 || n >= len)
            continue;
        struct search_stage *d = begin(hp, c, 0);
        if (to > k) {
            d[k].end -= n;
            d[to].first -= n;
        } else {
            d[k].first += n;
            d[to].end += n;
        }
        offer(hp);
    }
}

/* Moves the cut behind stage k, if it is inside a block, to either bound of that
 * block, where the fewest bytes pass. */
static void snap_cut(struct hops *hp, const struct candidate *c, int k) {
    const struct structure *g = &hp->s->space.blocks.s;
    int cut = c->stages[k].end;
    for (int up = 0; up < 2 && !structure_begins_unit(g, cut); up++) {
        int to = up ? structure_next_unit(g, cut) : structure_unit_of(g, cut);
        if (to <= c->stages[k].first || to >= c->stages[k + 1].end)
            continue;
        struct search_stage *d = begin(hp, c, k);
        d[0].end = d[1].first = to;
        offer(hp);
    }
}

/* Moves devices from group t to group k. */
static void trade_devices(struct hops *hp, const struct candidate *c, int k, int t) {
    int have = c->stages[t].devices, mine = c->stages[k].devices;
    struct preset a = space_preset_of(&hp->s->space, &c->stages[k]);
    struct preset b = space_preset_of(&hp->s->space, &c->stages[t]);
    /* Large groups do not trade single devices, which would leave numbers that hardly
     * anything divides. */
    int amounts[] = {have + mine <= MANY_DEVICES, have / 2, have - mine, mine};
    for (int i = 0; i < 4; i++) {
        int n = amounts[i];
        if (n < 1 || n >= have)
            continue;
        for (int wider = 0; wider < 2; wider++) {
            begin(hp, c, 0);
            struct preset w = a;
            w.model_axes += wider;
            set_devices(hp, k, mine + n, w);
            set_devices(hp, t, have - n, b);
            offer(hp);
        }
    }
}

/* Group k takes devices from every other group; where there are many groups, from its
 * neighbours, both ends and the middle. */
static void trade_with_others(struct hops *hp, const struct candidate *c, int k) {
    enum { FEW = 8 };
    int n = c->n_groups;
    k %= n;
    if (n <= FEW) {
        for (int t = 0; t < n; t++)
            if (t != k)
                trade_devices(hp, c, k, t);
        return;
    }
    int some[] = {k - 1, k + 1, 0, n - 1, n / 2};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (some[i] >= 0 && some[i] < n && some[i] != k)
            trade_devices(hp, c, k, some[i]);
}

/* Where devices or links differ, swaps the places of group k and other groups. */
static void swap_places(struct hops *hp, const struct candidate *c, int k) {
    enum { FEW = 8 };
    int n = c->n_groups, step = n > FEW ? n / FEW : 1;
    k %= n;
    for (int t = 0; t < n && space_has_places(&hp->s->space); t++) {
        bool near = t == k - 1 || t == k + 1 || t == n - 1;
        if (t == k || (t % step && !near))
            continue;
        begin(hp, c, 0);
        candidate_swap(&hp->next, k, t);
        offer(hp);
    }
}

/* Puts stage k, or all stages, into another preset. */
static void set_preset(struct hops *hp, const struct candidate *c, int k, bool all,
                       struct preset preset) {
    struct search_stage *d = begin(hp, c, 0);
    for (int i = all ? 0 : k; i < (all ? c->n_stages : k + 1); i++)
        space_apply_preset(&hp->s->space, &d[i], c->micro_batch, preset);
    offer(hp);
}

/* Turns axes that split the model into axes that split the sequence, or the other way
 * round: one of them, or all. */
static void swap_context(struct hops *hp, const struct candidate *c, int k, bool all) {
    const struct preset now = space_preset_of(&hp->s->space, &c->stages[k]);
    int amounts[] = {1, now.model_axes, -1, -now.context_axes};
    for (int i = 0;
         i < 4 && space_wants_context(&hp->s->space, &c->stages[k], c->micro_batch, now);
         i++) {
        struct preset preset = now;
        preset.model_axes -= amounts[i];
        preset.context_axes += amounts[i];
        bool same = amounts[i] == 0 || (i % 2 && amounts[i] == amounts[i - 1]);
        if (!same && preset.model_axes >= 0 && preset.context_axes >= 0)
            set_preset(hp, c, k, all, preset);
    }
}

/* Tries the model axes outside instead of inside, the mesh in ascending order, and one
 * axis more or less for the sequence and for experts. */
static void turn_preset(struct hops *hp, const struct candidate *c, int k, bool all) {
    const struct preset now = space_preset_of(&hp->s->space, &c->stages[k]);
    int axes = space_mesh_axes(&hp->s->space, &c->stages[k]);
    int used = now.model_axes + now.context_axes + now.expert_axes;
    struct preset preset = now;
    preset.outer = !now.outer;
    if (used && used < axes)
        set_preset(hp, c, k, all, preset);
    bool context = space_wants_context(&hp->s->space, &c->stages[k], c->micro_batch, now);
    preset = now;
    preset.ascending = !now.ascending;
    if (search_mesh_has_orders(c->stages[k].devices))
        set_preset(hp, c, k, all, preset);
    for (int more = -1; more <= 1; more += 2) {
        preset = now;
        preset.context_axes += more;
        bool may = used + more <= axes;
        if (context && may && preset.context_axes >= 0)
            set_preset(hp, c, k, all, preset);
        preset = now;
        preset.expert_axes += more;
        if (space_has_experts(&hp->s->space) && may && preset.expert_axes >= 0)
            set_preset(hp, c, k, all, preset);
    }
    swap_context(hp, c, k, all);
}

/* Tries one model axis more, the same number and one less, with and without the
 * sequence split on them, and with each inner dim in turn left whole. */
static void change_preset(struct hops *hp, const struct candidate *c, int k, bool all) {
    const struct preset now = space_preset_of(&hp->s->space, &c->stages[k]);
    int axes = space_mesh_axes(&hp->s->space, &c->stages[k]),
        n_inner = space_inner_dims(&hp->s->space);
    for (int j = 0; j <= axes; j++) {
        if (j > now.model_axes + 1 || j < now.model_axes - 1)
            continue;
        for (int seq = 0; seq <= (space_has_sequence(&hp->s->space) ? 1 : 0); seq++) {
            for (int without = -1; without < n_inner && without < 32; without++) {
                struct preset preset = now;
                preset.model_axes = j;
                preset.inner = without < 0 ? ~0u : ~(1u << without);
                preset.sequence = seq;
                set_preset(hp, c, k, all, preset);
            }
        }
    }
    turn_preset(hp, c, k, all);
}

/* Changes the layout of one op (all its instances in the stage) on one axis to another
 * dim. */
static void change_layout(struct hops *hp, const struct candidate *c, int k, int op) {
    const struct space *sp = &hp->s->space;
    const struct blocks *g = &sp->blocks;
    const struct search_stage *st = &c->stages[k];
    const struct op_space *space = &g->whole->ops[op].space;
    int node = g->x.node_of[g->x.of[op]];
    struct layout *layouts = mem_array((size_t)g->x.n_nodes, sizeof *layouts);
    for (int a = 0; a < space_mesh_axes(sp, st); a++) {
        for (int d = PLACE_NONE; d < space->n; d++) {
            if (d == st->layouts[node].dim[a] || (d >= 0 && !role_splits(space->role[d])))
                continue;
            memcpy(layouts, st->layouts, sizeof *layouts * (size_t)g->x.n_nodes);
            layouts[node].dim[a] = (int8_t)d;
            begin(hp, c, k)->layouts = space_layouts(sp, layouts);
            offer(hp);
        }
    }
    free(layouts);
}

static void change_layouts(struct hops *hp, const struct candidate *c, int k) {
    const struct blocks *g = &hp->s->space.blocks;
    bool *seen = mem_array((size_t)g->x.n_nodes, sizeof *seen);
    for (int i = c->stages[k].first; i < c->stages[k].end;
         i = structure_next_distinct(&hp->s->space.blocks.s, c->stages[k].first, i)) {
        int node = g->x.node_of[g->x.of[i]];
        if (!seen[node])
            change_layout(hp, c, k, i);
        seen[node] = true;
    }
    free(seen);
}

/* Lets the layout solver lay out all ops of stage k, and offers the result for this
 * stage alone and for all stages that were laid out like it. */
static void solve_layouts(struct hops *hp, const struct candidate *c, int k) {
    struct search_stage *d = begin(hp, c, 0);
    if (budget_stopped(&hp->s->budget) || !search_relayout(hp->s, &hp->next, k))
        return;
    const struct layout *layouts = d[k].layouts;
    offer(hp);
    begin(hp, c, 0);
    for (int i = 0; i < c->n_stages; i++)
        if (d[i].devices == d[k].devices && d[i].layouts == c->stages[k].layouts)
            d[i].layouts = layouts;
    offer(hp);
}

/* Recomputes more blocks if memory is short, fewer blocks if it is not, or the same
 * number at another level. */
static void change_recompute(struct hops *hp, const struct candidate *c, int k, bool more) {
    const struct search_stage *st = &c->stages[k];
    int blocks = space_stage_blocks(&hp->s->space, st), now = st->recompute_blocks;
    int counts[] = {0, now - 1, now + 1, now / 2, (now + blocks + 1) / 2, blocks};
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        for (int i = 0; i < 6; i++) {
            bool same = level == st->recompute_level;
            if (counts[i] < 0 || counts[i] > blocks || (same && more && counts[i] < now) ||
                (same && !more && counts[i] > now))
                continue;
            struct search_stage *d = begin(hp, c, k);
            d->recompute_level = counts[i] ? level : 0;
            d->recompute_blocks = level ? counts[i] : 0;
            offer(hp);
        }
    }
}

/* Sharding gradients and parameters costs time, so it is tried only where memory is
 * short. fine: parameters are also sharded where something is recomputed. */
static void change_zero(struct hops *hp, const struct candidate *c, int k, bool memory,
                        bool fine) {
    bool recompute = c->stages[k].recompute_blocks > 0;
    for (int zero = 0; zero < space_zero_levels(&hp->s->space); zero++) {
        bool shards = zero > ZERO_OPTIMIZER, whole = zero == ZERO_PARAMETERS;
        if (zero == c->stages[k].zero ||
            (shards && !memory && !(fine && recompute && whole)))
            continue;
        begin(hp, c, k)->zero = zero;
        offer(hp);
        struct search_stage *d = begin(hp, c, 0);
        for (int i = 0; i < c->n_stages; i++)
            d[i].zero = zero;
        offer(hp);
    }
}

/* Where memory is short or something is recomputed, tensors that are gathered are
 * dropped and gathered again in the backward pass; where there is room, they are kept. */
static void change_regather(struct hops *hp, const struct candidate *c, int k,
                            bool memory) {
    const struct search_stage *st = &c->stages[k];
    struct preset preset = space_preset_of(&hp->s->space, st);
    bool gathers = preset.sequence || preset.context_axes > 0;
    bool wants = !st->regather && gathers && (memory || st->recompute_blocks > 0);
    if (!space_may_regather(&hp->s->space) || !(wants || (st->regather && !memory)))
        return;
    bool to = !st->regather;
    begin(hp, c, k)->regather = to;
    offer(hp);
    struct search_stage *d = begin(hp, c, 0);
    for (int i = 0; i < c->n_stages; i++)
        d[i].regather = to;
    if (c->n_stages > 1)
        offer(hp);
}

static void change_micro_batch(struct hops *hp, const struct candidate *c) {
    const struct search_problem *p = space_problem_of(&hp->s->space);
    for (int i = 0; i < p->n_micro; i++) {
        if (p->micro[i] == c->micro_batch)
            continue;
        begin(hp, c, 0);
        hp->next.micro_batch = p->micro[i];
        offer(hp);
        /* Apply the presets anew: more axes may now split the batch, or fewer have
         * to. */
        struct search_stage *d = begin(hp, c, 0);
        hp->next.micro_batch = p->micro[i];
        for (int k = 0; k < c->n_stages; k++)
            space_apply_preset(&hp->s->space, &d[k], p->micro[i],
                               space_preset_of(&hp->s->space, &c->stages[k]));
        offer(hp);
    }
}

static void set_schedule(struct hops *hp, const struct candidate *c, enum schedule f) {
    if (f == c->schedule || !(space_schedules_of(&hp->s->space, c) >> f & 1))
        return;
    begin(hp, c, 0);
    hp->next.schedule = f;
    offer(hp);
}

/* Tries the schedules that split the backward pass, or the others. */
static void set_schedules(struct hops *hp, const struct candidate *c, bool splits) {
    for (int f = 0; f < SCHEDULE_COUNT; f++)
        if (schedule_traits((enum schedule)f)->splits == splits)
            set_schedule(hp, c, (enum schedule)f);
}

/* Tries other schedules and other numbers of stages on each group. fine: also those
 * that need everything compiled anew or have more stages to score. */
static void change_schedule(struct hops *hp, const struct candidate *c, bool fine) {
    int chunks = c->n_stages / c->n_groups;
    set_schedules(hp, c, false);
    if (!fine)
        return;
    set_schedules(hp, c, true);
    for (int v = chunks > 1 ? chunks - 1 : 2; v <= chunks + 1 && v <= MOST_CHUNKS; v++)
        if (v != chunks && space_goes_round(&hp->s->space) &&
            space_chunk(&hp->s->space, c, v, &hp->next))
            offer(hp);
}

/* Merges stages k and k + 1 into one, with as many model axes as stage k or one
 * more. */
static void merge_stages(struct hops *hp, const struct candidate *c, int k) {
    if (c->n_groups < c->n_stages)
        return;
    struct preset preset = space_preset_of(&hp->s->space, &c->stages[k]);
    for (int wider = 0; wider < 2; wider++) {
        struct search_stage *d = begin(hp, c, 0);
        d[k].end = d[k + 1].end;
        memmove(&d[k + 1], &d[k + 2], sizeof *d * (size_t)(c->n_stages - k - 2));
        hp->next.n_groups = --hp->next.n_stages;
        if (hp->next.n_stages == 1)
            hp->next.schedule = space_first_schedule(&hp->s->space);
        preset.model_axes += wider;
        set_devices(hp, k, c->stages[k].devices + c->stages[k + 1].devices, preset);
        offer(hp);
    }
}

/* Splits stage k in the middle, at the bound of a block if there is one, and halves
 * its devices. */
static void split_stage(struct hops *hp, const struct candidate *c, int k) {
    const struct search_stage *st = &c->stages[k];
    if (st->devices < 2 || c->n_groups < c->n_stages ||
        c->n_stages >= space_max_groups(&hp->s->space) || st->end - st->first < 2)
        return;
    struct search_stage *d = begin(hp, c, 0), half = *st;
    memmove(&d[k + 1], &d[k], sizeof *d * (size_t)(c->n_stages - k));
    hp->next.n_groups = ++hp->next.n_stages;
    half.first = st->first + (st->end - st->first) / 2;
    int middle = half.first + to_boundary(&hp->s->space, &half, false);
    if (middle >= st->end)
        middle = half.first;
    d[k].end = d[k + 1].first = middle;
    struct preset preset = space_preset_of(&hp->s->space, st);
    set_devices(hp, k, st->devices - st->devices / 2, preset);
    set_devices(hp, k + 1, st->devices / 2, preset);
    offer(hp);
}

/* Offers what may relieve the fullest stage if memory is short, otherwise the slowest
 * one. Moves of ops are not balanced, because that would undo them. */
void hops_expand(struct hops *hp, const struct candidate *c, const struct score *score,
                 bool fine) {
    bool memory = score->overflow > 0;
    int k = memory ? score->fullest : score->slowest;
    hp->balanced = true;
    if (k > 0) {
        move_ops(hp, c, k, k - 1);
        snap_cut(hp, c, k - 1);
    }
    if (k + 1 < c->n_stages) {
        move_ops(hp, c, k, k + 1);
        snap_cut(hp, c, k);
    }
    hp->balanced = false;
    trade_with_others(hp, c, k);
    swap_places(hp, c, k);
    change_preset(hp, c, k, false);
    if (c->n_stages > 1)
        change_preset(hp, c, k, true);
    change_recompute(hp, c, k, memory);
    change_zero(hp, c, k, memory, fine);
    change_regather(hp, c, k, memory);
    change_micro_batch(hp, c);
    change_schedule(hp, c, fine);
    split_stage(hp, c, k);
    if (k > 0)
        merge_stages(hp, c, k - 1);
    if (k + 1 < c->n_stages)
        merge_stages(hp, c, k);
    if (fine) {
        solve_layouts(hp, c, k);
        change_layouts(hp, c, k);
    }
}
