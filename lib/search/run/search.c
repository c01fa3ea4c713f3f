/* The frame around the algorithms: setting up, stopping, and handing out what was judged (judge.c). */
#include "common/progress.h"
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/evaluate/overlap.h"
#include "search/pool/looks.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool search_in_time(const struct search_problem *p) {
    return !interrupted() && (p->deadline_s <= 0 || now_s() < p->deadline_s);
}

double search_budget_left_s(const struct search *s) {
    return s->p.deadline_s > 0 ? fmax(s->p.deadline_s - now_s(), 1e-3) : 0;
}

/* A search with a budget leaves time for judging. */
double search_time_left_s(const struct search *s) {
    return s->p.deadline_s > 0 ? s->p.deadline_s - now_s() : 1e9;
}

bool search_out_of_time(const struct search *s) {
    watch_poll(s->watch);
    return interrupted() || search_time_left_s(s) < 2 * s->judge_s ||
           (s->p.work_budget && s->stages_scored >= s->p.work_budget);
}

/* Is the best one proven to be as near to the optimum as is wanted? */
static bool gap_closed(const struct search *s) {
    return s->n_kept && s->kept[0].score.time_us * (1 - s->p.gap) <= s->bound_us;
}

bool search_stopped(struct search *s) {
    return search_out_of_time(s) || (s->p.gap > 0 && gap_closed(s));
}

void search_mark_complete(struct search *s, double space) {
    s->complete = true;
    s->space = space;
}

/* ---- a run ----------------------------------------------------------------------------- */

/* Is the best plan, as it was judged? */
static bool is_near(const struct search *s) {
    return s->n_plans && s->plans[0].plan.time_us * (1 - s->p.gap) <= s->bound_us;
}

/* Searches and judges; where the estimates of memory were too low for all finalists,
 * again with a little less memory. */
static int search_rounds(struct search *s, search_algorithm *algorithm, struct err *err) {
    enum { ROUNDS = 6 };
    for (int round = 0; round < ROUNDS; round++) {
        int64_t refused = s->refused.bytes;
        s->n_kept = s->n_rivals = 0;
        s->complete = s->exact = s->proven = false;
        search_forget_starts(s);
        search_forget_looks(s);
        if (s->has_from)
            search_score(s, &s->from);
        if (algorithm(s, err) < 0)
            return -1;
        search_judge(s);
        bool in_time = !search_out_of_time(s);
        bool closed = s->p.gap > 0 && in_time && !s->complete;
        s->complete |= closed;
        if (closed && !is_near(s)) { /* what was estimated to be near is not */
            s->p.gap = 0;
            continue;
        }
        if (s->n_plans || !s->refused.bytes || !s->n_kept || !in_time)
            break;
        int64_t more = refused && s->refused.bytes == refused ? s->p.memory_bytes / 50
                                                              : s->refused.bytes;
        s->reserve_bytes += more + s->p.memory_bytes / 200;
        s->has_nearest = false;
    }
    if (!s->n_plans && s->fallback.plan.plan) {
        s->plans[s->n_plans++] = s->fallback;
        s->plans[0].first = true;
        s->fallback = (struct judged){0};
    }
    return 0;
}

/* No plan is faster than that. */
static void certify(struct search *s, struct search_result *out) {
    if (s->bound_us <= 0 && !s->p.no_bound && !search_out_of_time(s))
        s->bound_us = s->p.source ? source_bound(s) : bound_us(s, NULL);
    /* Estimates do not know what overlap hides of the higher levels of ZeRO. */
    bool rough = s->hides && search_zero_levels(s) > 1 + ZERO_OPTIMIZER;
    bool listed = s->listed_us >= s->bound_us && !rough;
    out->lower_bound_us = listed ? s->listed_us : s->bound_us;
    out->relaxation = out->lower_bound_us <= 0 ? ""
                      : listed                 ? BOUND_LISTED
                                               : bound_relaxation(s);
}

/* The best `top` plans go out, one of each class; the others are dropped. */
static void hand_out(struct search *s, struct search_result *out) {
    certify(s, out);
    out->plans = mem_array((size_t)s->n_plans, sizeof *out->plans);
    for (int i = 0; i < s->n_plans; i++) {
        s->plans[i].plan.class = s->plans[i].class;
        if (s->plans[i].first && out->n < s->p.top)
            out->plans[out->n++] = s->plans[i].plan;
        else
            plan_destroy(s->plans[i].plan.plan);
    }
    s->n_plans = 0;
    out->scored = s->scored;
    out->compiled = s->graph.compiled;
    out->complete = s->complete;
    out->space = s->space;
    out->orders = 1;
    out->seconds = now_s() - s->start_s;
}

void search_begin(struct search *s, const struct search_problem *p) {
    *s = (struct search){.p = *p, .start_s = now_s()};
    if (p->pins && !p->pins->list.n)
        s->p.pins = NULL; /* an empty list leaves all of the space */
    if (p->source)
        p->source->forget(p->source);
    cost_init(&s->cost, p->provider, &p->cluster);
    s->hides = search_may_hide(s);
    search_survey(s);
    s->from = candidate_make(s);
    s->nearest.c = candidate_make(s);
    s->unknown.c = candidate_make(s);
    search_keep_most(s, 4 * p->top + 12); /* the simulator may order the finalists anew */
}

void search_end(struct search *s) {
    for (int i = 0; i < s->max_kept; i++)
        candidate_release(&s->kept[i].c);
    candidate_release(&s->from);
    candidate_release(&s->nearest.c);
    candidate_release(&s->unknown.c);
    for (int i = 0; i < MOST_RIVALS + MOST_WINNERS; i++)
        candidate_release(&s->rivals[i].c);
    free(s->kept);
    for (int i = 0; i < s->n_plans; i++)
        plan_destroy(s->plans[i].plan.plan);
    plan_destroy(s->fallback.plan.plan);
    free(s->plans);
    search_forget_looks(s);
    arr_release(&s->looks);
    search_forget(s);
    cost_release(&s->cost);
}

int search_run_on(const struct search_problem *p, search_algorithm *algorithm,
                  struct search_result *out, struct run_facts *facts, struct err *err) {
    struct search s;
    struct watch watch;
    search_begin(&s, p);
    watch_begin(&watch);
    s.watch = &watch;
    s.bound_us = p->known_us;
    if (p->gap > 0 && s.bound_us <= 0 && algorithm != search_auto)
        s.bound_us = p->source ? source_bound(&s) : bound_us(&s, NULL);
    watch_bound(&watch, s.bound_us);
    *out = (struct search_result){.relaxation = ""};
    *facts = (struct run_facts){.relaxation = ""};
    int rc = search_check_pins(&s, err);
    if (rc == 0 && p->from) {
        rc = search_take_plan(&s, p->from, &s.from, out->lost, sizeof out->lost, err);
        s.has_from = rc == 0;
        if (rc < 0)
            err_prefix(err, "the plan to start from");
    }
    if (rc == 0)
        rc = search_rounds(&s, algorithm, err);
    facts->ended = rc == 0;
    if (rc == 0 && p->may_idle && !p->source)
        search_alone(&s, facts->alone_us);
    if (rc == 0 && !s.n_plans)
        rc = search_refuse(&s, out, err);
    if (rc == 0)
        hand_out(&s, out);
    facts->bound_us = s.bound_us;
    facts->relaxation = s.bound_us > 0 ? bound_relaxation(&s) : "";
    facts->first_us = s.first_us;
    facts->complete = s.complete;
    facts->proven = s.proven && s.complete;
    watch_end(&watch);
    search_end(&s);
    return rc;
}

void search_result_release(struct search_result *r) {
    for (int i = 0; i < r->n; i++)
        plan_destroy(r->plans[i].plan);
    free(r->plans);
    *r = (struct search_result){0};
}
