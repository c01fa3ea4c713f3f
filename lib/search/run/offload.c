/* Plans that keep in the memory of hosts what devices have no room for.
 *
 * Copies to a host and back take much time. So offloading is tried only if no plan fits
 * without it, if the plan to start from does it, or, for the optimizer's state alone, if
 * the best plan pays for a lack of memory and a first look is faster. A search follows
 * for each set of tensors whose first look is promising. All ops of all stages offload
 * the set, which the strategy graph compiles as if it were pinned. At the end each stage
 * of the best plans takes back what it has room for. Bounds proven in such a space do not
 * depend on memory (op_bounds.c). */
#include "search/run/runs.h"

#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int everything = OFFLOAD_optimizer | OFFLOAD_parameters | OFFLOAD_activations;

enum { SETS = 5 };
static const int sets[SETS] = {OFFLOAD_optimizer, OFFLOAD_activations,
                               OFFLOAD_optimizer | OFFLOAD_activations,
                               OFFLOAD_optimizer | OFFLOAD_parameters, everything};

/* Returns whether the devices have hosts with a memory of their own. All but CPUs do if
 * there is a profile or the cluster gives host_bandwidth. */
static bool has_hosts(const struct search_problem *p) {
    const struct cluster *c = &p->cluster;
    bool said = true;
    for (int g = 0; g < c->n_groups; g++)
        said &= c->groups[g].host_bandwidth > 0;
    return (said || p->profile) && strncmp(p->provider->device, "cpu-", 4) != 0;
}

int search_offloaded(const struct plan *plan) {
    int set = 0;
    for (int k = 0; plan && k < plan->n_stages; k++)
        for (int i = 0; i < plan->stages[k].n_ops; i++)
            set |= plan->stages[k].offload[i];
    return set;
}

static bool has_pins(const struct search_problem *p) {
    return p->pins && p->pins->list.n > 0;
}

/* ---- one stage after the other ----------------------------------------------------------- */

/* Puts `which` of a stage's tensors on hosts, or takes them back. */
static void set_stage(struct stage *st, int which, bool host) {
    for (int i = 0; i < st->n_ops; i++)
        st->offload[i] = (int8_t)(host ? st->offload[i] | which : st->offload[i] & ~which);
}

/* Takes back onto the device what the stage offloads, if that fits and is faster. */
static bool take_back(struct evaluate *ev, struct search_plan *p, int stage, int which) {
    struct search_plan other = {.plan = p->plan};
    struct stage *st = &p->plan->stages[stage];
    for (int i = 0; i < st->n_ops; i++)
        if (!(st->offload[i] & which))
            return false;
    set_stage(st, which, false);
    if (eval_plan(ev, &other) && other.time_us < p->time_us * (1 - 1e-9)) {
        *p = (struct search_plan){p->plan,   other.time_us, other.max_bytes,
                                  p->member, p->class,      p->words};
        return true;
    }
    set_stage(st, which, true);
    return false;
}

/* Begins with the costliest: activations are copied with every micro-batch. */
static void take_all_back(struct evaluate *ev, struct search_plan *p) {
    static const int order[] = {OFFLOAD_activations, OFFLOAD_parameters, OFFLOAD_optimizer};
    enum { MOST_TRIES = 96 };
    int tries = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        for (int k = 0; k < p->plan->n_stages && tries < MOST_TRIES; k++, tries++)
            take_back(ev, p, k, order[i]);
}

/* ---- searches ---------------------------------------------------------------------------- */

struct offloading {
    const struct search_problem *p;
    search_algorithm *algorithm;
    struct search_result *out;
};

/* Searches with this set offloaded by all ops; its plans join the others. */
static bool search_set(struct offloading *o, int set, const struct plan *from) {
    struct search_problem q = search_following(o->p, from);
    q.offload = set;
    return search_follow(o->p, &q, o->algorithm, o->out);
}

/* A first look at plans that offload a set: INFINITY where it finds none that fits. */
struct look {
    int set;
    double us;
};

static int look_by_us(const void *a, const void *b) {
    double x = ((const struct look *)a)->us, y = ((const struct look *)b)->us;
    return (x > y) - (x < y);
}

/* Searches the sets whose first look comes near to the best plan so far, the one with the
 * fastest look first. For nine of ten models that were too large for their devices this
 * gave the same plan as a search for every set, for one a plan that is 0.7 % slower, in a
 * quarter of the time. Searches found plans that are up to 29 % faster than their first
 * look. Where no look finds anything, only `everything` is searched, which fits if
 * anything does. Returns whether a plan was found. */
static bool search_sets(struct offloading *o) {
    static const double NEAR = 0.8;
    struct look looks[SETS];
    const struct search_result *out = o->out;
    for (int i = 0; i < SETS; i++) {
        struct search_problem q = search_following(o->p, NULL);
        q.offload = sets[i];
        looks[i] = (struct look){sets[i], search_first_estimate_us(&q, 1)};
    }
    qsort(looks, SETS, sizeof *looks, look_by_us);
    bool found = false;
    for (int i = 0; i < SETS; i++) {
        bool near = isfinite(looks[i].us) &&
                    (!out->n || looks[i].us * NEAR < out->plans[0].time_us);
        if (near || (!out->n && looks[i].set == everything))
            found |= search_set(o, looks[i].set, NULL);
    }
    return found;
}

/* Lets stages take back what they have room for. The certificate is a bound that does
 * not depend on memory. */
static void finish(struct offloading *o) {
    struct search s;
    struct search_problem q = *o->p;
    struct search_result *out = o->out;
    q.offload = everything;
    search_begin(&s, &q);
    s.space.blocks.offload = 0; /* the proof also holds for stages that offload less */
    for (int i = 0; i < out->n && !has_pins(&q); i++)
        if (search_offloaded(out->plans[i].plan))
            take_all_back(&s.eval, &out->plans[i]);
    out->lower_bound_us = q.no_bound || interrupted() ? 0 : bound_us(&s.eval, NULL);
    out->relaxation = out->lower_bound_us > 0 ? bound_relaxation(&s.space) : "";
    search_end(&s);
}

bool search_pays(const struct plan *plan) {
    bool any = false;
    for (int k = 0; k < plan->n_stages; k++) {
        const struct stage *st = &plan->stages[k];
        any |= st->regather;
        for (int i = 0; i < st->n_ops; i++)
            any |= st->recompute[i] || st->zero[i] > ZERO_OPTIMIZER;
    }
    return any;
}

/* Searches with the optimizer's state on hosts if the plan that was found pays for a lack
 * of memory, because that may be faster. The search takes as long again, so it follows
 * only if a first look finds a faster plan. */
static void search_instead(struct offloading *o) {
    struct search_problem q = search_following(o->p, NULL);
    const struct search_result *out = o->out;
    q.offload = OFFLOAD_optimizer;
    if (interrupted() || q.deadline_s > 0 || !search_pays(out->plans[0].plan) ||
        search_first_estimate_us(&q, 1) >= out->plans[0].time_us)
        return;
    search_set(o, OFFLOAD_optimizer, NULL);
    if (search_offloaded(out->plans[0].plan))
        finish(o);
}

/* Adds a hint on what hosts could do, or why they are no help; returns -1. */
static int say_hosts(const struct search_problem *p, bool tried, struct err *err) {
    if (tried)
        return err_hint(err,
                        "nor does a plan fit that keeps the optimizer's state, parameters "
                        "and activations in the memory of hosts");
    if (p->may_offload && p->memory_bytes)
        return err_hint(
            err, "with host_bandwidth in the cluster, plans may keep in the memory of "
                 "hosts what does not fit (offload of weft-plan(5))");
    return -1;
}

static bool may_offload(const struct search_problem *p) {
    return p->may_offload && p->memory_bytes && has_hosts(p);
}

int search_from_hosts(const struct search_problem *p) {
    return may_offload(p) ? search_offloaded(p->from) : 0;
}

int search_hosts(const struct search_problem *p, search_algorithm *algorithm, int rc,
                 struct search_result *out, struct err *err) {
    struct offloading o = {p, algorithm, out};
    bool may = may_offload(p), lacks_memory = rc < 0 && out->overflow > 0;
    int from = search_from_hosts(p);
    if (rc == 0 && may && !from && !has_pins(p))
        search_instead(&o);
    if (!from && !lacks_memory)
        return rc;
    bool found = may && (from ? search_set(&o, from, p->from) : search_sets(&o));
    if (!found && !out->n)
        return lacks_memory ? say_hosts(p, may, err) : rc;
    if (err)
        *err = (struct err){0};
    if (found)
        finish(&o);
    return 0;
}
