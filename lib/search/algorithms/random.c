/* random - the baseline that any other algorithm has to beat: none of its choices
 * depends on what was found.
 *
 * It draws a random balanced pipeline, makes random changes, all of which it keeps,
 * and scores every legal candidate on the way; then it starts again from another
 * pipeline. Pipelines and changes are those of mcmc, so the difference between the two
 * is what annealing is worth. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/mcmc.h"

enum {
    MOST_SCORED = 100000, /* stages */
    MOST_STEPS = 64,      /* changes before a restart */
    MOST_RESTARTS = 100000,
};

static bool goes_on(const struct search *s, int64_t most) {
    return !budget_stopped(&s->budget) && s->budget.work < most;
}

/* Walks at random from *at, which is overwritten; *next is scratch. */
static void wander(struct search *s, struct rng *r, int64_t most, struct candidate *at,
                   struct candidate *next) {
    pool_score(&s->pool, at);
    for (int i = 0; i < MOST_STEPS && goes_on(s, most); i++) {
        if (!mcmc_propose(s, r, at, next) || !eval_legal(&s->eval, next))
            continue;
        pool_score(&s->pool, next);
        candidate_copy(at, next);
    }
}

int search_random(struct search *s, struct err *err) {
    (void)err;
    struct candidate at = candidate_make(&s->space), next = candidate_make(&s->space);
    int64_t most = s->budget.work + (s->budget.share ? s->budget.share : MOST_SCORED);
    for (int i = 0; i < MOST_RESTARTS && goes_on(s, most); i++) {
        struct rng r = {rng_mix(space_problem_of(&s->space)->seed + (uint64_t)i), 0};
        if (mcmc_draw(s, &r, &at))
            wander(s, &r, most, &at, &next);
    }
    if (!budget_stopped(&s->budget))
        search_mark_complete(s, 0);
    candidate_release(&at);
    candidate_release(&next);
    return 0;
}
