/* Strategies of a stage (see strategies.h). */
#include "search/evaluate/strategies.h"

#include "search/evaluate/stage_tables.h"
#include "search/space/layouts.h"

#include <math.h>

#include <stdlib.h>
#include <string.h>

/* A stage with at most this many strategies is listed directly. With more, its tables
 * first rule out those that are too slow. */
static const double LIST_ALL = 1000;

struct choices {
    struct evaluate *ev;
    struct memo known; /* struct strategies */
    double listed, most;
    double tried; /* layouts of single ops that were tried, legal or not */
    bool presets;
    double most_us; /* see strategies_limit */
    /* Scratch for the stage at hand. */
    struct layout *at; /* [nodes] */
    ARR(int) ops;      /* ops of the deduplicated model, one for each node of the stage */
    struct layout_list layouts; /* layouts of these ops, one op after the other */
    ARR(int64_t) first;         /* where the layouts of each op begin, and the end */
    /* Strategies that look alike to neighbours are chained, the last one first: only these
     * are compared, because nearly all look different. */
    ARR(struct strategy) found;
    ARR(int64_t) alike; /* [found] 1 + the one before that looks alike, 0 or BEATEN */
    struct memo last;   /* by what neighbours see, 1 + the last one found */
};
enum { BEATEN = -1 };

struct choices *strategies_make(struct evaluate *ev, double most, bool presets) {
    struct choices *c = mem_alloc(sizeof *c);
    *c = (struct choices){.ev = ev, .most = most, .presets = presets, .most_us = INFINITY};
    c->at = mem_array((size_t)ev->space->blocks.x.n_nodes, sizeof *c->at);
    return c;
}

static void free_strategies(void *p) {
    free(((struct strategies *)p)->p);
    free(p);
}

void strategies_free(struct choices *c) {
    memo_release(&c->known, free_strategies);
    arr_release(&c->ops);
    arr_release(&c->layouts);
    arr_release(&c->first);
    arr_release(&c->found);
    arr_release(&c->alike);
    memo_release(&c->last, NULL);
    free(c->at);
    free(c);
}

void strategies_limit(struct choices *c, double most_us) {
    c->most_us = most_us;
}

double strategies_listed(const struct choices *c) {
    return c->listed;
}

/* ---- layouts ----------------------------------------------------------------------------- */

/* Lists the nodes of the stage and their layouts; returns the number of combinations.
 * If these are too many, or a node has no layout, it stops early. */
static double list_nodes(struct choices *c, const struct search_stage *st,
                         int64_t micro_batch) {
    const struct blocks *g = &c->ev->space->blocks;
    double strategies = 1;
    c->ops.n = c->layouts.n = c->first.n = 0;
    for (int i = st->first; i < st->end && strategies > 0 && strategies <= c->most;
         i = structure_next_distinct(&c->ev->space->blocks.s, st->first, i)) {
        int op = g->x.of[i], k = 0;
        while (k < c->ops.n && g->x.node_of[c->ops.p[k]] != g->x.node_of[op])
            k++;
        if (k < c->ops.n)
            continue;
        arr_push(&c->ops, op);
        arr_push(&c->first, c->layouts.n);
        c->tried += (double)layouts_all(c->ev->space, st, micro_batch, op, &c->layouts);
        strategies *= (double)(c->layouts.n - arr_last(&c->first));
    }
    arr_push(&c->first, c->layouts.n);
    return strategies;
}

/* ---- what neighbours see ------------------------------------------------------------------- */

static uint64_t mix_us(uint64_t h, double us) {
    uint64_t bits;
    memcpy(&bits, &us, sizeof bits);
    return memo_mix(h, bits);
}

/* Hashes the time of ops first .. end-1, for which neighbours may have to wait. */
static uint64_t mix_work(const struct choices *c, const struct prefix *t, int first,
                         int end, uint64_t h) {
    if (first >= end)
        return h;
    struct brief a = prefix_brief(c->ev->space, t, first),
                 b = prefix_brief(c->ev->space, t, end);
    return mix_us(mix_us(h, b.forward_us - a.forward_us), b.backward_us - a.backward_us);
}

static uint64_t mix_op(const struct choices *c, const struct search_stage *st, int op,
                       uint64_t h) {
    const struct blocks *g = &c->ev->space->blocks;
    uint64_t word = 0;
    memcpy(&word, &st->layouts[g->x.node_of[g->x.of[op]]], sizeof *st->layouts);
    return memo_mix(h, word);
}

/* Hashes everything that neighbours see of a strategy. */
static uint64_t seen_of(const struct choices *c, const struct prefix *t,
                        const struct search_stage *st, bool missing) {
    const struct blocks *g = &c->ev->space->blocks;
    const struct crossing *in = &c->ev->space->crossings[st->first],
                          *out = &c->ev->space->crossings[st->end];
    uint64_t h = memo_mix(1, missing);
    for (int i = 0; i < in->n; i++) {
        const struct edge *e = &g->s.edges[in->edges[i]];
        for (int r = edge_reader_from(e, st->first); r < e->n && e->readers[r] < st->end;
             r++) {
            h = mix_op(c, st, e->readers[r], h);
            h = mix_work(c, t, st->first, e->readers[r], h);
        }
    }
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &g->s.edges[out->edges[i]];
        if (e->origin < st->first)
            continue;
        h = mix_op(c, st, e->origin, h);
        h = mix_work(c, t, e->origin + 1, st->end, h);
    }
    return in->n || out->n ? memo_mix(h, (uint64_t)search_zero_of(st)) : h;
}

/* ---- strategies ---------------------------------------------------------------------- */

static bool no_worse(const struct strategy *a, const struct strategy *b) {
    const struct stage_sum *x = &a->sum, *y = &b->sum;
    bool good = a->seen == b->seen && x->forward_us <= y->forward_us &&
                x->backward_us <= y->backward_us && x->weights_us <= y->weights_us &&
                x->reduce_us <= y->reduce_us && x->update_us <= y->update_us &&
                x->fixed <= y->fixed && x->temp <= y->temp &&
                x->update_temp <= y->update_temp;
    for (int p = 0; p < POOL_COUNT; p++)
        good &= x->slot[p] <= y->slot[p];
    return good;
}

/* Adds the strategy unless another one beats it, and drops those that it beats. */
static void keep(struct choices *c, const struct strategy *w) {
    void **last = memo_slot(&c->last, w->seen);
    int64_t head = (int64_t)(intptr_t)*last;
    for (int64_t i = head; i; i = c->alike.p[i - 1])
        if (no_worse(&c->found.p[i - 1], w))
            return;
    for (int64_t *at = &head; *at;) {
        int64_t i = *at - 1, before = c->alike.p[i];
        if (no_worse(w, &c->found.p[i])) {
            *at = before;
            c->alike.p[i] = BEATEN;
        } else {
            at = &c->alike.p[i];
        }
    }
    arr_push(&c->found, *w);
    arr_push(&c->alike, head);
    *last = (void *)(intptr_t)c->found.n; /* NOLINT(performance-no-int-to-ptr) */
}

static void forget_found(struct choices *c) {
    c->found.n = c->alike.n = 0;
    /* Clearing it would cost each later stage what the largest one took. */
    memo_release(&c->last, NULL);
}

/* Removes the strategies that others beat; the rest keeps its order. */
static void drop_beaten(struct choices *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->found.n; i++)
        if (c->alike.p[i] != BEATEN)
            c->found.p[n++] = c->found.p[i];
    c->found.n = n;
}

static void add_strategy(struct choices *c, struct search_stage *st, int64_t micro_batch,
                         int first_rank, bool apart) {
    const struct prefix *t = eval_prefix(c->ev, st, micro_batch, first_rank, apart);
    int blocks = space_stage_blocks(c->ev->space, st);
    for (int level = 0; level < (blocks ? RECOMPUTE_LEVELS : 1); level++)
        for (int n = !level ? 0 : c->presets ? blocks : 1; n <= (level ? blocks : 0); n++) {
            st->recompute_level = level;
            st->recompute_blocks = n;
            const struct stage_sum *sum = eval_stage_sum(c->ev, t, st);
            const struct strategy w = {*st, *sum, seen_of(c, t, st, sum->missing)};
            keep(c, &w);
        }
}

static bool may_regather(const struct choices *c, const struct search_stage *st) {
    return st->devices > 1 && space_may_regather(c->ev->space);
}

static void add_layouts(struct choices *c, struct search_stage *st, int64_t micro_batch,
                        int first_rank, bool apart) {
    int levels = st->devices > 1 ? space_zero_levels(c->ev->space) : 1;
    eval_trim(c->ev);
    for (st->zero = 0; st->zero < levels; st->zero++)
        for (int regather = 0; regather <= may_regather(c, st); regather++) {
            st->regather = regather;
            add_strategy(c, st, micro_batch, first_rank, apart);
        }
    st->regather = false;
}

/* Tries all layouts of the k-th node and of those behind it. */
static void combine(struct choices *c, struct search_stage *st, int64_t micro_batch,
                    int first_rank, bool apart, int64_t k) {
    if (k == c->ops.n) {
        st->layouts = space_layouts(c->ev->space, c->at);
        add_layouts(c, st, micro_batch, first_rank, apart);
        return;
    }
    for (int64_t i = c->first.p[k]; i < c->first.p[k + 1] && !budget_stopped(c->ev->budget);
         i++) {
        c->at[c->ev->space->blocks.x.node_of[c->ops.p[k]]] = c->layouts.p[i];
        combine(c, st, micro_batch, first_rank, apart, k + 1);
    }
}

static void combine_presets(struct choices *c, struct search_stage *st, int64_t micro_batch,
                            int first_rank, bool apart) {
    struct preset preset;
    for (int i = 0; space_preset(c->ev->space, st, i, &preset); i++) {
        space_apply_preset(c->ev->space, st, micro_batch, preset);
        const struct prefix *t = eval_prefix(c->ev, st, micro_batch, first_rank, apart);
        if (prefix_legal(c->ev->space, t, st->first, st->end))
            add_layouts(c, st, micro_batch, first_rank, apart);
    }
}

/* ---- within a time ------------------------------------------------------------------------- */

struct within {
    struct choices *c;
    struct search_stage *st;
    const struct stage_tables *t;
    int64_t micro_batch;
    int first_rank;
    bool apart;
};

static bool take_choice(void *arg, const int *choice) {
    struct within *w = arg;
    struct choices *c = w->c;
    for (int v = 0; v < w->t->p.n; v++)
        c->at[w->t->node[v]] = w->t->layouts[v][choice[v]];
    w->st->layouts = space_layouts(c->ev->space, c->at);
    eval_trim(c->ev);
    add_strategy(c, w->st, w->micro_batch, w->first_rank, w->apart);
    c->listed += 1 + (RECOMPUTE_LEVELS - 1) * space_stage_blocks(c->ev->space, w->st);
    return c->listed <= c->most && !budget_stopped(c->ev->budget);
}

/* Lists the strategies within c->most_us; returns false if tables do not give the
 * exact costs of the stage, or if there are still too many. */
static bool list_within(struct choices *c, struct search_stage *st, int64_t micro_batch,
                        int first_rank, bool apart) {
    static const struct in_flight none;
    const int64_t most_steps = 2000000;
    int levels = st->devices > 1 ? space_zero_levels(c->ev->space) : 1;
    int all = levels * (1 + may_regather(c, st));
    bool good = true;
    for (int i = 0; i < all && good; i++) {
        st->zero = i % levels;
        st->regather = i >= levels;
        struct stage_tables t;
        struct within w = {c, st, &t, micro_batch, first_rank, apart};
        struct setting setting = {.devices = st->devices,
                                  .micro_batch = micro_batch,
                                  .first_rank = (int)cluster_alias(&c->ev->space->p.cluster,
                                                                   first_rank, st->devices),
                                  .zero = st->zero,
                                  .mesh = st->mesh,
                                  .apart = apart,
                                  .regather = st->regather};
        good = stage_tables_make(c->ev, &setting, st, &none, true, &t) && t.exact &&
               critical_list(&t.p, c->most_us * (1 + 1e-9), most_steps, take_choice, &w);
        stage_tables_release(&t);
    }
    st->regather = false;
    return good;
}

static int by_time(const void *a, const void *b) {
    const struct stage_sum *x = &((const struct strategy *)a)->sum,
                           *y = &((const struct strategy *)b)->sum;
    double us = x->forward_us + x->backward_us + x->weights_us;
    double other = y->forward_us + y->backward_us + y->weights_us;
    return (us > other) - (us < other);
}

/* The number of strategies to look at: combinations of layouts (1 for presets), times
 * choices of ZeRO, regathering and recompute. */
static double count_strategies(struct choices *c, struct search_stage *st,
                               int64_t micro_batch) {
    /* sets the stage's mesh */
    space_apply_preset(c->ev->space, st, micro_batch, (struct preset){0});
    return (c->presets ? 1 : list_nodes(c, st, micro_batch)) *
           (st->devices > 1 ? space_zero_levels(c->ev->space) : 1) *
           (1 + may_regather(c, st)) *
           (1 + (RECOMPUTE_LEVELS - 1) * space_stage_blocks(c->ev->space, st));
}

/* Lists the strategies of a stage: by its tables if there are many and a time limit; all
 * of them otherwise, or if the tables yield no list. */
static struct strategies *find_strategies(struct choices *c, struct search_stage st,
                                          int64_t micro_batch, int first_rank, bool apart) {
    struct strategies *w = mem_alloc(sizeof *w);
    double n = count_strategies(c, &st, micro_batch);
    bool many = n > LIST_ALL && isfinite(c->most_us) && !c->presets;
    forget_found(c);
    memset(c->at, PLACE_NONE, (size_t)c->ev->space->blocks.x.n_nodes * sizeof *c->at);
    if (many && !list_within(c, &st, micro_batch, first_rank, apart)) {
        many = false;
        forget_found(c);
    }
    c->listed += many ? 0 : fmax(n, 1); /* a stage that pins forbid takes time as well */
    if (c->presets)
        combine_presets(c, &st, micro_batch, first_rank, apart);
    else if (!many && c->listed <= c->most)
        combine(c, &st, micro_batch, first_rank, apart, 0);
    drop_beaten(c);
    if (c->found.n)
        qsort(c->found.p, (size_t)c->found.n, sizeof *c->found.p, by_time);
    w->n = c->found.n;
    w->p = mem_array((size_t)w->n + 1, sizeof *w->p);
    if (w->n)
        memcpy(w->p, c->found.p, (size_t)w->n * sizeof *w->p);
    return w;
}

const struct strategies *strategies_of(struct choices *c, const struct search_stage *st,
                                       int64_t micro_batch, int first_rank, bool apart) {
    int alias = (int)cluster_alias(&c->ev->space->p.cluster, first_rank, st->devices);
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                            (uint64_t)st->devices << 1 | apart);
    key = memo_mix(memo_mix(key, (uint64_t)micro_batch), (uint64_t)alias);
    void **slot = memo_slot(&c->known, key);
    if (!*slot)
        *slot = find_strategies(c, *st, micro_batch, first_rank, apart);
    return c->listed <= c->most ? *slot : NULL;
}

/* Returns whether an op on all devices has so many layouts, legal or not, that trying all
 * of them takes long by itself. */
static bool has_many_layouts(const struct space *sp) {
    static const double MANY = 1e4;
    const struct model *m = sp->blocks.x.model;
    struct mesh mesh;
    stage_mesh(sp->p.devices, NULL, &mesh);
    for (int i = 0; i < m->n_ops; i++) {
        double n = 1;
        for (int a = 0; a < mesh.n_axes; a++)
            n *= m->ops[i].space.n + 1;
        if (n > MANY)
            return true;
    }
    return false;
}

/* Adds the strategies of all stages with this micro-batch to *n. Returns false when these
 * are too many, too many layouts were tried, or time is up. */
static bool is_short(struct choices *c, int64_t micro_batch, double *n) {
    /* Trying that many takes half a second. The list may be short all the same, since pins
     * may forbid most of what is tried. */
    static const double MOST_TRIED = 5e6;
    const struct search_problem *p = space_problem_of(c->ev->space);
    int n_ops = p->model->n_ops, groups = space_max_groups(c->ev->space);
    int kinds = groups > 1 && space_may_split(c->ev->space) ? 2 : 1;
    for (int d = p->devices; d > 0; d--)
        for (int first = 0; first < n_ops; first++)
            for (int end = n_ops; end > first; end--) {
                struct search_stage st = {.first = first, .end = end, .devices = d};
                bool whole = end - first == n_ops;
                if (whole ? d != p->devices : d == p->devices || groups == 1)
                    continue;
                *n += kinds * fmax(count_strategies(c, &st, micro_batch), 1);
                if (*n > c->most || c->tried > MOST_TRIED ||
                    budget_out_of_time(c->ev->budget))
                    return false;
            }
    return true;
}

bool strategies_can_be_listed(struct evaluate *ev, double most) {
    if (has_many_layouts(ev->space))
        return false;
    const struct search_problem *p = space_problem_of(ev->space);
    struct choices *c = strategies_make(ev, most, false);
    double n = 0;
    bool all = true;
    for (int i = 0; i < p->n_micro && all; i++)
        all = is_short(c, p->micro[i], &n);
    strategies_free(c);
    return all;
}
