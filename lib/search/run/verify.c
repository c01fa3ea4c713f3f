/* Certificates: no claim of a plan is trusted. Its time and memory are those of the
 * program that is compiled from it. Its bound is computed again and, if the plan
 * claims more than the relaxation gives, proven by branch and bound (dp.c). */
#include "common/text.h"
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/run/runs.h"
#include "search/space/devices.h"
#include "search/space/order.h"

#include <math.h>
#include <stdlib.h>

/* Compiles and simulates the plan, and checks it against the memory of the devices. */
static int check_program(struct evaluate *ev, struct plan *plan, struct search_verdict *out,
                         struct err *err) {
    struct program *g = program_compile(plan, err);
    if (!g)
        return -1;
    int rc = program_validate(g, err);
    if (rc < 0 && err)
        err->status = EXIT_NO;
    for (int k = 0; k < g->n_stages && rc == 0; k++) {
        int64_t bytes = g->stages[k].arena_bytes;
        out->max_bytes = bytes > out->max_bytes ? bytes : out->max_bytes;
        int64_t limit = space_stage_memory(ev->space, plan, k);
        int64_t lacks = limit ? space_stage_lacks(ev->space, g, k) : 0;
        if (lacks > 0)
            rc = err_no(err, "stages[%d]: needs %s, but a device has %s", k,
                        text_bytes((double)bytes).s, text_bytes((double)(bytes - lacks)).s);
    }
    struct simulation sim;
    cost_forget(&ev->cost);
    if (rc == 0)
        rc = simulate_program(g, &ev->cost, NULL, &sim, err);
    if (rc == 0) {
        out->time_us = sim.time_us;
        simulation_release(&sim);
        rc = cost_check(&ev->cost, ev->space->p.profile, NULL, plan, err);
        cost_forget(&ev->cost);
    }
    program_destroy(g);
    return rc;
}

static bool differ(double a, double b) {
    return fabs(a - b) > 1e-6 * fmax(fabs(a), fabs(b));
}

static int check_claim(const struct search_claim *claim, const struct search_verdict *v,
                       struct err *err) {
    if (claim->time_us > 0 && differ(claim->time_us, v->time_us))
        return err_no(err, "provenance: a step takes %.3f ms, not %.3f ms",
                      v->time_us / 1e3, claim->time_us / 1e3);
    if (claim->memory_bytes > 0 && (int64_t)claim->memory_bytes != v->max_bytes)
        return err_no(err, "provenance: a device holds %lld bytes, not %.0f",
                      (long long)v->max_bytes, claim->memory_bytes);
    return 0;
}

/* Tries to prove the claimed bound by a search that lists all plans. With offload it would
 * list only plans whose ops all offload the same, and with logits in pieces only plans with
 * equally many, which proves nothing about others. */
static void prove_more(const struct search_problem *p, struct search_verdict *out) {
    struct search_result r;
    struct search_problem alone = *p;
    alone.top = 1;
    alone.gap = 0;
    if (p->offload || p->logits > 1)
        return;
    if (search_run(&alone, search_dp, &r, NULL) == 0 &&
        r.lower_bound_us > out->lower_bound_us) {
        out->lower_bound_us = r.lower_bound_us;
        out->relaxation = r.relaxation;
    }
    search_result_release(&r);
}

/* Checks the claimed bound against the one that can be proven, and that against the
 * plan's time. */
static int check_bound(const struct space *sp, const struct plan *plan,
                       const struct search_claim *claim, struct search_verdict *out,
                       struct err *err) {
    out->lower_bound_us = orders_bound_us(&sp->p, plan, out->time_us);
    out->relaxation = bound_relaxation(sp);
    if (claim->lower_bound_us > out->lower_bound_us * (1 + 1e-6))
        prove_more(&sp->p, out);
    if (out->lower_bound_us > out->time_us * (1 + 1e-6))
        return err_no(
            err,
            "a step takes %.3f ms, less than the bound %.3f ms of the space: the plan "
            "has what no search chooses, or more than these options allow",
            out->time_us / 1e3, out->lower_bound_us / 1e3);
    if (claim->lower_bound_us > out->lower_bound_us * (1 + 1e-6)) {
        err_no(err, "provenance: the bound %.3f ms cannot be proven, but %.3f ms",
               claim->lower_bound_us / 1e3, out->lower_bound_us / 1e3);
        return err_hint(err, "options that made the searched space smaller, such as "
                             "--micro-batch or --zero, have to be given again");
    }
    return 0;
}

int search_verify_plan(const struct search_problem *p, struct plan *plan,
                       const struct search_claim *claim, struct search_verdict *out,
                       struct err *err) {
    struct search s;
    *out = (struct search_verdict){.relaxation = ""};
    search_begin(&s, p);
    /* With these set, lower bounds do not depend on memory. */
    s.space.p.offload = search_offloaded(plan);
    s.space.p.logits = plan->logits;
    int rc = check_program(&s.eval, plan, out, err);
    if (rc == 0)
        rc = check_claim(claim, out, err);
    if (rc == 0)
        rc = check_bound(&s.space, plan, claim, out, err);
    search_end(&s);
    return rc;
}
