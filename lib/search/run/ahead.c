/* Schedules that run further ahead: a score knows no waiting for messages, so it knows of such a schedule
 * only that it holds more. The algorithms leave them out, and the best of their candidates are
 * compiled and simulated under them where that can pay: where a pipeline nobody of which waits for
 * messages would be faster than the fastest plan. Where the algorithm has listed all candidates, all of
 * those that were simulated are, so that what it proves holds for these schedules as well. */
#include "search/run/runs.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST_TRIED = 3, /* candidates under each schedule: those that differ wait alike */
    MOST_SEEN = 32  /* of the pool, from the best on */
};

/* Less is not worth what the plan holds in addition. */
static const double LEAST_GAIN = 0.998;

/* Can a plan with this score be faster than the fastest one? */
static bool can_pay(const struct pool *pool, const struct score *score) {
    double limit = pool->proven ? SEARCH_SLACK : LEAST_GAIN;
    return !score->unknown && score->time_us <= limit * pool->plans[0].plan.time_us;
}

/* Under the schedule, if it can be that fast; returns whether it was simulated. */
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

/* Copies, since scoring moves what the pool has. Returns how many there are. */
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
