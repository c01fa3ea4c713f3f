/* layout_core.c - from the problem as given to variables, edges and memory rows.
 *
 * The rows: sweep the times at which a node's life begins or ends. The set of live nodes is
 * inclusion-maximal exactly where a beginning is followed by an end; all other times are
 * implied, because usages are not negative.
 */
#include "solve/layout_core.h"

#include <stdlib.h>
#include <string.h>

struct event {
    int64_t t;
    int64_t live; /* index into live */
    bool begins;
};

/* Ends first, then beginnings. */
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

/* The events of the lives that can use anything. */
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

static void build_edges(struct layout_core *c) {
    const struct layout_problem *p = c->p;
    c->n_edges = (int)p->n_edges;
    c->edge = mem_array((size_t)p->n_edges + 1, sizeof *c->edge);
    for (int e = 0; e < c->n_edges; e++) {
        struct layout_edge *d = &c->edge[e];
        size_t n = (size_t)(p->entry[e + 1] - p->entry[e]);
        d->u = p->ends[e][0];
        d->v = p->ends[e][1];
        d->w = mem_array(n + 1, sizeof *d->w);
        for (size_t s = 0; s < n; s++) {
            int64_t x = p->edge_cost[p->entry[e] + (int64_t)s];
            d->w[s] = x >= LAYOUT_FORBIDDEN ? LAYOUT_INF : x;
        }
        if (d->u == d->v) { /* a loop is a cost of the node */
            struct layout_var *v = &c->var[d->u];
            for (int a = 0; a < v->k; a++)
                v->cost[a] += d->w[a * v->k + a];
            for (int a = 0; a < v->k; a++)
                v->cost[a] = v->cost[a] >= LAYOUT_INF ? LAYOUT_INF : v->cost[a];
            free(d->w);
            *d = (struct layout_edge){.u = -1, .v = -1};
            continue;
        }
        arr_push(&c->var[d->u].adj, e);
        arr_push(&c->var[d->v].adj, e);
    }
}

int layout_core_build(struct layout_core *c, const struct layout_problem *p,
                      struct err *err) {
    *c = (struct layout_core){.p = p, .effort = 1000000000};
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
        free(c->edge[e].w);
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

/* The most that the variables and edges of a core can cost. */
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

void layout_core_scale(struct layout_core *c) {
    double sum = most_cost(c) + 1;
    int shift = 0;
    while (shift < 24 && sum * (double)(INT64_C(2) << shift) < (double)LAYOUT_INF / 16)
        shift++;
    c->base *= INT64_C(1) << shift;
    for (int i = 0; i < c->n_vars; i++)
        for (int a = 0; a < c->var[i].k; a++)
            if (c->var[i].cost[a] < LAYOUT_INF)
                c->var[i].cost[a] *= INT64_C(1) << shift;
    for (int e = 0; e < c->n_edges; e++) {
        if (c->edge[e].u < 0)
            continue;
        int64_t n = (int64_t)c->var[c->edge[e].u].k * c->var[c->edge[e].v].k;
        for (int64_t s = 0; s < n; s++)
            if (c->edge[e].w[s] < LAYOUT_INF)
                c->edge[e].w[s] *= INT64_C(1) << shift;
    }
    c->shift += shift;
}
