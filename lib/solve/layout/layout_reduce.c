/* layout_reduce.c - makes the problem smaller without losing all of its optima.
 *
 * Rules, applied until nothing changes, each to the variables touched by the last change:
 *   - values without a partner across some edge cannot be chosen (arc consistency);
 *   - a variable with one value is folded into its neighbours;
 *   - parallel edges add up;
 *   - value b goes if some b' uses no more in every row and costs no more whatever the
 *     neighbours do (dead-end elimination; Goldstein 1994, with usages added);
 *   - at the end of a branch that rule holds for each value of the neighbour by itself;
 *   - a variable whose value follows from a neighbour's joins it (Alpa's "follow").
 */
#include "solve/layout/layout_core.h"

#include <stdlib.h>
#include <string.h>

struct reducer {
    struct layout_core *c;
    int since;  /* variables looked at since the clock was read */
    bool stop;  /* the deadline has come, or an interrupt */
    int *queue; /* ring of variables to look at */
    int head, count;
    bool *queued;
    int *edge_to; /* by variable: edge seen to it, -1 */
    int failed;   /* variable that lost its last value, -1 */
};

static void touch(struct reducer *r, int i) {
    if (r->queued[i])
        return;
    r->queued[i] = true;
    r->queue[(r->head + r->count++) % (r->c->n_vars + 1)] = i;
}

static void touch_neighbours(struct reducer *r, int i) {
    struct layout_var *v = &r->c->var[i];
    for (int64_t s = 0; s < v->adj.n; s++)
        if (r->c->edge[v->adj.p[s]].u >= 0)
            touch(r, layout_other(&r->c->edge[v->adj.p[s]], i));
}

static inline int64_t at(const struct layout_core *c, const struct layout_edge *e, int i,
                         int a, int b) {
    return e->u == i ? e->w[(int64_t)a * c->var[e->v].k + b]
                     : e->w[(int64_t)b * c->var[e->v].k + a];
}

static void drop_edge(struct layout_edge *e) {
    layout_matrix_drop(e->w);
    *e = (struct layout_edge){.u = -1, .v = -1};
}

/* Removes dead edges from the list and adds up parallel ones. */
static void tidy_edges(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    int64_t n = 0;
    for (int64_t s = 0; s < v->adj.n; s++) {
        int id = v->adj.p[s];
        struct layout_edge *e = &c->edge[id];
        if (e->u < 0 || (e->u != i && e->v != i))
            continue;
        int j = layout_other(e, i), kj = c->var[j].k;
        int first = r->edge_to[j];
        if (first < 0) {
            r->edge_to[j] = id;
            v->adj.p[n++] = id;
            continue;
        }
        struct layout_edge *f = &c->edge[first];
        f->w = layout_matrix_own(f->w, (size_t)v->k * (size_t)kj);
        for (int a = 0; a < v->k; a++)
            for (int b = 0; b < kj; b++) {
                int64_t *w =
                    f->u == i ? &f->w[(int64_t)a * kj + b] : &f->w[(int64_t)b * v->k + a];
                int64_t sum = *w + at(c, e, i, a, b);
                *w = sum >= LAYOUT_INF ? LAYOUT_INF : sum;
            }
        drop_edge(e);
        touch(r, i);
        touch(r, j);
    }
    v->adj.n = n;
    for (int64_t s = 0; s < n; s++)
        r->edge_to[layout_other(&c->edge[v->adj.p[s]], i)] = -1;
}

/* Removes rows (columns) of removed values from the matrix. keep: old indices of those
 * left. */
static void shrink_edge(struct layout_core *c, struct layout_edge *e, int i,
                        const int *keep, int n) {
    int ku = c->var[e->u].k, kv = c->var[e->v].k;
    bool rows = e->u == i;
    int64_t *w = layout_matrix_new(rows ? (size_t)n * (size_t)kv : (size_t)ku * (size_t)n);
    int64_t *out = w;
    for (int a = 0; a < (rows ? n : ku); a++) {
        const int64_t *from = e->w + (int64_t)(rows ? keep[a] : a) * kv;
        for (int b = 0; b < (rows ? kv : n); b++)
            *out++ = from[rows ? b : keep[b]];
    }
    layout_matrix_drop(e->w);
    e->w = w;
}

/* Subtracts what all values use alike from the capacity, and drops empty segments. */
static void level_segs(struct layout_core *c, struct layout_var *v) {
    int64_t n = 0;
    for (int64_t s = 0; s < v->seg.n; s++) {
        struct layout_seg g = v->seg.p[s];
        int64_t least = g.use[0], most = g.use[0];
        for (int a = 1; a < v->k; a++) {
            least = g.use[a] < least ? g.use[a] : least;
            most = g.use[a] > most ? g.use[a] : most;
        }
        for (int a = 0; least && a < v->k; a++)
            g.use[a] -= least;
        for (int row = g.lo; least && row < g.hi; row++)
            c->cap[row] -= least;
        if (least == most)
            free(g.use);
        else
            v->seg.p[n++] = g;
    }
    v->seg.n = n;
}

/* Removes values whose cost is LAYOUT_INF from all arrays. */
static void compact(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    int *keep = mem_array((size_t)v->k + 1, sizeof *keep), n = 0;
    for (int a = 0; a < v->k; a++)
        if (v->cost[a] < LAYOUT_INF)
            keep[n++] = a;
    if (n < v->k && n > 0) {
        tidy_edges(r, i);
        for (int64_t s = 0; s < v->adj.n; s++)
            shrink_edge(c, &c->edge[v->adj.p[s]], i, keep, n);
        for (int a = 0; a < n; a++) {
            v->cost[a] = v->cost[keep[a]];
            for (int64_t s = 0; s < v->seg.n; s++)
                v->seg.p[s].use[a] = v->seg.p[s].use[keep[a]];
            for (int64_t s = 0; s < v->pick.n; s++)
                v->pick.p[s].strategy[a] = v->pick.p[s].strategy[keep[a]];
        }
        v->k = n;
        level_segs(c, v);
        touch(r, i);
        touch_neighbours(r, i);
    }
    if (n == 0)
        r->failed = i;
    free(keep);
}

/* Removes the values of i that have no partner across some edge. Returns whether there
 * were any. */
static bool unsupported(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    bool any = false;
    for (int a = 0; a < v->k; a++)
        any |= v->cost[a] >= LAYOUT_INF;
    for (int64_t s = 0; s < v->adj.n; s++) {
        struct layout_edge *e = &c->edge[v->adj.p[s]];
        int kj = c->var[layout_other(e, i)].k;
        for (int a = 0; a < v->k; a++) {
            int b = 0;
            while (b < kj && at(c, e, i, a, b) >= LAYOUT_INF)
                b++;
            if (b == kj && v->cost[a] < LAYOUT_INF) {
                v->cost[a] = LAYOUT_INF;
                any = true;
            }
        }
    }
    return any;
}

static void remember(struct layout_core *c, struct layout_var *v, int a) {
    for (int64_t s = 0; s < v->pick.n; s++) {
        c->fixed[v->pick.p[s].node] = v->pick.p[s].strategy[a];
        free(v->pick.p[s].strategy);
    }
    v->pick.n = 0;
}

/* Folds a variable with one value into the costs of its neighbours. */
static void fold_single(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    for (int64_t s = 0; s < v->adj.n; s++) {
        struct layout_edge *e = &c->edge[v->adj.p[s]];
        int j = layout_other(e, i);
        for (int b = 0; b < c->var[j].k; b++) {
            int64_t sum = c->var[j].cost[b] + at(c, e, i, 0, b);
            c->var[j].cost[b] = sum >= LAYOUT_INF ? LAYOUT_INF : sum;
        }
        drop_edge(e);
        touch(r, j);
    }
    c->base += v->cost[0];
    remember(c, v, 0);
    level_segs(c, v);
    v->adj.n = 0;
    v->k = 0;
}

static bool uses_no_more(const struct layout_var *v, int b, int than) {
    for (int64_t s = 0; s < v->seg.n; s++)
        if (v->seg.p[s].use[b] > v->seg.p[s].use[than])
            return false;
    return true;
}

/* Returns whether b never costs more than `than`, whatever the neighbours do. */
static bool costs_no_more(const struct layout_core *c, int i, int b, int than) {
    const struct layout_var *v = &c->var[i];
    int64_t diff = v->cost[b] - v->cost[than];
    for (int64_t s = 0; s < v->adj.n; s++) {
        const struct layout_edge *e = &c->edge[v->adj.p[s]];
        int kj = c->var[layout_other(e, i)].k;
        int64_t worst = -LAYOUT_INF;
        int64_t step = e->u == i ? 1 : v->k, row = e->u == i ? kj : 1;
        const int64_t *wb = e->w + b * row, *wt = e->w + than * row;
        for (int x = 0; x < kj; x++) {
            if (wt[x * step] >= LAYOUT_INF)
                continue;
            if (wb[x * step] >= LAYOUT_INF)
                return false;
            int64_t d = wb[x * step] - wt[x * step];
            worst = d > worst ? d : worst;
        }
        diff += worst;
    }
    return diff <= 0;
}

/* Returns whether time is up; looks at the clock only every so many calls. */
static bool out_of_time(struct reducer *r, int every) {
    if (!r->stop && ++r->since >= every) {
        r->since = 0;
        r->stop = layout_time_up(r->c->deadline_s);
    }
    return r->stop;
}

static bool dominated(struct reducer *r, int i) {
    struct layout_var *v = &r->c->var[i];
    int64_t work = v->seg.n;
    for (int64_t s = 0; s < v->adj.n; s++)
        work += r->c->var[layout_other(&r->c->edge[v->adj.p[s]], i)].k;
    if (work * v->k * v->k > r->c->effort)
        return false;
    bool any = false;
    for (int b = 0; b < v->k; b++)
        for (int a = 0; a < v->k && v->cost[b] < LAYOUT_INF; a++)
            if (a != b && v->cost[a] < LAYOUT_INF && uses_no_more(v, a, b) &&
                costs_no_more(r->c, i, a, b)) {
                v->cost[b] = LAYOUT_INF;
                any = true;
            }
    return any;
}

/* Forbids, at the end of a branch and for each value of the neighbour, the pairs that are
 * no better than another of its partners. */
static bool prune_leaf(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    struct layout_edge *e = &c->edge[v->adj.p[0]];
    int j = layout_other(e, i), kj = c->var[j].k;
    int64_t step = e->u == i ? kj : 1, row = e->u == i ? 1 : v->k;
    bool any = false;
    for (int x = 0; x < kj; x++) {
        int64_t *w = e->w + x * row;
        for (int b = 0; b < v->k; b++)
            for (int a = 0; a < v->k && w[b * step] < LAYOUT_INF; a++)
                if (a != b && w[a * step] < LAYOUT_INF &&
                    v->cost[a] + w[a * step] <= v->cost[b] + w[b * step] &&
                    uses_no_more(v, a, b)) {
                    e->w = layout_matrix_own(e->w, (size_t)v->k * (size_t)kj);
                    w = e->w + x * row;
                    w[b * step] = LAYOUT_INF;
                    any = true;
                }
    }
    return any;
}

/* Returns the value of i that goes with each value of j if there is only one for each,
 * else NULL. */
static int *function_of(const struct layout_core *c, const struct layout_edge *e, int i) {
    int j = layout_other(e, i), kj = c->var[j].k, ki = c->var[i].k;
    int *f = mem_array((size_t)kj, sizeof *f);
    for (int b = 0; b < kj; b++) {
        int n = 0;
        for (int a = 0; a < ki && n < 2; a++)
            if (at(c, e, i, a, b) < LAYOUT_INF) {
                f[b] = a;
                n++;
            }
        if (n != 1) {
            free(f);
            return NULL;
        }
    }
    return f;
}

/* Makes edge e of i an edge of j, where value b of j stands for value f[b] of i. */
static void redirect(struct layout_core *c, int id, int i, int j, const int *f) {
    struct layout_edge *e = &c->edge[id];
    int o = layout_other(e, i), ko = c->var[o].k, kj = c->var[j].k;
    int64_t *w = layout_matrix_new((size_t)kj * (size_t)ko);
    for (int b = 0; b < kj; b++)
        for (int x = 0; x < ko; x++)
            w[(int64_t)b * ko + x] = at(c, e, i, f[b], x);
    layout_matrix_drop(e->w);
    *e = (struct layout_edge){j, o, w};
    arr_push(&c->var[j].adj, id);
}

static void join_segs(struct layout_core *c, int i, int j, const int *f) {
    struct layout_var *v = &c->var[i], *t = &c->var[j];
    for (int64_t s = 0; s < v->seg.n; s++) {
        struct layout_seg g = v->seg.p[s];
        int64_t *use = mem_array((size_t)t->k, sizeof *use);
        for (int b = 0; b < t->k; b++)
            use[b] = g.use[f[b]];
        free(g.use);
        int64_t q = 0; /* same rows as an earlier segment: add up */
        while (q < t->seg.n && q < 64 && (t->seg.p[q].lo != g.lo || t->seg.p[q].hi != g.hi))
            q++;
        if (q == t->seg.n || q == 64) {
            arr_push(&t->seg, (struct layout_seg){g.lo, g.hi, use});
            continue;
        }
        for (int b = 0; b < t->k; b++)
            t->seg.p[q].use[b] += use[b];
        free(use);
    }
    v->seg.n = 0;
}

/* Joins i to j: value b of j now also means value f[b] of i. */
static void join(struct reducer *r, int edge, int i, int j, const int *f) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i], *t = &c->var[j];
    for (int b = 0; b < t->k; b++) {
        int64_t sum = t->cost[b] + v->cost[f[b]] + at(c, &c->edge[edge], i, f[b], b);
        t->cost[b] = sum >= LAYOUT_INF ? LAYOUT_INF : sum;
    }
    drop_edge(&c->edge[edge]);
    for (int64_t s = 0; s < v->adj.n; s++)
        if (c->edge[v->adj.p[s]].u >= 0) {
            touch(r, layout_other(&c->edge[v->adj.p[s]], i));
            redirect(c, v->adj.p[s], i, j, f);
        }
    join_segs(c, i, j, f);
    for (int64_t s = 0; s < v->pick.n; s++) {
        int32_t *strategy = mem_array((size_t)t->k, sizeof *strategy);
        for (int b = 0; b < t->k; b++)
            strategy[b] = v->pick.p[s].strategy[f[b]];
        free(v->pick.p[s].strategy);
        arr_push(&t->pick, (struct layout_pick){v->pick.p[s].node, strategy});
    }
    v->pick.n = v->adj.n = 0;
    v->k = 0;
    level_segs(c, t);
    touch(r, j);
    touch_neighbours(r, j);
}

/* Returns whether joining i to j would make the matrices much larger. */
static bool grows(const struct layout_core *c, int i, int j) {
    const struct layout_var *v = &c->var[i];
    int64_t before = (int64_t)v->k * c->var[j].k, after = 0;
    for (int64_t s = 0; s < v->adj.n; s++) {
        int o = layout_other(&c->edge[v->adj.p[s]], i);
        if (o == j)
            continue;
        before += (int64_t)v->k * c->var[o].k;
        after += (int64_t)c->var[j].k * c->var[o].k;
    }
    return after > 2 * before;
}

static void try_join(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    for (int64_t s = 0; s < v->adj.n && s < 1000; s++) {
        int id = v->adj.p[s], j = layout_other(&c->edge[id], i);
        if (grows(c, i, j))
            continue;
        int *f = function_of(c, &c->edge[id], i);
        if (!f)
            continue;
        join(r, id, i, j, f);
        free(f);
        return;
    }
}

/* Applies all rules to variable i. */
static void look_at(struct reducer *r, int i) {
    struct layout_core *c = r->c;
    struct layout_var *v = &c->var[i];
    tidy_edges(r, i);
    if (unsupported(r, i)) {
        compact(r, i);
        return;
    }
    if (v->k == 1) {
        fold_single(r, i);
        return;
    }
    if (out_of_time(r, 64)) /* partners, on which messages rely, are kept until here */
        return;
    if (v->adj.n == 1 && prune_leaf(r, i)) {
        touch(r, i);
        touch_neighbours(r, i);
    }
    if (v->adj.n > 0)
        try_join(r, i);
    if (v->k && dominated(r, i))
        compact(r, i);
}

static int no_value(const struct layout_core *c, int i, struct err *err) {
    return err_no(err,
                  "node %d: each of its strategies excludes all of a neighbour "
                  "(forbidden costs)",
                  (int)c->var[i].pick.p[0].node);
}

int layout_core_reduce(struct layout_core *c, struct err *err) {
    struct reducer r = {.c = c, .failed = -1};
    r.queue = mem_array((size_t)c->n_vars + 1, sizeof *r.queue);
    r.queued = mem_array((size_t)c->n_vars + 1, sizeof *r.queued);
    r.edge_to = mem_array((size_t)c->n_vars + 1, sizeof *r.edge_to);
    memset(r.edge_to, -1, ((size_t)c->n_vars + 1) * sizeof *r.edge_to);
    for (int i = 0; i < c->n_vars; i++)
        touch(&r, i);
    while (r.count > 0 && r.failed < 0 && !interrupted()) {
        int i = r.queue[r.head];
        r.head = (r.head + 1) % (c->n_vars + 1);
        r.count--;
        r.queued[i] = false;
        if (c->var[i].k)
            look_at(&r, i);
    }
    free(r.queue);
    free(r.queued);
    free(r.edge_to);
    if (interrupted())
        return err_no(err, LAYOUT_INTERRUPTED);
    if (r.failed >= 0)
        return no_value(c, r.failed, err);
    for (int row = 0; row < c->n_rows; row++)
        if (c->cap[row] < 0)
            return layout_core_no_room(c, row, err);
    return 0;
}
