/* layout_ilp.c - one-hot choices, integral edges.
 *
 * s[i,a] in {0,1}, sum_a s[i,a] = 1; per edge e[a,b] >= 0 with sum_b e[a,b] = s_u[a] and
 * sum_a e[a,b] = s_v[b], which is tight when the rest is a tree; one row per memory row.
 * Costs are given in units of the largest, so that lp_solve's tolerances suit them. What it
 * calls optimal is optimal up to those tolerances: costs are whole multiples of a unit, and
 * the bound is only rounded up to one when the tolerance is far below it.
 */
#include "solve/layout/layout_ilp.h"

#include "solve/layout/layout_local.h"
#include "solve/lp/lp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t layout_ilp_size(const struct layout_core *c) {
    int64_t n = 0;
    for (int i = 0; i < c->n_vars; i++)
        n += c->var[i].k;
    for (int e = 0; e < c->n_edges; e++)
        if (c->edge[e].u >= 0)
            n += (int64_t)c->var[c->edge[e].u].k * c->var[c->edge[e].v].k;
    return n;
}

struct ilp {
    const struct layout_core *c;
    struct lp_model *m;
    int *first;  /* (n_vars) column of s[i, 0] */
    double unit; /* cost of the program = cost of the core / unit */
    int *cols;   /* work space for a row */
    double *vals;
};

static void add_choices(struct ilp *p) {
    for (int i = 0; i < p->c->n_vars; i++) {
        const struct layout_var *v = &p->c->var[i];
        if (!v->k)
            continue;
        for (int a = 0; a < v->k; a++) {
            bool out = v->cost[a] >= LAYOUT_INF;
            int col =
                lp_add_var(p->m, out ? 0 : (double)v->cost[a] / p->unit, 0, !out, true);
            p->first[i] = a == 0 ? col : p->first[i];
            p->cols[a] = col;
            p->vals[a] = 1;
        }
        lp_add_row(p->m, v->k, p->cols, p->vals, 1, 1);
    }
}

static void add_edge(struct ilp *p, const struct layout_edge *e) {
    int ku = p->c->var[e->u].k, kv = p->c->var[e->v].k, first = -1;
    for (int s = 0; s < ku * kv; s++) {
        bool out = e->w[s] >= LAYOUT_INF;
        int col = lp_add_var(p->m, out ? 0 : (double)e->w[s] / p->unit, 0, !out, false);
        first = first < 0 ? col : first;
    }
    for (int a = 0; a < ku; a++) {
        for (int b = 0; b < kv; b++) {
            p->cols[b] = first + a * kv + b;
            p->vals[b] = 1;
        }
        p->cols[kv] = p->first[e->u] + a;
        p->vals[kv] = -1;
        lp_add_row(p->m, kv + 1, p->cols, p->vals, 0, 0);
    }
    for (int b = 0; b < kv; b++) {
        for (int a = 0; a < ku; a++) {
            p->cols[a] = first + a * kv + b;
            p->vals[a] = 1;
        }
        p->cols[ku] = p->first[e->v] + b;
        p->vals[ku] = -1;
        lp_add_row(p->m, ku + 1, p->cols, p->vals, 0, 0);
    }
}

static void add_row(struct ilp *p, int row) {
    int n = 0;
    double scale = 1 / fmax((double)p->c->cap[row], 1);
    for (int i = 0; i < p->c->n_vars; i++) {
        const struct layout_var *v = &p->c->var[i];
        for (int a = 0; a < v->k; a++) {
            int64_t use = 0;
            for (int64_t s = 0; s < v->seg.n; s++)
                if (v->seg.p[s].lo <= row && row < v->seg.p[s].hi)
                    use += v->seg.p[s].use[a];
            if (use) {
                p->cols[n] = p->first[i] + a;
                p->vals[n++] = (double)use * scale;
            }
        }
    }
    if (n)
        lp_add_row(p->m, n, p->cols, p->vals, -INFINITY, (double)p->c->cap[row] * scale);
}

static void build(struct ilp *p) {
    int64_t most = 1;
    for (int i = 0; i < p->c->n_vars; i++)
        for (int a = 0; a < p->c->var[i].k; a++)
            if (p->c->var[i].cost[a] < LAYOUT_INF && p->c->var[i].cost[a] > most)
                most = p->c->var[i].cost[a];
    for (int e = 0; e < p->c->n_edges; e++)
        for (int s = 0; p->c->edge[e].u >= 0 &&
                        s < p->c->var[p->c->edge[e].u].k * p->c->var[p->c->edge[e].v].k;
             s++)
            if (p->c->edge[e].w[s] < LAYOUT_INF && p->c->edge[e].w[s] > most)
                most = p->c->edge[e].w[s];
    p->unit = (double)most / 1000;
    add_choices(p);
    for (int e = 0; e < p->c->n_edges; e++)
        if (p->c->edge[e].u >= 0)
            add_edge(p, &p->c->edge[e]);
    for (int r = 0; r < p->c->n_rows; r++)
        add_row(p, r);
}

/* The choice in the program's point, if it is one of the core and cheaper than *value. */
static void take(const struct ilp *p, const double *point, int *x, int64_t *value) {
    struct layout_state s;
    int *y = mem_array((size_t)p->c->n_vars + 1, sizeof *y);
    for (int i = 0; i < p->c->n_vars; i++)
        for (int a = 0; a < p->c->var[i].k; a++)
            if (point[p->first[i] + a] > 0.5)
                y[i] = a;
    layout_state_init(&s, (struct layout_core *)p->c);
    if (layout_state_set(&s, y) && s.value < *value) {
        memcpy(x, y, (size_t)p->c->n_vars * sizeof *x);
        *value = s.value;
    }
    layout_state_release(&s);
    free(y);
}

bool layout_ilp(const struct layout_core *c, double budget_s, double gap, int *x,
                int64_t *value, int64_t *bound) {
    if (layout_ilp_size(c) == 0) { /* reduced away */
        *value = *bound = c->base < *value ? c->base : *value;
        return true;
    }
    size_t n = (size_t)layout_ilp_size(c) + 2;
    struct ilp p = {.c = c, .m = lp_create()};
    p.first = mem_array((size_t)c->n_vars + 1, sizeof *p.first);
    p.cols = mem_array(n, sizeof *p.cols);
    p.vals = mem_array(n, sizeof *p.vals);
    build(&p);
    struct lp_options o = {.time_budget_s = budget_s, .gap = gap, .cutoff = INFINITY};
    struct lp_answer a;
    lp_minimize(p.m, &o, &a);
    if (a.x)
        take(&p, a.x, x, value);
    int64_t unit = INT64_C(1) << c->shift;
    if (a.status == LP_OPTIMAL || a.status == LP_FEASIBLE) {
        /* Less a part in 10^6 for the tolerances, then up to the next whole cost. */
        double proven = a.bound - 1e-6 * (1 + fabs(a.bound));
        int64_t b = c->base + (proven > 0 ? (int64_t)floor(proven * p.unit) : 0);
        b = (b + unit - 1) / unit * unit;
        b = b > *value ? *value : b;
        *bound = b > *bound ? b : *bound;
    }
    bool none = a.status == LP_INFEASIBLE && *value >= LAYOUT_INF;
    if (none)
        *bound = LAYOUT_INF;
    lp_answer_release(&a);
    lp_destroy(p.m);
    free(p.first);
    free(p.cols);
    free(p.vals);
    return none || (*value<LAYOUT_INF && * bound> * value - unit);
}
