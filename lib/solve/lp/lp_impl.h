/* lp_impl.h - what the two halves of the guard around lp_solve share: lp.c keeps the
 * program, checks points and decides; lp_run.c makes one attempt in a child process. No
 * other file includes it. */
#ifndef WEFT_SOLVE_LP_IMPL_H
#define WEFT_SOLVE_LP_IMPL_H

#include "common/mem.h"
#include "solve/lp/lp.h"

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

/* How an attempt ended. */
enum lp_end { END_OPTIMAL, END_INFEASIBLE, END_UNBOUNDED, END_NOTHING };

enum { LP_NUM_SETTINGS = 4 };

struct lp_attempt {
    const struct lp_model *m;
    double deadline_s; /* now_s() at which it must end */
    double stall_s;    /* longest stay at one node of branch and bound */
    int setting;       /* 0..LP_NUM_SETTINGS-1 */
    /* set by lp_attempt_run: */
    bool timed_out; /* the deadline or an interrupt ended it */
    double claimed; /* the objective that lp_solve states for its optimum */
    double *x;      /* its last improved solution, unchecked, or NULL */
};

/* Runs one attempt; the caller frees x. */
enum lp_end lp_attempt_run(struct lp_attempt *t);

#endif
