/* Lists all choices whose sums stay below some limits, which closes the gap that a
 * multiplier leaves.
 *
 * Variables are eliminated from the last one on, in portions where tables would be too
 * large (as in critical_bound.c). Each leaves tables over variables in front of it. Then
 * values are set from the first variable on: what is set has its exact cost, and the tables
 * bound the rest. Where no portion was needed and there is one sum, every step leads to a
 * choice. */
#include "common/mem.h"
#include "solve/critical/critical_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SCOPE = 8, MOST_TABLE = 1 << 14, MOST_SUMS = 3 };

/* A table over some variables in front of `from`: the least that the variables from
 * there on add. */
struct left_over {
    int n, var[MOST_SCOPE]; /* ascending */
    int from, last;
    double *v, now; /* now: its entry at what is set */
};

/* A sum with a limit, and the tables of what is not set yet. */
struct rest {
    const struct critical_sum *sum;
    ARR(struct left_over) left;
};

/* A value of a variable with the sums of all that is set then, and the least total of
 * the first sum. */
struct step {
    int value;
    double sum[MOST_SUMS], least;
};

struct lister {
    const struct critical_problem *p;
    int n_sums;
    struct rest rests[MOST_SUMS];
    bool sorts;
    int64_t steps;
    int *x;
    int most_size, *last; /* [factors] the last variable */
    struct step *scratch; /* [n * most_size] */
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

static double factor_at(const struct lister *l, const struct critical_sum *s, int f) {
    const struct critical_factor *factor = &l->p->factors[f];
    int64_t at = critical_at(l->p, factor, l->x);
    if (isinf(factor->cost[at]))
        return INFINITY;
    return s->per_cost * factor->cost[at] +
           (factor->usage ? s->per_usage * factor->usage[at] : 0);
}

/* ---- elimination --------------------------------------------------------------------------- */

/* Adds variables other than v to a scope. Returns false if it would become too large. */
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

/* Fills the table of a portion: the least over v of these factors and tables together. */
static void fill(struct lister *l, const struct rest *r, int v, const bool *now_f,
                 const bool *now_t, struct left_over *to) {
    const struct critical_problem *p = l->p;
    int64_t size = 1, at = 0;
    for (int i = 0; i < to->n; i++) {
        size *= p->size[to->var[i]];
        l->x[to->var[i]] = 0;
    }
    to->last = last_of(to->n, to->var);
    to->v = mem_array((size_t)size, sizeof *to->v);
    do {
        double best = INFINITY;
        for (l->x[v] = 0; l->x[v] < p->size[v]; l->x[v]++) {
            double sum = 0;
            for (int f = 0; f < p->n_factors; f++)
                if (now_f[f])
                    sum += factor_at(l, r->sum, f);
            for (int64_t t = 0; t < r->left.n; t++)
                if (now_t[t])
                    sum += left_at(l, &r->left.p[t]);
            best = fmin(best, sum);
        }
        to->v[at++] = best;
    } while (critical_next(p, to->n, to->var, l->x));
    l->x[v] = 0;
}

/* Eliminates as many of the factors and tables that end with variable v as fit together.
 * taken: those that were eliminated before. Returns whether there was one. */
static bool eliminate_portion(struct lister *l, struct rest *r, int v, bool *taken_f,
                              bool *taken_t) {
    const struct critical_problem *p = l->p;
    struct left_over to = {.from = v};
    bool *now_f = mem_array((size_t)p->n_factors + 1, sizeof *now_f), any = false;
    bool *now_t = mem_array((size_t)r->left.n + 1, sizeof *now_t);
    for (int f = 0; f < p->n_factors; f++)
        if (!taken_f[f] && l->last[f] == v)
            any |= taken_f[f] = now_f[f] =
                widen(p, v, p->factors[f].n, p->factors[f].var, &to);
    for (int64_t t = 0; t < r->left.n; t++)
        if (!taken_t[t] && r->left.p[t].last == v)
            any |= taken_t[t] = now_t[t] =
                widen(p, v, r->left.p[t].n, r->left.p[t].var, &to);
    if (any) {
        fill(l, r, v, now_f, now_t, &to);
        arr_push(&r->left, to);
    }
    free(now_f);
    free(now_t);
    return any;
}

static void eliminate_all(struct lister *l, struct rest *r) {
    bool *taken_f = mem_array((size_t)l->p->n_factors + 1, sizeof *taken_f);
    for (int v = l->p->n - 1; v >= 0; v--) {
        bool *taken_t =
            mem_array((size_t)(r->left.n + l->p->n_factors) + 1, sizeof *taken_t);
        while (eliminate_portion(l, r, v, taken_f, taken_t))
            continue;
        free(taken_t);
    }
    free(taken_f);
}

/* ---- values, from the first variable on ------------------------------------------------------ */

static int by_least(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    return x->least < y->least   ? -1
           : x->least > y->least ? 1
                                 : (x->value > y->value) - (x->value < y->value);
}

/* Returns the least that the variables after v add, as far as it is known from the
 * variables before v. */
static double left_before(const struct rest *r, int v) {
    double sum = 0;
    for (int64_t t = 0; t < r->left.n; t++)
        if (r->left.p[t].from > v && r->left.p[t].last < v)
            sum += r->left.p[t].now;
    return sum;
}

static double left_with(const struct lister *l, const struct rest *r, int v) {
    double sum = 0;
    for (int64_t t = 0; t < r->left.n; t++)
        if (r->left.p[t].last == v)
            sum += left_at(l, &r->left.p[t]);
    return sum;
}

/* Finds the values of v that no sum excludes, with the sums of the variables before it. */
static int find_steps(struct lister *l, int v, const double *sums, struct step *out) {
    double before[MOST_SUMS];
    int n = 0;
    for (int s = 0; s < l->n_sums; s++)
        before[s] = left_before(&l->rests[s], v);
    for (int a = 0; a < l->p->size[v]; a++) {
        struct step *to = &out[n];
        bool good = true;
        l->x[v] = to->value = a;
        for (int s = 0; s < l->n_sums && good; s++) {
            const struct rest *r = &l->rests[s];
            to->sum[s] = sums[s];
            for (int f = 0; f < l->p->n_factors; f++)
                if (l->last[f] == v)
                    to->sum[s] += factor_at(l, r->sum, f);
            double least = to->sum[s] + before[s] + left_with(l, r, v);
            to->least = s ? to->least : least;
            good = least <= *r->sum->most;
        }
        n += good;
    }
    if (l->sorts && n)
        qsort(out, (size_t)n, sizeof *out, by_least);
    return n;
}

static void set_value(struct lister *l, int v, int value) {
    l->x[v] = value;
    for (int s = 0; s < l->n_sums; s++)
        for (int64_t t = 0; t < l->rests[s].left.n; t++)
            if (l->rests[s].left.p[t].last == v)
                l->rests[s].left.p[t].now = left_at(l, &l->rests[s].left.p[t]);
}

/* Tries all values of the variables from v on. Returns false if the listing is to stop. */
static bool list(struct lister *l, int v, const double *sums) {
    if (v == l->p->n)
        return l->take(l->arg, l->x);
    struct step *steps = &l->scratch[(size_t)v * (size_t)l->most_size];
    l->steps -= l->p->size[v];
    if (l->steps < 0)
        return false;
    int n = find_steps(l, v, sums, steps);
    for (int i = 0; i < n; i++) {
        if (steps[i].least > *l->rests[0].sum->most)
            continue; /* the limit has fallen */
        set_value(l, v, steps[i].value);
        if (!list(l, v + 1, steps[i].sum))
            return false;
    }
    return true;
}

bool critical_list_below(const struct critical_problem *p, int n_sums,
                         const struct critical_sum *sums, bool sorts, int64_t steps,
                         bool (*take)(void *arg, const int *choice), void *arg) {
    struct lister l = {
        .p = p, .n_sums = n_sums, .sorts = sorts, .steps = steps, .take = take, .arg = arg};
    double none[MOST_SUMS] = {0};
    for (int v = 0; v < p->n; v++)
        l.most_size = p->size[v] > l.most_size ? p->size[v] : l.most_size;
    l.x = mem_array((size_t)p->n + 1, sizeof *l.x);
    l.last = mem_array((size_t)p->n_factors + 1, sizeof *l.last);
    l.scratch = mem_array((size_t)p->n * (size_t)l.most_size + 1, sizeof *l.scratch);
    for (int f = 0; f < p->n_factors; f++)
        l.last[f] = last_of(p->factors[f].n, p->factors[f].var);
    for (int s = 0; s < n_sums; s++) {
        l.rests[s].sum = &sums[s];
        eliminate_all(&l, &l.rests[s]);
    }
    bool all = list(&l, 0, none);
    for (int s = 0; s < n_sums; s++) {
        for (int64_t t = 0; t < l.rests[s].left.n; t++)
            free(l.rests[s].left.p[t].v);
        arr_release(&l.rests[s].left);
    }
    free(l.scratch);
    free(l.last);
    free(l.x);
    return all;
}

bool critical_list(const struct critical_problem *p, double most_cost, int64_t steps,
                   bool (*take)(void *arg, const int *choice), void *arg) {
    struct critical_sum cost = {1, 0, &most_cost};
    return critical_list_below(p, 1, &cost, false, steps, take, arg);
}
