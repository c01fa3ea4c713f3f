/* The search over micro-batch sizes. Stages begin only where layers do at first, which
 * quickly gives a time to beat, and then anywhere. */
#include "aceso/aceso_search.h"

#include "aceso/aceso_graph.h"
#include "common/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const struct aceso_problem *p;
    struct aceso_result *r;
    ARR(struct aceso_plan) found; /* by time, at most p->top */
};

struct cuts {
    ARR(int) at;
};

static double best_us(const struct search *s) {
    return s->found.n ? s->found.p[0].cost.us : INFINITY;
}

/* ---- what was found ------------------------------------------------------------------------- */

static bool same(const struct aceso_config *a, const struct aceso_config *b) {
    size_t n = (size_t)a->n_ops;
    return a->micro_batch == b->micro_batch && a->n_stages == b->n_stages &&
           !memcmp(a->first, b->first, (size_t)(a->n_stages + 1) * sizeof *a->first) &&
           !memcmp(a->layout, b->layout, n * sizeof *a->layout) &&
           !memcmp(a->recompute, b->recompute, n * sizeof *a->recompute);
}

/* Takes a configuration over, and keeps it if it is new and among the p->top fastest. */
static void take(struct search *s, struct aceso_config *c) {
    struct aceso_plan plan = {.config = c};
    bool known = !aceso_cost_step(s->p->model, c, &plan.cost);
    for (int64_t i = 0; i < s->found.n && !known; i++)
        known = same(s->found.p[i].config, c);
    if (known) {
        aceso_config_destroy(c);
        return;
    }
    arr_push(&s->found, plan);
    int64_t at = s->found.n - 1;
    for (; at > 0 && s->found.p[at - 1].cost.us > plan.cost.us; at--)
        s->found.p[at] = s->found.p[at - 1];
    s->found.p[at] = plan;
    if (s->found.n > s->p->top)
        aceso_config_destroy(s->found.p[--s->found.n].config);
}

/* Solves each stage of a configuration again, with more strategies per op and state. */
static void polish(const struct search *s, struct aceso_plan *plan) {
    enum { PATHS = 128 };
    struct aceso_config *c = plan->config;
    int before = 0;
    for (int k = 0; k < c->n_stages && !aceso_stopped(s->p); k++) {
        struct aceso_stage_cost now;
        struct aceso_stages *st =
            aceso_stages_create(s->p->model, &s->p->limits, c->devices[k], c->micro_batch);
        bool known = aceso_cost_stage(s->p->model, c, k, &now);
        struct aceso_ask ask = {c->first[k],         c->first[k + 1], c->first[k + 1],
                                c->n_stages - 1 - k, now.us,          PATHS};
        bool crosses_in = before && before % c->per_node == 0;
        before += c->devices[k];
        bool crosses_out = before % c->per_node == 0;
        int n = ask.most - ask.first;
        struct aceso_solved solved;
        aceso_stage_solve(st, &ask, crosses_in, &solved);
        if (known && solved.us[crosses_out][n] < now.us)
            aceso_stage_trace(st, &solved, crosses_out, n, c);
        aceso_solved_release(&solved);
        aceso_stages_destroy(st);
    }
    aceso_cost_step(s->p->model, c, &plan->cost);
}

static int by_time(const void *a, const void *b) {
    double x = ((const struct aceso_plan *)a)->cost.us,
           y = ((const struct aceso_plan *)b)->cost.us;
    return (x > y) - (x < y);
}

/* ---- one graph ------------------------------------------------------------------------------ */

/* Solves the stages of the best path until the best path has only solved stages. Returns
 * whether that gave a configuration to keep. */
static bool search_below(struct search *s, struct aceso_graph *g, double hope) {
    struct aceso_path path;
    bool found = false;
    while (!aceso_stopped(s->p) &&
           aceso_graph_best(g, fmin(hope, best_us(s)), false, &path)) {
        bool last = path.solved;
        s->r->solved += aceso_graph_solve(g, fmin(hope, best_us(s)), &path);
        if (path.us < best_us(s) || (path.us < INFINITY && s->found.n < s->p->top)) {
            take(s, aceso_graph_config(g, &path));
            found = true;
        }
        if (last)
            break;
    }
    return found;
}

/* Searches the configurations of one micro-batch size that are faster than `most_us` and
 * than the incumbent. Returns a time that none of them beats. With less hope fewer stages
 * need to be solved, so `hope` starts just above what the bounds promise. */
static double search_graph(struct search *s, int64_t micro_batch, const struct cuts *cuts,
                           double most_us) {
    most_us = fmin(most_us, best_us(s));
    struct aceso_graph *g =
        aceso_graph_create(s->p, micro_batch, cuts->at.p, (int)cuts->at.n, most_us);
    struct aceso_path path;
    bool any = aceso_graph_best(g, most_us, true, &path), found = false;
    double least = path.us, hope = 0;
    for (double beyond = 0.02; any && !found && hope < most_us && !aceso_stopped(s->p);
         beyond *= 2) {
        hope = fmin(least * (1 + beyond), most_us);
        aceso_graph_forget(g); /* those too slow for the last hope may do now */
        found = search_below(s, g, hope);
    }
    double bound = fmin(most_us, best_us(s));
    bound = aceso_graph_best(g, bound, true, &path) ? path.us : bound;
    aceso_graph_destroy(g);
    return bound;
}

/* ---- all micro-batches ---------------------------------------------------------------------- */

/* Estimates the time of a step in which every op runs on all devices, evenly and in its
 * best layout under algorithm 0. */
static double ideal_us(const struct aceso_problem *p) {
    double best = INFINITY;
    const struct aceso_model *m = p->model;
    for (int b = 0; b < m->tables.n_mbs; b++) {
        double us = 0;
        for (int i = 0; i < m->n; i++) {
            double least = INFINITY;
            for (int t = 0; t < m->tables.n_tp; t++) {
                const struct aceso_cell *c = &m->tables.rows[m->op_of[i]].cells[b][t][0];
                if (c->known)
                    least = fmin(least, (c->forward + c->backward) * (1 << t));
            }
            us += least;
        }
        best = fmin(best, us / (double)m->tables.mbs[b]);
    }
    return best * (double)p->batch / p->devices;
}

/* Searches all micro-batch sizes. Returns a lower bound on all of them. The limit on the
 * time doubles while nothing is found. */
static double search_cuts(struct search *s, const struct cuts *cuts) {
    double ideal = ideal_us(s->p), bound = 0, limit = s->found.n ? best_us(s) : 1.5 * ideal;
    do {
        bound = INFINITY;
        for (int i = 0; i < s->p->n_micro; i++)
            bound = fmin(bound, search_graph(s, s->p->micro[i], cuts, limit));
        limit *= 2;
    } while (!s->found.n && limit < 1e3 * ideal && !aceso_stopped(s->p));
    return bound;
}

/* Lists the cuts: where layers begin, with `all` everywhere, and with `near` also within
 * `reach` ops of where its stages begin. */
static void find_cuts(const struct aceso_model *m, bool all,
                      const struct aceso_config *near, int reach, struct cuts *out) {
    for (int i = 0; i <= m->n; i++) {
        bool is = !i || i == m->n || all || m->ops[m->op_of[i]].begins_layer;
        for (int k = 0; near && k < near->n_stages && !is; k++)
            is = abs(i - near->first[k]) <= reach;
        if (is)
            arr_push(&out->at, i);
    }
}

static void search_all(struct search *s) {
    enum { MOST_OPS = 2000, REACH = 21 }; /* to cut everywhere; of the longest layer */
    const struct aceso_model *m = s->p->model;
    struct cuts cuts = {{0}};
    bool all = m->n <= MOST_OPS;
    find_cuts(m, false, NULL, 0, &cuts);
    search_cuts(s, &cuts);
    cuts.at.n = 0;
    find_cuts(m, all, s->found.n && !all ? s->found.p[0].config : NULL, REACH, &cuts);
    double bound = search_cuts(s, &cuts);
    if (all)
        s->r->bound_us = bound;
    arr_release(&cuts.at);
    s->r->complete = !aceso_stopped(s->p);
    for (int64_t i = 0; i < s->found.n; i++)
        polish(s, &s->found.p[i]);
    if (s->found.n)
        qsort(s->found.p, (size_t)s->found.n, sizeof *s->found.p, by_time);
}

/* Fails with a message that says how much memory the fastest configuration needs. */
static int nothing_fits(const struct aceso_problem *p, struct err *err) {
    struct aceso_problem any = *p;
    struct aceso_result r;
    if (aceso_stopped(p))
        return err_no(err, "stopped before a configuration was found");
    any.limits.mib = INFINITY;
    if (isinf(p->limits.mib) || aceso_search(&any, &r, NULL) < 0)
        return err_no(err, "no configuration has only ops that were measured");
    err_no(err, "no plan fits in %s: the fastest of any size needs %s",
           text_bytes(p->limits.mib * (1 << 20)).s,
           text_bytes(r.plans[0].cost.mib * (1 << 20)).s);
    aceso_result_release(&r);
    return -1;
}

int aceso_search(const struct aceso_problem *p, struct aceso_result *r, struct err *err) {
    struct search s = {.p = p, .r = r};
    double start = now_s();
    *r = (struct aceso_result){0};
    search_all(&s);
    r->plans = s.found.p;
    r->n = (int)s.found.n;
    if (!r->n)
        return nothing_fits(p, err);
    r->bound_us = r->complete ? fmin(r->bound_us, r->plans[0].cost.us) : 0;
    r->seconds = now_s() - start;
    return 0;
}

void aceso_result_release(struct aceso_result *r) {
    for (int i = 0; i < r->n; i++)
        aceso_config_destroy(r->plans[i].config);
    free(r->plans);
    *r = (struct aceso_result){0};
}
