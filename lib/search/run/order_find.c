/* Finds the orders of the model's ops in which to look for pipelines.
 *
 * If all plans can be listed and there are few orders, these are all of them. Otherwise
 * they are those of the best cuts: for some numbers of stages the graph is cut into sets
 * of units, none of which needs the result of a later one, so that the longest stage is
 * shortest, messages included (order_cut.h). If that is shorter than with ranges of
 * the orders so far, the list of these sets, one behind the other, is a further order,
 * in which a search finds its own cuts, devices and layouts. In chains of blocks there
 * is no other order, and in most models the order of the file is as good as any. */
#include "search/space/order.h"

#include "search/algorithms/branch.h"
#include "search/run/order_cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The order of ops that a list of units stands for. */
static struct order *order_of_units(const struct space *sp, const struct cut_graph *g,
                                    const int *list) {
    int *op = mem_array((size_t)sp->p.model->n_ops, sizeof *op), n = 0;
    for (int i = 0; i < g->n; i++)
        for (int k = g->first[list[i]]; k < g->first[list[i] + 1]; k++)
            op[n++] = k;
    struct order *o = order_make(sp->p.model, sp->p.pins, op);
    free(op);
    return o;
}

/* ---- all of them ------------------------------------------------------------------------- */

struct listing {
    const struct space *sp;
    const struct cut_graph *g;
    struct orders *out;
    int *list;    /* [units] */
    int *missing; /* [units] how many tensors that it reads are not made yet */
    int most;     /* orders allowed, not counting the model's own */
    bool too_many;
};

static bool is_own(const int *list, int n) {
    for (int i = 0; i < n; i++)
        if (list[i] != i)
            return false;
    return true;
}

static void mark_made(const struct cut_graph *g, int unit, int by, int *missing) {
    for (int k = g->of[unit]; k < g->of[unit + 1]; k++)
        for (int r = 0; r < g->tensors[k].n; r++)
            missing[g->readers[g->tensors[k].first_reader + r]] += by;
}

/* Completes the list from position `at` on in every possible way, trying units in the
 * model's order. */
static void list_from(struct listing *l, int at) {
    const struct cut_graph *g = l->g;
    if (at == g->n && !is_own(l->list, g->n)) {
        l->too_many |= l->out->n == l->most;
        if (!l->too_many) {
            l->out->p[l->out->n] = order_of_units(l->sp, g, l->list);
            l->out->p[l->out->n++]->all = true;
        }
    }
    for (int u = 0; u < g->n && at < g->n && !l->too_many; u++) {
        if (l->missing[u])
            continue;
        l->list[at] = u;
        l->missing[u] = -1; /* it is in the list */
        mark_made(g, u, -1, l->missing);
        list_from(l, at + 1);
        mark_made(g, u, 1, l->missing);
        l->missing[u] = 0;
    }
}

/* Lists all orders; false, with none left, if there are too many. */
static bool list_all(const struct space *sp, const struct cut_graph *g,
                     struct orders *out) {
    struct listing l = {.sp = sp, .g = g, .out = out, .most = MOST_ORDERS};
    l.list = mem_array((size_t)g->n, sizeof *l.list);
    l.missing = mem_array((size_t)g->n, sizeof *l.missing);
    for (int k = 0; k < g->n_tensors; k++)
        for (int r = 0; r < g->tensors[k].n; r++)
            l.missing[g->readers[g->tensors[k].first_reader + r]]++;
    list_from(&l, 0);
    if (l.too_many)
        orders_release(out);
    free(l.list);
    free(l.missing);
    return !l.too_many;
}

/* ---- of the best cuts -------------------------------------------------------------------- */

/* Lists the units stage by stage; within a stage in the model's order. */
static void list_stages(const struct cut_graph *g, const int *stage_of, int *list) {
    for (int k = 0, n = 0; n < g->n; k++)
        for (int u = 0; u < g->n; u++)
            if (stage_of[u] == k)
                list[n++] = u;
}

struct cuts {
    struct evaluate *ev;
    struct cut_graph *g;
    struct orders *out;
    int *lists[1 + MOST_ORDERS]; /* of units; the first is the model's */
    int *stage_of;               /* [units] scratch */
};

static void cut_into(struct cuts *c, int stages) {
    /* Another search takes as long as the first, so its order must promise a real gain. */
    static const double GAIN = 0.97;
    double us, least = INFINITY;
    cut_graph_stages(c->ev, c->g, stages);
    if (!cut_graph_solve(c->g, stages, &us, c->stage_of))
        return;
    for (int i = 0; i <= c->out->n; i++)
        least = fmin(least, cut_list_us(c->g, stages, c->lists[i]));
    if (us >= GAIN * least)
        return;
    int *list = mem_array((size_t)c->g->n, sizeof *list);
    list_stages(c->g, c->stage_of, list);
    c->out->p[c->out->n++] = order_of_units(c->ev->space, c->g, list);
    c->lists[c->out->n] = list;
}

/* Cuts into many stages come first, because their lists contain cuts into fewer. */
static void find_cuts(struct evaluate *ev, struct cut_graph *g, struct orders *out) {
    enum { MOST = 2 };
    static const int stages[] = {32, 16, 8, 6, 4, 3, 2};
    struct cuts c = {.ev = ev, .g = g, .out = out};
    c.stage_of = mem_array((size_t)g->n, sizeof *c.stage_of);
    c.lists[0] = mem_array((size_t)g->n, sizeof *c.lists[0]);
    for (int u = 0; u < g->n; u++)
        c.lists[0][u] = u;
    for (size_t i = 0; i < sizeof stages / sizeof *stages && out->n < MOST; i++)
        if (stages[i] <= space_max_groups(ev->space) && stages[i] <= g->n &&
            !budget_out_of_time(ev->budget))
            cut_into(&c, stages[i]);
    for (int i = 0; i <= out->n; i++)
        free(c.lists[i]);
    free(c.stage_of);
}

/* ---- together ---------------------------------------------------------------------------- */

/* Returns whether units are single ops: in models of few ops, which gain most from that,
 * and in those that repeat nothing. Other models are cut between instances. */
static bool by_ops(const struct space *sp) {
    enum { FEW = 24 };
    return !sp->blocks.s.n_repeats || sp->blocks.s.n_ops <= FEW;
}

static void find_some(struct search *s, struct orders *out) {
    struct cut_graph g = {0};
    if (space_max_groups(&s->space) > 1 &&
        cut_graph_make(&s->eval, by_ops(&s->space), &g) && !cut_graph_is_chain(&g) &&
        !(branch_is_small(s) && list_all(&s->space, &g, out)))
        find_cuts(&s->eval, &g, out);
    cut_graph_release(&g);
}

/* The plan may need an order of its own, which is added if no other one contains it. */
void orders_find(const struct search_problem *p, const struct plan *plan,
                 struct orders *out) {
    struct search s;
    *out = (struct orders){0};
    if (p->as_listed)
        return;
    search_begin(&s, p);
    if (space_check_pins(&s.space, NULL) == 0)
        find_some(&s, out);
    search_end(&s);
    bool held = !plan || plan->model->hash != p->model->hash || plan_is_as_listed(plan);
    for (int i = 0; i < out->n && !held; i++) {
        struct plan *t = order_translate(out->p[i], plan);
        held = t != NULL;
        plan_destroy(t);
    }
    struct order *own = held ? NULL : order_of_plan(plan, p->pins);
    if (own)
        out->p[out->n++] = own;
}

void orders_release(struct orders *o) {
    for (int i = 0; i < o->n; i++)
        order_free(o->p[i]);
    o->n = 0;
}
