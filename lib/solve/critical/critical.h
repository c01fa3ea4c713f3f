/* critical.h - one value for each variable, cheapest by tables over a few of them each: cut at critical
 * variables, pieces by integer programs, joined by dynamic programming.
 *
 * minimize  sum_f cost_f[x_f]   such that   sum_f usage_f[x_f] <= limit
 *
 * Where tables stay small, all variables are eliminated one after the other, and that is all. Else the
 * graph is cut, as TePDist lays out a graph of ops: its critical nodes, those that all that passes goes
 * through, cut it into pieces; a piece is an integer program for every way of fixing the critical nodes
 * around it, and a dynamic program over these joins the pieces. Where a piece is too large for a
 * program, it is cut at more variables, those that most tables have.
 *
 * A program is only solved when it is asked for. What a piece costs at least, whatever lp_solve
 * would say, is a sum of least entries; the join takes these bounds for costs, the entries that its
 * answer rests on are solved, and it is joined anew, until all of them are exact: then no other answer
 * is cheaper.
 *
 * The limit has a price (a Lagrange multiplier), raised along the lower hull of cost against usage; a
 * piece's program has a row, too: what is left when all else uses the least. A gap that remains
 * is closed by going through all choices whose value under the price is between the bound and the
 * best one; where there are too many, by one program for everything, if it is small enough.
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

/* A table over 1 to CRITICAL_ARITY different variables, row by row, the last one fastest. */
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

/* Limits of work, so that the answer does not depend on the machine's speed; and of time. */
struct critical_options {
    int64_t programs; /* calls of lp_solve at most */
    bool closes;      /* closes the gap that the price of the limit leaves, if it can */
    /* cuts at the critical variables alone, even where no program is needed */
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

/* 0; EXIT_NO where no choice within the limit was found: bound is INFINITY where there is none,
 * -INFINITY where the pieces hang together in too many ways to be joined. */
int critical_solve(const struct critical_problem *p, const struct critical_options *o,
                   struct critical_answer *a);
void critical_answer_release(struct critical_answer *a);

/* Hands every choice that costs at most that, whatever it uses, to `take`, until that returns
 * false. steps: values that are set at most. Returns whether that were all of them. */
bool critical_list(const struct critical_problem *p, double most_cost, int64_t steps,
                   bool (*take)(void *arg, const int *choice), void *arg);

#endif
