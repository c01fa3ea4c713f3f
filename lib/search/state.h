/* state.h - the state of a search: what algorithms see, and what `run` passes from one
 * to the next.
 *
 * It has four parts, each with a header of its own: the space is constant; the
 * evaluator says what candidates cost; the pool remembers the good ones; the budget
 * says when to stop. This header includes all four.
 *
 *     struct search s;
 *     search_begin(&s, &problem);
 *     if (eval_legal(&s.eval, &c))
 *         pool_score(&s.pool, &c);
 *     search_end(&s);
 */
#ifndef WEFT_STATE_H
#define WEFT_STATE_H

#include "search/budget/budget.h"
#include "search/evaluate/evaluate.h"
#include "search/evaluate/long_lived.h"
#include "search/evaluate/stage_tables.h"
#include "search/evaluate/strategies.h"
#include "search/pool/incumbents.h"
#include "search/pool/pool.h"
#include "search/space/devices.h"
#include "search/space/layouts.h"
#include "search/space/space.h"

/* A candidate and its score. */
struct option {
    struct candidate c;
    struct score score;
};

/* Inserts a copy of the candidate into a list of the *n best, best first. The list has room
 * for `most`, all of whose candidates are made; when it is full, the worst one is dropped.
 * A candidate with an unknown score is not inserted. */
void options_insert(struct option *list, int *n, int most, const struct candidate *c,
                    struct score score);

struct search {
    struct budget budget;
    struct space space;
    struct evaluate eval;
    struct pool pool;
    struct candidate from; /* the candidate to start from, if has_from */
    bool has_from;
    /* what hops_starts found for one limit of memory; NULL: not computed yet */
    struct option *starts;
    int64_t n_starts;
    bool complete;     /* the algorithm ended by itself */
    double space_size; /* number of candidates that exhaustive listed */
    double first_us;   /* what a first look at the problem finds (runs.h); 0 = not known */
};

void search_begin(struct search *s, const struct search_problem *p);
void search_end(struct search *s);
void search_forget_starts(struct search *s);
void search_mark_complete(struct search *s, double space_size);

/* Returns whether another search may begin: the budget is not used up, and the user has
 * not interrupted. */
bool search_in_time(const struct search_problem *p);

#endif
