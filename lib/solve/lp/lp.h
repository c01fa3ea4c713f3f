/* lp.h - linear and integer programs through lp_solve, with nothing taken on trust.
 *
 * lp_solve 5.5 can cycle for ever, can call a feasible model infeasible, and after a
 * time-out hands back an incumbent that looks like an optimum. So a model is kept here, and
 * each attempt (a rung of a ladder of settings) is built afresh from it, watched by a
 * clock, and its point is checked row by row against this copy. Only what survives is
 * reported:
 *
 * - LP_OPTIMAL: a checked point, and branch and bound ended by itself; bound = value less the
 *   gap that was asked for.
 * - LP_FEASIBLE: a checked point; bound holds what could be proven (maybe -INFINITY).
 * - LP_INFEASIBLE: two rungs with different settings agree, or (with a cutoff) no point better
 *   than the cutoff exists.
 * - LP_UNBOUNDED: two rungs agree.
 * - LP_FAILED: no rung gave a usable answer (time, numbers, memory).
 *
 * The bound of LP_FEASIBLE comes from the duals of the relaxation, re-computed here from
 * the model (the sum over rows of y_i times the side that y_i's sign asks for, plus the
 * least that each reduced cost can contribute within the bounds of its variable): true for
 * every y, whatever the solver did, up to rounding, which is allowed for.
 *
 *     struct lp_model *m = lp_create();
 *     int x = lp_add_var(m, cost, 0, 1, true), y = lp_add_var(m, 2.0, 0, INFINITY, false);
 *     lp_add_row(m, 2, (int[]){x, y}, (double[]){1, 1}, 1, INFINITY);      // x + y >= 1
 *     struct lp_options o = {.time_budget_s = 5, .cutoff = INFINITY};
 *     struct lp_answer a;
 *     if (lp_minimize(m, &o, &a) == LP_OPTIMAL) use(a.x);
 *     lp_answer_release(&a);
 *     lp_destroy(m);
 */
#ifndef WEFT_SOLVE_LP_H
#define WEFT_SOLVE_LP_H

#include <stdbool.h>

enum lp_status { LP_OPTIMAL, LP_FEASIBLE, LP_INFEASIBLE, LP_UNBOUNDED, LP_FAILED };

struct lp_model;

struct lp_model *lp_create(void);
void lp_destroy(struct lp_model *m);

/* A variable with its cost (minimized) and bounds (+-INFINITY allowed). Returns its index.
 */
int lp_add_var(struct lp_model *m, double cost, double lo, double hi, bool integer);

/* lo <= sum vals[i] * x[cols[i]] <= hi, either side may be infinite. A column may not
 * repeat. The arrays are copied. Returns the row's index. */
int lp_add_row(struct lp_model *m, int n, const int *cols, const double *vals, double lo,
               double hi);

int lp_rows(const struct lp_model *m);
int lp_columns(const struct lp_model *m);

/* Where a relaxation ended, for a start near there when costs, bounds or a few rows changed. */
struct lp_basis;

struct lp_options {
    double time_budget_s; /* wall seconds for all rungs together; 0 = none */
    double gap;           /* relative gap at which branch and bound may stop; 0 = 1e-9 */
    double cutoff; /* only points with value <= cutoff are of interest; INFINITY = all */
    const double *start; /* a known point or NULL; taken as incumbent if it checks */
    const struct lp_basis *basis; /* of an earlier answer, or NULL */
    bool relax;                   /* solve the relaxation only */
};

struct lp_answer {
    enum lp_status status;
    double value; /* of x; INFINITY without a point */
    double bound; /* proven: no point is below it; -INFINITY when nothing is proven */
    double *x;    /* one number per variable, integers exact; NULL without a point */
    double *dual; /* of the relaxation, one per row; NULL when not found */
    struct lp_basis *basis; /* of the relaxation; NULL when not found */
    int rung;               /* which settings gave the answer */
    double time_s;          /* wall seconds spent */
    const char *why;        /* one static phrase */
};

/* Solves. Stops early when interrupted() (common/progress.h) turns true. */
enum lp_status lp_minimize(const struct lp_model *m, const struct lp_options *o,
                           struct lp_answer *a);
void lp_answer_release(struct lp_answer *a);

#endif
