/* All choices up to a cost. Variables are eliminated from the last one on, in portions where tables
 * would be too large (as in critical_bound.c); what is left of each is a table over variables in front of it.
 * Then values are set from the first variable on: what is set costs what it costs, the rest at
 * least what these tables say. Where no portion was needed, every step leads to a choice. */
#include "common/mem.h"
#include "solve/critical_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SCOPE = 8, MOST_TABLE = 1 << 14 };

/* What of the variables from `from` on is left, over some in front of it. */
struct left_over {
    int n, var[MOST_SCOPE]; /* ascending */
    int from;
    double *v;
};

struct lister {
    const struct critical_problem *p;
    double most_cost;
    int64_t steps;
    int *x;
    ARR(struct left_over) left;
    bool (*take)(void *arg, const int *choice);
    void *arg;
};

static int last_of(int n, const int *var) {
    int last = -1;
    for (int i = 0; i < n; i++)
        last = var[i] > last ? var[i] : last;
    return last;
}

static double left_at(const struct lister *l, const struct left_over *t) {
    int64_t at = 0;
    for (int i = 0; i < t->n; i++)
        at = at * l->p->size[t->var[i]] + l->x[t->var[i]];
    return t->v[at];
}

/* Adds variables to a scope, but for v; false where it would be too large. */
static bool widen(const struct critical_problem *p, int v, int n, const int *var,
                  struct left_over *to) {
    struct left_over scope = *to;
    int64_t size = 1;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < scope.n && scope.var[at] < var[i])
            at++;
        if (var[i] == v || (at < scope.n && scope.var[at] == var[i]))
            continue;
        if (scope.n == MOST_SCOPE)
            return false;
        memmove(&scope.var[at + 1], &scope.var[at],
                (size_t)(scope.n - at) * sizeof *scope.var);
        scope.var[at] = var[i];
        scope.n++;
    }
    for (int i = 0; i < scope.n; i++)
        size *= p->size[scope.var[i]];
    if (size > MOST_TABLE && to->n)
        return false;
    *to = scope;
    return true;
}

/* Of variable v: factors and tables that end with it, as far as they go together. taken: those that
 * had their turn. Returns whether there was one. */
static bool eliminate_portion(struct lister *l, int v, bool *taken_f, bool *taken_t) {
    const struct critical_problem *p = l->p;
    struct left_over to = {.from = v};
    bool *now_f = mem_array((size_t)p->n_factors + 1, sizeof *now_f), any = false;
    bool *now_t = mem_array((size_t)l->left.n + 1, sizeof *now_t);
    int64_t size = 1, at = 0;
    for (int f = 0; f < p->n_factors; f++)
        if (!taken_f[f] && last_of(p->factors[f].n, p->factors[f].var) == v)
            any |= taken_f[f] = now_f[f] =
                widen(p, v, p->factors[f].n, p->factors[f].var, &to);
    for (int64_t t = 0; t < l->left.n; t++)
        if (!taken_t[t] && last_of(l->left.p[t].n, l->left.p[t].var) == v)
            any |= taken_t[t] = now_t[t] =
                widen(p, v, l->left.p[t].n, l->left.p[t].var, &to);
    for (int i = 0; i < to.n; i++) {
        size *= p->size[to.var[i]];
        l->x[to.var[i]] = 0;
    }
    to.v = mem_array((size_t)size, sizeof *to.v);
    do {
        double best = INFINITY;
        for (l->x[v] = 0; l->x[v] < p->size[v]; l->x[v]++) {
            double sum = 0;
            for (int f = 0; f < p->n_factors; f++)
                if (now_f[f])
                    sum += p->factors[f].cost[critical_at(p, &p->factors[f], l->x)];
            for (int64_t t = 0; t < l->left.n; t++)
                if (now_t[t])
                    sum += left_at(l, &l->left.p[t]);
            best = fmin(best, sum);
        }
        to.v[at++] = best;
    } while (any && critical_next(p, to.n, to.var, l->x));
    l->x[v] = 0;
    if (any)
        arr_push(&l->left, to);
    else
        free(to.v);
    free(now_f);
    free(now_t);
    return any;
}

static void eliminate_all(struct lister *l) {
    bool *taken_f = mem_array((size_t)l->p->n_factors + 1, sizeof *taken_f);
    for (int v = l->p->n - 1; v >= 0; v--) {
        bool *taken_t =
            mem_array((size_t)(l->left.n + l->p->n_factors) + 1, sizeof *taken_t);
        while (eliminate_portion(l, v, taken_f, taken_t))
            continue;
        free(taken_t);
    }
    free(taken_f);
}

/* Values of the variables from v on; those in front cost `cost`. False: to be stopped. */
static bool list(struct lister *l, int v, double cost) {
    const struct critical_problem *p = l->p;
    if (v == p->n)
        return l->take(l->arg, l->x);
    for (int a = 0; a < p->size[v]; a++) {
        double sum = cost, least = 0;
        l->x[v] = a;
        if (l->steps-- <= 0)
            return false;
        for (int f = 0; f < p->n_factors; f++)
            if (last_of(p->factors[f].n, p->factors[f].var) == v)
                sum += p->factors[f].cost[critical_at(p, &p->factors[f], l->x)];
        for (int64_t t = 0; t < l->left.n; t++)
            if (l->left.p[t].from > v && last_of(l->left.p[t].n, l->left.p[t].var) <= v)
                least += left_at(l, &l->left.p[t]);
        if (sum + least <= l->most_cost && !list(l, v + 1, sum))
            return false;
    }
    return true;
}

bool critical_list(const struct critical_problem *p, double most_cost, int64_t steps,
                   bool (*take)(void *arg, const int *choice), void *arg) {
    struct lister l = {
        .p = p, .most_cost = most_cost, .steps = steps, .take = take, .arg = arg};
    l.x = mem_array((size_t)p->n + 1, sizeof *l.x);
    eliminate_all(&l);
    bool all = list(&l, 0, 0);
    for (int64_t t = 0; t < l.left.n; t++)
        free(l.left.p[t].v);
    arr_release(&l.left);
    free(l.x);
    return all;
}
