/* critical_join.c - eliminates the variables that are cut one after the other, the one
 * with the smallest table next, as a dynamic program over a graph does. */
#include "common/mem.h"
#include "solve/critical/critical_impl.h"

#include <stdlib.h>

enum { MOST_SCOPE = 10, MOST_TABLE = 1 << 16 };

/* A table over some of the variables; it was summed away at `step`, or is still there
 * (-1). */
struct table {
    int n, var[MOST_SCOPE], step;
    double *v;
};

struct join {
    const struct critical_cut *c;
    int *x;
    int n_steps, *order; /* variables, as they are eliminated */
    ARR(struct table) tables;
};

static int64_t entries_of(const struct critical_problem *p, int n, const int *var) {
    int64_t size = 1;
    for (int i = 0; i < n && size <= MOST_TABLE; i++)
        size *= p->size[var[i]];
    return size;
}

static double look_up(const struct join *j, const struct table *t) {
    int64_t at = 0;
    for (int i = 0; i < t->n; i++)
        at = at * j->c->p->size[t->var[i]] + j->x[t->var[i]];
    return t->v[at];
}

static void add_table(struct join *j, int n, const int *var) {
    struct table t = {.n = n, .step = -1};
    for (int i = 0; i < n; i++)
        t.var[i] = var[i];
    t.v = mem_array((size_t)entries_of(j->c->p, n, var), sizeof *t.v);
    arr_push(&j->tables, t);
}

/* Adds the factors without a variable inside a piece, and the pieces. */
static void add_tables(struct join *j) {
    const struct critical_problem *p = j->c->p;
    for (int f = 0; f < p->n_factors; f++) {
        const struct critical_factor *factor = &p->factors[f];
        bool between = true;
        for (int i = 0; i < factor->n; i++)
            between &= j->c->cut[factor->var[i]];
        if (!between)
            continue;
        add_table(j, factor->n, factor->var);
        int64_t n = entries_of(p, factor->n, factor->var);
        for (int64_t i = 0; i < n; i++)
            arr_last(&j->tables).v[i] = critical_value(j->c, factor, i);
    }
    for (int k = 0; k < j->c->n_pieces; k++) {
        const struct critical_piece *piece = &j->c->pieces[k];
        add_table(j, piece->n_around, piece->around);
        for (int64_t i = 0; i < piece->n_entries; i++)
            arr_last(&j->tables).v[i] = piece->entries[i].value;
    }
}

/* Collects the other variables of all tables with this one. Returns -1 if they are too
 * many. */
static int scope_of(const struct join *j, int var, int scope[MOST_SCOPE]) {
    int n = 0;
    for (int64_t t = 0; t < j->tables.n; t++) {
        const struct table *table = &j->tables.p[t];
        bool has = false;
        for (int i = 0; i < table->n && table->step < 0; i++)
            has |= table->var[i] == var;
        for (int i = 0; i < table->n && has; i++) {
            int k = 0;
            while (k < n && scope[k] != table->var[i])
                k++;
            if (table->var[i] == var || k < n)
                continue;
            if (n == MOST_SCOPE)
                return -1;
            scope[n++] = table->var[i];
        }
    }
    return n;
}

static double sum_at(const struct join *j, int step) {
    double sum = 0;
    for (int64_t t = 0; t < j->tables.n; t++)
        if (j->tables.p[t].step == step)
            sum += look_up(j, &j->tables.p[t]);
    return sum;
}

/* Sets the variable of a step to its best value, given all others of its tables. */
static double best_at(struct join *j, int step) {
    int var = j->order[step], at = 0;
    double best = INFINITY;
    for (int a = 0; a < j->c->p->size[var]; a++) {
        j->x[var] = a;
        double sum = sum_at(j, step);
        if (sum < best) {
            best = sum;
            at = a;
        }
    }
    j->x[var] = at;
    return best;
}

static void eliminate(struct join *j, int var, int n, const int *scope) {
    int step = j->n_steps++;
    j->order[step] = var;
    for (int64_t t = 0; t < j->tables.n; t++)
        for (int i = 0; i < j->tables.p[t].n && j->tables.p[t].step < 0; i++)
            if (j->tables.p[t].var[i] == var)
                j->tables.p[t].step = step;
    add_table(j, n, scope);
    double *v = arr_last(&j->tables).v;
    for (int i = 0; i < n; i++)
        j->x[scope[i]] = 0;
    do
        *v++ = best_at(j, step);
    while (critical_next(j->c->p, n, scope, j->x));
}

/* Eliminates the variable with the smallest table. Returns false if the tables of all that
 * are left are too large. */
static bool eliminate_next(struct join *j, bool *left) {
    const struct critical_problem *p = j->c->p;
    int best = -1, n = 0, scope[MOST_SCOPE], of[MOST_SCOPE];
    int64_t least = MOST_TABLE + 1;
    for (int i = 0; i < p->n; i++) {
        int k = left[i] ? scope_of(j, i, of) : -1;
        int64_t size = k < 0 ? MOST_TABLE + 1 : entries_of(p, k, of);
        if (size >= least)
            continue;
        least = size;
        best = i;
        n = k;
        for (int a = 0; a < k; a++)
            scope[a] = of[a];
    }
    if (best < 0)
        return false;
    left[best] = false;
    eliminate(j, best, n, scope);
    return true;
}

double critical_join(const struct critical_cut *c, int *x) {
    size_t n = (size_t)c->p->n;
    struct join j = {.c = c, .x = x};
    bool *left = mem_array(n, sizeof *left), good = true;
    double value = 0;
    int n_left = 0;
    j.order = mem_array(n, sizeof *j.order);
    for (size_t i = 0; i < n; i++)
        n_left += left[i] = c->cut[i];
    add_tables(&j);
    while (n_left-- > 0 && good)
        good = eliminate_next(&j, left);
    for (int64_t t = 0; t < j.tables.n; t++)
        if (j.tables.p[t].step < 0)
            value += j.tables.p[t].v[0];
    for (int step = j.n_steps - 1; step >= 0 && good; step--)
        best_at(&j, step);
    for (int64_t t = 0; t < j.tables.n; t++)
        free(j.tables.p[t].v);
    arr_release(&j.tables);
    free(j.order);
    free(left);
    return good ? value : NAN;
}
