/* The layouts of a stage by the layout solver (lib/solve/layout/layout.h).
 *
 * Each op of a distinct block may keep its layout, take that of a uniform preset, or change on
 * one mesh axis. The strategy graph says what that costs: an op its own time; an edge the time
 * of its ops under every pair of layouts, less what each of the two does alone. Of an edge with
 * three ops and more the others stay meanwhile, so the sum is exact where an edge joins two ops,
 * or where at most two of its ops change; the caller scores what comes out. Bytes are what each
 * op's change alone adds or saves, within what is left of the memory. All layouts are chosen at
 * once: where a chain of ops must change together for any of them to be worth it, single changes
 * find no way. Ops that change together have no copies between them, so they take fewer bytes than each
 * alone: what the score says of an answer corrects that. */
#include "search/algorithms/improve.h"
#include "solve/layout/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LAYOUTS = 10,  /* of one op */
    MOST_CHOOSERS = 24, /* ops at once: as many as the solver is exact on in no time */
    MOST_TOGETHER = 4,  /* ops of an edge whose pairs are looked at */
    NO_CHOOSER = -1,
    HAD_ITS_TURN = -2,
};

/* Time over a step, and bytes on a device. */
struct worth {
    double us, bytes; /* us: INFINITY where the profile lacks something */
};

/* An op that may change its layout: number 0 is the one it has. */
struct chooser {
    int node,
        op; /* of the strategy graph; one op of the deduplicated model that is this node */
    int n;
    struct layout layouts[MOST_LAYOUTS];
    struct worth change[MOST_LAYOUTS]; /* of this alone, against the present */
};

/* What two of them cost beyond the changes of each. */
struct couple {
    int a, b; /* choosers, a < b */
    double us[MOST_LAYOUTS * MOST_LAYOUTS];
};

struct relayout {
    struct evaluate *ev;
    const struct search_stage *st;
    const struct prefix *t;
    int first_rank;
    double micro_batches, bytes_left, bytes_taken;
    struct in_flight in_flight;
    struct layout *at; /* by node: the layouts that are being costed */
    int *weight,
        *op; /* [ops of the deduplicated model] ops of the stage that it stands for; the first */
    int *chooser_of; /* by node, or NO_CHOOSER, or HAD_ITS_TURN */
    int n;
    struct chooser choosers[MOST_CHOOSERS];
    ARR(struct couple) couples;
};

static struct worth worth_of(struct relayout *r, const struct load *l, double times) {
    const double *v = l->v;
    bool missing = v[LOAD_missing] > 0.5;
    struct worth w = {
        .us = times *
              (r->micro_batches * (v[LOAD_forward] + v[LOAD_backward] + v[LOAD_weights]) +
               v[LOAD_before_norm] + v[LOAD_update]),
        .bytes = times * (v[LOAD_fixed] + held_bytes(&v[LOAD_slot], &r->in_flight) +
                          v[LOAD_across])};
    for (int i = 0; i < LOAD_REDUCTIONS && l->reduce[i].axes; i++) {
        double elems = times * l->reduce[i].elems;
        w.us += copysign(graph_reduce_us(&r->ev->graph, &r->t->st, l->reduce[i].axes,
                                         fabs(elems), &missing),
                         elems);
    }
    if (missing)
        w.us = INFINITY;
    return w;
}

/* ---- what there is to choose from ------------------------------------------------------ */

/* How often each op of the deduplicated model stands in the stage. */
static void count_ops(struct relayout *r) {
    const struct blocks *g = &r->ev->space->blocks;
    for (int i = r->st->first; i < r->st->end; i++)
        if (!r->weight[g->x.of[i]]++)
            r->op[g->x.of[i]] = i;
}

/* At most MOST_CHOOSERS nodes, behind those that had their turn. */
static void find_choosers(struct relayout *r) {
    const struct blocks *g = &r->ev->space->blocks;
    struct preset now = space_preset_of(r->ev->space, r->st);
    for (int k = 0; k < r->n; k++)
        r->chooser_of[r->choosers[k].node] = HAD_ITS_TURN;
    r->n = 0;
    for (int x = 0; x < g->x.model->n_ops && r->n < MOST_CHOOSERS; x++) {
        int node = g->x.node_of[x];
        if (!r->weight[x] || r->chooser_of[node] != NO_CHOOSER)
            continue;
        struct chooser *c = &r->choosers[r->n];
        *c = (struct chooser){.node = node, .op = x, .n = 1, .layouts = {r->at[node]}};
        c->n = layouts_neighbours(r->ev->space, r->st, r->t->st.micro_batch, x, now,
                                  c->layouts, MOST_LAYOUTS);
        r->chooser_of[node] = r->n++;
    }
}

/* ---- costs ----------------------------------------------------------------------------- */

static void set(struct relayout *r, int chooser, int layout) {
    const struct chooser *c = &r->choosers[chooser];
    r->at[c->node] = c->layouts[layout];
}

static void add_node(struct relayout *r, int x) {
    struct graph *g = &r->ev->graph;
    int k = r->chooser_of[g->b->x.node_of[x]];
    struct worth now = {0};
    for (int i = 0; i < r->choosers[k].n; i++) {
        set(r, k, i);
        struct worth w = worth_of(r, graph_node(g, &r->t->st, x, r->at), r->weight[x]);
        now = i ? now : w;
        r->choosers[k].change[i].us += w.us - now.us;
        r->choosers[k].change[i].bytes += w.bytes - now.bytes;
    }
    set(r, k, 0);
}

static struct worth edge_worth(struct relayout *r, const struct edge *e, double times) {
    return worth_of(
        r, graph_edge(&r->ev->graph, &r->t->st, e, r->st->first, r->st->end, r->at), times);
}

static double *couple_us(struct relayout *r, int a, int b) {
    for (int64_t i = 0; i < r->couples.n; i++)
        if (r->couples.p[i].a == a && r->couples.p[i].b == b)
            return r->couples.p[i].us;
    arr_push(&r->couples, (struct couple){.a = a, .b = b});
    return arr_last(&r->couples).us;
}

static void add_couple(struct relayout *r, const struct edge *e, double times, int a, int b,
                       double now_us, const double *us_a, const double *us_b) {
    int first = a < b ? a : b, second = a < b ? b : a;
    double *us = couple_us(r, first, second);
    for (int i = 1; i < r->choosers[a].n; i++) {
        for (int j = 1; j < r->choosers[b].n; j++) {
            set(r, a, i);
            set(r, b, j);
            if (isfinite(us_a[i]) && isfinite(us_b[j]))
                us[first == a ? i * MOST_LAYOUTS + j : j * MOST_LAYOUTS + i] +=
                    edge_worth(r, e, times).us - us_a[i] - us_b[j] - now_us;
        }
    }
    set(r, a, 0);
    set(r, b, 0);
}

/* The choosers among an edge's ops in the stage, each once. */
static int choosers_of(const struct relayout *r, const struct edge *e, int *out) {
    const struct blocks *g = &r->ev->space->blocks;
    int n = 0;
    for (int i = -1; i < e->n && n < MOST_TOGETHER; i++) {
        int op = i < 0 ? e->origin : e->readers[i];
        if (op < r->st->first || op >= r->st->end)
            continue;
        int k = r->chooser_of[g->x.node_of[g->x.of[op]]], j = 0;
        while (j < n && out[j] != k)
            j++;
        if (k >= 0 && j == n)
            out[n++] = k;
    }
    return n;
}

static void add_edge(struct relayout *r, const struct edge *e, double times) {
    int who[MOST_TOGETHER], n = choosers_of(r, e, who);
    double alone[MOST_TOGETHER][MOST_LAYOUTS];
    struct worth now = edge_worth(r, e, times);
    for (int k = 0; k < n; k++) {
        struct chooser *c = &r->choosers[who[k]];
        for (int i = 0; i < c->n; i++) {
            set(r, who[k], i);
            struct worth w = edge_worth(r, e, times);
            alone[k][i] = w.us - now.us;
            c->change[i].us += w.us - now.us;
            c->change[i].bytes += w.bytes - now.bytes;
        }
        set(r, who[k], 0);
    }
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            add_couple(r, e, times, who[a], who[b], now.us, alone[a], alone[b]);
}

static void add_costs(struct relayout *r) {
    const struct blocks *g = &r->ev->space->blocks;
    const struct crossing *in = &r->ev->space->crossings[r->st->first];
    for (int i = 0; i < in->n; i++)
        add_edge(r, &g->s.edges[in->edges[i]], 1);
    for (int x = 0; x < g->x.model->n_ops; x++) {
        if (!r->weight[x])
            continue;
        if (r->chooser_of[g->x.node_of[x]] >= 0)
            add_node(r, x);
        for (int e = g->s.edges_of[r->op[x]]; e < g->s.edges_of[r->op[x] + 1]; e++)
            add_edge(r, &g->s.edges[e], r->weight[x]);
    }
}

/* ---- the solver's problem -------------------------------------------------------------- */

static const double UNITS = 1000; /* in a microsecond */

static int64_t cost_of(double us) {
    return us < 1e12 ? (int64_t)(us * UNITS + 0.5) : LAYOUT_FORBIDDEN;
}

/* The solver's costs are not negative: all of a row may be shifted, since one of it is chosen. */
static void put_choosers(const struct relayout *r, struct layout_problem *p) {
    double limit = r->bytes_left - r->bytes_taken;
    for (int k = 0; k < r->n; k++) {
        const struct chooser *c = &r->choosers[k];
        double us = 0, bytes = 0;
        for (int i = 0; i < c->n; i++) {
            us = fmin(us, c->change[i].us);
            bytes = fmin(bytes, c->change[i].bytes);
        }
        p->first[k + 1] = p->first[k] + c->n;
        for (int i = 0; i < c->n; i++) {
            p->cost[p->first[k] + i] = cost_of(c->change[i].us - us);
            p->usage[p->first[k] + i] = (int64_t)(c->change[i].bytes - bytes);
        }
        limit -= bytes;
        p->live[k] = (struct layout_live){k, 0, 1};
    }
    p->usage_limit = limit < 1e18 ? (int64_t)limit : LAYOUT_NO_LIMIT;
}

static void put_couples(const struct relayout *r, struct layout_problem *p) {
    for (int64_t e = 0; e < r->couples.n; e++) {
        const struct couple *c = &r->couples.p[e];
        int na = r->choosers[c->a].n, nb = r->choosers[c->b].n;
        double least = 0;
        for (int i = 0; i < na * nb; i++)
            least = fmin(least, c->us[i / nb * MOST_LAYOUTS + i % nb]);
        p->ends[e][0] = c->a;
        p->ends[e][1] = c->b;
        p->entry[e + 1] = p->entry[e] + na * nb;
        for (int i = 0; i < na * nb; i++)
            p->edge_cost[p->entry[e] + i] =
                cost_of(c->us[i / nb * MOST_LAYOUTS + i % nb] - least);
    }
    p->n_entries = p->entry[r->couples.n];
}

static void make_problem(const struct relayout *r, struct layout_problem *p) {
    size_t n = (size_t)r->n, edges = (size_t)r->couples.n;
    *p = (struct layout_problem){.n_nodes = r->n,
                                 .n_live = r->n,
                                 .n_edges = r->couples.n,
                                 .cost_unit = 1 / UNITS,
                                 .usage_unit = 1};
    p->first = mem_array(n + 1, sizeof *p->first);
    p->cost = mem_array(n * MOST_LAYOUTS, sizeof *p->cost);
    p->usage = mem_array(n * MOST_LAYOUTS, sizeof *p->usage);
    p->live = mem_array(n, sizeof *p->live);
    p->ends = mem_array(edges + 1, sizeof *p->ends);
    p->entry = mem_array(edges + 1, sizeof *p->entry);
    p->edge_cost = mem_array(edges * MOST_LAYOUTS * MOST_LAYOUTS + 1, sizeof *p->edge_cost);
    put_choosers(r, p);
    put_couples(r, p);
}

/* Puts the best choice into r->at; false if that is the present one, or none fits. */
static bool choose(struct relayout *r) {
    struct layout_problem p;
    struct layout_answer a;
    struct solve_limits limits = {.gap = 1e-3, .seed = 1, .threads = 1};
    bool changed = false;
    make_problem(r, &p);
    if (p.usage_limit >= 0 && layout_solve(&p, &limits, &a, NULL) == 0) {
        for (int k = 0; k < r->n; k++) {
            changed |= a.choice[k] != 0;
            r->bytes_taken += r->choosers[k].change[a.choice[k]].bytes;
            set(r, k, a.choice[k]);
        }
        layout_answer_release(&a);
    }
    layout_problem_release(&p);
    return changed;
}

/* ---- a stage --------------------------------------------------------------------------- */

/* Bytes on a device that may come on top; what neighbours send is not counted here: a little
 * room for it. Of other stages of the group none is moved: they leave the same share to all. */
static double bytes_left(struct relayout *r, const struct candidate *c) {
    struct stage_bytes bytes = {0};
    int64_t limit = search_memory(&r->ev->space->p, r->first_rank, r->st->devices);
    if (!limit)
        return INFINITY;
    stage_bytes_add(&bytes, eval_stage_sum(r->ev, r->t, r->st), &r->in_flight);
    return (double)(limit - r->ev->reserve_bytes - limit / 64) * c->n_groups / c->n_stages -
           stage_bytes_sum(&bytes);
}

static void begin(struct relayout *r, struct evaluate *ev, const struct candidate *c,
                  int k) {
    const struct blocks *g = &ev->space->blocks;
    size_t nodes = (size_t)g->x.n_nodes, ops = (size_t)g->x.model->n_ops;
    int64_t m = ev->space->p.batch / c->micro_batch;
    *r = (struct relayout){.ev = ev, .st = &c->stages[k], .micro_batches = (double)m};
    r->first_rank = candidate_rank(c, k);
    r->t = candidate_prefix(ev, c, k, r->first_rank);
    r->in_flight = candidate_in_flight(ev, c, k);
    r->bytes_left = bytes_left(r, c);
    r->at = mem_array(nodes, sizeof *r->at);
    memcpy(r->at, r->st->layouts, nodes * sizeof *r->at);
    r->chooser_of = mem_array(nodes, sizeof *r->chooser_of);
    for (size_t i = 0; i < nodes; i++)
        r->chooser_of[i] = NO_CHOOSER;
    r->weight = mem_array(ops, sizeof *r->weight);
    r->op = mem_array(ops, sizeof *r->op);
    count_ops(r);
}

/* Bytes for changes: `limit` of them, and `taken` by those that were chosen. */
struct room {
    double limit, taken;
};

/* Within room->limit; NULL: within what is left. */
static bool relayout(struct pool *pool, struct candidate *c, int k, struct room *room) {
    struct relayout *r = mem_alloc(sizeof *r);
    bool changed = false;
    begin(r, pool->ev, c, k);
    bool asks = !room || room->limit >= r->bytes_left;
    if (room)
        r->bytes_left = room->limit;
    for (find_choosers(r); r->n && asks && !budget_stopped(pool->budget);
         find_choosers(r)) {
        r->couples.n = 0;
        add_costs(r);
        changed |= choose(r);
    }
    if (room)
        room->taken = r->bytes_taken;
    if (changed)
        c->stages[k].layouts = space_layouts(pool->space, r->at);
    arr_release(&r->couples);
    free(r->at);
    free(r->chooser_of);
    free(r->weight);
    free(r->op);
    free(r);
    return changed;
}

/* Asked without a limit, and then with that much less memory as the answer is too large by its
 * score, while that is more than is left: what ops that change together save of each other's
 * bytes the solver does not know. Returns how often it was asked for an answer that fits; 0:
 * there is none. */
static int relayout_by_score(struct search *s, struct candidate *c, int k,
                             struct score *score) {
    enum { TRIES = 4 };
    const struct layout *before = c->stages[k].layouts;
    struct room room = {.limit = INFINITY};
    for (int i = 1; i <= TRIES; i++) {
        c->stages[k].layouts = before;
        if (!relayout(&s->pool, c, k, &room) || !eval_legal(&s->eval, c))
            return 0;
        *score = pool_score(&s->pool, c);
        if (score->unknown || !score->overflow)
            return score->unknown ? 0 : i;
        room.limit = room.taken - (double)score->overflow;
    }
    return 0;
}

bool search_relayout(struct search *s, struct candidate *c, int k) {
    struct search_stage *st = &c->stages[k];
    const struct layout *before = st->layouts;
    struct score score, other;
    int asked = s->space.p.memory_bytes ? relayout_by_score(s, c, k, &score) : 0;
    if (asked == 1) /* less memory makes it no better */
        return true;
    const struct layout *found = st->layouts;
    st->layouts = before;
    bool changed = relayout(&s->pool, c, k, NULL);
    if (!asked)
        return changed;
    if (changed && eval_legal(&s->eval, c)) {
        other = pool_score(&s->pool, c);
        if (score_better(&other, &score))
            return true;
    }
    st->layouts = found;
    return true;
}
