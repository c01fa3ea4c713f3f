/* The frame around the algorithms: setting up, stopping, and judging the finalists. */
#include "common/progress.h"
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

bool search_stopped(struct search *s) {
    return interrupted() ||
           (s->p.time_budget_s > 0 && now_s() - s->start_s > s->p.time_budget_s);
}

const struct candidate *search_best(const struct search *s, struct score *score) {
    if (!s->n_kept)
        return s->has_nearest ? &s->nearest.c : NULL;
    if (score)
        *score = s->kept[0].score;
    return &s->kept[0].c;
}

void search_mark_complete(struct search *s, double space) {
    s->complete = true;
    s->space = space;
}

/* Compiles and simulates a finalist: exact memory, staging included, and the simulated
 * time. */
static bool judge(struct search *s, const struct candidate *c, const struct score *score,
                  struct search_plan *out) {
    struct plan *plan = search_plan_of(s, c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    bool good = false;
    if (g) {
        struct simulation sim;
        int fullest = 0;
        for (int k = 1; k < g->n_stages; k++)
            if (g->stages[k].arena_bytes > g->stages[fullest].arena_bytes)
                fullest = k;
        out->max_bytes = g->stages[fullest].arena_bytes;
        int64_t excess = out->max_bytes - s->p.memory_bytes;
        if (s->p.memory_bytes && excess > 0 &&
            (!s->refused_bytes || excess < s->refused_bytes)) {
            s->refused_bytes = excess;
            s->refused_stage = fullest;
        }
        cost_forget(&s->cost);
        good = (!s->p.memory_bytes || out->max_bytes <= s->p.memory_bytes) &&
               simulate_program(g, &s->cost, NULL, &sim, NULL) == 0;
        if (good) {
            out->time_us = sim.time_us;
            good = s->cost.n_missing == 0;
            simulation_release(&sim);
        }
    }
    if (g)
        note_verbose(
            "finalist: estimated %.3f ms, %s; compiled %.1f MiB, simulated %.3f ms%s",
            score->time_us / 1e3, good ? "kept" : "refused",
            (double)out->max_bytes / (1 << 20), out->time_us / 1e3,
            s->cost.n_missing ? ", unknown shapes" : "");
    program_destroy(g);
    if (good)
        out->plan = plan;
    else
        plan_destroy(plan);
    return good;
}

static int by_time(const void *a, const void *b) {
    const struct search_plan *x = a, *y = b;
    return (x->time_us > y->time_us) - (x->time_us < y->time_us);
}

static void judge_all(struct search *s, struct search_result *out) {
    out->plans = mem_array((size_t)s->n_kept, sizeof *out->plans);
    for (int i = 0; i < s->n_kept; i++)
        out->n += judge(s, &s->kept[i].c, &s->kept[i].score, &out->plans[out->n]);
    if (out->n)
        qsort(out->plans, (size_t)out->n, sizeof *out->plans, by_time);
    while (out->n > s->p.top)
        plan_destroy(out->plans[--out->n].plan);
}

static int nothing_found(const struct search *s, const struct search_result *out,
                         struct err *err) {
    if (out->overflow)
        return err_no(
            err,
            "no plan fits: the best needs %.1f MiB more than %.1f MiB on the devices "
            "of stage %d",
            (double)out->overflow / (1 << 20), (double)s->p.memory_bytes / (1 << 20),
            out->overflow_stage);
    if (s->unknown) {
        char key[256] = "";
        if (s->n_missing)
            cost_key_format(&s->missing, key, sizeof key);
        err_no(err,
               "the profile knows no plan of this model: shapes are missing, such as %s",
               key);
        return err_hint(
            err, "weft-profile-op with this model, these sizes and --micro-batch, and "
                 "weft-profile-comm");
    }
    return err_no(err, "no legal plan: %d devices cannot share this model", s->p.devices);
}

/* What the nearest plan lacks: of compiled plans, else by the estimate. */
static void note_overflow(const struct search *s, struct search_result *out) {
    if (s->refused_bytes) {
        out->overflow = s->refused_bytes;
        out->overflow_stage = s->refused_stage;
    } else if (s->has_nearest) {
        out->overflow = s->nearest.score.overflow;
        out->overflow_stage = s->nearest.score.fullest;
    }
}

/* Searches and judges; where the estimates of memory were too low for all finalists,
 * again with a little less memory. */
static int search_rounds(struct search *s, search_algorithm *algorithm,
                         struct search_result *out, struct err *err) {
    enum { ROUNDS = 6 };
    for (int round = 0; round < ROUNDS; round++) {
        int64_t refused = s->refused_bytes;
        s->n_kept = 0;
        s->complete = false;
        if (algorithm(s, err) < 0)
            return -1;
        free(out->plans);
        judge_all(s, out);
        if (out->n || !s->refused_bytes || !s->n_kept || search_stopped(s))
            break;
        int64_t more = refused && s->refused_bytes == refused ? s->p.memory_bytes / 50
                                                              : s->refused_bytes;
        s->reserve_bytes += more + s->p.memory_bytes / 200;
        s->has_nearest = false;
    }
    note_overflow(s, out);
    return 0;
}

int search_run(const struct search_problem *p, search_algorithm *algorithm,
               struct search_result *out, struct err *err) {
    struct search s = {.p = *p, .start_s = now_s()};
    *out = (struct search_result){0};
    cost_init(&s.cost, p->provider, &p->cluster);
    int rc = search_survey(&s, err);
    s.max_kept = 4 * p->top + 12; /* the simulator may order the finalists anew */
    s.kept = mem_array((size_t)s.max_kept, sizeof *s.kept);
    if (rc == 0)
        rc = search_rounds(&s, algorithm, out, err);
    if (rc == 0) {
        out->scored = s.scored;
        out->compiled = s.compiled;
        out->complete = s.complete;
        out->space = s.space;
        out->seconds = now_s() - s.start_s;
        if (!out->n)
            rc = nothing_found(&s, out, err);
    }
    search_forget(&s);
    free(s.kept);
    cost_release(&s.cost);
    return rc;
}

void search_result_release(struct search_result *r) {
    for (int i = 0; i < r->n; i++)
        plan_destroy(r->plans[i].plan);
    free(r->plans);
    *r = (struct search_result){0};
}
