/* budget.h - when a search stops: a limit of time or of work, an interrupt, or a
 * closed gap.
 *
 * Work is counted in scored stages. It is the same on every machine, so whatever is
 * decided by work leads to the same plan everywhere.
 *
 *     while (!budget_stopped(&s->budget))
 *         improve(s);
 */
#ifndef WEFT_BUDGET_H
#define WEFT_BUDGET_H

#include "search/budget/watch.h"

#include <stdbool.h>
#include <stdint.h>

struct budget {
    double start_s;       /* now_s() when the search began */
    double time_budget_s; /* 0 = none */
    double deadline_s;    /* now_s() at which the time is used up; 0 = never */
    int64_t work_limit;   /* stages that may be scored; 0 = any number */
    int64_t work;         /* scored stages so far, */
    int64_t candidates;   /* and scored candidates */
    int64_t share;        /* stages that mcmc, dp and ilp may score; 0 = their own limits */
    /* duration of the last evaluation of a candidate; twice that is reserved */
    double evaluate_s;
    /* stop when the best is proven to be within this share of the optimum; 0 = never */
    double gap;
    double best_us;      /* estimate of the best candidate; INFINITY = none */
    double bound_us;     /* no plan is faster; 0 = not known */
    struct watch *watch; /* shows the progress of all threads; NULL = none is shown */
};

/* Returns whether there is a limit of time or of work. */
bool budget_is_limited(const struct budget *b);

/* Returns whether the budget is used up, except for what is reserved for evaluations, or
 * the user has interrupted. */
bool budget_out_of_time(const struct budget *b);
/* Returns whether the budget is used up or the gap is closed. */
bool budget_stopped(const struct budget *b);

/* Seconds that are left; very many if there is no deadline. */
double budget_time_left_s(const struct budget *b);
/* The same as a solver's limit, where 0 means none: 0 only if there is no deadline. */
double budget_left_s(const struct budget *b);

#endif
