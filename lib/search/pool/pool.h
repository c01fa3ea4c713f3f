/* pool.h - all candidates that are remembered, in one place, and why.
 *
 *   best          the best by score, each once, best first; of several classes if
 *                 several plans are wanted
 *   alternatives  candidates of another kind than the best, whose scores may be closer
 *                 to the truth
 *   incumbents    the best at fixed points of the work (incumbents.h), so that a longer
 *                 budget never gives a slower plan
 *   near          the fastest that exceed the memory by a little: their estimates may be
 *                 too high
 *   nearest       the best whose costs are known but that does not fit; like `unknown`,
 *                 it explains why there is no plan
 *   unknown       the best that might fit but lacks profile rows
 *   plans         what was compiled and simulated, fastest first: these are handed out
 *
 *     struct score score = pool_score(pool, &candidate);       // remembered if it is good
 *     pool_evaluate_finalists(pool);                           // at the end
 */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "search/evaluate/evaluate.h"
#include "search/space/devices.h"

/* A candidate that is remembered. */
struct entry {
    struct candidate c;
    struct score score;
    uint64_t hash, class; /* eval_identity; space_class, or 0 if one plan is wanted */
    const char *member;   /* the member of auto that found it, or NULL */
    bool evaluated;       /* compiled and simulated */
    int64_t excess;       /* if evaluated: bytes beyond the memory, */
    int fullest;          /* on the devices of this stage */
};

/* A candidate that was the best at some point. */
struct incumbent {
    struct entry k;
    /* A runner-up: it only replaces the incumbent noted with it if that is too large. */
    bool instead;
};

/* A plan that was evaluated, fits, and has all of its profile rows. */
struct evaluated {
    struct search_plan plan;
    uint64_t class; /* of its candidate */
    bool first;     /* of its class */
};

enum { MOST_ALTERNATIVES = 9, MOST_WINNERS = 64, MOST_NEAR = 8 };

struct pool {
    struct evaluate *ev; /* borrowed, like the space and the budget */
    const struct space *space;
    struct budget *budget;
    const char *member; /* the member of auto that is running, or NULL */
    struct entry *best;
    int n_best, max_best;
    struct entry alternatives[MOST_ALTERNATIVES + MOST_WINNERS];
    int n_alternatives;
    struct entry near[MOST_NEAR];
    int n_near;
    ARR(struct incumbent) incumbents; /* in the order in which they were noted */
    int64_t incumbents_evaluated;     /* how many of them were evaluated */
    int64_t next_incumbent; /* the value of budget.work at which to note the next one */
    struct entry nearest, unknown;
    bool has_nearest, has_unknown;
    struct evaluated *plans;
    int n_plans;
    struct evaluated fallback; /* evaluated on the way, in case no finalist fits */
    double last_evaluated_s;   /* now_s() when a candidate was last evaluated on the way */
    struct shortage refused; /* of the finalist that lacks least; 0 bytes: none lacks any */
    /* The algorithm left out nothing that is estimated within SEARCH_SLACK of the
     * best. */
    bool proven;
    /* all plans were listed, and none is faster than this; 0 = nothing is proven */
    double listed_us;
};

void pool_begin(struct pool *pool, struct evaluate *ev, struct budget *b);
void pool_end(struct pool *pool);
/* Begins a new round: forgets the candidates, but not plans or why there is none. */
void pool_forget(struct pool *pool);

/* Scores a legal candidate and remembers it if it is one of the best. The best one is
 * compiled and simulated from time to time. */
struct score pool_score(struct pool *pool, const struct candidate *c);
/* The class of a candidate; 0 where one plan is wanted, because it does not matter. */
static inline uint64_t pool_class(const struct pool *pool, const struct candidate *c) {
    return pool->space->p.top > 1 ? space_class(pool->space, c) : 0;
}
/* Keeps a candidate of another kind than the best. It is evaluated at the end if the
 * finalists turn out slower than its estimate, because the estimates of the best kind
 * may be too low. Only the first few are kept. */
void pool_keep_alternative(struct pool *pool, const struct candidate *c,
                           const struct score *score);
/* Keeps a candidate in the same way, even if others push it out of the list of the
 * best. */
void pool_keep_winner(struct pool *pool, const struct candidate *c,
                      const struct score *score);
/* Keeps the best candidates in this way, as many as would be evaluated now. */
void pool_keep_winners(struct pool *pool);

/* For algorithms that prove their result: from now on the pool only keeps candidates
 * that fit when they are compiled and whose estimate is within SEARCH_SLACK of the
 * best. */
void pool_be_exact(struct pool *pool);

/* Compiles the best candidate; as long as it turns out too large, later scores have
 * that much less memory. Returns whether the memory was reduced, which changes scores
 * (settle.c). */
bool pool_settle(struct pool *pool);
/* Reserves no more than the best candidate asks for, and scores the pool again. */
void pool_give_back(struct pool *pool);

/* Evaluates the best candidate if that is due, or all finalists (finalists.c). */
void pool_evaluate_best(struct pool *pool);
void pool_evaluate_finalists(struct pool *pool);
/* Evaluates a given plan, which is close to this candidate, and keeps it if it fits
 * and is faster than all others. */
void pool_take_plan(struct pool *pool, struct plan *plan, const struct candidate *c);
/* Evaluates this candidate now; returns its simulated time, or INFINITY if it does not
 * fit or lacks profile rows. */
double pool_evaluate(struct pool *pool, const struct candidate *c, const char *member);
/* The time up to which a plan may be handed out because it is simple, and the index of
 * the plan within it that needs the fewest words. */
double pool_limit_us(const struct pool *pool);
int pool_simplest(const struct pool *pool);
/* The simulated time of the best candidate; INFINITY if there is none or it does not
 * fit. */
double pool_simulated_us(struct pool *pool);

/* The estimated time of the best candidate with at least this many stages; INFINITY if
 * there is none. */
double pool_first_us(const struct pool *pool, int least_stages);
enum {
    LOOK_PIPELINE = 2
}; /* stages: a plan with one is the same in all orders of ops (order.h) */
/* The estimated time of the slowest of the best candidates: slower ones are not
 * remembered. INFINITY while there is room for more, or where several plans are
 * wanted. */
double pool_last_us(const struct pool *pool);

#endif
