/* Explains why there is no plan.
 *
 * The first of these reasons that applies is given: rows that the profile lacks; the stage
 * that lacks memory in the plan that lacks least, with the op, or all ops together, that
 * cannot be split far enough to fit whatever else is decided; the first pin with which no
 * candidate is left. */
#include "common/text.h"
#include "search/bound/op_bounds.h"
#include "search/run/runs.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what the profile lacks for the best plan that might fit. */
static int say_unknown(struct pool *pool, struct err *err) {
    const struct search_problem *p = &pool->space->p;
    struct plan *plan = space_plan_of(pool->space, &pool->unknown.c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    char key[256] = "";
    cost_forget(&pool->ev->cost);
    if (g)
        cost_program(&pool->ev->cost, g);
    if (pool->ev->cost.n_missing)
        cost_key_format(&pool->ev->cost.missing[0], key, sizeof key);
    program_destroy(g);
    plan_destroy(plan);
    err_no(err, "the %s shapes of every plan of this model%s, such as %s",
           p->profile ? "profile lacks" : "cluster's datasheets lack",
           p->memory_bytes ? " that fits" : "", key);
    return err_hint(
        err,
        "weft-profile-op with this model, these sizes, --max-devices %d%s%s and "
        "--micro-batch, and weft-profile-comm%s",
        p->devices, p->dtype == DTYPE_f32 ? "" : ", --dtype ",
        p->dtype == DTYPE_f32 ? "" : plan_dtype_name(p->dtype),
        p->profile ? "; or --datasheets" : "");
}

/* ---- memory ---------------------------------------------------------------------------- */

/* The least bytes on each of several devices: what is held between steps, and what
 * must be kept of one micro-batch because no op can compute it again. */
static double held_at_least(const struct op_bound *o) {
    double least = INFINITY;
    for (int i = 0; i < o->n; i++) {
        double bytes = o->strategies[i].fixed;
        for (int k = 0; k < OP_BOUND_ITEMS; k++)
            bytes += isfinite(o->recompute_us[k]) ? 0 : o->strategies[i].kept[k];
        least = fmin(least, bytes);
    }
    return least;
}

struct least {
    int op;           /* op of the deduplicated model that needs most on a device */
    double op_bytes;  /* what it needs, however it is split */
    double all_bytes; /* of all ops on all devices together */
};

/* The least over all numbers of devices and all micro-batches. */
static struct least find_least(struct evaluate *ev) {
    const struct blocks *g = &ev->space->blocks;
    int n = g->x.model->n_ops;
    struct op_bounds *f = op_bounds_make(ev, NULL);
    struct least out = {0};
    double *all = mem_array((size_t)n, sizeof *all);
    for (int op = 0; op < n; op++) {
        double device = INFINITY;
        all[op] = INFINITY;
        for (int d = 1; d <= ev->space->p.devices; d++)
            for (int k = 0; k < ev->space->p.n_micro; k++) {
                struct op_bound o = op_bounds_at(f, op, ev->space->p.micro[k], d);
                double bytes = held_at_least(&o);
                device = fmin(device, bytes);
                all[op] = fmin(all[op], d * bytes);
            }
        if (isfinite(device) && device > out.op_bytes) {
            out.op = op;
            out.op_bytes = device;
        }
    }
    for (int i = 0; i < g->s.n_ops; i++)
        out.all_bytes += isfinite(all[g->x.of[i]]) ? all[g->x.of[i]] : 0;
    free(all);
    op_bounds_free(f);
    return out;
}

static double all_memory(const struct space *sp) {
    double sum = 0;
    for (int r = 0; r < sp->p.devices; r++)
        sum += (double)search_memory(&sp->p, r, 1);
    return sum;
}

/* The least bytes of parameters, gradients and the optimizer's state on all devices
 * together, however they are split. What is trained has its gradient and a value in f32,
 * which is a master where ops want a narrow type. Hosts have room for all of this, so
 * nothing is certain where plans offload or pins may have them do so. */
static double state_at_least(const struct space *sp) {
    const struct search_problem *p = &sp->p;
    double sum = 0;
    for (int i = 0; i < p->model->n_params && !p->offload && !p->pins; i++) {
        const struct model_param *param = &p->model->params[i];
        struct extents x = model_extents(p->model, &param->shape, 1);
        int states = optimizer_states(optimizer_of(p->optimizer, param));
        int64_t bytes =
            param->frozen ? dtype_size(p->dtype) : (2 + states) * dtype_size(DTYPE_f32);
        sum += param->running ? 0 : (double)extents_count(&x) * (double)bytes;
    }
    return sum;
}

bool search_cannot_fit(const struct space *sp) {
    return sp->p.memory_bytes && state_at_least(sp) > all_memory(sp);
}

/* Explains why no plan at all fits, if that is so. On very many devices only the sum is
 * looked at, because lower bounds of single ops would take too long. */
static void prove_too_little(struct pool *pool, char *buf, size_t size) {
    enum { MOST_DEVICES = 32 };
    buf[0] = '\0';
    if (pool->space->p.pins || budget_stopped(pool->budget))
        return;
    struct least l = pool->space->p.devices > MOST_DEVICES
                         ? (struct least){.all_bytes = state_at_least(pool->space)}
                         : find_least(pool->ev);
    double most = (double)pool->space->p.memory_bytes, all = all_memory(pool->space);
    if (l.op_bytes > most)
        snprintf(buf, size, "; %s alone needs at least %s, however it is split",
                 pool->space->blocks.x.model->ops[l.op].name, text_bytes(l.op_bytes).s);
    else if (l.all_bytes > all)
        snprintf(buf, size,
                 "; what no plan can do without takes at least %s on all devices together, "
                 "and they have %s",
                 text_bytes(l.all_bytes).s, text_bytes(all).s);
}

/* Says which part of the memory of a rank's device is reserved. */
static void say_reserve(const struct search_problem *p, int rank, char *buf, size_t size) {
    const struct cluster_group *g = cluster_group_of(&p->cluster, rank);
    char parts[160];
    reserve_format(&g->reserve, parts, sizeof parts);
    snprintf(buf, size, *parts && p->memory_of_kinds ? " (of %s, less %s)" : "",
             text_bytes((double)g->memory_bytes).s, parts);
}

/* Says which stage lacks how much in the plan that lacks least: a compiled one or, if
 * there is none, the best by score. */
static int say_overflow(struct pool *pool, struct search_result *out, struct err *err) {
    const struct model *m = pool->space->p.model;
    const struct entry *k = &pool->nearest;
    struct shortage r =
        pool->refused.bytes
            ? pool->refused
            : space_shortage(pool->space, &k->c, k->score.fullest, k->score.overflow);
    char proof[512], without[200];
    prove_too_little(pool, proof, sizeof proof);
    say_reserve(&pool->space->p, candidate_rank(&k->c, r.stage), without, sizeof without);
    out->overflow = r.bytes;
    out->overflow_stage = r.stage;
    return err_no(err,
                  "no plan fits: the best needs %s more than %s%s on the devices of "
                  "stage %d, which has %s to %s%s",
                  text_bytes((double)r.bytes).s, text_bytes((double)r.limit).s, without,
                  r.stage, m->ops[r.first].name, m->ops[r.end - 1].name, proof);
}

/* ---- no candidate ---------------------------------------------------------------------- */

/* Returns whether there is a uniform pipeline that obeys the first n pins. */
static bool obeyable(const struct search_problem *p, int64_t n) {
    struct search s;
    struct search_problem q = *p;
    struct pins some = *p->pins;
    some.list.n = n;
    q.pins = &some;
    search_begin(&s, &q);
    bool found = false;
    struct candidate c = candidate_make(&s.space);
    bool may = space_check_pins(&s.space, NULL) == 0;
    for (int k = 1; k <= space_max_groups(&s.space) && may && !found; k++)
        for (int i = 0; i < s.space.p.n_micro && !found; i++)
            found = space_even(&s.space, k, s.space.p.micro[i],
                               (struct preset){.inner = ~0u}, &c) &&
                    eval_legal(&s.eval, &c);
    candidate_release(&c);
    search_end(&s);
    return found;
}

/* Returns the first pin that, together with those before it, leaves no candidate; NULL if
 * there is none. */
static const struct pin *binding_pin(const struct search_problem *p) {
    if (!p->pins)
        return NULL;
    for (int64_t n = 1; n <= p->pins->list.n; n++)
        if (!obeyable(p, n))
            return obeyable(p, n - 1) ? &p->pins->list.p[n - 1] : NULL;
    return NULL;
}

/* Says why no candidate is legal. If sample groups do not divide the micro-batch, no layout
 * at all is. */
static int say_illegal(const struct space *sp, struct err *err) {
    const struct search_problem *p = &sp->p;
    const struct mesh one = {0};
    struct layout none;
    struct err why = {0};
    memset(&none, PLACE_NONE, sizeof none);
    for (int i = 0; i < p->model->n_ops; i++)
        if (layout_check(p->model, &p->model->ops[i], &one, &none, p->micro[p->n_micro - 1],
                         &why) < 0)
            return err_no(err, "no legal plan: %s", why.msg);
    const struct pin *pin = binding_pin(p);
    if (pin)
        return err_no(err, "no legal plan: %s: %d devices cannot be shared as it asks",
                      pin->where, p->devices);
    return err_no(err, "no legal plan: %d devices cannot share this model%s", p->devices,
                  p->pins && p->pins->list.n ? " as it is pinned" : "");
}

int pool_refuse(struct pool *pool, struct search_result *out, struct err *err) {
    bool fits = pool->has_unknown && !pool->unknown.score.overflow;
    if (fits || (pool->has_unknown && !pool->has_nearest && !pool->refused.bytes))
        return say_unknown(pool, err);
    if (pool->has_nearest || pool->refused.bytes)
        return say_overflow(pool, out, err);
    if (budget_stopped(pool->budget)) {
        err_no(err, "stopped before any plan was found");
        return pool->space->p.time_budget_s > 0 ? err_hint(err, "give it a longer time")
                                                : -1;
    }
    return say_illegal(pool->space, err);
}
