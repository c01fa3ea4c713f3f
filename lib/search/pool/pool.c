/* The pool (see pool.h). */
#include "search/pool/pool.h"

#include "search/pool/incumbents.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tells the budget the best time, so that the search stops when the gap is closed. */
static void note_best(struct pool *pool) {
    pool->budget->best_us = pool->n_best ? pool->best[0].score.time_us : INFINITY;
}

static void remember(const struct pool *pool, struct entry *k, const struct candidate *c,
                     const struct score *score, uint64_t hash, uint64_t class) {
    candidate_copy(&k->c, c);
    k->member = pool->member;
    k->score = *score;
    k->hash = hash;
    k->class = class;
    k->evaluated = false;
    k->excess = 0;
}

/* Returns the index of the entry that a new one at `at` replaces: if several plans are
 * wanted and there are enough of its class, the worst of this class; otherwise a free
 * entry or the worst of all. Returns -1 if the new one is the worst itself. */
static int room_for(struct pool *pool, uint64_t class, int at) {
    enum { OF_A_CLASS = 4 };
    int alike = 0, last = -1;
    for (int i = 0; i < pool->n_best && pool->space->p.top > 1; i++)
        if (pool->best[i].class == class) {
            alike++;
            last = i;
        }
    if (alike >= OF_A_CLASS)
        return last < at ? -1 : last;
    return pool->n_best < pool->max_best ? pool->n_best++ : pool->max_best - 1;
}

static void add_alternative(struct pool *pool, const struct candidate *c,
                            const struct score *score) {
    struct entry *k = &pool->alternatives[pool->n_alternatives++];
    if (!k->c.stages)
        k->c = candidate_make(pool->space);
    remember(pool, k, c, score, candidate_hash(c), pool_class(pool, c));
}

void pool_keep_alternative(struct pool *pool, const struct candidate *c,
                           const struct score *score) {
    if (pool->n_alternatives < MOST_ALTERNATIVES && !score->overflow && !score->unknown)
        add_alternative(pool, c, score);
}

void pool_keep_winner(struct pool *pool, const struct candidate *c,
                      const struct score *score) {
    if (pool->n_alternatives < MOST_ALTERNATIVES + MOST_WINNERS)
        add_alternative(pool, c, score);
}

void pool_keep_winners(struct pool *pool) {
    const char *member = pool->member;
    int64_t n = pool->space->p.top + space_spare(pool->space);
    for (int i = 0; i < pool->n_best && i < n; i++) {
        pool->member = pool->best[i].member;
        pool_keep_winner(pool, &pool->best[i].c, &pool->best[i].score);
    }
    pool->member = member;
}

/* Makes room for this many of the best candidates. */
static void keep_most(struct pool *pool, int most) {
    pool->best = mem_grow(pool->best, (size_t)most, sizeof *pool->best);
    for (int i = pool->max_best; i < most; i++)
        pool->best[i] = (struct entry){.c = candidate_make(pool->space)};
    pool->plans = mem_grow(pool->plans, (size_t)most + 1, sizeof *pool->plans);
    pool->max_best = most;
}

static bool may_be_best(struct pool *pool, const struct candidate *c,
                        const struct score *score) {
    return (!pool->n_best ||
            score->time_us <= SEARCH_SLACK * pool->best[0].score.time_us) &&
           eval_fits(pool->ev, c);
}

/* Remembers the best candidates that do not fit or lack profile rows, which explain
 * why there is no plan. */
static void keep_lacking(struct pool *pool, const struct candidate *c,
                         const struct score *score) {
    struct entry *k = score->unknown ? &pool->unknown : &pool->nearest;
    bool *has = score->unknown ? &pool->has_unknown : &pool->has_nearest;
    if (!*has || score->overflow < k->score.overflow)
        remember(pool, k, c, score, 0, 0);
    *has = true;
}

/* Remembers the fastest candidates that exceed the memory by less than scores may err. */
static void keep_near(struct pool *pool, const struct candidate *c,
                      const struct score *score) {
    enum { PART = 64 };
    int at = pool->n_near;
    if (score->unknown || score->overflow > pool->space->p.memory_bytes / PART)
        return;
    while (at > 0 && score->time_us < pool->near[at - 1].score.time_us)
        at--;
    if (at == MOST_NEAR)
        return;
    uint64_t hash = eval_identity(pool->ev, c);
    for (int i = 0; i < pool->n_near; i++)
        if (pool->near[i].hash == hash)
            return;
    int last = pool->n_near < MOST_NEAR ? pool->n_near++ : MOST_NEAR - 1;
    struct entry room = pool->near[last];
    memmove(&pool->near[at + 1], &pool->near[at], sizeof room * (size_t)(last - at));
    pool->near[at] = room;
    if (!room.c.stages)
        pool->near[at].c = candidate_make(pool->space);
    remember(pool, &pool->near[at], c, score, hash, pool_class(pool, c));
}

/* Inserts the candidate into the list of the best, unless it is too slow or an equal
 * one is there. */
static void keep(struct pool *pool, const struct candidate *c, const struct score *score) {
    int at = pool->n_best;
    while (at > 0 && score_better(score, &pool->best[at - 1].score))
        at--;
    if (at == pool->max_best)
        return;
    uint64_t hash = eval_identity(pool->ev, c);
    for (int i = 0; i < pool->n_best; i++)
        if (pool->best[i].hash == hash)
            return;
    if (pool->ev->exact && !may_be_best(pool, c, score))
        return;
    uint64_t class = pool_class(pool, c);
    int n = room_for(pool, class, at);
    if (n < 0)
        return;
    struct entry last = pool->best[n];
    memmove(&pool->best[at + 1], &pool->best[at], sizeof *pool->best * (size_t)(n - at));
    pool->best[at] = last;
    remember(pool, &pool->best[at], c, score, hash, class);
    note_best(pool);
    pool_note_incumbent_if_due(pool);
}

struct score pool_score(struct pool *pool, const struct candidate *c) {
    struct score score = eval_score(pool->ev, c);
    if (score.unknown || score.overflow) {
        keep_lacking(pool, c, &score);
        keep_near(pool, c, &score);
    } else
        keep(pool, c, &score);
    return score;
}

double pool_first_us(const struct pool *pool, int least_stages) {
    double least_us = INFINITY;
    for (int i = 0; i < pool->n_best; i++)
        if (pool->best[i].c.n_stages >= least_stages && !pool->best[i].score.overflow)
            least_us = fmin(least_us, pool->best[i].score.time_us);
    return least_us;
}

double pool_last_us(const struct pool *pool) {
    bool full = pool->space->p.top == 1 && pool->n_best == pool->max_best;
    return full ? pool->best[pool->n_best - 1].score.time_us : INFINITY;
}

/* ---- proofs -------------------------------------------------------------------------- */

/* A proof evaluates all candidates that are equally good, so many more are kept. */
void pool_be_exact(struct pool *pool) {
    int n = 0;
    pool->ev->exact = true;
    keep_most(pool, 4 * pool->space->p.top + 500);
    for (int i = 0; i < pool->n_best; i++) {
        struct entry k = pool->best[i];
        if (!eval_fits(pool->ev, &k.c))
            continue;
        pool->best[i] = pool->best[n];
        pool->best[n++] = k;
    }
    pool->n_best = n;
    note_best(pool);
}

/* ---- begin and end ------------------------------------------------------------------- */

void pool_begin(struct pool *pool, struct evaluate *ev, struct budget *b) {
    *pool = (struct pool){.ev = ev, .space = ev->space, .budget = b};
    pool->nearest.c = candidate_make(pool->space);
    pool->unknown.c = candidate_make(pool->space);
    note_best(pool);
    /* more than are wanted, because the simulator may put the finalists into another
     * order */
    keep_most(pool, 4 * pool->space->p.top + 12);
}

void pool_forget(struct pool *pool) {
    pool->n_best = pool->n_alternatives = pool->n_near = 0;
    pool->ev->exact = pool->proven = false;
    pool_forget_incumbents(pool);
    note_best(pool);
}

void pool_end(struct pool *pool) {
    for (int i = 0; i < pool->max_best; i++)
        candidate_release(&pool->best[i].c);
    candidate_release(&pool->nearest.c);
    candidate_release(&pool->unknown.c);
    for (int i = 0; i < MOST_ALTERNATIVES + MOST_WINNERS; i++)
        candidate_release(&pool->alternatives[i].c);
    for (int i = 0; i < MOST_NEAR; i++)
        candidate_release(&pool->near[i].c);
    free(pool->best);
    for (int i = 0; i < pool->n_plans; i++)
        plan_destroy(pool->plans[i].plan.plan);
    plan_destroy(pool->fallback.plan.plan);
    free(pool->plans);
    pool_forget_incumbents(pool);
    arr_release(&pool->incumbents);
}
