/* hops - iterative bottleneck alleviation (after Liu et al., Aceso, EuroSys 2024).
 *
 * Find the stage that bounds memory, or else time; try every primitive that relieves
 * that resource there: move ops to a neighbour, trade devices, change the layout, the
 * micro-batch, recompute, ZeRO, the schedule, split or merge stages; each as it is, and
 * with the ops balanced anew over all stages (balance.c). If none of them makes the plan
 * better at once, follow the most promising ones some hops deep: relieving one stage may
 * first burden another. A plan is never visited twice. Starts: balanced pipelines of
 * every useful depth and micro-batch, each with its best uniform style; first all a
 * little, then the best deeper and op by op. In the end the best is shaken by a few
 * random changes and improved again; the seed decides which. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 4,      /* plans followed at each hop */
    MAX_STARTS = 6, /* improved with few hops, */
    SHALLOW_HOPS = 1,
    FINALISTS = 2, /* then the best with more; and further ones while few were scored: */
    FEW_SCORED = 25000, /* stages */
    DEEP_HOPS = 4,
    MANY_DEVICES = 32,
    SHAKES = 3,
    MOST_SHAKES = 40,
    SHAKE_CHANGES = 2,
};

struct option {
    struct candidate c;
    struct score score;
};

/* The best options of the plan under work, best first. */
struct options {
    int n;
    struct option p[WIDTH];
};

struct hops {
    struct search *s;
    struct options *levels;               /* [max_hops + 1], by hops left */
    struct options *options;              /* of the level at work */
    struct candidate next, balanced_next; /* under construction */
    struct score limit;                   /* a plan must be better than this */
    struct memo seen;                     /* visited plans */
    struct rng rng;
    int max_hops;
    bool balanced; /* the primitive at work moves ops itself */
};

/* ---- options ------------------------------------------------------------------------- */

static void insert(struct options *o, const struct candidate *c, struct score score) {
    int at = o->n;
    while (at > 0 && score_better(&score, &o->p[at - 1].score))
        at--;
    if (score.unknown || at == WIDTH)
        return;
    o->n += o->n < WIDTH;
    struct option last = o->p[o->n - 1];
    memmove(&o->p[at + 1], &o->p[at], sizeof *o->p * (size_t)(o->n - 1 - at));
    o->p[at] = last;
    candidate_copy(&o->p[at].c, c);
    o->p[at].score = score;
}

static struct score consider(struct hops *hp, const struct candidate *c) {
    struct score score = {.unknown = true};
    void **seen = memo_slot(&hp->seen, candidate_hash(c));
    if (*seen)
        return score;
    *seen = hp;
    if (!search_legal(hp->s, c))
        return score;
    score = search_score(hp->s, c);
    insert(hp->options, c, score);
    return score;
}

/* Considers the plan that was built, as it is and with its ops moved to where they are
 * best. */
static void offer(struct hops *hp) {
    if (search_stopped(hp->s))
        return;
    struct score score = consider(hp, &hp->next);
    if (score.unknown || hp->balanced)
        return;
    candidate_copy(&hp->balanced_next, &hp->next);
    if (search_balance(hp->s, &hp->balanced_next))
        consider(hp, &hp->balanced_next);
}

static struct search_stage *begin(struct hops *hp, const struct candidate *c, int k) {
    candidate_copy(&hp->next, c);
    return &hp->next.stages[k];
}

static void set_devices(struct hops *hp, int k, int devices, struct style style) {
    hp->next.stages[k].devices = devices;
    search_apply_style(hp->s, &hp->next.stages[k], hp->next.micro_batch, style);
}

/* ---- primitives ---------------------------------------------------------------------- */

/* The period of the run that a stage is mostly made of, or a quarter of its ops. */
static int block_length(const struct search *s, const struct search_stage *st) {
    const struct structure *g = &s->graph.s;
    int r = g->run_of[st->first + (st->end - st->first) / 2];
    return r >= 0 ? g->runs[r].period : (st->end - st->first) / 4;
}

/* Ops from the edge of a stage to the next bound of a block inside. */
static int to_boundary(const struct search *s, const struct search_stage *st, bool at_end) {
    const struct structure *g = &s->graph.s;
    int r = g->run_of[at_end ? st->end - 1 : st->first];
    if (r < 0)
        return 1;
    int period = g->runs[r].period;
    int over = ((at_end ? st->end : st->first) - g->runs[r].first) % period;
    return at_end ? (over ? over : period) : period - over;
}

/* Ops from stage k to its neighbour: one, to the next block boundary, one block,
 * several. */
static void move_ops(struct hops *hp, const struct candidate *c, int k, int to) {
    const struct search_stage *st = &c->stages[k];
    int len = st->end - st->first, block = block_length(hp->s, st);
    int counts[] = {to_boundary(hp->s, st, to > k),
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

/* The cut behind stage k to the bounds of the block that it cuts, whoever gets the ops: what
 * passes there is least. */
static void snap_cut(struct hops *hp, const struct candidate *c, int k) {
    const struct structure *g = &hp->s->graph.s;
    int cut = c->stages[k].end, r = g->run_of[cut];
    int over = r < 0 ? 0 : (cut - g->runs[r].first) % g->runs[r].period;
    for (int up = 0; over && up < 2; up++) {
        int to = up ? cut - over + g->runs[r].period : cut - over;
        if (to <= c->stages[k].first || to >= c->stages[k + 1].end)
            continue;
        struct search_stage *d = begin(hp, c, k);
        d[0].end = d[1].first = to;
        offer(hp);
    }
}

/* Devices from stage t to stage k. */
static void trade_devices(struct hops *hp, const struct candidate *c, int k, int t) {
    int have = c->stages[t].devices, mine = c->stages[k].devices;
    struct style a = search_style_of(hp->s, &c->stages[k]);
    struct style b = search_style_of(hp->s, &c->stages[t]);
    /* One of many would leave numbers that divide nothing. */
    int amounts[] = {have + mine <= MANY_DEVICES, have / 2, have - mine, mine};
    for (int i = 0; i < 4; i++) {
        int n = amounts[i];
        if (n < 1 || n >= have)
            continue;
        for (int wider = 0; wider < 2; wider++) {
            begin(hp, c, 0);
            struct style w = a;
            w.model_axes += wider;
            set_devices(hp, k, mine + n, w);
            set_devices(hp, t, have - n, b);
            offer(hp);
        }
    }
}

/* Stages that could give devices: the neighbours, the ends, and those that are least
 * busy by their number of ops per device. */
static void trade_with_others(struct hops *hp, const struct candidate *c, int k) {
    enum { FEW = 8 };
    if (c->n_stages <= FEW) {
        for (int t = 0; t < c->n_stages; t++)
            if (t != k)
                trade_devices(hp, c, k, t);
        return;
    }
    int some[] = {k - 1, k + 1, 0, c->n_stages - 1, c->n_stages / 2};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (some[i] >= 0 && some[i] < c->n_stages && some[i] != k)
            trade_devices(hp, c, k, some[i]);
}

static void change_style(struct hops *hp, const struct candidate *c, int k, bool all) {
    struct style now = search_style_of(hp->s, &c->stages[k]);
    int axes = search_mesh_axes(c->stages[k].devices), n_inner = search_inner_dims(hp->s);
    for (int j = 0; j <= axes; j++) {
        if (j > now.model_axes + 1 || j < now.model_axes - 1)
            continue;
        for (int seq = 0; seq <= (search_has_sequence(hp->s) ? 1 : 0); seq++) {
            for (int without = -1; without < n_inner && without < 32; without++) {
                struct style style = {j, ~0u, seq};
                if (without >= 0)
                    style.inner &= ~(1u << without);
                struct search_stage *d = begin(hp, c, 0);
                for (int i = all ? 0 : k; i < (all ? c->n_stages : k + 1); i++)
                    search_apply_style(hp->s, &d[i], c->micro_batch, style);
                offer(hp);
            }
        }
    }
}

/* One op of a distinct block (all its instances in the stage), one axis, another dim. */
static void change_layout(struct hops *hp, const struct candidate *c, int k, int op) {
    struct search *s = hp->s;
    const struct graph *g = &s->graph;
    const struct search_stage *st = &c->stages[k];
    const struct op_space *space = &g->whole->ops[op].space;
    int node = g->x.node_of[g->x.of[op]];
    struct layout *layouts = mem_array((size_t)g->x.n_nodes, sizeof *layouts);
    for (int a = 0; a < search_mesh_axes(st->devices); a++) {
        for (int d = PLACE_NONE; d < space->n; d++) {
            if (d == st->layouts[node].dim[a] || (d >= 0 && space->role[d] == ROLE_whole))
                continue;
            memcpy(layouts, st->layouts, sizeof *layouts * (size_t)g->x.n_nodes);
            layouts[node].dim[a] = (int8_t)d;
            begin(hp, c, k)->layouts = search_layouts(s, layouts);
            offer(hp);
        }
    }
    free(layouts);
}

static void change_layouts(struct hops *hp, const struct candidate *c, int k) {
    const struct graph *g = &hp->s->graph;
    bool *seen = mem_array((size_t)g->x.n_nodes, sizeof *seen);
    for (int i = c->stages[k].first; i < c->stages[k].end;
         i = search_next_distinct(hp->s, i)) {
        int node = g->x.node_of[g->x.of[i]];
        if (!seen[node])
            change_layout(hp, c, k, i);
        seen[node] = true;
    }
    free(seen);
}

/* All ops of the stage at once; and the same in all stages that were laid out like it. */
static void solve_layouts(struct hops *hp, const struct candidate *c, int k) {
    struct search_stage *d = begin(hp, c, 0);
    if (search_stopped(hp->s) || !search_relayout(hp->s, &hp->next, k))
        return;
    const struct layout *layouts = d[k].layouts;
    offer(hp);
    begin(hp, c, 0);
    for (int i = 0; i < c->n_stages; i++)
        if (d[i].devices == d[k].devices && d[i].layouts == c->stages[k].layouts)
            d[i].layouts = layouts;
    offer(hp);
}

static void change_recompute(struct hops *hp, const struct candidate *c, int k, bool more) {
    const struct search_stage *st = &c->stages[k];
    int blocks = search_stage_blocks(hp->s, st), now = st->again_blocks;
    int counts[] = {0, now - 1, now + 1, now / 2, (now + blocks + 1) / 2, blocks};
    for (int level = 0; level < AGAIN_LEVELS; level++) {
        for (int i = 0; i < 6; i++) {
            bool same = level == st->again_level;
            if (counts[i] < 0 || counts[i] > blocks || (same && more && counts[i] < now) ||
                (same && !more && counts[i] > now))
                continue;
            struct search_stage *d = begin(hp, c, k);
            d->again_level = counts[i] ? level : 0;
            d->again_blocks = level ? counts[i] : 0;
            offer(hp);
        }
    }
}

static void change_zero(struct hops *hp, const struct candidate *c, int k) {
    int zero = !c->stages[k].zero;
    begin(hp, c, k)->zero = zero;
    offer(hp);
    struct search_stage *d = begin(hp, c, 0);
    for (int i = 0; i < c->n_stages; i++)
        d[i].zero = zero;
    offer(hp);
}

static void change_micro_batch(struct hops *hp, const struct candidate *c) {
    const struct search_problem *p = search_problem_of(hp->s);
    for (int i = 0; i < p->n_micro; i++) {
        if (p->micro[i] == c->micro_batch)
            continue;
        begin(hp, c, 0);
        hp->next.micro_batch = p->micro[i];
        offer(hp);
        /* The batch may now be split further, or less. */
        struct search_stage *d = begin(hp, c, 0);
        hp->next.micro_batch = p->micro[i];
        for (int k = 0; k < c->n_stages; k++)
            search_apply_style(hp->s, &d[k], p->micro[i],
                               search_style_of(hp->s, &c->stages[k]));
        offer(hp);
    }
}

static void change_schedule(struct hops *hp, const struct candidate *c) {
    begin(hp, c, 0);
    hp->next.schedule = c->schedule == SCHEDULE_1f1b ? SCHEDULE_gpipe : SCHEDULE_1f1b;
    offer(hp);
}

static void merge_stages(struct hops *hp, const struct candidate *c, int k) {
    struct style style = search_style_of(hp->s, &c->stages[k]);
    for (int wider = 0; wider < 2; wider++) {
        struct search_stage *d = begin(hp, c, 0);
        d[k].end = d[k + 1].end;
        memmove(&d[k + 1], &d[k + 2], sizeof *d * (size_t)(c->n_stages - k - 2));
        hp->next.n_stages--;
        style.model_axes += wider;
        set_devices(hp, k, c->stages[k].devices + c->stages[k + 1].devices, style);
        offer(hp);
    }
}

static void split_stage(struct hops *hp, const struct candidate *c, int k) {
    const struct search_stage *st = &c->stages[k];
    if (st->devices < 2 || c->n_stages >= search_max_stages(hp->s) ||
        st->end - st->first < 2)
        return;
    struct search_stage *d = begin(hp, c, 0), half = *st;
    memmove(&d[k + 1], &d[k], sizeof *d * (size_t)(c->n_stages - k));
    hp->next.n_stages++;
    half.first = st->first + (st->end - st->first) / 2;
    int middle = half.first + to_boundary(hp->s, &half, false);
    if (middle >= st->end)
        middle = half.first;
    d[k].end = d[k + 1].first = middle;
    struct style style = search_style_of(hp->s, st);
    set_devices(hp, k, st->devices - st->devices / 2, style);
    set_devices(hp, k + 1, st->devices / 2, style);
    offer(hp);
}

/* Everything that may relieve stage k. fine: layouts op by op as well. */
static void expand(struct hops *hp, const struct candidate *c, const struct score *score,
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
    change_style(hp, c, k, false);
    if (c->n_stages > 1)
        change_style(hp, c, k, true);
    change_recompute(hp, c, k, memory);
    change_zero(hp, c, k);
    change_micro_batch(hp, c);
    change_schedule(hp, c);
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

/* ---- following ----------------------------------------------------------------------- */

/* Looks for a plan better than hp->limit, at most `hops` primitives away from *c. */
static bool relieve(struct hops *hp, struct candidate *c, struct score *score, int hops,
                    bool fine) {
    if (search_stopped(hp->s))
        return false;
    struct options *o = hp->options = &hp->levels[hops];
    o->n = 0;
    expand(hp, c, score, fine && hops == hp->max_hops);
    int chosen = -1;
    if (o->n && score_better(&o->p[0].score, &hp->limit))
        chosen = 0;
    for (int i = 0; i < o->n && chosen < 0 && hops > 1; i++)
        if (relieve(hp, &o->p[i].c, &o->p[i].score, hops - 1, fine))
            chosen = i;
    if (chosen >= 0) {
        candidate_copy(c, &o->p[chosen].c);
        *score = o->p[chosen].score;
    }
    return chosen >= 0;
}

/* Follows improvements from *o as far as they go. */
static void improve(struct hops *hp, struct option *o, bool fine) {
    o->score = search_score(hp->s, &o->c);
    do
        hp->limit = o->score;
    while (!o->score.unknown && relieve(hp, &o->c, &o->score, hp->max_hops, fine));
}

/* Some random changes, whatever they cost. */
static void shake(struct hops *hp, struct option *o) {
    for (int i = 0; i < SHAKE_CHANGES; i++) {
        struct options *all = hp->options = &hp->levels[0];
        struct score at = o->score;
        all->n = 0;
        at.slowest = (int)rng_below(&hp->rng, o->c.n_stages);
        at.overflow = 0;
        expand(hp, &o->c, &at, false);
        if (!all->n)
            return;
        const struct option *chosen = &all->p[rng_below(&hp->rng, all->n)];
        candidate_copy(&o->c, &chosen->c);
        o->score = chosen->score;
    }
}

/* ---- starts -------------------------------------------------------------------------- */

static void take_better(struct option *best, bool *found, const struct candidate *c,
                        struct score score) {
    if (score.unknown || (*found && !score_better(&score, &best->score)))
        return;
    best->score = score;
    candidate_copy(&best->c, c);
    *found = true;
}

/* A uniform candidate, cut at blocks and balanced; where nothing fits with as much
 * recompute as can be. */
static void score_start(struct search *s, struct candidate *c, struct option *best,
                        bool *found) {
    take_better(best, found, c, search_score(s, c));
    bool fits = search_balance(s, c);
    for (int k = 0; k < c->n_stages && !fits; k++) {
        c->stages[k].again_blocks = search_stage_blocks(s, &c->stages[k]);
        c->stages[k].again_level = c->stages[k].again_blocks ? AGAIN_LEVELS - 1 : 0;
    }
    take_better(best, found, c, search_score(s, c));
}

/* Is the micro-batch split on every axis that a style leaves to it? If not, devices do the
 * same work twice, and the style with one model axis more is the better start. */
static bool splits_batch(const struct search *s, int n, int64_t micro_batch,
                         struct style style) {
    int devices = search_problem_of(s)->devices;
    return search_splits_batch(devices / n, micro_batch, style) ||
           search_splits_batch((devices + n - 1) / n, micro_batch, style);
}

/* The best uniform style of an even pipeline with n stages; where memory is limited, with
 * ZeRO or without. */
static bool best_start(struct search *s, int n, int64_t micro_batch, struct option *best,
                       struct candidate *c) {
    bool found = false;
    int most = search_mesh_axes((search_problem_of(s)->devices + n - 1) / n);
    int variants = search_problem_of(s)->memory_bytes ? 4 : 2;
    for (int j = 0; j <= most && !search_stopped(s); j++) {
        for (int v = 0; v < variants; v++) {
            struct style style = {j, ~0u, v & 1};
            if ((v & 1 && (!j || !search_has_sequence(s))) ||
                (j < most && !splits_batch(s, n, micro_batch, style)) ||
                !search_even(s, n, micro_batch, style, c))
                continue;
            for (int k = 0; k < n; k++)
                c->stages[k].zero = v >> 1;
            if (search_legal(s, c))
                score_start(s, c, best, &found);
        }
    }
    return found;
}

static int by_score(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return score_better(&x->score, &y->score) ? -1 : score_better(&y->score, &x->score);
}

/* Depths that divide the devices, powers of two and all small ones: splits and merges
 * reach the others. */
static bool is_depth(const struct search *s, int k) {
    return k <= 4 || !(k & (k - 1)) || k == search_max_stages(s) ||
           search_problem_of(s)->devices % k == 0;
}

/* Of each depth with each micro-batch the best; sorted. Fewer micro-batches than stages leave
 * more than half of the devices idle; smaller ones are better starts. */
static struct option *list_starts(struct search *s, int64_t *n) {
    const struct search_problem *p = search_problem_of(s);
    ARR(struct option) starts = {0};
    struct candidate scratch = candidate_make(s);
    struct option o = {.c = candidate_make(s)};
    for (int k = 1; k <= search_max_stages(s); k++) {
        for (int i = p->n_micro - 1; is_depth(s, k) && i >= 0 && !search_stopped(s); i--) {
            bool rests = i && p->batch / p->micro[i] < k;
            if (rests || !best_start(s, k, p->micro[i], &o, &scratch))
                continue;
            arr_push(&starts, o);
            o.c = candidate_make(s);
        }
    }
    for (int i = 0; i < p->n_micro && !search_stopped(s); i++) {
        bool found = false;
        if (!search_slice(s, p->micro[i], &scratch) || !search_legal(s, &scratch))
            continue;
        score_start(s, &scratch, &o, &found);
        for (int64_t k = 0; k < starts.n; k++)
            found &= candidate_hash(&starts.p[k].c) != candidate_hash(&o.c);
        if (found) {
            arr_push(&starts, o);
            o.c = candidate_make(s);
        }
    }
    candidate_release(&o.c);
    candidate_release(&scratch);
    if (starts.n)
        qsort(starts.p, (size_t)starts.n, sizeof *starts.p, by_score);
    *n = starts.n;
    return starts.p;
}

/* The second best goes behind the best one that has another number of stages: two of one kind
 * mostly end alike. */
static void second_of_other_depth(struct option *starts, int64_t n) {
    int64_t k = 1;
    while (k < n && starts[k].c.n_stages == starts[0].c.n_stages)
        k++;
    if (k >= n)
        return;
    struct option other = starts[k];
    memmove(&starts[2], &starts[1], sizeof *starts * (size_t)(k - 1));
    starts[1] = other;
}

/* The i-th of those to improve: as many as were meant, or more where it is cheap. */
static bool go_on(struct search *s, int64_t i, int64_t meant) {
    return (i < meant || s->stages_scored < FEW_SCORED) && !search_stopped(s);
}

/* ---- the algorithm ------------------------------------------------------------------- */

static void hops_init(struct hops *hp, struct search *s) {
    const struct search_problem *p = search_problem_of(s);
    int deep = p->max_hops ? p->max_hops : DEEP_HOPS;
    *hp = (struct hops){.s = s, .rng = {p->seed, 0}};
    hp->next = candidate_make(s);
    hp->balanced_next = candidate_make(s);
    hp->levels = mem_array((size_t)deep + 1, sizeof *hp->levels);
    for (int i = 0; i < (deep + 1) * WIDTH; i++)
        hp->levels[i / WIDTH].p[i % WIDTH].c = candidate_make(s);
    hp->max_hops = deep;
}

static void hops_release(struct hops *hp, int deep) {
    for (int i = 0; i < (deep + 1) * WIDTH; i++)
        candidate_release(&hp->levels[i / WIDTH].p[i % WIDTH].c);
    free(hp->levels);
    candidate_release(&hp->next);
    candidate_release(&hp->balanced_next);
    memo_release(&hp->seen, NULL);
}

/* From the best on: shaken, improved, taken over where that helped. */
static void shake_and_improve(struct hops *hp, struct option *best) {
    struct option o = {.c = candidate_make(hp->s)};
    for (int i = 0; i < MOST_SHAKES && go_on(hp->s, i, SHAKES); i++) {
        memo_clear(&hp->seen);
        candidate_copy(&o.c, &best->c);
        o.score = best->score;
        shake(hp, &o);
        improve(hp, &o, true);
        if (score_better(&o.score, &best->score)) {
            candidate_copy(&best->c, &o.c);
            best->score = o.score;
        }
    }
    candidate_release(&o.c);
}

int search_hops(struct search *s, struct err *err) {
    (void)err;
    struct hops hp;
    hops_init(&hp, s);
    int deep = hp.max_hops;
    int64_t n = 0, all;
    struct option *starts = list_starts(s, &all);
    hp.max_hops = deep < SHALLOW_HOPS ? deep : SHALLOW_HOPS;
    for (; n < all && go_on(s, n, MAX_STARTS); n++)
        improve(&hp, &starts[n], false);
    if (n)
        qsort(starts, (size_t)n, sizeof *starts, by_score);
    second_of_other_depth(starts, n);
    /* The best of them deeper, and op by op: single layouts are where the last percents
     * are. */
    hp.max_hops = deep;
    for (int64_t i = 0; i < n && go_on(s, i, FINALISTS); i++) {
        memo_clear(&hp.seen);
        improve(&hp, &starts[i], true);
    }
    if (n) {
        qsort(starts, (size_t)n, sizeof *starts, by_score);
        hp.max_hops = deep < SHALLOW_HOPS ? deep : SHALLOW_HOPS;
        shake_and_improve(&hp, &starts[0]);
    }
    if (!search_stopped(s))
        search_mark_complete(s, 0);
    for (int64_t i = 0; i < all; i++)
        candidate_release(&starts[i].c);
    free(starts);
    hops_release(&hp, deep);
    return 0;
}
