/* mcmc - annealed sampling, after FlexFlow (Jia, Zaharia, Aiken, "Beyond Data and
 * Model Parallelism for Deep Neural Networks", MLSys 2019).
 *
 * A chain changes one thing of its candidate at random (mcmc_moves.c). It keeps the
 * change if that is better, and otherwise with the probability exp(-worse /
 * temperature). The energy that is compared is the logarithm of the time, so that
 * temperatures have no unit, plus a penalty for the share of the memory that is
 * missing: chains may pass through plans that do not fit while they are hot, and the
 * penalty rises as they cool. A chain starts at the median energy by which changes of
 * its first plan are worse, and cools geometrically.
 *
 * Chains start in turn from the best of some random pipelines and, less hot, from the
 * best plan so far. The search ends after MOST_IDLE chains in a row that found nothing
 * better, or when it has scored as many stages as it may. As a member of a portfolio it
 * may score as many again after each chain that helped. */
#include "search/algorithms/mcmc.h"

#include "search/algorithms/algorithms.h"

#include <math.h>
#include <stdlib.h>

enum {
    DRAWS = 64, /* random pipelines, of which the best is a start */
    TRIES = 40, /* attempts at a legal one, for each */
    PROBES = 60,
    STEPS = 6000, /* changes in a chain */
    MOST_CHAINS = 12,
    MOST_IDLE = 2,        /* chains in a row without a better plan */
    MOST_SCORED = 400000, /* stages, by all chains together */
};

static const double COLDEST = 1e-4, WARMEST = 0.2, PENALTY = 2, HELPS = 5e-4;

struct chain {
    struct search *s;
    struct rng rng;
    struct candidate at, next;
    struct score score; /* of `at` */
    double penalty;     /* the penalty for a plan that lacks all of the memory */
    int64_t most;       /* the value of budget.work at which to stop */
};

/* the best of all chains */
struct best {
    struct candidate c;
    struct score score;
};

static double energy(const struct chain *ch, const struct score *score) {
    double memory = (double)space_problem_of(&ch->s->space)->memory_bytes;
    return log(score->time_us) +
           (memory > 0 ? ch->penalty * (double)score->overflow / memory : 0);
}

static void offer(struct best *best, const struct candidate *c, const struct score *score) {
    if (score->unknown || !score_better(score, &best->score))
        return;
    candidate_copy(&best->c, c);
    best->score = *score;
}

/* Draws a change of the chain's candidate into ch->next and scores it; false if the
 * change that was drawn is impossible. */
static bool propose(struct chain *ch, struct score *out) {
    if (!mcmc_propose(ch->s, &ch->rng, &ch->at, &ch->next) ||
        !eval_legal(&ch->s->eval, &ch->next))
        return false;
    *out = pool_score(&ch->s->pool, &ch->next);
    return !out->unknown;
}

/* Makes the best of some random pipelines the chain's candidate; false if none was
 * legal and fully profiled. */
static bool draw(struct chain *ch) {
    bool found = false;
    for (int i = 0, tries = 0; i < DRAWS && tries < DRAWS * TRIES; tries++) {
        if (budget_stopped(&ch->s->budget) || !mcmc_draw(ch->s, &ch->rng, &ch->next))
            continue;
        struct score score = pool_score(&ch->s->pool, &ch->next);
        i++;
        if (score.unknown || (found && energy(ch, &score) >= energy(ch, &ch->score)))
            continue;
        candidate_copy(&ch->at, &ch->next);
        ch->score = score;
        found = true;
    }
    return found;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median energy that changes for the worse add, at most WARMEST. */
static double first_temperature(struct chain *ch, struct best *best) {
    double worse[PROBES], now = energy(ch, &ch->score);
    struct score score;
    int n = 0;
    for (int i = 0; i < PROBES && !budget_stopped(&ch->s->budget); i++) {
        if (!propose(ch, &score))
            continue;
        offer(best, &ch->next, &score);
        double by = energy(ch, &score) - now;
        if (by > COLDEST)
            worse[n++] = by;
    }
    qsort(worse, (size_t)n, sizeof *worse, by_size);
    return n ? fmin(worse[n / 2], WARMEST) : COLDEST;
}

static bool accepts(struct chain *ch, const struct score *score, double temperature) {
    double worse = energy(ch, score) - energy(ch, &ch->score);
    return rng_real(&ch->rng) < exp(-worse / temperature);
}

static bool goes_on(const struct chain *ch) {
    return !budget_stopped(&ch->s->budget) && ch->s->budget.work < ch->most;
}

/* Runs the chain from ch->at while the temperature falls from `warm` to COLDEST. */
static void anneal(struct chain *ch, double warm, int steps, struct best *best) {
    double ratio = pow(COLDEST / warm, 1.0 / steps), temperature = warm;
    struct score score;
    for (int i = 0; i < steps && goes_on(ch); i++, temperature *= ratio) {
        ch->penalty = PENALTY * sqrt(WARMEST / temperature);
        if (!propose(ch, &score))
            continue;
        offer(best, &ch->next, &score);
        if (!accepts(ch, &score, temperature))
            continue;
        candidate_copy(&ch->at, &ch->next);
        ch->score = score;
    }
}

/* Runs one chain; returns whether it improved the best plan by at least HELPS. */
static bool run_chain(struct chain *ch, bool fresh, struct best *best) {
    const struct score before = best->score;
    ch->penalty = PENALTY;
    if (fresh && !draw(ch))
        return false;
    if (!fresh) {
        candidate_copy(&ch->at, &best->c);
        ch->score = best->score;
    }
    offer(best, &ch->at, &ch->score);
    double warm = first_temperature(ch, best);
    anneal(ch, fresh ? warm : fmax(warm / 4, 2 * COLDEST), STEPS, best);
    return before.unknown || best->score.overflow < before.overflow ||
           best->score.time_us < before.time_us * (1 - HELPS);
}

void mcmc_refine(struct search *s, struct rng *r, int steps, struct candidate *c,
                 struct score *score) {
    struct chain ch = {.s = s, .rng = *r, .score = *score, .penalty = PENALTY};
    struct best best = {*c, *score};
    ch.at = candidate_make(&s->space);
    ch.next = candidate_make(&s->space);
    ch.most = INT64_MAX;
    candidate_copy(&ch.at, c);
    anneal(&ch, fmax(first_temperature(&ch, &best) / 4, 2 * COLDEST), steps, &best);
    *c = best.c;
    *score = best.score;
    *r = ch.rng;
    candidate_release(&ch.at);
    candidate_release(&ch.next);
}

/* Chain i draws from a random stream of its own, so that what it does depends only on
 * the seed and on the best plan at its start. */
int search_mcmc(struct search *s, struct err *err) {
    (void)err;
    struct chain ch = {
        .s = s, .at = candidate_make(&s->space), .next = candidate_make(&s->space)};
    ch.most = s->budget.work + (s->budget.share ? s->budget.share : MOST_SCORED);
    struct best best = {.c = candidate_make(&s->space), .score = {.unknown = true}};
    if (s->has_from) {
        best.score = pool_score(&s->pool, &s->from);
        candidate_copy(&best.c, &s->from);
    }
    for (int i = 0, idle = 0; i < MOST_CHAINS && idle < MOST_IDLE && goes_on(&ch); i++) {
        ch.rng = (struct rng){rng_mix(space_problem_of(&s->space)->seed + (uint64_t)i), 0};
        bool helped = run_chain(&ch, i % 2 == s->has_from || best.score.unknown, &best);
        idle = helped ? 0 : idle + 1;
        if (helped && s->budget.share)
            ch.most = s->budget.work + s->budget.share;
    }
    if (!budget_stopped(&s->budget))
        search_mark_complete(s, 0);
    candidate_release(&ch.at);
    candidate_release(&ch.next);
    candidate_release(&best.c);
    return 0;
}
