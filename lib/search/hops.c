/* hops - iterative bottleneck alleviation (after Liu et al., Aceso, EuroSys 2024).
 *
 * Find the stage that bounds memory, or else time; try every primitive that relieves
 * that resource there: move ops to a neighbour, trade devices, change the layout, the
 * micro-batch, recompute, ZeRO, the schedule, split or merge stages; each as it is, and
 * with the ops balanced anew over all stages (balance.c). If none of them makes the plan
 * better at once, follow the most promising ones some hops deep: relieving one stage may
 * first burden another. A plan is never visited twice. Starts: balanced pipelines of
 * every useful depth and micro-batch, each with its best uniform style; first all a
 * little, then the best deeper and op by op. */
#include "search/search_impl.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 4,      /* plans followed at each hop */
    MAX_STARTS = 6, /* improved with few hops, */
    SHALLOW_HOPS = 1,
    FINALISTS = 2, /* then the best with more; and further ones while tables are few: */
    CHEAP = 1000,
    DEEP_HOPS = 4,
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
    struct options *options;
    struct score limit; /* a plan must be better than this */
    uint64_t *seen;     /* hash set of visited plans */
    int64_t n_seen, cap_seen;
    int max_hops;
    bool balanced; /* the primitive at work moves ops itself */
};

/* ---- visited plans ------------------------------------------------------------------- */

static bool insert(uint64_t *set, int64_t cap, uint64_t h) {
    uint64_t i = h & (uint64_t)(cap - 1);
    while (set[i] && set[i] != h)
        i = (i + 1) & (uint64_t)(cap - 1);
    bool fresh = !set[i];
    set[i] = h;
    return fresh;
}

static bool visit(struct hops *hp, uint64_t h) {
    h = h ? h : 1;
    if (2 * hp->n_seen >= hp->cap_seen) {
        int64_t cap = hp->cap_seen ? 2 * hp->cap_seen : 1 << 14;
        uint64_t *set = mem_array((size_t)cap, sizeof *set);
        for (int64_t i = 0; i < hp->cap_seen; i++)
            if (hp->seen[i])
                insert(set, cap, hp->seen[i]);
        free(hp->seen);
        hp->seen = set;
        hp->cap_seen = cap;
    }
    bool fresh = insert(hp->seen, hp->cap_seen, h);
    hp->n_seen += fresh;
    return fresh;
}

static void forget_visits(struct hops *hp) {
    hp->n_seen = 0;
    if (hp->seen)
        memset(hp->seen, 0, sizeof *hp->seen * (size_t)hp->cap_seen);
}

/* ---- primitives ---------------------------------------------------------------------- */

/* A candidate is large and mostly empty: only the stages that it has are copied. */
static void copy(struct candidate *to, const struct candidate *c) {
    memcpy(to, c,
           offsetof(struct candidate, stages) + sizeof *c->stages * (size_t)c->n_stages);
}

static struct score consider(struct hops *hp, const struct candidate *c) {
    struct score score = {.unknown = true};
    if (!visit(hp, candidate_hash(c)) || !search_legal(hp->s, c))
        return score;
    score = search_score(hp->s, c);
    struct options *o = hp->options;
    int at = o->n;
    while (at > 0 && score_better(&score, &o->p[at - 1].score))
        at--;
    if (score.unknown || at == WIDTH)
        return score;
    o->n += o->n < WIDTH;
    for (int i = o->n - 1; i > at; i--) {
        copy(&o->p[i].c, &o->p[i - 1].c);
        o->p[i].score = o->p[i - 1].score;
    }
    copy(&o->p[at].c, c);
    o->p[at].score = score;
    return score;
}

/* Considers a plan as it is, and with its ops moved to where they are best. */
static void offer(struct hops *hp, const struct candidate *c) {
    struct score score = consider(hp, c);
    if (score.unknown || hp->balanced)
        return;
    struct candidate d;
    copy(&d, c);
    if (search_balance(hp->s, &d))
        consider(hp, &d);
}

/* The style that a stage seems to have; good enough to lay it out again on other
 * devices. */
static struct style style_of(const struct search *s, const struct search_stage *st) {
    const struct model *m = s->p.model;
    struct mesh mesh;
    search_mesh(st->devices, &mesh);
    struct style style = {0};
    for (int i = st->first; i < st->end; i++) {
        const struct layout *l = &st->layout[m->ops[i].place];
        int axes = 0;
        for (int a = 0; a < mesh.n_axes; a++) {
            for (int k = 0; k < s->n_inner; k++)
                if (l->dim[a] == s->inner[k]) {
                    style.inner |= 1u << k;
                    axes++;
                }
            style.sequence |= s->sequence >= 0 && l->dim[a] == s->sequence;
        }
        style.model_axes = axes > style.model_axes ? axes : style.model_axes;
    }
    if (!style.inner)
        style.inner = (1u << s->n_inner) - 1;
    return style;
}

static void set_devices(struct hops *hp, struct candidate *c, int k, int devices,
                        struct style style) {
    c->stages[k].devices = devices;
    search_apply_style(hp->s, &c->stages[k], c->micro_batch, style);
}

/* Ops from stage k to its neighbour: one, to the next block boundary, one block,
 * several. */
static void move_ops(struct hops *hp, const struct candidate *c, int k, int to) {
    const struct search_stage *st = &c->stages[k];
    int len = st->end - st->first, block = hp->s->block_len ? hp->s->block_len : len / 4;
    int counts[] = {1, 2, block / 2, block, 2 * block, len / 4, len / 2};
    int at = to > k ? st->end : st->first, to_boundary = 0;
    const struct model *m = hp->s->p.model;
    while (to_boundary < len - 1) {
        to_boundary++;
        int op = to > k ? at - to_boundary : at + to_boundary;
        if (m->ops[op].block != m->ops[op - 1].block)
            break;
    }
    for (int i = -1; i < (int)(sizeof counts / sizeof *counts); i++) {
        int n = i < 0 ? to_boundary : counts[i];
        if (n < 1 || n >= len)
            continue;
        struct candidate d;
        copy(&d, c);
        if (to > k) {
            d.stages[k].end -= n;
            d.stages[to].first -= n;
        } else {
            d.stages[k].first += n;
            d.stages[to].end += n;
        }
        offer(hp, &d);
    }
}

/* Devices from stage t to stage k. */
static void trade_devices(struct hops *hp, const struct candidate *c, int k, int t) {
    int have = c->stages[t].devices, mine = c->stages[k].devices;
    struct style a = style_of(hp->s, &c->stages[k]), b = style_of(hp->s, &c->stages[t]);
    int amounts[] = {1, have / 2, have - mine, mine};
    for (int i = 0; i < 4; i++) {
        int n = amounts[i];
        if (n < 1 || n >= have)
            continue;
        for (int wider = 0; wider < 2; wider++) {
            struct candidate d;
            copy(&d, c);
            struct style w = a;
            w.model_axes += wider;
            set_devices(hp, &d, k, mine + n, w);
            set_devices(hp, &d, t, have - n, b);
            offer(hp, &d);
        }
    }
}

static void change_style(struct hops *hp, const struct candidate *c, int k) {
    struct style now = style_of(hp->s, &c->stages[k]);
    int axes = search_mesh_axes(c->stages[k].devices);
    for (int j = 0; j <= axes; j++) {
        for (int seq = 0; seq <= (search_has_sequence(hp->s) ? 1 : 0); seq++) {
            for (int without = -1; without < hp->s->n_inner; without++) {
                struct style style = {j, (1u << hp->s->n_inner) - 1, seq};
                if (without >= 0)
                    style.inner &= ~(1u << without);
                if (j > now.model_axes + 1 || j < now.model_axes - 1)
                    continue;
                struct candidate d;
                copy(&d, c);
                search_apply_style(hp->s, &d.stages[k], d.micro_batch, style);
                offer(hp, &d);
            }
        }
    }
}

/* One op of the file (all its layers in the stage), one axis, another dim. */
static void change_layouts(struct hops *hp, const struct candidate *c, int k) {
    const struct model *m = hp->s->p.model;
    const struct search_stage *st = &c->stages[k];
    struct mesh mesh;
    search_mesh(st->devices, &mesh);
    uint64_t seen = 0;
    for (int i = st->first; i < st->end; i++) {
        const struct model_op *op = &m->ops[i];
        if (seen >> op->place & 1)
            continue;
        seen |= (uint64_t)1 << op->place;
        for (int a = 0; a < mesh.n_axes; a++) {
            for (int d = PLACE_NONE; d < op->space.n; d++) {
                if (d == st->layout[op->place].dim[a] ||
                    (d >= 0 && op->space.role[d] == ROLE_whole))
                    continue;
                struct candidate n;
                copy(&n, c);
                n.stages[k].layout[op->place].dim[a] = (int8_t)d;
                offer(hp, &n);
            }
        }
    }
}

static void change_recompute(struct hops *hp, const struct candidate *c, int k, bool more) {
    int blocks = search_stage_blocks(hp->s, &c->stages[k]);
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        int now = c->stages[k].recompute_blocks;
        int counts[] = {0, now - 1, now + 1, now / 2, (now + blocks + 1) / 2, blocks};
        for (int i = 0; i < 6; i++) {
            uint64_t places = search_recompute_places(hp->s, level);
            bool same = places == c->stages[k].recompute;
            if (counts[i] < 0 || counts[i] > blocks || (same && more && counts[i] < now) ||
                (same && !more && counts[i] > now))
                continue;
            struct candidate d;
            copy(&d, c);
            d.stages[k].recompute = level ? places : 0;
            d.stages[k].recompute_blocks = level ? counts[i] : 0;
            offer(hp, &d);
        }
    }
}

static void change_zero(struct hops *hp, const struct candidate *c, int k) {
    struct candidate d;
    copy(&d, c);
    d.stages[k].zero = !d.stages[k].zero;
    offer(hp, &d);
    for (int i = 0; i < d.n_stages; i++)
        d.stages[i].zero = d.stages[k].zero;
    offer(hp, &d);
}

static void change_micro_batch(struct hops *hp, const struct candidate *c) {
    const struct search_problem *p = search_problem_of(hp->s);
    for (int i = 0; i < p->n_micro; i++) {
        if (p->micro[i] == c->micro_batch)
            continue;
        struct candidate d;
        copy(&d, c);
        d.micro_batch = p->micro[i];
        if (search_legal(hp->s, &d))
            offer(hp, &d);
        for (int k = 0; k < d.n_stages;
             k++) /* the batch may now be split further, or less */
            search_apply_style(hp->s, &d.stages[k], d.micro_batch,
                               style_of(hp->s, &c->stages[k]));
        offer(hp, &d);
    }
}

static void change_schedule(struct hops *hp, const struct candidate *c) {
    struct candidate d;
    copy(&d, c);
    d.schedule = d.schedule == SCHEDULE_1f1b ? SCHEDULE_gpipe : SCHEDULE_1f1b;
    offer(hp, &d);
}

static void merge_stages(struct hops *hp, const struct candidate *c, int k) {
    struct candidate d;
    copy(&d, c);
    struct style style = style_of(hp->s, &c->stages[k]);
    d.stages[k].end = c->stages[k + 1].end;
    memmove(&d.stages[k + 1], &d.stages[k + 2],
            sizeof *d.stages * (size_t)(c->n_stages - k - 2));
    d.n_stages--;
    for (int wider = 0; wider < 2; wider++) {
        style.model_axes += wider;
        set_devices(hp, &d, k, c->stages[k].devices + c->stages[k + 1].devices, style);
        offer(hp, &d);
    }
}

static void split_stage(struct hops *hp, const struct candidate *c, int k) {
    const struct search_stage *st = &c->stages[k];
    const struct search_problem *p = search_problem_of(hp->s);
    int most = p->max_stages && p->max_stages < SEARCH_MAX_STAGES ? p->max_stages
                                                                  : SEARCH_MAX_STAGES;
    if (st->devices < 2 || c->n_stages >= most || st->end - st->first < 2)
        return;
    struct candidate d;
    copy(&d, c);
    memmove(&d.stages[k + 1], &d.stages[k], sizeof *d.stages * (size_t)(c->n_stages - k));
    d.n_stages++;
    int middle = st->first + (st->end - st->first) / 2;
    for (int i = 1; hp->s->block_len && i < hp->s->block_len && middle + 1 < st->end;
         i++, middle++)
        if (p->model->ops[middle].block != p->model->ops[middle - 1].block)
            break;
    d.stages[k].end = d.stages[k + 1].first = middle;
    struct style style = style_of(hp->s, st);
    set_devices(hp, &d, k, st->devices - st->devices / 2, style);
    set_devices(hp, &d, k + 1, st->devices / 2, style);
    offer(hp, &d);
}

/* Everything that may relieve stage k. fine: layouts op by op as well. */
static void expand(struct hops *hp, const struct candidate *c, const struct score *score,
                   bool fine) {
    bool memory = score->overflow > 0;
    int k = memory ? score->fullest : score->slowest;
    hp->balanced = true;
    if (k > 0)
        move_ops(hp, c, k, k - 1);
    if (k + 1 < c->n_stages)
        move_ops(hp, c, k, k + 1);
    hp->balanced = false;
    for (int t = 0; t < c->n_stages; t++)
        if (t != k)
            trade_devices(hp, c, k, t);
    change_style(hp, c, k);
    change_recompute(hp, c, k, memory);
    change_zero(hp, c, k);
    change_micro_batch(hp, c);
    change_schedule(hp, c);
    split_stage(hp, c, k);
    if (k > 0)
        merge_stages(hp, c, k - 1);
    if (k + 1 < c->n_stages)
        merge_stages(hp, c, k);
    if (fine)
        change_layouts(hp, c, k);
}

/* Looks for a plan better than hp->limit, at most `hops` primitives away from *c. */
static bool relieve(struct hops *hp, struct candidate *c, struct score *score, int hops,
                    bool fine) {
    if (search_stopped(hp->s))
        return false;
    struct options *o = mem_alloc(sizeof *o);
    hp->options = o;
    expand(hp, c, score, fine && hops == hp->max_hops);
    int chosen = -1;
    if (o->n && score_better(&o->p[0].score, &hp->limit))
        chosen = 0;
    for (int i = 0; i < o->n && chosen < 0 && hops > 1; i++)
        if (relieve(hp, &o->p[i].c, &o->p[i].score, hops - 1, fine))
            chosen = i;
    if (chosen >= 0) {
        copy(c, &o->p[chosen].c);
        *score = o->p[chosen].score;
    }
    free(o);
    return chosen >= 0;
}

/* Follows improvements from *o as far as they go. */
static void improve(struct hops *hp, struct option *o, bool fine) {
    o->score = search_score(hp->s, &o->c);
    do
        hp->limit = o->score;
    while (!o->score.unknown && relieve(hp, &o->c, &o->score, hp->max_hops, fine));
}

/* ---- starts -------------------------------------------------------------------------- */

/* A uniform candidate, balanced; where nothing fits with as much recompute as can be. */
static struct score score_start(struct search *s, struct candidate *c) {
    bool fits = search_balance(s, c);
    for (int k = 0; k < c->n_stages && !fits; k++) {
        c->stages[k].recompute = search_recompute_places(s, RECOMPUTE_LEVELS - 1);
        c->stages[k].recompute_blocks = search_stage_blocks(s, &c->stages[k]);
    }
    return search_score(s, c);
}

/* The best uniform style of an even pipeline with n stages. */
static bool best_start(struct search *s, int n, int64_t micro_batch, struct option *best) {
    bool found = false;
    int most = search_mesh_axes((s->p.devices + n - 1) / n);
    for (int j = 0; j <= most && !search_stopped(s); j++) {
        for (int v = 0; v < (search_has_sequence(s) && j ? 2 : 1); v++) {
            struct style style = {j, (1u << s->n_inner) - 1, v == 1};
            struct candidate c;
            if (!search_even(s, n, micro_batch, style, &c) || !search_legal(s, &c))
                continue;
            struct score score = score_start(s, &c);
            if (!score.unknown && (!found || score_better(&score, &best->score))) {
                best->score = score;
                copy(&best->c, &c);
                found = true;
            }
        }
    }
    return found;
}

static int by_score(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return score_better(&x->score, &y->score) ? -1 : score_better(&y->score, &x->score);
}

/* Depths that divide the devices, powers of two and all small ones: splits and merges
 * reach the others. Of each with each micro-batch the best; sorted. */
static struct option *list_starts(struct search *s, int64_t *n) {
    const struct search_problem *p = search_problem_of(s);
    int most = p->devices < SEARCH_MAX_STAGES ? p->devices : SEARCH_MAX_STAGES;
    if (p->max_stages && p->max_stages < most)
        most = p->max_stages;
    ARR(struct option) starts = {0};
    for (int k = 1; k <= most; k++) {
        if (k > 4 && (k & (k - 1)) && k != most && p->devices % k)
            continue;
        for (int i = p->n_micro - 1; i >= 0 && !search_stopped(s); i--) {
            struct option o;
            if (best_start(s, k, p->micro[i], &o))
                arr_push(&starts, o);
        }
    }
    if (starts.n)
        qsort(starts.p, (size_t)starts.n, sizeof *starts.p, by_score);
    *n = starts.n;
    return starts.p;
}

int search_hops(struct search *s, struct err *err) {
    (void)err;
    const struct search_problem *p = search_problem_of(s);
    int deep = p->max_hops ? p->max_hops : DEEP_HOPS;
    struct hops hp = {.s = s, .max_hops = deep < SHALLOW_HOPS ? deep : SHALLOW_HOPS};
    int64_t n;
    struct option *starts = list_starts(s, &n);
    int64_t improved = 0;
    while (improved < n && (improved < MAX_STARTS || s->compiled < CHEAP) &&
           !search_stopped(s))
        improve(&hp, &starts[improved++], false);
    n = improved;
    if (n)
        qsort(starts, (size_t)n, sizeof *starts, by_score);
    /* The best of them deeper, and op by op: single layouts are where the last percents
     * are. */
    hp.max_hops = deep;
    for (int64_t i = 0;
         i < n && (i < FINALISTS || s->compiled < CHEAP) && !search_stopped(s); i++) {
        forget_visits(&hp);
        improve(&hp, &starts[i], true);
    }
    if (!search_stopped(s))
        search_mark_complete(s, 0);
    free(starts);
    free(hp.seen);
    return 0;
}
