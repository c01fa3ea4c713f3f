/* The graph of stages. Stages that differ only in where they end form a row: one walk finds
 * all of their lower bounds, and another one all of their times. */
#include "aceso/aceso_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 16, PATHS = 16 };

/* The stages that share the number of stages behind them, the first cut and the number of
 * devices. */
struct row {
    int n;                   /* they end at the next n cuts */
    double *bound;           /* [n] lower bounds without messages */
    double *us[2][2];        /* [crosses_in][crosses_out]: [n] times; NULL until solved */
    struct aceso_ask ask[2]; /* [crosses_in] what the times were solved for */
    bool exact[2];
};

/* A path from a node to the end. */
struct tail {
    double longest, sum;
    int size, to; /* of the first stage */
    int64_t next; /* the rest, or -1 */
};
struct span {
    int64_t first;
    int n;
};

struct aceso_graph {
    const struct aceso_problem *p;
    int64_t micro_batch, n_micro_batches;
    int n_cuts;
    const int *cuts;
    int n_behind; /* most stages of a path */
    int n_sizes;  /* of stages: 1, 2, 4 ... devices */
    struct aceso_stages *stages[MOST_SIZES];
    double *work;     /* [n_cuts] least device-us of the ops before a cut */
    struct row *rows; /* [behind][cut][size] */
    /* By node: lower bounds on the stages before it and on those from it on. INFINITY:
     * there is no path below most_us. */
    struct aceso_bounds {
        double longest, sum;
    } * before, *after;
    struct span *spans; /* by node, in tails */
    ARR(struct tail) tails;
};

static size_t node_of(const struct aceso_graph *g, int behind, int at, int devices) {
    return ((size_t)behind * (size_t)g->n_cuts + (size_t)at) * (size_t)(g->p->devices + 1) +
           (size_t)devices;
}

static struct row *row_of(const struct aceso_graph *g, int behind, int at, int size) {
    return &g->rows[((size_t)behind * (size_t)g->n_cuts + (size_t)at) * MOST_SIZES +
                    (size_t)size];
}

static double step_us(const struct aceso_graph *g, double longest, double sum) {
    return (double)(g->n_micro_batches - 1) * longest + sum;
}

/* Returns whether a stage lies within one node or spans whole nodes: tensor parallelism was
 * measured only within nodes. */
static bool lies_well(const struct aceso_graph *g, int before, int devices) {
    int node = g->p->per_node, at = before % node;
    return at + devices <= node || (at == 0 && devices % node == 0);
}

/* ---- edges ---------------------------------------------------------------------------------- */

/* Makes the edge from a node to cut `to` on 2^size devices. Its time is the solved one, or
 * a lower bound where the stage was not solved or, with `proven`, not solved exactly.
 * Returns false if there is no such edge. */
static bool edge(const struct aceso_graph *g, int behind, int at, int devices, int size,
                 int to, bool proven, struct aceso_edge *out) {
    const struct row *r = row_of(g, behind, at, size);
    int n = 1 << size, before = g->p->devices - devices, left = devices - n;
    bool last = behind == 0;
    if (to - at > r->n || left < behind || last != (to == g->n_cuts - 1) ||
        last != (left == 0) || !lies_well(g, before, n))
        return false;
    *out = (struct aceso_edge){.behind = behind,
                               .at = at,
                               .to = to,
                               .first = g->cuts[at],
                               .end = g->cuts[to],
                               .devices = n,
                               .crosses_in = before && before % g->p->per_node == 0,
                               .crosses_out = (before + n) % g->p->per_node == 0};
    const double *us = r->us[out->crosses_in][out->crosses_out];
    const struct aceso_stages *st = g->stages[size];
    const int *op_of = g->p->model->op_of;
    if (us && (r->exact[out->crosses_in] || !proven))
        out->us = us[to - at - 1];
    else
        out->us = r->bound[to - at - 1] + st->in_us[out->crosses_in][op_of[out->first]] +
                  st->out_us[out->crosses_out][op_of[out->end - 1]];
    return out->us < INFINITY;
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* Sums up the least device time that each op takes in any layout. */
static void add_work(struct aceso_graph *g) {
    g->work = mem_array((size_t)g->n_cuts, sizeof *g->work);
    for (int c = 0; c + 1 < g->n_cuts; c++) {
        g->work[c + 1] = g->work[c];
        for (int i = g->cuts[c]; i < g->cuts[c + 1]; i++) {
            double least = INFINITY;
            for (int s = 0; s < g->n_sizes; s++)
                for (int l = 0; l < g->stages[s]->n; l++) {
                    const struct aceso_cell *cell = aceso_cells(g->stages[s], i)[l];
                    if (cell)
                        least = fmin(least, (1 << s) * (cell->forward + cell->backward));
                }
            g->work[c + 1] += least;
        }
    }
}

/* Returns whether a node can be on a path whose stages take at most stage_us each. */
static bool may_be(const struct aceso_graph *g, int behind, int at, int devices,
                   double stage_us) {
    int before = g->p->devices - devices;
    double all = g->work[g->n_cuts - 1];
    return devices > behind && (at == 0) == (before == 0) &&
           g->work[at] <= stage_us * before && all - g->work[at] <= stage_us * devices &&
           g->n_cuts - 1 - at > behind;
}

static void bound_row(struct aceso_graph *g, int behind, int at, int size,
                      double stage_us) {
    struct row *r = row_of(g, behind, at, size);
    int most = g->n_cuts - 1 - behind;
    struct aceso_ask ask = {
        .first = g->cuts[at], .most = g->cuts[most], .behind = behind, .most_us = stage_us};
    double *us = mem_array((size_t)(ask.most - ask.first + 1), sizeof *us);
    aceso_stage_bound(g->stages[size], &ask, us);
    r->bound = mem_array((size_t)(most - at), sizeof *r->bound);
    for (int to = at + 1; to <= most; to++) {
        double bound = us[g->cuts[to] - ask.first];
        r->bound[to - at - 1] = bound;
        r->n = bound <= stage_us ? to - at : r->n;
    }
    free(us);
}

static void bound_rows(struct aceso_graph *g, double stage_us) {
    for (int behind = 0; behind < g->n_behind; behind++)
        for (int at = 0; at + 1 < g->n_cuts; at++) {
            bool any = false;
            for (int d = 1; d <= g->p->devices && !any; d++)
                any = may_be(g, behind, at, d, stage_us);
            for (int s = 0; s < g->n_sizes && any && !aceso_stopped(g->p); s++)
                if (g->stages[s]->n && 1 << s <= g->p->devices - behind)
                    bound_row(g, behind, at, s, stage_us);
        }
}

/* ---- bounds of what is before and after a node ---------------------------------------------- */

static void lower(struct aceso_bounds *to, const struct aceso_bounds *from, double us) {
    to->longest = fmin(to->longest, fmax(from->longest, us));
    to->sum = fmin(to->sum, from->sum + us);
}

/* Calls `each` for every edge of the nodes with `behind` stages behind them. `next` is
 * SIZE_MAX at the end of a path. */
typedef void visit_edge(struct aceso_graph *g, size_t node, size_t next,
                        const struct aceso_edge *e);
static void visit(struct aceso_graph *g, int behind, visit_edge *each) {
    for (int at = 0; at + 1 < g->n_cuts; at++)
        for (int d = behind + 1; d <= g->p->devices; d++) {
            size_t node = node_of(g, behind, at, d);
            if ((at == 0) != (d == g->p->devices))
                continue;
            for (int s = 0; s < g->n_sizes && 1 << s <= d; s++) {
                int n = row_of(g, behind, at, s)->n;
                for (int to = behind ? at + 1 : g->n_cuts - 1; to <= at + n; to++) {
                    struct aceso_edge e;
                    if (edge(g, behind, at, d, s, to, true, &e))
                        each(g, node,
                             behind ? node_of(g, behind - 1, to, d - (1 << s)) : SIZE_MAX,
                             &e);
                }
            }
        }
}

static void bound_before(struct aceso_graph *g, size_t node, size_t next,
                         const struct aceso_edge *e) {
    if (next != SIZE_MAX && g->before[node].longest < INFINITY)
        lower(&g->before[next], &g->before[node], e->us);
}

static void bound_after(struct aceso_graph *g, size_t node, size_t next,
                        const struct aceso_edge *e) {
    static const struct aceso_bounds end = {0};
    lower(&g->after[node], next == SIZE_MAX ? &end : &g->after[next], e->us);
}

static void bound_nodes(struct aceso_graph *g) {
    size_t n = node_of(g, g->n_behind, 0, 0);
    g->before = mem_array(n, sizeof *g->before);
    g->after = mem_array(n, sizeof *g->after);
    g->spans = mem_array(n, sizeof *g->spans);
    for (size_t i = 0; i < n; i++)
        g->before[i] = g->after[i] = (struct aceso_bounds){INFINITY, INFINITY};
    for (int k = g->n_behind - 1; k >= 0; k--) {
        if (!g->p->stages || k == g->p->stages - 1)
            g->before[node_of(g, k, 0, g->p->devices)] = (struct aceso_bounds){0};
        visit(g, k, bound_before);
    }
    for (int k = 0; k < g->n_behind; k++)
        visit(g, k, bound_after);
}

struct aceso_graph *aceso_graph_create(const struct aceso_problem *p, int64_t micro_batch,
                                       const int *cuts, int n, double most_us) {
    struct aceso_graph *g = mem_alloc(sizeof *g);
    int most = p->max_stages && p->max_stages < ACESO_MOST_STAGES ? p->max_stages
                                                                  : ACESO_MOST_STAGES;
    g->p = p;
    g->micro_batch = micro_batch;
    g->n_micro_batches = p->batch / micro_batch;
    g->cuts = cuts;
    g->n_cuts = n;
    g->n_behind = p->devices < most ? p->devices : most;
    for (; g->n_sizes < MOST_SIZES && 1 << g->n_sizes <= p->devices; g->n_sizes++)
        g->stages[g->n_sizes] =
            aceso_stages_create(p->model, &p->limits, 1 << g->n_sizes, micro_batch);
    g->rows = mem_array((size_t)g->n_behind * (size_t)n * MOST_SIZES, sizeof *g->rows);
    add_work(g);
    bound_rows(g, most_us / (double)g->n_micro_batches);
    bound_nodes(g);
    return g;
}

void aceso_graph_destroy(struct aceso_graph *g) {
    if (!g)
        return;
    for (int s = 0; s < g->n_sizes; s++)
        aceso_stages_destroy(g->stages[s]);
    for (int i = 0; i < g->n_behind * g->n_cuts * MOST_SIZES; i++) {
        free(g->rows[i].bound);
        for (int k = 0; k < 4; k++)
            free(g->rows[i].us[k / 2][k % 2]);
    }
    free(g->rows);
    free(g->work);
    free(g->before);
    free(g->after);
    free(g->spans);
    arr_release(&g->tails);
    free(g);
}

/* ---- the best path -------------------------------------------------------------------------- */

/* Adds a tail to the list of a node, which must be the last list in g->tails, unless
 * another one is no worse in both longest stage and sum. Drops the tails that it beats.
 * Lists ascend by longest stage, and so descend by sum. */
static void add_tail(struct aceso_graph *g, struct span *s, struct tail t) {
    struct tail *all = g->tails.p + s->first;
    int i = s->n, n;
    while (i > 0 && all[i - 1].longest > t.longest)
        i--;
    if (i > 0 && all[i - 1].sum <= t.sum)
        return;
    n = i;
    while (n < s->n && all[n].sum >= t.sum)
        n++;
    if (n == i) /* one more */
        arr_push(&g->tails, t);
    all = g->tails.p + s->first;
    memmove(all + i + 1, all + n, (size_t)(s->n - n) * sizeof *all);
    all[i] = t;
    s->n += 1 - (n - i);
    g->tails.n = s->first + s->n;
}

static void find_tails(struct aceso_graph *g, int behind, int at, int d, double most_us,
                       bool proven) {
    size_t node = node_of(g, behind, at, d);
    const struct aceso_bounds *before = &g->before[node];
    struct span *span = &g->spans[node];
    *span = (struct span){g->tails.n, 0};
    if (before->longest == INFINITY)
        return;
    for (int s = 0; s < g->n_sizes && 1 << s <= d; s++) {
        int n = row_of(g, behind, at, s)->n;
        for (int to = behind ? at + 1 : g->n_cuts - 1; to <= at + n; to++) {
            static const struct span end = {-1, 1};
            struct aceso_edge e;
            if (!edge(g, behind, at, d, s, to, proven, &e))
                continue;
            const struct span *next =
                behind ? &g->spans[node_of(g, behind - 1, to, d - (1 << s))] : &end;
            for (int k = 0; k < next->n; k++) {
                struct tail t = {
                    .longest = e.us, .sum = e.us, .size = s, .to = to, .next = -1};
                if (behind) {
                    const struct tail *rest = &g->tails.p[next->first + k];
                    t.longest = fmax(t.longest, rest->longest);
                    t.sum += rest->sum;
                    t.next = next->first + k;
                }
                if (step_us(g, fmax(t.longest, before->longest), t.sum + before->sum) <
                    most_us)
                    add_tail(g, span, t);
            }
        }
    }
}

static void follow(struct aceso_graph *g, int behind, int64_t at_tail, bool proven,
                   struct aceso_path *out) {
    int at = 0, devices = g->p->devices;
    out->n = 0;
    out->solved = true;
    for (int64_t i = at_tail; i >= 0; behind--) {
        const struct tail *t = &g->tails.p[i];
        struct aceso_edge *e = &out->edges[out->n++];
        edge(g, behind, at, devices, t->size, t->to, proven, e);
        out->solved &= row_of(g, behind, at, t->size)->us[e->crosses_in][0] != NULL;
        at = t->to;
        devices -= e->devices;
        i = t->next;
    }
}

bool aceso_graph_best(struct aceso_graph *g, double most_us, bool proven,
                      struct aceso_path *out) {
    int64_t best = -1;
    int best_behind = 0;
    out->us = most_us;
    g->tails.n = 0;
    for (int k = 0; k < g->n_behind; k++)
        for (int at = 0; at + 1 < g->n_cuts; at++)
            for (int d = k + 1; d <= g->p->devices; d++)
                find_tails(g, k, at, d, most_us, proven);
    for (int k = 0; k < g->n_behind; k++) {
        const struct span *s = &g->spans[node_of(g, k, 0, g->p->devices)];
        for (int i = 0; i < s->n; i++) {
            const struct tail *t = &g->tails.p[s->first + i];
            double us = step_us(g, t->longest, t->sum);
            if (us < out->us) {
                out->us = us;
                best = s->first + i;
                best_behind = k;
            }
        }
    }
    if (best < 0)
        return false;
    follow(g, best_behind, best, proven, out);
    return true;
}

/* ---- solving -------------------------------------------------------------------------------- */

/* Finds which ends of the row can be on a path below most_us, and how long its stages may
 * take. Returns false if none can. */
static bool find_ask(struct aceso_graph *g, const struct aceso_edge *e, int size,
                     double most_us, struct aceso_ask *ask) {
    int least = g->n_cuts, most = -1;
    double longest = 0;
    for (int d = e->behind + 1; d <= g->p->devices; d++) {
        const struct aceso_bounds *before = &g->before[node_of(g, e->behind, e->at, d)];
        for (int to = e->at + 1; to <= e->at + row_of(g, e->behind, e->at, size)->n; to++) {
            static const struct aceso_bounds end = {0};
            struct aceso_edge x;
            if (before->longest == INFINITY ||
                !edge(g, e->behind, e->at, d, size, to, true, &x) ||
                x.crosses_in != e->crosses_in)
                continue;
            const struct aceso_bounds *after =
                e->behind ? &g->after[node_of(g, e->behind - 1, to, d - e->devices)] : &end;
            double sum = before->sum + after->sum;
            double may = (most_us - sum) / (double)g->n_micro_batches; /* if longest */
            double us =
                step_us(g, fmax(x.us, fmax(before->longest, after->longest)), sum + x.us);
            if (us >= most_us)
                continue;
            least = to < least ? to : least;
            most = to > most ? to : most;
            longest = fmax(longest, may);
        }
    }
    *ask = (struct aceso_ask){.first = e->first,
                              .behind = e->behind,
                              .most_us = longest,
                              .most_strategies = PATHS};
    if (most < 0)
        return false;
    ask->least = g->cuts[least];
    ask->most = g->cuts[most];
    return true;
}

static int size_of(int devices) {
    int size = 0;
    while (1 << size < devices)
        size++;
    return size;
}

static void solve_row(struct aceso_graph *g, const struct aceso_edge *e, double most_us) {
    int size = size_of(e->devices);
    struct row *r = row_of(g, e->behind, e->at, size);
    struct aceso_ask *ask = &r->ask[e->crosses_in];
    struct aceso_solved s;
    bool any = find_ask(g, e, size, most_us, ask);
    for (int crosses = 0; crosses < 2; crosses++) {
        double *us = r->us[e->crosses_in][crosses] = mem_array((size_t)r->n, sizeof *us);
        for (int k = 0; k < r->n; k++)
            us[k] = INFINITY;
    }
    r->exact[e->crosses_in] = true;
    if (!any)
        return;
    aceso_stage_solve(g->stages[size], ask, e->crosses_in, &s);
    for (int k = 0; k < r->n; k++) {
        int end = g->cuts[e->at + 1 + k];
        if (end >= ask->least && end <= ask->most)
            for (int crosses = 0; crosses < 2; crosses++)
                r->us[e->crosses_in][crosses][k] = s.us[crosses][end - ask->first];
    }
    r->exact[e->crosses_in] = s.thinned == 0;
    aceso_solved_release(&s);
}

int aceso_graph_solve(struct aceso_graph *g, double most_us, struct aceso_path *path) {
    int solved = 0;
    double longest = 0, sum = 0;
    for (int i = 0; i < path->n; i++) {
        struct aceso_edge *e = &path->edges[i];
        struct row *r = row_of(g, e->behind, e->at, size_of(e->devices));
        if (!r->us[e->crosses_in][0]) {
            solve_row(g, e, most_us);
            solved++;
        }
        e->us = r->us[e->crosses_in][e->crosses_out][e->to - e->at - 1];
        longest = fmax(longest, e->us);
        sum += e->us;
    }
    path->us = step_us(g, longest, sum);
    path->solved = true;
    return solved;
}

void aceso_graph_forget(struct aceso_graph *g) {
    for (int i = 0; i < g->n_behind * g->n_cuts * MOST_SIZES; i++)
        for (int k = 0; k < 4; k++) {
            free(g->rows[i].us[k / 2][k % 2]);
            g->rows[i].us[k / 2][k % 2] = NULL;
        }
}

/* ---- a configuration ------------------------------------------------------------------------ */

struct aceso_config *aceso_graph_config(struct aceso_graph *g,
                                        const struct aceso_path *path) {
    struct aceso_config *c = aceso_config_create(g->p->model->n, path->n);
    c->batch = g->p->batch;
    c->micro_batch = g->micro_batch;
    c->per_node = g->p->per_node;
    for (int i = 0; i < path->n; i++) {
        c->first[i + 1] = path->edges[i].end;
        c->devices[i] = path->edges[i].devices;
        const struct aceso_edge *e = &path->edges[i];
        int size = size_of(e->devices);
        struct aceso_solved s;
        aceso_stage_solve(g->stages[size],
                          &row_of(g, e->behind, e->at, size)->ask[e->crosses_in],
                          e->crosses_in, &s);
        aceso_stage_trace(g->stages[size], &s, e->crosses_out, e->end - e->first, c);
        aceso_solved_release(&s);
    }
    return c;
}
