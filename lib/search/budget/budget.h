/* budget.h - when a search stops: a limit of time or of work, an interrupt, a gap that is closed.
 *
 * Work is counted in stages that were scored. It is the same on every machine, so whatever decides by
 * work finds the same plan everywhere.
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
    int64_t work;         /* stages scored so far, */
    int64_t candidates;   /* and the candidates that they were in */
    int64_t share;        /* what mcmc, dp and ilp may score; 0 = by their own measure */
    double evaluate_s;   /* what the last evaluation of a candidate took; kept in reserve */
    double gap;          /* stop once the best is proven to be that near; 0 = go on */
    double best_us;      /* estimate of the best candidate; INFINITY = none */
    double bound_us;     /* no plan is faster than that; 0 = not known */
    struct watch *watch; /* shows the progress of all threads; NULL = none is shown */
};

/* Is there a limit, of time or of work? */
bool budget_is_limited(const struct budget *b);

/* Is the budget used up, but for what the last evaluation needs, or did the user interrupt? */
bool budget_out_of_time(const struct budget *b);
/* That, or the gap is closed. */
bool budget_stopped(const struct budget *b);

/* Seconds that are left; without a deadline many. */
double budget_time_left_s(const struct budget *b);
/* The same as a solver's limit: never 0, which stands for no limit. */
double budget_left_s(const struct budget *b);

#endif
