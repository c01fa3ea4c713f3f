/* critical.h - one value for each variable, cheapest by tables over a few variables each.
 * The problem is cut at critical variables, its pieces are integer programs, and dynamic
 * programming joins them.
 *
 * minimize  sum_f cost_f[x_f]   such that   sum_f usage_f[x_f] <= limit
 *
 * Where tables stay small, all variables are eliminated one after the other. Otherwise the
 * graph is cut as TePDist lays out a graph of ops: its critical nodes, which nothing
 * bypasses, cut it into pieces. A piece is an integer program for every combination of
 * values of the critical nodes around it, and a dynamic program over these joins the
 * pieces. Where a piece is too large for a program, it is also cut at the variables that
 * most tables share.
 *
 * A program is solved only when it is needed. The join takes lower bounds for costs, at
 * first sums of least entries. The entries that its answer rests on are solved, and the
 * join is repeated until all of them are exact. Then no other answer is cheaper.
 *
 * A Lagrange multiplier of the limit follows the lower hull of cost against usage, and the
 * program of a piece has a row that leaves everything else its least usage. A gap that
 * remains is closed by going through all choices whose value under the multiplier lies
 * between the bound and the best one, or, where there are too many of them, by one program
 * for everything if it is small enough.
 *
 *     struct critical_problem p = {.n = 3, .size = (int[]){2, 4, 2}, .factors = f, .n_factors = 5,
 *                                  .critical = (bool[]){true, false, true}, .limit = INFINITY};
 *     struct critical_answer a;
 *     if (critical_solve(&p, &(struct critical_options){.programs = 1000}, &a) == 0)
 *         use(a.choice, a.cost);
 *     critical_answer_release(&a);
 */
#ifndef WEFT_SOLVE_CRITICAL_H
#define WEFT_SOLVE_CRITICAL_H

#include <stdbool.h>
#include <stdint.h>

enum { CRITICAL_ARITY = 4 };

/* A table over 1 to CRITICAL_ARITY different variables, row by row, the last one
 * fastest. */
struct critical_factor {
    int n;
    int var[CRITICAL_ARITY];
    const double *cost;  /* INFINITY forbids */
    const double *usage; /* >= 0 or below; NULL = 0 */
};

struct critical_problem {
    int n;
    const int *size; /* values of each variable, at least one */
    int n_factors;
    const struct critical_factor *factors;
    const bool *critical; /* where to cut */
    double limit;         /* of usage, inclusive; INFINITY = none */
};

/* Limits on work, which keep the answer independent of the machine's speed, and a limit on
 * time. */
struct critical_options {
    int64_t programs; /* calls of lp_solve at most */
    bool closes;      /* closes the gap that the multiplier leaves, if it can */
    /* cuts only at the critical variables, even where no program is needed */
    bool by_pieces;
    double time_budget_s; /* 0 = none */
};

struct critical_answer {
    int *choice;        /* [n]; owned; NULL where none was found */
    double cost, usage; /* of it */
    double bound;       /* no choice within the limit costs less; INFINITY: there is none */
    int64_t programs;   /* calls of lp_solve */
    int rows, columns;  /* of the largest of them */
    int n_pieces;       /* of more than one variable */
};

/* Returns 0, or EXIT_NO when no choice within the limit was found. The bound is then
 * INFINITY where there is no such choice, and -INFINITY where the pieces are connected
 * in too many places to be joined. */
int critical_solve(const struct critical_problem *p, const struct critical_options *o,
                   struct critical_answer *a);
void critical_answer_release(struct critical_answer *a);

/* Hands every choice that costs at most most_cost, whatever it uses, to `take`, until
 * `take` returns false. steps: the most values that are set. Returns whether all such
 * choices were handed out. */
bool critical_list(const struct critical_problem *p, double most_cost, int64_t steps,
                   bool (*take)(void *arg, const int *choice), void *arg);

#endif
