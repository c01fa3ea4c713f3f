/* A piece as an integer program.
 *
 * s[i,a] in {0,1}, sum_a s[i,a] = 1. A table over several variables inside has a column
 * t >= 0 for each of its entries, and the sum of t over the entries with x_i = a is s[i,a],
 * which is as tight as can be where the tables make a tree. One row limits usage. Values
 * are given in units of the largest, so that lp_solve's tolerances suit them. Its point is
 * taken only as a choice, whose value is added up anew. */
#include "common/mem.h"
#include "common/progress.h"
#include "solve/critical/critical_impl.h"
#include "solve/lp/lp.h"

#include <stdlib.h>
#include <string.h>

/* A table whose variables outside the piece are fixed: the variables that are left. */
struct rest {
    const struct critical_factor *f;
    int n, var[CRITICAL_ARITY];
};

struct program {
    struct critical_cut *c;
    const struct critical_piece *piece;
    int *x;                /* [variables] with the values around the piece */
    bool *inside;          /* [variables] */
    int *first;            /* [variables] column of s[i, 0] */
    double *value, *usage; /* [columns of s] of tables with one variable left */
    struct rest *rests;    /* [factors of the piece] tables with more */
    int n_rests, n_choices;
    double unit;
    struct lp_model *m;
    ARR(int) cols, usage_cols;
    ARR(double) vals, usage_vals;
};

static double usage_at(const struct critical_factor *f, int64_t at) {
    return f->usage ? f->usage[at] : 0;
}

static void add_alone(struct program *g, const struct critical_factor *f, int var) {
    for (g->x[var] = 0; g->x[var] < g->c->p->size[var]; g->x[var]++) {
        int64_t at = critical_at(g->c->p, f, g->x);
        g->value[g->first[var] + g->x[var]] += critical_value(g->c, f, at);
        g->usage[g->first[var] + g->x[var]] += usage_at(f, at);
    }
    g->x[var] = 0;
}

static void restrict_factors(struct program *g) {
    const struct critical_piece *piece = g->piece;
    for (int i = 0; i < piece->n; i++) {
        g->first[piece->inside[i]] = g->n_choices;
        g->n_choices += g->c->p->size[piece->inside[i]];
        g->inside[piece->inside[i]] = true;
    }
    g->value = mem_array((size_t)g->n_choices, sizeof *g->value);
    g->usage = mem_array((size_t)g->n_choices, sizeof *g->usage);
    g->rests = mem_array((size_t)piece->n_factors, sizeof *g->rests);
    for (int k = 0; k < piece->n_factors; k++) {
        struct rest r = {.f = &g->c->p->factors[piece->factors[k]]};
        for (int i = 0; i < r.f->n; i++)
            if (g->inside[r.f->var[i]])
                r.var[r.n++] = r.f->var[i];
        if (r.n == 1)
            add_alone(g, r.f, r.var[0]);
        else
            g->rests[g->n_rests++] = r;
    }
}

static void find_unit(struct program *g) {
    double most = 0;
    for (int i = 0; i < g->n_choices; i++)
        if (!isinf(g->value[i]))
            most = fmax(most, fabs(g->value[i]));
    for (int k = 0; k < g->n_rests; k++) {
        const struct rest *r = &g->rests[k];
        do {
            double v = critical_value(g->c, r->f, critical_at(g->c->p, r->f, g->x));
            if (!isinf(v))
                most = fmax(most, fabs(v));
        } while (critical_next(g->c->p, r->n, r->var, g->x));
    }
    g->unit = most > 0 ? most / 1000 : 1;
}

static void note_usage(struct program *g, int col, double usage) {
    if (usage == 0)
        return;
    arr_push(&g->usage_cols, col);
    arr_push(&g->usage_vals, usage);
}

static void add_choices(struct program *g) {
    for (int k = 0; k < g->piece->n; k++) {
        int var = g->piece->inside[k], n = g->c->p->size[var];
        g->cols.n = g->vals.n = 0;
        for (int a = 0; a < n; a++) {
            double v = g->value[g->first[var] + a];
            bool out = isinf(v);
            int col = lp_add_var(g->m, out ? 0 : v / g->unit, 0, !out, true);
            arr_push(&g->cols, col);
            arr_push(&g->vals, 1);
            note_usage(g, col, g->usage[g->first[var] + a]);
        }
        lp_add_row(g->m, n, g->cols.p, g->vals.p, 1, 1);
    }
}

static void add_rest(struct program *g, const struct rest *r) {
    const struct critical_problem *p = g->c->p;
    int first = -1, n = 0;
    do {
        int64_t at = critical_at(p, r->f, g->x);
        double v = critical_value(g->c, r->f, at);
        bool out = isinf(v);
        int col = lp_add_var(g->m, out ? 0 : v / g->unit, 0, !out, false);
        first = first < 0 ? col : first;
        n++;
        note_usage(g, col, usage_at(r->f, at));
    } while (critical_next(p, r->n, r->var, g->x));
    int inner = n;
    for (int i = 0; i < r->n; i++) {
        int size = p->size[r->var[i]];
        inner /= size;
        for (int a = 0; a < size; a++) {
            g->cols.n = g->vals.n = 0;
            for (int t = 0; t < n; t++)
                if (t / inner % size == a) {
                    arr_push(&g->cols, first + t);
                    arr_push(&g->vals, 1);
                }
            arr_push(&g->cols, g->first[r->var[i]] + a);
            arr_push(&g->vals, -1);
            lp_add_row(g->m, (int)g->cols.n, g->cols.p, g->vals.p, 0, 0);
        }
    }
}

static void add_usage(struct program *g) {
    double most = 0, limit = g->piece->most_usage;
    for (int64_t i = 0; i < g->usage_vals.n; i++)
        most = fmax(most, fabs(g->usage_vals.p[i]));
    if (isinf(limit) || most == 0)
        return;
    for (int64_t i = 0; i < g->usage_vals.n; i++)
        g->usage_vals.p[i] /= most;
    lp_add_row(g->m, (int)g->usage_cols.n, g->usage_cols.p, g->usage_vals.p, -INFINITY,
               limit / most);
}

/* Returns the sum of all tables at the choice in x. */
static double value_at(const struct program *g) {
    double sum = 0;
    for (int k = 0; k < g->piece->n_factors; k++) {
        const struct critical_factor *f = &g->c->p->factors[g->piece->factors[k]];
        sum += critical_value(g->c, f, critical_at(g->c->p, f, g->x));
    }
    return sum;
}

static void take(struct program *g, const double *point, struct critical_entry *e) {
    for (int k = 0; k < g->piece->n; k++) {
        int var = g->piece->inside[k];
        for (int a = 0; a < g->c->p->size[var]; a++)
            if (point[g->first[var] + a] > 0.5)
                g->x[var] = a;
    }
    e->inside = mem_array((size_t)g->piece->n, sizeof *e->inside);
    for (int k = 0; k < g->piece->n; k++)
        e->inside[k] = g->x[g->piece->inside[k]];
    e->value = value_at(g);
}

/* A single variable needs no solver. */
static void take_alone(struct program *g, struct critical_entry *e) {
    int var = g->piece->inside[0], best = -1;
    for (int a = 0; a < g->n_choices; a++)
        if (g->usage[a] <= g->piece->most_usage && !isinf(g->value[a]) &&
            (best < 0 || g->value[a] < g->value[best]))
            best = a;
    e->exact = true;
    e->value = best < 0 ? INFINITY : g->value[best];
    if (best < 0)
        return;
    e->inside = mem_array(1, sizeof *e->inside);
    e->inside[0] = g->x[var] = best;
}

static bool solve(struct program *g, struct critical_entry *e) {
    /* Guards against endless loops: a program takes milliseconds. */
    enum { PATIENCE_S = 20 };
    double left = g->c->deadline_s > 0 ? g->c->deadline_s - now_s() : PATIENCE_S;
    if (left <= 0 || interrupted() || g->c->programs >= g->c->most_programs)
        return false;
    g->c->programs++;
    g->m = lp_create();
    find_unit(g);
    add_choices(g);
    for (int k = 0; k < g->n_rests; k++)
        add_rest(g, &g->rests[k]);
    add_usage(g);
    struct lp_answer a;
    lp_minimize(g->m, fmin(left, PATIENCE_S), &a);
    if (lp_columns(g->m) > g->c->columns) {
        g->c->columns = lp_columns(g->m);
        g->c->rows = lp_rows(g->m);
    }
    e->exact = a.status == LP_OPTIMAL || a.status == LP_INFEASIBLE;
    if (a.status == LP_OPTIMAL)
        take(g, a.x, e);
    if (a.status == LP_INFEASIBLE)
        e->value = INFINITY;
    lp_answer_release(&a);
    lp_destroy(g->m);
    return e->exact;
}

bool critical_program(struct critical_cut *c, const struct critical_piece *piece, int *x,
                      struct critical_entry *e) {
    size_t n = (size_t)c->p->n;
    struct program g = {.c = c, .piece = piece, .x = x};
    g.inside = mem_array(n, sizeof *g.inside);
    g.first = mem_array(n, sizeof *g.first);
    for (int k = 0; k < piece->n; k++)
        x[piece->inside[k]] = 0;
    restrict_factors(&g);
    bool good = true;
    if (piece->n == 1)
        take_alone(&g, e);
    else
        good = solve(&g, e);
    arr_release(&g.cols);
    arr_release(&g.vals);
    arr_release(&g.usage_cols);
    arr_release(&g.usage_vals);
    free(g.rests);
    free(g.value);
    free(g.usage);
    free(g.inside);
    free(g.first);
    return good;
}
