/* lp_impl.h - what the two halves of the guard around lp_solve share: lp.c keeps the model,
 * checks and decides; lp_run.c makes one attempt in a child process. Nobody else includes
 * it.
 */
#ifndef WEFT_SOLVE_LP_IMPL_H
#define WEFT_SOLVE_LP_IMPL_H

#include "common/mem.h"
#include "solve/lp/lp.h"

#include <stdbool.h>

struct lp_row {
    int first, n; /* its entries in cols/vals */
    double lo, hi;
};

struct lp_var {
    double cost, lo, hi;
    bool integer;
};

struct lp_model {
    ARR(struct lp_var) vars;
    ARR(struct lp_row) rows;
    ARR(int) cols;
    ARR(double) vals;
};

enum lp_at { AT_LOW, AT_HIGH, AT_BASIC };

struct lp_basis {
    int rows, vars;
    unsigned char at[]; /* enum lp_at of each row, then of each variable */
};

/* How an attempt ended. */
enum lp_end { END_OPTIMAL, END_INFEASIBLE, END_UNBOUNDED, END_NOTHING };

#define LP_NUM_RUNGS 4

struct lp_attempt {
    const struct lp_model *m;
    bool relax;                   /* integers may be fractions */
    double gap;                   /* relative gap at which branch and bound may stop */
    double cutoff;                /* INFINITY = none; not applied to the relaxation */
    double deadline_s;            /* now_s() at which it must end */
    double stall_s;               /* longest stay at one node of branch and bound */
    int rung;                     /* 0..LP_NUM_RUNGS-1 */
    const struct lp_basis *start; /* where to begin, or NULL */
    /* set by lp_attempt_run: */
    bool timed_out;         /* the deadline or an interrupt ended it */
    double claimed;         /* the objective that lp_solve states for its optimum */
    double *x;              /* last improved solution, unchecked, or NULL */
    double *dual;           /* duals of an optimal relaxation, unchecked, or NULL */
    struct lp_basis *basis; /* its basis, or NULL */
};

/* Runs one rung; the caller frees x, dual and basis. */
enum lp_end lp_attempt_run(struct lp_attempt *t);

#endif
