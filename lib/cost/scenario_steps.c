/* Steps under a scenario: see scenario.h. */
#include "cost/scenario.h"

#include "common/mem.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>

/* Streams of random numbers: for stragglers, moments, slow links (one each, from
 * STREAM_LINKS on) and jitter (one a step, from STREAM_JITTER on). */
enum { STREAM_STRAGGLERS = 1, STREAM_MOMENT, STREAM_LINKS, STREAM_JITTER = 1000 };

static double device_slower(const struct scenario *s, int64_t step, int64_t rank) {
    double slower = 1;
    if (rng_uniform(s->seed, STREAM_STRAGGLERS, (uint64_t)rank) < s->stragglers)
        slower = s->slower;
    if (s->jitter > 0)
        slower *= exp(s->jitter *
                      rng_normal(s->seed, STREAM_JITTER + (uint64_t)step, (uint64_t)rank));
    return slower;
}

/* A stage is as slow as its slowest device. */
static double stage_slower(const struct scenario *s, const struct stage *st, int64_t step) {
    double most = 0;
    for (int64_t r = 0; r < mesh_devices(&st->mesh); r++)
        most = fmax(most, device_slower(s, step, st->first_rank + r));
    return most;
}

static bool is_slow(const struct scenario_link *l, double at_s) {
    double t = l->every_s > 0 ? fmod(at_s, l->every_s) : at_s;
    return t >= l->from_s && t < l->to_s;
}

/* The factor by which messages take longer over such links at the stage's nodes. */
static double links_slower(const struct scenario *s, const struct cluster *c,
                           const struct stage *st, bool cross, double at_s) {
    int64_t last = cluster_node_of(c, st->first_rank + mesh_devices(&st->mesh) - 1);
    double least = 1;
    for (int i = 0; i < s->n_links; i++) {
        const struct scenario_link *l = &s->links[i];
        if (l->cross != cross || !is_slow(l, at_s))
            continue;
        for (int64_t n = cluster_node_of(c, st->first_rank); n <= last; n++)
            if (rng_uniform(s->seed, (uint64_t)(STREAM_LINKS + i), (uint64_t)n) < l->share)
                least = fmin(least, l->speed);
    }
    return 1 / least;
}

/* Steps are spread evenly over the run, each somewhere in its part. */
static double moment_s(const struct scenario *s, int64_t step) {
    double in_part = rng_uniform(s->seed, STREAM_MOMENT, (uint64_t)step);
    return s->hours * 3600 * ((double)step + in_part) / (double)s->steps;
}

static void draw(const struct scenario *s, const struct plan *plan, const struct cluster *c,
                 int64_t step, struct cost_slowdown *out) {
    double at_s = moment_s(s, step);
    out->job[0] = out->job[1] = 1;
    for (int k = 0; k < plan->n_stages; k++) {
        const struct stage *st = &plan->stages[k];
        out->stages[k].compute = stage_slower(s, st, step);
        for (int cross = 0; cross < 2; cross++) {
            out->stages[k].link[cross] = links_slower(s, c, st, cross, at_s);
            out->job[cross] = fmax(out->job[cross], out->stages[k].link[cross]);
        }
    }
}

int scenario_simulate(const struct scenario *s, const struct program *g, struct cost *c,
                      struct scenario_steps *out, struct err *err) {
    struct cost_slowdown slow = {
        .stages = mem_array((size_t)g->plan->n_stages, sizeof *slow.stages)};
    int rc = 0;
    *out = (struct scenario_steps){.least_us = INFINITY};
    c->slowdown = &slow;
    for (int64_t i = 0; rc == 0 && i < s->steps; i++) {
        struct simulation sim = {0};
        draw(s, g->plan, &c->cluster, i, &slow);
        rc = simulate_program(g, c, NULL, &sim, err);
        out->mean_us += sim.time_us / (double)s->steps;
        out->least_us = fmin(out->least_us, sim.time_us);
        out->most_us = fmax(out->most_us, sim.time_us);
        simulation_release(&sim);
    }
    c->slowdown = NULL;
    free(slow.stages);
    return rc;
}
