/* The layouts of a stage by the layout solver (lib/solve/layout/layout.h).
 *
 * Each op of a distinct block may keep its layout, take that of a uniform preset, or
 * change on one mesh axis. The strategy graph has the costs: of an op, its own time;
 * of an edge, the time of its ops under every pair of layouts, beyond what the two
 * changes cost alone. Any other ops of the edge keep their layouts meanwhile, so the
 * sum is exact where an edge joins two ops or where at most two of its ops change; the
 * caller scores the result. Bytes are what the change of each op alone adds or saves,
 * and must fit into the memory that is left. All layouts are chosen at once, because
 * single changes do not find a chain of ops that is only faster if all of them change.
 * Ops that change together need no conversions between them and so take fewer bytes
 * than counted; the score of an answer corrects that. */
#include "search/algorithms/improve.h"
#include "solve/layout/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LAYOUTS = 10, /* of one op */
    /* Ops that are laid out at once; with about this many the solver is exact within
     * a millisecond. */
    MOST_CHOOSERS = 24,
    MOST_TOGETHER = 4, /* ops of an edge that are considered in pairs */
    NO_CHOOSER = -1,
    HAD_ITS_TURN = -2,
};

/* Time over a step in microseconds (INFINITY if the profile lacks something), and
 * bytes on a device. */
struct worth {
    double us, bytes;
};

/* An op that may change its layout; layout 0 is the present one. */
struct chooser {
    int node,
        /* node: of the strategy graph; op: of the deduplicated model, one of those that
         * share the node */
        op;
    int n;
    struct layout layouts[MOST_LAYOUTS];
    struct worth change[MOST_LAYOUTS]; /* the cost of changing this op alone */
};

/* The cost of changing two ops together, beyond the changes of each alone. */
struct couple {
    int a, b; /* indices of choosers, a < b */
    double us[MOST_LAYOUTS * MOST_LAYOUTS];
};

struct relayout {
    struct evaluate *ev;
    const struct search_stage *st;
    const struct prefix *t;
    int first_rank;
    double micro_batches, bytes_left, bytes_taken;
    struct in_flight in_flight;
    struct layout *at; /* [nodes] the layouts that are priced */
    int *weight,
        /* [ops of the deduplicated model] how many ops of the stage it stands for, and
         * the first of them */
        *op;
    int *chooser_of; /* [nodes] index of the chooser, NO_CHOOSER, or HAD_ITS_TURN */
    int n;
    struct chooser choosers[MOST_CHOOSERS];
    ARR(struct couple) couples;
};

/* Prices a load that `times` equal ops of the stage have. Gradients cost what the
 * collective that reduces them takes. */
static struct worth worth_of(struct relayout *r, const struct load *l, double times) {
    const double *v = l->v;
    bool missing = v[LOAD_missing] > 0.5;
    struct worth w = {
        .us = times *
              (r->micro_batches * (v[LOAD_forward] + v[LOAD_backward] + v[LOAD_weights]) +
               v[LOAD_before_norm] + v[LOAD_update]),
        .bytes = times * (v[LOAD_fixed] + held_bytes(&v[LOAD_slot], &r->in_flight) +
                          v[LOAD_across])};
    for (int i = 0; i < LOAD_REDUCTIONS && l->over[i]; i++) {
        double elems = times * l->elems[i];
        w.us += copysign(
            graph_reduce_us(&r->ev->graph, &r->t->st, l->over[i], fabs(elems), &missing),
            elems);
    }
    if (missing)
        w.us = INFINITY;
    return w;
}

/* ---- what there is to choose from ---------------------------------------------------- */

/* Counts how often each op of the deduplicated model stands in the stage. */
static void count_ops(struct relayout *r) {
    const struct blocks *g = &r->ev->space->blocks;
    for (int i = r->st->first; i < r->st->end; i++)
        if (!r->weight[g->x.of[i]]++)
            r->op[g->x.of[i]] = i;
}

/* Takes the next MOST_CHOOSERS nodes that have not had their turn. */
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

/* ---- costs --------------------------------------------------------------------------- */

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

/* Adds an edge's cost of changing a and b together to the pair's table. */
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

/* Lists the choosers among an edge's ops in the stage, each once. */
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

/* Adds the costs of an edge: of changing each of its choosers alone, then each pair. */
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

/* ---- the solver's problem ------------------------------------------------------------ */

/* the solver's cost units in a microsecond: it counts in integers */
static const double UNITS = 1000;

static int64_t cost_of(double us) {
    return us < 1e12 ? (int64_t)(us * UNITS + 0.5) : LAYOUT_FORBIDDEN;
}

/* The solver wants costs of at least 0, so all costs of an op are shifted by the same
 * amount. Exactly one of them is chosen, so this favours none. */
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

/* Writes the pairs' tables, shifted to be at least 0. */
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

/* Time is in units of 1/UNITS microseconds, usage in bytes. */
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

/* Solves the problem and puts the best choice into r->at; false if that is the present
 * one, or nothing fits. */
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

/* ---- a stage ------------------------------------------------------------------------- */

/* Returns the bytes on a device that may be added. Stages on the same group share
 * the memory equally. */
static double bytes_left(struct relayout *r, const struct candidate *c) {
    struct stage_bytes bytes = {0};
    int64_t room = eval_stage_room(r->ev, r->first_rank, r->st->devices);
    if (!room)
        return INFINITY;
    stage_bytes_add(&bytes, eval_stage_sum(r->ev, r->t, r->st), &r->in_flight);
    return (double)room * c->n_groups / c->n_stages - stage_bytes_sum(&bytes);
}

/* Everything starts as the stage has it; no node has had its turn. */
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

/* The bytes that changes may take, and those that the chosen ones take. */
struct room {
    double limit, taken;
};

/* Lays stage k out within room->limit or, if room is NULL, within the memory that is
 * left. MOST_CHOOSERS nodes have their turn at once, with the layouts that earlier turns
 * chose. */
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

/* Lays the stage out without a memory limit; then, while its score exceeds the memory,
 * again with that much less, as long as this is more than the solver counts as left. It
 * may be more, because ops that change together save bytes that the solver does not
 * know of. Returns the number of attempts until the answer fits; 0 if none does. */
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

/* Takes the better of two answers: with the memory that the score allows, and with the
 * memory that the solver counts as left. */
bool search_relayout(struct search *s, struct candidate *c, int k) {
    struct search_stage *st = &c->stages[k];
    const struct layout *before = st->layouts;
    struct score score, other;
    int asked = s->space.p.memory_bytes ? relayout_by_score(s, c, k, &score) : 0;
    /* the memory did not limit this answer, so less memory cannot improve on it */
    if (asked == 1)
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
