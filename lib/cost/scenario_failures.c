/* Failures along a run: see scenario.h. */
#include "cost/scenario.h"

#include "common/rng.h"

#include <math.h>

/* More events than these tell nothing new: the run is judged by what came until then. */
enum { MOST_EVENTS = 2000000 };

double daly_interval_s(double write_s, double mtbf_s) {
    if (write_s >= 2 * mtbf_s)
        return mtbf_s;
    double x = write_s / (2 * mtbf_s);
    return sqrt(2 * write_s * mtbf_s) * (1 + sqrt(x) / 3 + x / 9) - write_s;
}

double daly_goodput(double interval_s, double write_s, double restart_s, double mtbf_s) {
    if (mtbf_s <= 0)
        return interval_s / (interval_s + write_s);
    return interval_s /
           (mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + write_s) / mtbf_s));
}

/* A run under way. */
struct run {
    const struct scenario *s;
    double interval_s, mtbf_s, end_s;
    double now_s, failure_s;                    /* the next one */
    double useful_s, writing_s, lost_s, down_s; /* so far */
    int64_t failures, checkpoints, events;
    struct rng rng;
};

/* Failures do not depend on the past, so the times between them are exponential. */
static void next_failure(struct run *r) {
    r->failure_s =
        r->mtbf_s > 0 ? r->now_s - r->mtbf_s * log(1 - rng_real(&r->rng)) : INFINITY;
}

/* A restart can fail too. */
static void restart(struct run *r) {
    r->failures++;
    next_failure(r);
    while (r->failure_s < r->now_s + r->s->restart_s && r->now_s < r->end_s &&
           r->events++ < MOST_EVENTS) {
        r->down_s += r->failure_s - r->now_s;
        r->now_s = r->failure_s;
        r->failures++;
        next_failure(r);
    }
    r->down_s += r->s->restart_s;
    r->now_s += r->s->restart_s;
}

/* Trains up to the next checkpoint; a failure before it is written loses the work since. */
static void go_on(struct run *r) {
    double written_s = r->now_s + r->interval_s + r->s->write_s;
    r->events++;
    if (r->failure_s < written_s) {
        r->lost_s += r->failure_s - r->now_s;
        r->now_s = r->failure_s;
        restart(r);
        return;
    }
    r->useful_s += r->interval_s;
    r->writing_s += r->s->write_s;
    r->now_s = written_s;
    r->checkpoints++;
}

void scenario_failures(const struct scenario *s, int64_t devices,
                       struct scenario_run *out) {
    double mtbf_s = s->mtbf_hours * 3600 / (double)devices;
    struct run r = {.s = s,
                    .mtbf_s = mtbf_s,
                    .end_s = s->hours * 3600,
                    .rng = {.seed = rng_mix(s->seed) ^ (uint64_t)devices}};
    *out = (struct scenario_run){.goodput = 1, .expected = 1};
    if (s->mtbf_hours <= 0)
        return;
    r.interval_s = s->every_s > 0 ? s->every_s : daly_interval_s(s->write_s, mtbf_s);
    next_failure(&r);
    while (r.now_s < r.end_s && r.events < MOST_EVENTS)
        go_on(&r);
    *out = (struct scenario_run){
        .mtbf_s = mtbf_s,
        .interval_s = r.interval_s,
        .goodput = r.useful_s / r.now_s,
        .expected = daly_goodput(r.interval_s, s->write_s, s->restart_s, mtbf_s),
        .writing = r.writing_s / r.now_s,
        .lost = r.lost_s / r.now_s,
        .down = r.down_s / r.now_s,
        .failures = r.failures,
        .checkpoints = r.checkpoints};
}
