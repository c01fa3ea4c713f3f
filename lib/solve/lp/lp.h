/* lp.h - small integer programs through lp_solve, none of whose answers is taken on trust.
 *
 * lp_solve 5.5 can cycle for ever, can call a feasible program infeasible, and after a
 * timeout hands back an incumbent that looks like an optimum. So the program is kept here.
 * Each attempt builds lp_solve's model from it afresh, under other settings and against a
 * clock, and a point counts only after it was checked row by row. These answers are left:
 *
 * - LP_OPTIMAL: branch and bound ended by itself, and its point was checked.
 * - LP_INFEASIBLE, LP_UNBOUNDED: two attempts with different settings agree.
 * - LP_FAILED: no attempt gave a usable answer in time.
 *
 *     struct lp_model *m = lp_create();
 *     int x = lp_add_var(m, cost, 0, 1, true), y = lp_add_var(m, 2.0, 0, INFINITY, false);
 *     lp_add_row(m, 2, (int[]){x, y}, (double[]){1, 1}, 1, INFINITY);      // x + y >= 1
 *     struct lp_answer a;
 *     if (lp_minimize(m, 5, &a) == LP_OPTIMAL) use(a.x);
 *     lp_answer_release(&a);
 *     lp_destroy(m);
 */
#ifndef WEFT_SOLVE_LP_H
#define WEFT_SOLVE_LP_H

#include <stdbool.h>

enum lp_status { LP_OPTIMAL, LP_INFEASIBLE, LP_UNBOUNDED, LP_FAILED };

struct lp_model;

struct lp_model *lp_create(void);
void lp_destroy(struct lp_model *m);

/* Adds a variable with its cost, which is minimized, and its bounds, which may be infinite.
 * Returns its index. */
int lp_add_var(struct lp_model *m, double cost, double lo, double hi, bool integer);

/* Adds lo <= sum vals[i] * x[cols[i]] <= hi, where one side may be infinite. A column may
 * not repeat. The arrays are copied. */
void lp_add_row(struct lp_model *m, int n, const int *cols, const double *vals, double lo,
                double hi);

int lp_rows(const struct lp_model *m);
int lp_columns(const struct lp_model *m);

struct lp_answer {
    enum lp_status status;
    double value; /* of x; INFINITY without a point */
    double *x;    /* one per variable, integers exact; NULL unless LP_OPTIMAL */
};

/* Solves the program within so many wall seconds over all attempts (0: no limit). Stops
 * early when interrupted() (common/progress.h) turns true. */
enum lp_status lp_minimize(const struct lp_model *m, double time_budget_s,
                           struct lp_answer *a);
void lp_answer_release(struct lp_answer *a);

#endif
