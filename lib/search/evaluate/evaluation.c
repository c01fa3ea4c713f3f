/* Evaluations: a candidate's plan is compiled as a whole and simulated. */
#include "common/progress.h"
#include "cost/simulate.h"
#include "search/evaluate/evaluate.h"
#include "search/space/devices.h"

#include <stdlib.h>

/* ---- a plan ------------------------------------------------------------------------------ */

/* Returns the stage that is nearest to its memory limit, or furthest beyond it. Sets the
 * bytes that it lacks, negative if it has some left. */
static int fullest_stage(const struct space *sp, const struct program *g, int64_t *beyond) {
    int fullest = 0;
    for (int k = 0; k < g->n_stages; k++) {
        int64_t more = space_stage_lacks(sp, g, k);
        if (!k || more > *beyond) {
            fullest = k;
            *beyond = more;
        }
    }
    return fullest;
}

/* Simulates the program; returns false if the profile lacks something. */
static bool simulate(struct evaluate *ev, const struct program *g, double *time_us) {
    struct simulation sim;
    char key[256];
    cost_forget(&ev->cost);
    if (simulate_program(g, &ev->cost, NULL, &sim, NULL) < 0)
        return false;
    *time_us = sim.time_us;
    simulation_release(&sim);
    bool known = ev->cost.n_missing == 0;
    if (!known)
        note_verbose("finalist: the profile lacks %s",
                     cost_key_format(&ev->cost.missing[0], key, sizeof key));
    cost_forget(&ev->cost);
    return known;
}

/* Returns the exact memory, staging included, and the simulated time of a program; g
 * is NULL if the plan is not legal. */
static struct evaluation evaluate_program(struct evaluate *ev, const struct program *g) {
    struct evaluation v = {.good = false};
    int64_t beyond = 0;
    if (!g)
        return v;
    v.fullest = fullest_stage(ev->space, g, &beyond);
    for (int i = 0; i < g->n_stages; i++)
        v.max_bytes =
            g->stages[i].arena_bytes > v.max_bytes ? g->stages[i].arena_bytes : v.max_bytes;
    v.excess = ev->space->p.memory_bytes && beyond > 0 ? beyond : 0;
    v.good = !v.excess && simulate(ev, g, &v.time_us);
    return v;
}

/* Returns NULL if the plan is not legal. */
static struct program *compile(struct plan *plan) {
    return plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
}

bool eval_plan(struct evaluate *ev, struct search_plan *p) {
    struct program *g = compile(p->plan);
    struct evaluation v = evaluate_program(ev, g);
    program_destroy(g);
    p->max_bytes = v.max_bytes;
    p->time_us = v.good ? v.time_us : p->time_us;
    return v.good;
}

bool eval_fits(const struct evaluate *ev, const struct candidate *c) {
    const struct space *sp = ev->space;
    if (!sp->p.memory_bytes)
        return true;
    struct plan *plan = space_plan_of(sp, c);
    struct program *g = compile(plan);
    bool good = g != NULL;
    for (int k = 0; good && k < g->n_stages; k++)
        good = space_stage_lacks(sp, g, k) <= 0;
    program_destroy(g);
    plan_destroy(plan);
    return good;
}

int64_t eval_reserve_of(struct evaluate *ev, const struct candidate *c) {
    struct plan *plan = space_plan_of(ev->space, c);
    struct program *g = compile(plan);
    double *over = mem_array((size_t)c->n_groups, sizeof *over), most = 0;
    eval_overflows(ev, c, over);
    for (int k = 0; g && k < g->n_stages; k++) {
        double lacks = (double)space_stage_lacks(ev->space, g, k);
        most = fmax(most, lacks - over[k % c->n_groups] + (double)ev->reserve_bytes);
    }
    const int64_t reserve = g ? (int64_t)ceil(most) : ev->reserve_bytes;
    free(over);
    program_destroy(g);
    plan_destroy(plan);
    return reserve;
}

/* Simulates a good plan again with overlap, and keeps that if it is faster and fits. */
static void try_overlap(struct evaluate *ev, struct search_plan *p) {
    struct search_plan other = {.plan = p->plan, .member = p->member};
    if (!space_may_overlap(ev->space) || p->plan->overlap)
        return;
    p->plan->overlap = true;
    if (eval_plan(ev, &other) && other.time_us < p->time_us * (1 - 1e-9))
        *p = other;
    else
        p->plan->overlap = false;
}

/* ---- a candidate ------------------------------------------------------------------------- */

/* Evaluates a candidate's plan, or looks it up. Takes ownership of the plan; merged: its
 * meshes were merged. */
static struct evaluation evaluate_once(struct evaluate *ev, const struct candidate *c,
                                       struct plan *plan, bool merged,
                                       struct search_plan *out) {
    void **slot = memo_slot(&ev->evaluations, memo_mix(candidate_hash(c), merged));
    space_name_axes(ev->space, plan);
    bool legal = plan_check(plan, NULL) == 0; /* also numbers the plan's ranks */
    if (!*slot) {
        struct program *g = legal ? program_compile(plan, NULL) : NULL;
        if (interrupted() && ev->any_good) { /* there is a plan to hand out */
            program_destroy(g);
            plan_destroy(plan);
            return (struct evaluation){0};
        }
        struct evaluation *v = *slot = mem_alloc(sizeof *v);
        *v = evaluate_program(ev, g);
        ev->any_good |= v->good;
        program_destroy(g);
        note_verbose("finalist: compiled %.1f MiB, simulated %.3f ms%s",
                     (double)v->max_bytes / (1 << 20), v->time_us / 1e3,
                     v->good ? "" : ": refused");
    }
    const struct evaluation *v = *slot;
    out->time_us = v->time_us;
    out->max_bytes = v->max_bytes;
    out->plan = v->good ? plan : NULL;
    if (!v->good)
        plan_destroy(plan);
    return *v;
}

/* The budget notes how long this took only if something was not looked up. */
struct evaluation eval_candidate(struct evaluate *ev, const struct candidate *c,
                                 double best_us, bool both, struct search_plan *out) {
    double begin_s = now_s();
    int64_t known = ev->evaluations.n;
    struct search_plan apart = {.member = out->member};
    struct plan *plan = space_plan_of(ev->space, c);
    bool merged = search_merge_meshes(plan);
    struct evaluation v = evaluate_once(ev, c, plan, merged, out), v2;
    if (merged && (!v.good || (both && out->time_us < best_us))) {
        v2 = evaluate_once(ev, c, space_plan_of(ev->space, c), false, &apart);
        bool better = v2.good && (!v.good || apart.time_us < out->time_us * (1 - 1e-9));
        plan_destroy(better ? out->plan : apart.plan);
        *out = better ? apart : *out;
        v = better || !v.good ? v2 : v;
    }
    if (v.good)
        try_overlap(ev, out);
    if (ev->evaluations.n > known)
        ev->budget->evaluate_s = now_s() - begin_s;
    return v;
}

int64_t eval_excess(struct evaluate *ev, const struct candidate *c) {
    struct search_plan out = {0};
    struct plan *plan = space_plan_of(ev->space, c);
    bool merged = search_merge_meshes(plan);
    int64_t excess = evaluate_once(ev, c, plan, merged, &out).excess, apart;
    plan_destroy(out.plan);
    if (!merged || !excess)
        return excess;
    apart = evaluate_once(ev, c, space_plan_of(ev->space, c), false, &out).excess;
    plan_destroy(out.plan);
    return apart < excess ? apart : excess;
}
