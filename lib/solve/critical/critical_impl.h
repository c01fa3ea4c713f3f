/* critical_impl.h - what critical.c (pieces, the multiplier of usage), critical_join.c
 * (dynamic programming over what lies between them), critical_bound.c (lower bounds on a
 * piece), critical_program.c (lp_solve) and critical_list.c (choices below limits)
 * share. */
#ifndef WEFT_SOLVE_CRITICAL_IMPL_H
#define WEFT_SOLVE_CRITICAL_IMPL_H

#include "solve/critical/critical.h"

#include <math.h>

/* What a piece costs, at least or exactly, with the critical variables around it fixed. */
struct critical_entry {
    double value;
    bool refined; /* by critical_bound */
    bool exact;
    int *inside; /* if exact: the values of its variables; NULL = impossible */
};

struct critical_piece {
    int n, *inside; /* variables, ascending */
    int n_around, around[CRITICAL_ARITY];
    int n_factors, *factors; /* those with a variable inside */
    int64_t n_entries;
    struct critical_entry *entries; /* row by row over what is around */
    double most_usage;              /* the limit on its usage */
};

/* A problem cut into its pieces, under one multiplier. */
struct critical_cut {
    const struct critical_problem *p;
    double per_cost, per_usage; /* value = per_cost * cost + per_usage * usage */
    double multiplier;          /* of usage; the one with the best bound so far */
    bool *cut;                  /* [n] the variables at which the problem is cut */
    int n_pieces;
    struct critical_piece *pieces;
    int64_t programs, most_programs; /* solved; at most */
    int rows, columns;               /* of the largest of them */
    double deadline_s;               /* 0 = none */
};

/* Returns the index of x in the factor's table. */
static inline int64_t critical_at(const struct critical_problem *p,
                                  const struct critical_factor *f, const int *x) {
    int64_t at = 0;
    for (int i = 0; i < f->n; i++)
        at = at * p->size[f->var[i]] + x[f->var[i]];
    return at;
}

static inline double critical_value(const struct critical_cut *c,
                                    const struct critical_factor *f, int64_t at) {
    double cost = f->cost[at];
    if (isinf(cost))
        return INFINITY;
    return c->per_cost * cost + (f->usage ? c->per_usage * f->usage[at] : 0);
}

/* Advances x to the next combination of values of these variables, the last one fastest.
 * Returns false after the last combination. */
static inline bool critical_next(const struct critical_problem *p, int n, const int *var,
                                 int *x) {
    for (int i = n - 1; i >= 0; i--) {
        if (++x[var[i]] < p->size[var[i]])
            return true;
        x[var[i]] = 0;
    }
    return false;
}

/* Returns what the piece costs at least with the variables around it as in x [n].
 * x[inside] is scratch. */
double critical_bound(const struct critical_cut *c, const struct critical_piece *piece,
                      int *x);

/* Solves the piece with the variables around it as in x [n]. Returns false when a limit
 * of work or time came first; the entry then stays a bound. x[inside] is scratch. */
bool critical_program(struct critical_cut *c, const struct critical_piece *piece, int *x,
                      struct critical_entry *e);

/* per_cost * cost + per_usage * usage, of all tables. */
struct critical_sum {
    double per_cost, per_usage;
    const double *most; /* may fall while choices are listed */
};

/* Hands every choice for which none of the sums, three at most, exceeds its limit to
 * `take`, until `take` returns false. sorts: values are tried in the order of their
 * least first sum. steps: how many values are looked at, at most. Returns whether all
 * such choices were handed out. */
bool critical_list_below(const struct critical_problem *p, int n_sums,
                         const struct critical_sum *sums, bool sorts, int64_t steps,
                         bool (*take)(void *arg, const int *choice), void *arg);

/* Sets the cut variables in x so that the sum of all tables between the pieces is least,
 * with the pieces' entries as costs. Returns that sum, INFINITY if nothing is allowed,
 * or NAN if a table would be too large. */
double critical_join(const struct critical_cut *c, int *x);

#endif
