/* One search on all devices: the algorithm runs, its finalists are evaluated, the
 * result is certified. */
#include "common/progress.h"
#include "search/algorithms/algorithms.h"
#include "search/algorithms/hops.h"
#include "search/bound/bound.h"
#include "search/pool/incumbents.h"
#include "search/run/runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the simulated time of the best plan is within the requested gap. */
static bool is_near(const struct pool *pool) {
    return pool->n_plans &&
           pool->plans[0].plan.time_us * (1 - pool->budget->gap) <= pool->budget->bound_us;
}

/* Returns whether no plan can fit and a first look has found one that lacks little. */
static bool is_in_vain(struct search *s) {
    if (!search_cannot_fit(&s->space))
        return false;
    hops_first(s);
    s->complete = s->pool.proven = s->pool.has_nearest;
    return s->pool.has_nearest;
}

/* Runs the algorithm and evaluates its finalists. If all of them turn out too large,
 * because scores underestimate memory, it runs again with a little less memory. */
static int search_rounds(struct search *s, search_algorithm *algorithm, struct err *err) {
    enum { ROUNDS = 6 };
    const int rounds = is_in_vain(s) ? 0 : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        int64_t refused = s->pool.refused.bytes;
        s->complete = false;
        search_forget_starts(s);
        pool_forget(&s->pool);
        if (s->has_from)
            pool_score(&s->pool, &s->from);
        if (algorithm(s, err) < 0)
            return -1;
        pool_evaluate_finalists(&s->pool);
        bool in_time = !budget_out_of_time(&s->budget);
        bool closed = s->budget.gap > 0 && in_time && !s->complete;
        s->complete |= closed;
        if (closed && !is_near(&s->pool)) {
            /* The score was within the gap, but the simulated time is not. */
            s->budget.gap = 0;
            continue;
        }
        if (s->pool.n_plans || !s->pool.refused.bytes || !s->pool.n_best || !in_time)
            break;
        int64_t more = refused && s->pool.refused.bytes == refused
                           ? s->space.p.memory_bytes / 50
                           : s->pool.refused.bytes;
        s->eval.reserve_bytes += more + s->space.p.memory_bytes / 200;
        if (s->space.p.memory_bytes && s->eval.reserve_bytes >= s->space.p.memory_bytes)
            break; /* no memory is left to search in */
        s->pool.has_nearest = false;
    }
    if (!s->pool.n_plans && s->pool.fallback.plan.plan) {
        s->pool.plans[s->pool.n_plans++] = s->pool.fallback;
        s->pool.plans[0].first = true;
        s->pool.fallback = (struct evaluated){0};
    }
    return 0;
}

/* Keeps the plan that the search started from unchanged: the space may lack something that
 * the plan has, or its score may be too high for a finalist. */
static void keep_from(struct search *s, const struct plan *from) {
    struct model *m = s->space.p.model;
    if (s->has_from && space_admits(&s->space, from))
        pool_take_plan(&s->pool, plan_copy(from, m), &s->from);
}

/* Sets the bound and what proves it. */
static void certify(struct search *s, struct search_result *out) {
    if (s->budget.bound_us <= 0 && !s->space.p.no_bound && !budget_out_of_time(&s->budget))
        s->budget.bound_us = bound_us(&s->eval, NULL);
    /* Estimates do not know what overlap hides of the higher levels of ZeRO. */
    bool rough = s->space.hides && space_zero_levels(&s->space) > 1 + ZERO_OPTIMIZER;
    bool listed = s->pool.listed_us >= s->budget.bound_us && !rough;
    out->lower_bound_us = listed ? s->pool.listed_us : s->budget.bound_us;
    out->relaxation = out->lower_bound_us <= 0 ? ""
                      : listed                 ? BOUND_LISTED
                                               : bound_relaxation(&s->space);
}

/* Hands out the best `top` plans, one of each class, and the simplest; drops the
 * others. */
static void hand_out(struct search *s, struct search_result *out) {
    certify(s, out);
    int simplest = s->space.p.slack > 0 ? pool_simplest(&s->pool) : 0;
    out->plans = mem_array((size_t)s->pool.n_plans, sizeof *out->plans);
    for (int i = 0; i < s->pool.n_plans; i++) {
        s->pool.plans[i].plan.class = s->pool.plans[i].class;
        bool wanted = s->pool.plans[i].first && out->n < s->space.p.top;
        if (wanted || i == simplest)
            out->plans[out->n++] = s->pool.plans[i].plan;
        else
            plan_destroy(s->pool.plans[i].plan.plan);
    }
    s->pool.n_plans = 0;
    out->scored = s->budget.candidates;
    out->compiled = s->eval.graph.compiled;
    out->complete = s->complete;
    out->space = s->space_size;
    out->orders = 1;
    out->seconds = now_s() - s->budget.start_s;
}

/* Reads the plan to start from as a candidate. */
static int take_plan(struct search *s, const struct plan *plan, char *lost, size_t size,
                     struct err *err) {
    if (space_take_plan(&s->space, plan, &s->from, lost, size, err) < 0)
        return -1;
    if (!eval_legal(&s->eval, &s->from))
        return err_input(err,
                         "the search may not have such a plan: pins, or a micro-batch that "
                         "does not divide");
    return 0;
}

/* Every step only follows if those before succeeded; the facts are filled either way. */
int search_run_on(const struct search_problem *p, search_algorithm *algorithm,
                  struct search_result *out, struct run_facts *facts, struct err *err) {
    struct search s;
    struct watch watch;
    search_begin(&s, p);
    watch_begin(&watch);
    s.budget.watch = &watch;
    s.budget.bound_us = p->known_us;
    if (p->gap > 0 && s.budget.bound_us <= 0 && algorithm != search_auto)
        s.budget.bound_us = bound_us(&s.eval, NULL);
    watch_bound(&watch, s.budget.bound_us);
    *out = (struct search_result){.relaxation = ""};
    *facts = (struct run_facts){.relaxation = ""};
    int rc = space_check_pins(&s.space, err);
    if (rc == 0 && p->from) {
        rc = take_plan(&s, p->from, out->lost, sizeof out->lost, err);
        s.has_from = rc == 0;
        if (rc < 0)
            err_prefix(err, "the plan to start from");
    }
    if (rc == 0)
        rc = search_rounds(&s, algorithm, err);
    if (rc == 0 && p->from)
        keep_from(&s, p->from);
    if (rc == 0) {
        search_ahead(&s);
        search_simplify(&s);
    }
    facts->ended = rc == 0;
    if (rc == 0 && p->may_idle)
        eval_alone(&s.eval, facts->alone_us);
    if (rc == 0 && !s.pool.n_plans)
        rc = pool_refuse(&s.pool, out, err);
    if (rc == 0)
        hand_out(&s, out);
    facts->bound_us = s.budget.bound_us;
    facts->relaxation = s.budget.bound_us > 0 ? bound_relaxation(&s.space) : "";
    facts->first_us = s.first_us;
    facts->complete = s.complete;
    facts->proven = s.pool.proven && s.complete;
    watch_end(&watch);
    search_end(&s);
    return rc;
}
