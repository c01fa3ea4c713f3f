/* pool.h - every candidate that is remembered, in one place, and why.
 *
 *   best          the best by score, each once, best first; several classes where several plans are
 *                 wanted
 *   alternatives  candidates of another kind than the best, whose scores may be the truer ones
 *   incumbents    the best at fixed places of the work (incumbents.h), so that a longer budget never
 *                 gives a slower plan
 *   nearest       the best that is known but does not fit; unknown: the best that might fit, had the
 *                 profile all of it. They say why there is no plan.
 *   plans         what was compiled and simulated, fastest first: they are handed out
 *
 *     struct score score = pool_score(pool, &candidate);       // remembered if it is good
 *     pool_evaluate_finalists(pool);                           // in the end
 */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "search/evaluate/evaluate.h"

/* A candidate that is remembered. */
struct entry {
    struct candidate c;
    struct score score;
    uint64_t hash, class; /* eval_identity; space_class, or 0 where one plan is wanted */
    const char *member;   /* of auto that found it, or NULL */
    bool evaluated;       /* compiled and simulated */
    int64_t excess;       /* then: bytes beyond the memory, */
    int fullest;          /* on the devices of this stage */
};

/* One of the best at some time. */
struct incumbent {
    struct entry k;
    bool instead; /* of the one before, where that turns out too large */
};

/* A plan that was evaluated and is good. */
struct evaluated {
    struct search_plan plan;
    uint64_t class; /* of its candidate */
    bool first;     /* of its class */
};

/* What a plan lacks on the devices of one stage. */
struct shortage {
    int64_t bytes, limit;
    int stage, first, end; /* ops */
};

enum { MOST_ALTERNATIVES = 9, MOST_WINNERS = 64 };

struct pool {
    struct evaluate *ev; /* borrowed, like the space and the budget */
    const struct space *space;
    struct budget *budget;
    const char *member; /* of auto, that runs; NULL = none */
    struct entry *best;
    int n_best, max_best;
    struct entry alternatives[MOST_ALTERNATIVES + MOST_WINNERS];
    int n_alternatives;
    ARR(struct incumbent) incumbents; /* in the order of the work */
    int64_t incumbents_evaluated;     /* how many of them */
    int64_t next_incumbent;           /* when so many stages are scored */
    struct entry nearest, unknown;
    bool has_nearest, has_unknown;
    struct evaluated *plans;
    int n_plans;
    struct evaluated fallback; /* evaluated on the way, in case no finalist is good */
    double last_evaluated_s;   /* now_s() of the last evaluation on the way */
    struct shortage refused;   /* of the finalist that misses least; 0 bytes: none missed */
    bool proven; /* the algorithm left out nothing that is estimated within SEARCH_SLACK */
    double listed_us; /* what was not listed is not faster; 0 = nothing is proven */
};

void pool_begin(struct pool *pool, struct evaluate *ev, struct budget *b);
void pool_end(struct pool *pool);
/* Forgets what was found, but for the plans and the shortage; a new round begins. */
void pool_forget(struct pool *pool);

/* Scores a legal candidate, and remembers it if it is one of the best; the best one is compiled and
 * simulated every now and then. */
struct score pool_score(struct pool *pool, const struct candidate *c);
/* Keeps a candidate of another kind than the best. It is evaluated at the end if the finalists
 * turn out slower than its estimate, since the estimates of the best kind may be too low. Only
 * the first few are kept. */
void pool_keep_alternative(struct pool *pool, const struct candidate *c,
                           const struct score *score);
/* The candidates that would be evaluated now are evaluated at the end as well, even if others push
 * them out of the list of the best. */
void pool_keep_winners(struct pool *pool);

/* For algorithms that prove their result: from now on only candidates are kept that fit when they are
 * compiled, and are estimated within SEARCH_SLACK of the best. */
void pool_be_exact(struct pool *pool);

/* Compiles the best candidate; while it turns out too large, scores have that much less memory from
 * now on. Returns whether the memory was reduced: then scores change (settle.c). */
bool pool_settle(struct pool *pool);

/* Evaluates the best candidate, if that is due; the finalists (finalists.c). */
void pool_evaluate_best(struct pool *pool);
void pool_evaluate_finalists(struct pool *pool);
/* Evaluates a plan that is taken over, which this candidate is nearest to; it is kept if it is good and
 * faster than all others. */
void pool_take_plan(struct pool *pool, struct plan *plan, const struct candidate *c);
/* Evaluates this candidate now; its simulated time, or INFINITY where it is no good. */
double pool_evaluate(struct pool *pool, const struct candidate *c, const char *member);
/* No plan that takes longer is handed out for its simplicity; and, of the plans that may be, the one that
 * takes the fewest words. */
double pool_limit_us(const struct pool *pool);
int pool_simplest(const struct pool *pool);
/* The simulated time of the best candidate; INFINITY where there is none, or it does not fit. */
double pool_simulated_us(struct pool *pool);

/* The estimated time of the best candidate with at least so many stages; INFINITY where there is none. */
double pool_first_us(const struct pool *pool, int least_stages);
enum {
    LOOK_PIPELINE = 2
}; /* stages: plans with one are the same in all orders (order.h) */

/* What the candidate lacks: so many bytes on the devices of this stage. */
struct shortage space_shortage(const struct space *sp, const struct candidate *c, int stage,
                               int64_t bytes);

#endif
