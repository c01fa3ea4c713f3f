/* The layouts of a stage of a source, all ops at once: a chain, so the layout solver is exact on
 * it. What bytes are worth is not known, so it is asked with several prices, and of the answers
 * the source has the last word. */
#include "search/source/source.h"
#include "search/space/devices.h"
#include "search/state.h"
#include "solve/layout/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYOUTS = 24 };

/* A node of the stage. */
struct node {
    int op; /* one of its ops */
    int times, n;
    struct layout layouts[MOST_LAYOUTS];
    struct source_op costs[MOST_LAYOUTS];
};

/* Nodes that follow each other so often. */
struct link {
    int a, b, op; /* op: one of b behind one of a */
    int times;
};

struct chain {
    struct search *s;
    struct source_ask ask;
    int *index; /* by node of the graph: among `nodes`, or -1 */
    ARR(struct node) nodes;
    ARR(struct link) links;
};

static int node_of(const struct space *sp, int op) {
    return sp->blocks.x.node_of[sp->blocks.x.of[op]];
}

static void add_node(struct chain *c, int op) {
    struct node node = {.op = op};
    struct layout all[MOST_LAYOUTS];
    struct mesh mesh;
    stage_mesh(c->ask.devices, c->ask.mesh, &mesh);
    int n = source_layouts(&c->s->space.p.model->ops[op], &mesh, c->s->space.p.model->batch,
                           all, MOST_LAYOUTS);
    for (int i = 0; i < n; i++)
        if (c->s->space.p.source->op(c->s->space.p.source, &c->ask, op, &all[i],
                                     &node.costs[node.n]))
            node.layouts[node.n++] = all[i];
    arr_push(&c->nodes, node);
}

static void add_link(struct chain *c, int a, int b, int op) {
    for (int64_t i = c->links.n - 1; i >= 0; i--)
        if (c->links.p[i].a == a && c->links.p[i].b == b) {
            c->links.p[i].times++;
            return;
        }
    arr_push(&c->links, (struct link){a, b, op, 1});
}

static void find_chain(struct chain *c) {
    int nodes = c->s->space.blocks.x.n_nodes, before = -1;
    c->index = mem_array((size_t)nodes, sizeof *c->index);
    for (int i = 0; i < nodes; i++)
        c->index[i] = -1;
    for (int i = c->ask.first; i < c->ask.end; i++) {
        int *at = &c->index[node_of(&c->s->space, i)];
        if (*at < 0) {
            *at = (int)c->nodes.n;
            add_node(c, i);
        }
        c->nodes.p[*at].times++;
        if (before >= 0)
            add_link(c, before, *at, i);
        before = *at;
    }
}

/* ---- the solver's problem -------------------------------------------------------------- */

static const double UNITS = 1000; /* in a microsecond */

static int64_t cost_of(double us) {
    return us < 1e9 ? (int64_t)(us * UNITS + 0.5) : LAYOUT_FORBIDDEN;
}

static void make_problem(const struct chain *c, double us_per_byte,
                         struct layout_problem *p) {
    size_t n = (size_t)c->nodes.n, edges = (size_t)c->links.n;
    *p = (struct layout_problem){.n_nodes = (int32_t)n,
                                 .n_edges = (int64_t)edges,
                                 .usage_limit = LAYOUT_NO_LIMIT,
                                 .cost_unit = 1 / UNITS,
                                 .usage_unit = 1};
    p->first = mem_array(n + 1, sizeof *p->first);
    p->cost = mem_array(n * MOST_LAYOUTS, sizeof *p->cost);
    p->usage = mem_array(n * MOST_LAYOUTS, sizeof *p->usage);
    p->live = mem_array(1, sizeof *p->live);
    p->ends = mem_array(edges + 1, sizeof *p->ends);
    p->entry = mem_array(edges + 1, sizeof *p->entry);
    p->edge_cost = mem_array(edges * MOST_LAYOUTS * MOST_LAYOUTS + 1, sizeof *p->edge_cost);
    for (size_t k = 0; k < n; k++) {
        const struct node *node = &c->nodes.p[k];
        p->first[k + 1] = p->first[k] + node->n;
        for (int i = 0; i < node->n; i++)
            p->cost[p->first[k] + i] = cost_of(
                node->times * (node->costs[i].us + us_per_byte * node->costs[i].bytes));
    }
    for (size_t e = 0; e < edges; e++) {
        const struct link *l = &c->links.p[e];
        const struct node *a = &c->nodes.p[l->a], *b = &c->nodes.p[l->b];
        p->ends[e][0] = l->a;
        p->ends[e][1] = l->b;
        p->entry[e + 1] = p->entry[e] + a->n * b->n;
        for (int i = 0; i < a->n; i++)
            for (int j = 0; j < b->n; j++)
                p->edge_cost[p->entry[e] + i * b->n + j] =
                    cost_of(l->times * c->s->space.p.source->between(
                                           c->s->space.p.source, &c->ask, l->op,
                                           &a->layouts[i], &b->layouts[j]));
    }
    p->n_entries = p->entry[edges];
}

/* ---- choosing -------------------------------------------------------------------------- */

/* Is the first better: does it fit, or is it nearer to that, or faster? */
static bool better(const struct chain *c, const struct source_cost *a,
                   const struct source_cost *b) {
    double most = c->ask.memory_bytes ? (double)c->ask.memory_bytes : INFINITY;
    if (a->bytes > most || b->bytes > most)
        return a->bytes < b->bytes;
    return a->us < b->us * (1 - 1e-12);
}

/* Takes layouts over if they are better. */
static void offer(struct chain *c, const struct layout *layouts, struct source_cost *best,
                  const struct layout **out) {
    struct source_ask ask = c->ask;
    struct source_cost cost;
    ask.layouts = layouts;
    if (layouts && source_stage(&c->s->eval, &ask, &cost) && better(c, &cost, best)) {
        *best = cost;
        *out = layouts;
    }
}

/* The best layouts at a price, if they are better than *best. */
static void try_price(struct chain *c, double us_per_byte, struct source_cost *best,
                      const struct layout **layouts) {
    struct layout_problem p;
    struct layout_answer a;
    struct solve_limits limits = {.gap = 1e-6, .seed = 1, .threads = 1};
    make_problem(c, us_per_byte, &p);
    if (layout_solve(&p, &limits, &a, NULL) == 0) {
        size_t n = (size_t)c->s->space.blocks.x.n_nodes;
        struct layout *all = mem_array(n, sizeof *all);
        memcpy(all, c->ask.layouts, n * sizeof *all);
        for (size_t i = 0; i < n; i++)
            if (c->index[i] >= 0)
                all[i] = c->nodes.p[c->index[i]].layouts[a.choice[c->index[i]]];
        offer(c, space_layouts(&c->s->space, all), best, layouts);
        free(all);
        layout_answer_release(&a);
    }
    layout_problem_release(&p);
}

/* Where all ops are told apart, recomputation is chosen with the layouts: prices from nothing to that of
 * all the memory for four times the stage's time, in equal ratios. */
static void try_strategies(struct chain *c, struct source_cost *best,
                           const struct layout **layouts) {
    enum { STEPS = 12 };
    struct trellis *t = trellis_make(&c->s->space, &c->ask);
    double price = 0;
    double memory = (double)c->ask.memory_bytes,
           high = memory > 0 ? 4 * best->us / memory : 0;
    for (int i = 0; i < (memory > 0 ? STEPS : 1) && !budget_stopped(&c->s->budget); i++) {
        trellis_walk(t, c->ask.first, c->ask.end, price);
        offer(c, trellis_trace(t, c->ask.first, c->ask.end, INFINITY), best, layouts);
        price = i ? price * 1.8 : high / 500;
    }
    trellis_free(t);
}

/* All of the memory is worth some share of the stage's time. */
static void try_prices(struct chain *c, struct source_cost *best,
                       const struct layout **layouts) {
    static const double shares[] = {0, 0.05, 0.15, 0.4, 1};
    double memory = (double)c->ask.memory_bytes, us = best->us;
    find_chain(c);
    for (size_t i = 0; i < (memory > 0 ? sizeof shares / sizeof *shares : 1); i++)
        if (!budget_stopped(&c->s->budget))
            try_price(c, i ? shares[i] * us / memory : 0, best, layouts);
}

bool source_relayout(struct search *s, struct candidate *c, int k) {
    struct chain ch = {.s = s, .ask = source_ask_of(&s->space, c, k, candidate_rank(c, k))};
    const struct layout *layouts = c->stages[k].layouts;
    struct source_cost best;
    if (!source_stage(&s->eval, &ch.ask, &best))
        return false;
    if (s->space.blocks.s.n_repeats)
        try_prices(&ch, &best, &layouts);
    else
        try_strategies(&ch, &best, &layouts);
    bool changed = layouts != c->stages[k].layouts;
    c->stages[k].layouts = layouts;
    free(ch.index);
    arr_release(&ch.nodes);
    arr_release(&ch.links);
    return changed;
}
