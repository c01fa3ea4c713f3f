/* Schedules that run further ahead. A score does not count waiting for messages, so all
 * it shows of such a schedule is that it holds more memory. The algorithms therefore
 * leave these schedules out, and the best candidates are compiled and simulated under
 * them afterwards where that can pay: where the pipeline would be faster than the fastest
 * plan if no stage waited for messages. If the algorithm listed all candidates, all that
 * were simulated are simulated under these schedules too, so that its proof covers them. */
#include "search/run/runs.h"

#include <math.h>
#include <stdlib.h>

enum {
    /* candidates under each schedule; different candidates wait in similar ways */
    MOST_TRIED = 3,
    MOST_SEEN = 32 /* candidates of the pool that are considered, from the best on */
};

/* A smaller gain is not worth the additional memory that the plan holds. */
static const double LEAST_GAIN = 0.998;

/* Returns whether a plan with this score can be faster than the fastest one by enough or,
 * where a proof has to cover it, come within SEARCH_SLACK of it. */
static bool can_pay(const struct pool *pool, const struct score *score) {
    double limit = pool->proven ? SEARCH_SLACK : LEAST_GAIN;
    return !score->unknown && score->time_us <= limit * pool->plans[0].plan.time_us;
}

/* Simulates the candidate under the schedule if that can pay; returns whether it did. */
static bool try_under(struct search *s, struct candidate *c, enum schedule schedule) {
    struct pool *pool = &s->pool;
    c->schedule = schedule;
    if (!eval_legal(&s->eval, c))
        return false;
    struct score score = eval_score(&s->eval, c);
    if ((score.overflow && !pool->proven) || !can_pay(pool, &score))
        return false;
    pool_evaluate(pool, c, "ahead");
    return true;
}

/* Copies the pipelines in the pool, because scoring reorders the pool. Returns how
 * many there are. */
static int pipelines_of(const struct search *s, int most, struct candidate *out) {
    const struct pool *pool = &s->pool;
    int n = 0;
    for (int i = 0; i < pool->n_best + pool->n_alternatives && n < most; i++) {
        const struct entry *e =
            i < pool->n_best ? &pool->best[i] : &pool->alternatives[i - pool->n_best];
        const struct candidate *c = &e->c;
        if (c->n_groups < 2 || c->n_groups < c->n_stages ||
            schedule_traits(c->schedule)->splits)
            continue;
        out[n] = candidate_make(&s->space);
        candidate_copy(&out[n++], c);
    }
    return n;
}

/* Without a proof only the first few candidates under each schedule are simulated. */
void search_ahead(struct search *s) {
    struct pool *pool = &s->pool;
    int all = pool->n_best + pool->n_alternatives, most = pool->proven ? all : MOST_SEEN;
    if (!s->space.further || !pool->n_plans)
        return;
    struct candidate *pipelines = mem_array((size_t)all + 1, sizeof *pipelines);
    int n = pipelines_of(s, most, pipelines);
    for (int f = 0; f < SCHEDULE_COUNT; f++)
        for (int i = 0, tried = 0;
             i < n && (pool->proven || tried < MOST_TRIED) && (s->space.further >> f & 1) &&
             !budget_out_of_time(&s->budget);
             i++)
            tried += try_under(s, &pipelines[i], (enum schedule)f);
    pool->listed_us = fmin(pool->listed_us, pool->plans[0].plan.time_us);
    for (int i = 0; i < n; i++)
        candidate_release(&pipelines[i]);
    free(pipelines);
}
