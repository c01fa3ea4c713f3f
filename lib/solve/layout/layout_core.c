/* layout_core.c - from the problem as given to variables, edges and memory rows.
 *
 * Rows come from a sweep over the times at which a node's life begins or ends. The set of
 * live nodes is inclusion-maximal exactly where a beginning is followed by an end; all
 * other times are implied, because usages are not negative.
 */
#include "solve/layout/layout_core.h"

#include "common/hashtable.h"
#include "common/rng.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrices ---------------------------------------------------------------------- */

/* A matrix counts its users atomically, because several threads make and change parts of
 * one core. */
struct matrix {
    _Atomic int64_t refs;
    int64_t w[];
};

static struct matrix *matrix_of(int64_t *w) {
    return (struct matrix *)(void *)((char *)w - offsetof(struct matrix, w));
}

int64_t *layout_matrix_new(size_t n) {
    struct matrix *m = mem_alloc(sizeof *m + n * sizeof *m->w);
    m->refs = 1;
    return m->w;
}

int64_t *layout_matrix_share(int64_t *w) {
    atomic_fetch_add(&matrix_of(w)->refs, 1);
    return w;
}

void layout_matrix_drop(int64_t *w) {
    if (w && atomic_fetch_sub(&matrix_of(w)->refs, 1) == 1)
        free(matrix_of(w));
}

int64_t *layout_matrix_own(int64_t *w, size_t n) {
    if (atomic_load(&matrix_of(w)->refs) == 1)
        return w;
    int64_t *copy = layout_matrix_new(n);
    memcpy(copy, w, n * sizeof *w);
    layout_matrix_drop(w);
    return copy;
}

/* ---- from the problem -------------------------------------------------------------- */

struct event {
    int64_t t;
    int64_t live; /* index into live */
    bool begins;
};

/* Sorts events by time, ends before beginnings. */
static int by_time(const void *pa, const void *pb) {
    const struct event *a = pa, *b = pb;
    if (a->t != b->t)
        return a->t < b->t ? -1 : 1;
    if (a->begins != b->begins)
        return a->begins ? 1 : -1;
    return (a->live > b->live) - (a->live < b->live);
}

static void use_range(const struct layout_problem *p, int32_t i, int64_t *least,
                      int64_t *most) {
    *least = *most = 0;
    for (int64_t s = p->first[i]; s < p->first[i + 1]; s++) {
        if (s == p->first[i] || p->usage[s] < *least)
            *least = p->usage[s];
        if (p->usage[s] > *most)
            *most = p->usage[s];
    }
}

/* Collects the events of all lives that can use anything. */
static struct event *collect(const struct layout_problem *p, int64_t *n) {
    struct event *ev = mem_array((size_t)p->n_live * 2 + 1, sizeof *ev);
    *n = 0;
    for (int64_t l = 0; l < p->n_live; l++) {
        int64_t least, most;
        use_range(p, p->live[l].node, &least, &most);
        if (p->live[l].lo >= p->live[l].hi || most == 0)
            continue;
        ev[(*n)++] = (struct event){p->live[l].lo, l, true};
        ev[(*n)++] = (struct event){p->live[l].hi, l, false};
    }
    qsort(ev, (size_t)*n, sizeof *ev, by_time);
    return ev;
}

static void add_seg(struct layout_core *c, int32_t node, int32_t lo, int32_t hi) {
    const struct layout_problem *p = c->p;
    int64_t least, most, *use = NULL;
    use_range(p, node, &least, &most);
    for (int32_t r = lo; r < hi; r++)
        c->cap[r] -= least;
    if (least == most)
        return;
    use = mem_array((size_t)c->var[node].k, sizeof *use);
    for (int a = 0; a < c->var[node].k; a++)
        use[a] = p->usage[p->first[node] + a] - least;
    arr_push(&c->var[node].seg, (struct layout_seg){lo, hi, use});
}

int layout_core_no_room(const struct layout_core *c, int row, struct err *err) {
    double limit = (double)c->p->usage_limit, unit = c->p->usage_unit;
    return err_no(err,
                  "usage_limit: no allowed choice keeps to %.17g: at time %lld at least "
                  "%.17g is used",
                  limit * unit, (long long)c->row_time[row],
                  (limit - (double)c->cap[row]) * unit);
}

static int check_caps(const struct layout_core *c, struct err *err) {
    for (int r = 0; r < c->n_rows; r++)
        if (c->cap[r] < 0)
            return layout_core_no_room(c, r, err);
    return 0;
}

static int build_rows(struct layout_core *c, struct err *err) {
    const struct layout_problem *p = c->p;
    if (p->usage_limit == LAYOUT_NO_LIMIT) {
        c->cap = mem_array(1, sizeof *c->cap);
        c->lambda = mem_array(1, sizeof *c->lambda);
        return 0;
    }
    int64_t n;
    struct event *ev = collect(p, &n);
    int32_t *begin = mem_array((size_t)p->n_live + 1, sizeof *begin);
    ARR(int64_t) times = {0};
    for (int64_t e = 0; e < n; e++) {
        if (!ev[e].begins)
            continue;
        begin[ev[e].live] = (int32_t)times.n;
        if (e + 1 < n && !ev[e + 1].begins)
            arr_push(&times, ev[e].t);
    }
    c->n_rows = (int)times.n;
    c->row_time = times.p;
    c->cap = mem_array((size_t)c->n_rows + 1, sizeof *c->cap);
    c->lambda = mem_array((size_t)c->n_rows + 1, sizeof *c->lambda);
    for (int r = 0; r < c->n_rows; r++)
        c->cap[r] = p->usage_limit;
    /* A life ends after the last row whose beginning came before its end. */
    int32_t rows = 0;
    for (int64_t e = 0; e < n; e++) {
        if (ev[e].begins)
            rows += e + 1 < n && !ev[e + 1].begins;
        else if (begin[ev[e].live] < rows)
            add_seg(c, p->live[ev[e].live].node, begin[ev[e].live], rows);
    }
    free(begin);
    free(ev);
    return check_caps(c, err);
}

static void build_vars(struct layout_core *c) {
    const struct layout_problem *p = c->p;
    c->n_vars = p->n_nodes;
    c->var = mem_array((size_t)p->n_nodes + 1, sizeof *c->var);
    c->fixed = mem_array((size_t)p->n_nodes + 1, sizeof *c->fixed);
    for (int i = 0; i < c->n_vars; i++) {
        struct layout_var *v = &c->var[i];
        v->k = (int)(p->first[i + 1] - p->first[i]);
        v->cost = mem_array((size_t)v->k + 1, sizeof *v->cost);
        struct layout_pick pick = {i, mem_array((size_t)v->k + 1, sizeof(int32_t))};
        for (int a = 0; a < v->k; a++) {
            int64_t x = p->cost[p->first[i] + a];
            v->cost[a] = x >= LAYOUT_FORBIDDEN ? LAYOUT_INF : x;
            pick.strategy[a] = a;
        }
        arr_push(&v->pick, pick);
    }
}

struct pool {
    struct pooled {
        int64_t entry, n; /* in the problem */
        int64_t *w;
    } * p;
    int64_t n, cap;
    struct hashtable seen;
};

static bool same_entry(const void *entries, int64_t i, const void *key) {
    const struct pooled *a = (const struct pooled *)entries + i, *b = key;
    return a->entry == b->entry && a->n == b->n;
}

/* Returns the matrix of edge e, which is that of an earlier edge where the problem says
 * so. */
static int64_t *pooled_matrix(struct pool *pool, const struct layout_problem *p, int64_t e,
                              int64_t n) {
    struct pooled m = {p->entry[e], n, NULL};
    int64_t i =
        hashtable_put(&pool->seen, rng_mix((uint64_t)m.entry), same_entry, pool->p, &m);
    if (i < pool->n)
        return layout_matrix_share(pool->p[i].w);
    m.w = layout_matrix_new((size_t)n);
    for (int64_t s = 0; s < n; s++) {
        int64_t x = p->edge_cost[m.entry + s];
        m.w[s] = x >= LAYOUT_FORBIDDEN ? LAYOUT_INF : x;
    }
    arr_push(pool, m);
    return m.w;
}

static void build_edges(struct layout_core *c) {
    const struct layout_problem *p = c->p;
    struct pool pool = {0};
    c->n_edges = (int)p->n_edges;
    c->edge = mem_array((size_t)p->n_edges + 1, sizeof *c->edge);
    for (int e = 0; e < c->n_edges; e++) {
        struct layout_edge *d = &c->edge[e];
        d->u = p->ends[e][0];
        d->v = p->ends[e][1];
        d->w = pooled_matrix(&pool, p, e, (int64_t)c->var[d->u].k * c->var[d->v].k);
        if (d->u == d->v) { /* a loop is a cost of the node */
            struct layout_var *v = &c->var[d->u];
            for (int a = 0; a < v->k; a++)
                v->cost[a] += d->w[a * v->k + a];
            for (int a = 0; a < v->k; a++)
                v->cost[a] = v->cost[a] >= LAYOUT_INF ? LAYOUT_INF : v->cost[a];
            layout_matrix_drop(d->w);
            *d = (struct layout_edge){.u = -1, .v = -1};
            continue;
        }
        arr_push(&c->var[d->u].adj, e);
        arr_push(&c->var[d->v].adj, e);
    }
    arr_release(&pool);
    hashtable_release(&pool.seen);
}

int layout_core_build(struct layout_core *c, const struct layout_problem *p,
                      struct err *err) {
    *c = (struct layout_core){.p = p, .effort = 100000000};
    for (int32_t i = 0; i < p->n_nodes; i++)
        if (p->first[i] == p->first[i + 1])
            return err_no(err, "node %d: there is no strategy to choose", (int)i);
    build_vars(c);
    build_edges(c);
    return build_rows(c, err);
}

void layout_core_release(struct layout_core *c) {
    for (int i = 0; c->var && i < c->n_vars; i++) {
        struct layout_var *v = &c->var[i];
        for (int64_t s = 0; s < v->seg.n; s++)
            free(v->seg.p[s].use);
        for (int64_t s = 0; s < v->pick.n; s++)
            free(v->pick.p[s].strategy);
        arr_release(&v->seg);
        arr_release(&v->pick);
        arr_release(&v->adj);
        free(v->cost);
    }
    for (int e = 0; c->edge && e < c->n_edges; e++)
        layout_matrix_drop(c->edge[e].w);
    free(c->var);
    free(c->edge);
    free(c->cap);
    free(c->row_time);
    free(c->lambda);
    free(c->fixed);
    *c = (struct layout_core){0};
}

void layout_core_choice(const struct layout_core *c, const int *x, int32_t *choice) {
    for (int i = 0; i < c->p->n_nodes; i++)
        choice[i] = c->fixed[i];
    for (int i = 0; i < c->n_vars; i++)
        for (int64_t s = 0; c->var[i].k && s < c->var[i].pick.n; s++)
            choice[c->var[i].pick.p[s].node] = c->var[i].pick.p[s].strategy[x[i]];
}

int64_t layout_core_value(const struct layout_core *c, const int *x) {
    int64_t sum = c->base;
    for (int i = 0; i < c->n_vars; i++) {
        if (!c->var[i].k)
            continue;
        if (c->var[i].cost[x[i]] >= LAYOUT_INF)
            return LAYOUT_INF;
        sum += c->var[i].cost[x[i]];
    }
    for (int e = 0; e < c->n_edges; e++) {
        const struct layout_edge *g = &c->edge[e];
        if (g->u < 0)
            continue;
        int64_t w = g->w[(int64_t)x[g->u] * c->var[g->v].k + x[g->v]];
        if (w >= LAYOUT_INF)
            return LAYOUT_INF;
        sum += w;
    }
    return sum;
}

/* Returns the most that the variables and edges of a core can cost. */
static double most_cost(const struct layout_core *c) {
    double sum = (double)c->base;
    for (int i = 0; i < c->n_vars; i++) {
        int64_t most = 0;
        for (int a = 0; a < c->var[i].k; a++)
            if (c->var[i].cost[a] < LAYOUT_INF && c->var[i].cost[a] > most)
                most = c->var[i].cost[a];
        sum += (double)most;
    }
    for (int e = 0; e < c->n_edges; e++) {
        if (c->edge[e].u < 0)
            continue;
        int64_t n = (int64_t)c->var[c->edge[e].u].k * c->var[c->edge[e].v].k, most = 0;
        for (int64_t s = 0; s < n; s++)
            if (c->edge[e].w[s] < LAYOUT_INF && c->edge[e].w[s] > most)
                most = c->edge[e].w[s];
        sum += (double)most;
    }
    return sum;
}

/* The different matrices of a core. */
struct equals {
    struct equal {
        int64_t *w, n;
    } * p;
    int64_t n, cap;
};

static bool same_matrix(const void *entries, int64_t i, const void *key) {
    const struct equal *a = (const struct equal *)entries + i, *b = key;
    return a->w == b->w ||
           (a->n == b->n && memcmp(a->w, b->w, (size_t)a->n * sizeof *a->w) == 0);
}

/* Lets edges with equal matrices share one. */
static void share_equals(struct layout_core *c, struct equals *all) {
    struct hashtable seen = {0};
    for (int e = 0; e < c->n_edges; e++) {
        struct layout_edge *d = &c->edge[e];
        if (d->u < 0)
            continue;
        struct equal m = {d->w, (int64_t)c->var[d->u].k * c->var[d->v].k};
        uint64_t h = (uint64_t)m.n;
        for (int64_t s = 0; s < m.n; s++)
            h = rng_mix(h ^ (uint64_t)m.w[s]);
        int64_t i = hashtable_put(&seen, h, same_matrix, all->p, &m);
        if (i == all->n) {
            arr_push(all, m);
        } else if (all->p[i].w != d->w) {
            layout_matrix_drop(d->w);
            d->w = layout_matrix_share(all->p[i].w);
        }
    }
    hashtable_release(&seen);
}

static void scale_array(int64_t *w, int64_t n, int shift) {
    for (int64_t s = 0; s < n; s++)
        if (w[s] < LAYOUT_INF)
            w[s] *= INT64_C(1) << shift;
}

void layout_core_scale(struct layout_core *c) {
    double sum = most_cost(c) + 1;
    int shift = 0;
    while (shift < 24 && sum * (double)(INT64_C(2) << shift) < (double)LAYOUT_INF / 16)
        shift++;
    c->base *= INT64_C(1) << shift;
    for (int i = 0; i < c->n_vars; i++)
        scale_array(c->var[i].cost, c->var[i].k, shift);
    struct equals equals = {0};
    share_equals(c, &equals);
    for (int64_t m = 0; m < equals.n; m++)
        scale_array(equals.p[m].w, equals.p[m].n, shift);
    arr_release(&equals);
    c->shift += shift;
}
