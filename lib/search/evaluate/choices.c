/* Ways of a stage: see choices.h. */
#include "search/evaluate/choices.h"

#include "search/evaluate/front.h"
#include "search/evaluate/stage_tables.h"
#include "search/space/layouts.h"

#include <math.h>

#include <stdlib.h>
#include <string.h>

static const double LIST_ALL = 1000; /* ways of a stage */

struct choices {
    struct search *s;
    struct memo known; /* struct ways */
    double listed, most;
    bool styles;
    double most_us; /* see choices_limit */
    /* Scratch: of the stage at hand. */
    struct layout *at;          /* [nodes] */
    ARR(int) ops;               /* of the excerpt, one for each of its nodes */
    struct layout_list layouts; /* of these ops, one after the other */
    ARR(int64_t) first;         /* where those of each begin, and the end */
    ARR(struct way) found;
};

struct choices *choices_make(struct search *s, double most, bool styles) {
    struct choices *c = mem_alloc(sizeof *c);
    *c = (struct choices){.s = s, .most = most, .styles = styles, .most_us = INFINITY};
    c->at = mem_array((size_t)s->graph.x.n_nodes, sizeof *c->at);
    return c;
}

static void ways_free(void *p) {
    free(((struct ways *)p)->p);
    free(p);
}

void choices_free(struct choices *c) {
    memo_release(&c->known, ways_free);
    arr_release(&c->ops);
    arr_release(&c->layouts);
    arr_release(&c->first);
    arr_release(&c->found);
    free(c->at);
    free(c);
}

void choices_limit(struct choices *c, double most_us) {
    c->most_us = most_us;
}

double choices_listed(const struct choices *c) {
    return c->listed;
}

/* ---- layouts ----------------------------------------------------------------------------- */

/* The nodes of the stage and their layouts; returns how many ways there are to combine them. Where these
 * are too many, not all nodes are gone through. */
static double list_nodes(struct choices *c, const struct search_stage *st,
                         int64_t micro_batch) {
    const struct graph *g = &c->s->graph;
    double ways = 1;
    c->ops.n = c->layouts.n = c->first.n = 0;
    for (int i = st->first; i < st->end && ways <= c->most;
         i = search_next_distinct(c->s, st->first, i)) {
        int op = g->x.of[i], k = 0;
        while (k < c->ops.n && g->x.node_of[c->ops.p[k]] != g->x.node_of[op])
            k++;
        if (k < c->ops.n)
            continue;
        arr_push(&c->ops, op);
        arr_push(&c->first, c->layouts.n);
        layouts_all(c->s, st, micro_batch, op, &c->layouts);
        ways *= (double)(c->layouts.n - arr_last(&c->first));
    }
    arr_push(&c->first, c->layouts.n);
    return ways;
}

/* ---- what neighbours see ------------------------------------------------------------------- */

static uint64_t mix_us(uint64_t h, double us) {
    uint64_t bits;
    memcpy(&bits, &us, sizeof bits);
    return memo_mix(h, bits);
}

/* Work of ops first .. end-1, as neighbours' waiting has it. */
static uint64_t mix_work(const struct choices *c, const struct prefix *t, int first,
                         int end, uint64_t h) {
    if (first >= end)
        return h;
    struct brief a = prefix_brief(c->s, t, first), b = prefix_brief(c->s, t, end);
    return mix_us(mix_us(h, b.forward_us - a.forward_us), b.backward_us - a.backward_us);
}

static uint64_t mix_op(const struct choices *c, const struct search_stage *st, int op,
                       uint64_t h) {
    const struct graph *g = &c->s->graph;
    uint64_t word = 0;
    memcpy(&word, &st->layouts[g->x.node_of[g->x.of[op]]], sizeof *st->layouts);
    return memo_mix(h, word);
}

static uint64_t seen_of(const struct choices *c, const struct prefix *t,
                        const struct search_stage *st, bool missing) {
    const struct graph *g = &c->s->graph;
    const struct crossing *in = &c->s->crossings[st->first],
                          *out = &c->s->crossings[st->end];
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

/* ---- ways -------------------------------------------------------------------------------- */

static bool no_worse(const struct way *a, const struct way *b) {
    const struct stage_sum *x = a->sum, *y = b->sum;
    bool good = a->seen == b->seen && x->forward_us <= y->forward_us &&
                x->backward_us <= y->backward_us && x->weights_us <= y->weights_us &&
                x->reduce_us <= y->reduce_us && x->update_us <= y->update_us &&
                x->fixed <= y->fixed && x->temp <= y->temp &&
                x->update_temp <= y->update_temp;
    for (int p = 0; p < POOL_COUNT; p++)
        good &= x->slot[p] <= y->slot[p];
    return good;
}

static void add_way(struct choices *c, struct search_stage *st, int64_t micro_batch,
                    int first_rank, bool apart) {
    const struct prefix *t = search_prefix(c->s, st, micro_batch, first_rank, apart);
    int blocks = search_stage_blocks(c->s, st);
    for (int level = 0; level < (blocks ? AGAIN_LEVELS : 1); level++)
        for (int n = !level ? 0 : c->styles ? blocks : 1; n <= (level ? blocks : 0); n++) {
            st->again_level = level;
            st->again_blocks = n;
            const struct stage_sum *sum = search_stage_sum(c->s, t, st);
            const struct way w = {*st, sum, seen_of(c, t, st, sum->missing)};
            front_add(&c->found, &w, no_worse);
        }
}

static bool may_regather(const struct choices *c, const struct search_stage *st) {
    return st->devices > 1 && search_may_regather(c->s);
}

static void add_layouts(struct choices *c, struct search_stage *st, int64_t micro_batch,
                        int first_rank, bool apart) {
    int levels = st->devices > 1 ? search_zero_levels(c->s) : 1;
    search_trim(c->s);
    for (st->zero = 0; st->zero < levels; st->zero++)
        for (int again = 0; again <= may_regather(c, st); again++) {
            st->regather = again;
            add_way(c, st, micro_batch, first_rank, apart);
        }
    st->regather = false;
}

/* All layouts of the k-th node and those behind it. */
static void combine(struct choices *c, struct search_stage *st, int64_t micro_batch,
                    int first_rank, bool apart, int64_t k) {
    if (k == c->ops.n) {
        st->layouts = search_layouts(c->s, c->at);
        add_layouts(c, st, micro_batch, first_rank, apart);
        return;
    }
    for (int64_t i = c->first.p[k]; i < c->first.p[k + 1] && !search_stopped(c->s); i++) {
        c->at[c->s->graph.x.node_of[c->ops.p[k]]] = c->layouts.p[i];
        combine(c, st, micro_batch, first_rank, apart, k + 1);
    }
}

static void combine_styles(struct choices *c, struct search_stage *st, int64_t micro_batch,
                           int first_rank, bool apart) {
    struct style style;
    for (int i = 0; search_style(c->s, st, i, &style); i++) {
        search_apply_style(c->s, st, micro_batch, style);
        const struct prefix *t = search_prefix(c->s, st, micro_batch, first_rank, apart);
        if (prefix_legal(c->s, t, st->first, st->end))
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
    w->st->layouts = search_layouts(c->s, c->at);
    search_trim(c->s);
    add_way(c, w->st, w->micro_batch, w->first_rank, w->apart);
    c->listed += 1 + (AGAIN_LEVELS - 1) * search_stage_blocks(c->s, w->st);
    return c->listed <= c->most && !search_stopped(c->s);
}

/* False where tables do not say what the stage costs, or there are too many all the same. */
static bool list_within(struct choices *c, struct search_stage *st, int64_t micro_batch,
                        int first_rank, bool apart) {
    static const struct in_flight none;
    const int64_t most_steps = 2000000;
    int levels = st->devices > 1 ? search_zero_levels(c->s) : 1;
    int all = levels * (1 + may_regather(c, st));
    bool good = true;
    for (int i = 0; i < all && good; i++) {
        st->zero = i % levels;
        st->regather = i >= levels;
        struct stage_tables t;
        struct within w = {c, st, &t, micro_batch, first_rank, apart};
        struct setting setting = {
            .devices = st->devices,
            .micro_batch = micro_batch,
            .first_rank = (int)cluster_alias(&c->s->p.cluster, first_rank, st->devices),
            .zero = st->zero,
            .mesh = st->mesh,
            .apart = apart,
            .regather = st->regather};
        good = stage_tables_make(c->s, &setting, st, &none, true, &t) && t.exact &&
               critical_list(&t.p, c->most_us * (1 + 1e-9), most_steps, take_choice, &w);
        stage_tables_release(&t);
    }
    st->regather = false;
    return good;
}

static int by_time(const void *a, const void *b) {
    const struct stage_sum *x = ((const struct way *)a)->sum,
                           *y = ((const struct way *)b)->sum;
    double us = x->forward_us + x->backward_us + x->weights_us;
    double other = y->forward_us + y->backward_us + y->weights_us;
    return (us > other) - (us < other);
}

/* How many ways of the stage are to be looked at, in each of the styles or layouts of its nodes. */
static double count_ways(struct choices *c, struct search_stage *st, int64_t micro_batch) {
    search_apply_style(c->s, st, micro_batch, (struct style){0}); /* its mesh */
    return (c->styles ? 1 : list_nodes(c, st, micro_batch)) *
           (st->devices > 1 ? search_zero_levels(c->s) : 1) * (1 + may_regather(c, st)) *
           (1 + (AGAIN_LEVELS - 1) * search_stage_blocks(c->s, st));
}

static struct ways *find_ways(struct choices *c, struct search_stage st,
                              int64_t micro_batch, int first_rank, bool apart) {
    struct ways *w = mem_alloc(sizeof *w);
    double n = count_ways(c, &st, micro_batch);
    bool many = n > LIST_ALL && isfinite(c->most_us) && !c->styles;
    c->found.n = 0;
    memset(c->at, PLACE_NONE, (size_t)c->s->graph.x.n_nodes * sizeof *c->at);
    if (many && !list_within(c, &st, micro_batch, first_rank, apart)) {
        many = false;
        c->found.n = 0;
    }
    c->listed += many ? 0 : n;
    if (c->styles)
        combine_styles(c, &st, micro_batch, first_rank, apart);
    else if (!many && c->listed <= c->most)
        combine(c, &st, micro_batch, first_rank, apart, 0);
    if (c->found.n)
        qsort(c->found.p, (size_t)c->found.n, sizeof *c->found.p, by_time);
    w->n = c->found.n;
    w->p = mem_array((size_t)w->n + 1, sizeof *w->p);
    if (w->n)
        memcpy(w->p, c->found.p, (size_t)w->n * sizeof *w->p);
    return w;
}

const struct ways *choices_of(struct choices *c, const struct search_stage *st,
                              int64_t micro_batch, int first_rank, bool apart) {
    int alias = (int)cluster_alias(&c->s->p.cluster, first_rank, st->devices);
    uint64_t key = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                            (uint64_t)st->devices << 1 | apart);
    key = memo_mix(memo_mix(key, (uint64_t)micro_batch), (uint64_t)alias);
    void **slot = memo_slot(&c->known, key);
    if (!*slot)
        *slot = find_ways(c, *st, micro_batch, first_rank, apart);
    return c->listed <= c->most ? *slot : NULL;
}

/* Has an op on all devices so many layouts, legal or not, that going through them takes long by
 * itself? */
static bool has_many_layouts(const struct search *s) {
    static const double MANY = 1e4;
    const struct model *m = s->graph.x.model;
    struct mesh mesh;
    graph_mesh(s->p.devices, NULL, &mesh);
    for (int i = 0; i < m->n_ops; i++) {
        double n = 1;
        for (int a = 0; a < mesh.n_axes; a++)
            n *= m->ops[i].space.n + 1;
        if (n > MANY)
            return true;
    }
    return false;
}

bool choices_can_be_listed(struct search *s, double most) {
    if (has_many_layouts(s))
        return false;
    const struct search_problem *p = search_problem_of(s);
    struct choices *c = choices_make(s, most, false);
    int n_ops = p->model->n_ops, groups = search_max_groups(s);
    int kinds = groups > 1 && search_has_schedule(s, SCHEDULE_zero_bubble) ? 2 : 1;
    double n = 0;
    for (int i = 0; i < p->n_micro; i++)
        for (int d = p->devices; d > 0; d--)
            for (int first = 0; first < n_ops; first++)
                for (int end = n_ops; end > first && n <= most; end--) {
                    struct search_stage st = {.first = first, .end = end, .devices = d};
                    bool whole = end - first == n_ops;
                    if (whole ? d == p->devices : d < p->devices && groups > 1)
                        n += kinds * count_ways(c, &st, p->micro[i]);
                }
    choices_free(c);
    return n <= most;
}
