/* critical_bound.c - what a piece costs at least with the variables around it fixed. Its
 * variables are eliminated one after the other, as in the join; where that would make a
 * table too large, the tables of a variable are minimized in portions (mini-buckets:
 * Dechter and Rish, 2003). The bound is exact where the tables form a tree. */
#include "common/mem.h"
#include "solve/critical/critical_impl.h"

#include <stdlib.h>

enum { MOST_SCOPE = 6, MOST_TABLE = 128 };

/* A table over variables inside; v is NULL once it was summed into another. */
struct table {
    int n, var[MOST_SCOPE];
    double *v;
};

struct buckets {
    const struct critical_cut *c;
    int *x;
    ARR(struct table) tables;
    double sum; /* of those without variables */
};

static int64_t entries_of(const struct critical_problem *p, int n, const int *var) {
    int64_t size = 1;
    for (int i = 0; i < n; i++)
        size *= p->size[var[i]];
    return size;
}

static double look_up(const struct buckets *b, const struct table *t) {
    int64_t at = 0;
    for (int i = 0; i < t->n; i++)
        at = at * b->c->p->size[t->var[i]] + b->x[t->var[i]];
    return t->v[at];
}

static bool has(const struct table *t, int var) {
    bool found = false;
    for (int i = 0; i < t->n && t->v; i++)
        found |= t->var[i] == var;
    return found;
}

static void add_table(struct buckets *b, struct table t) {
    if (t.n) {
        arr_push(&b->tables, t);
        return;
    }
    b->sum += t.v[0];
    free(t.v);
}

static void add_factor(struct buckets *b, const struct critical_factor *f) {
    const struct critical_problem *p = b->c->p;
    struct table t = {0};
    for (int i = 0; i < f->n; i++)
        if (!b->c->cut[f->var[i]]) {
            t.var[t.n++] = f->var[i];
            b->x[f->var[i]] = 0;
        }
    double *v = t.v = mem_array((size_t)entries_of(p, t.n, t.var), sizeof *t.v);
    do
        *v++ = critical_value(b->c, f, critical_at(p, f, b->x));
    while (critical_next(p, t.n, t.var, b->x));
    add_table(b, t);
}

/* Adds the table's other variables to a scope. Returns false if that makes the scope too
 * large. */
static bool widen(const struct buckets *b, int var, const struct table *t,
                  struct table *to) {
    struct table scope = *to;
    for (int i = 0; i < t->n; i++) {
        int k = 0;
        while (k < scope.n && scope.var[k] != t->var[i])
            k++;
        if (t->var[i] == var || k < scope.n)
            continue;
        if (scope.n == MOST_SCOPE)
            return false;
        scope.var[scope.n++] = t->var[i];
    }
    if (to->n && entries_of(b->c->p, scope.n, scope.var) > MOST_TABLE)
        return false;
    *to = scope;
    return true;
}

/* Sums up as many tables of a variable as fit together, and minimizes over it. Returns
 * false if there is none left. */
static bool take_portion(struct buckets *b, int var) {
    const struct critical_problem *p = b->c->p;
    struct table to = {0};
    ARR(struct table) taken = {0};
    for (int64_t i = 0; i < b->tables.n; i++) {
        struct table *t = &b->tables.p[i];
        if (!has(t, var) || !widen(b, var, t, &to))
            continue;
        arr_push(&taken, *t);
        t->v = NULL;
    }
    bool any = taken.n > 0;
    if (any) {
        double *v = to.v = mem_array((size_t)entries_of(p, to.n, to.var), sizeof *to.v);
        for (int i = 0; i < to.n; i++)
            b->x[to.var[i]] = 0;
        do {
            *v = INFINITY;
            for (b->x[var] = 0; b->x[var] < p->size[var]; b->x[var]++) {
                double sum = 0;
                for (int64_t i = 0; i < taken.n; i++)
                    sum += look_up(b, &taken.p[i]);
                *v = fmin(*v, sum);
            }
            v++;
        } while (critical_next(p, to.n, to.var, b->x));
        b->x[var] = 0;
        add_table(b, to);
    }
    for (int64_t i = 0; i < taken.n; i++)
        free(taken.p[i].v);
    arr_release(&taken);
    return any;
}

double critical_bound(const struct critical_cut *c, const struct critical_piece *piece,
                      int *x) {
    struct buckets b = {.c = c, .x = x};
    for (int k = 0; k < piece->n_factors; k++)
        add_factor(&b, &c->p->factors[piece->factors[k]]);
    for (int i = 0; i < piece->n; i++)
        while (take_portion(&b, piece->inside[i]))
            continue;
    arr_release(&b.tables);
    return b.sum;
}
