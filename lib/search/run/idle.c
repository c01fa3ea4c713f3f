/* Plans that leave devices idle, where these would only make a step longer: the batch
 * does not divide, links are slow, or a kind of device is slow. So more devices never
 * give a slower plan.
 *
 * The search on all devices is followed by searches on fewer: on every divisor of their
 * number, and on the devices of the first kinds, as long as that many could be faster at
 * all. They could not if single devices that shared all work by their speed would take
 * longer than the best plan. Where nothing is proven, a first look also has to come near
 * to the best plan. Only the first devices of the cluster are used. */
#include "common/progress.h"
#include "search/bound/bound.h"
#include "search/run/runs.h"
#include "search/space/devices.h"
#include "search/space/order.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the first n devices would take if they shared all work in proportion to
 * their speed; 0 if that is not known. */
static double shared_us(const struct cluster *c, const double *alone_us, int n) {
    double rate = 0;
    for (int g = 0; g < c->n_groups && c->groups[g].first_rank < n; g++) {
        int64_t all = c->groups[g].nodes * c->groups[g].devices;
        int64_t used = n - c->groups[g].first_rank;
        if (alone_us[g] <= 0)
            return 0;
        rate += (double)(used < all ? used : all) / alone_us[g];
    }
    return 1 / rate;
}

/* ---- searches ------------------------------------------------------------------------------ */

struct idle {
    const struct search_problem *p;
    search_algorithm *algorithm;
    struct search_result *out;
    struct run_facts facts; /* from the search on all devices */
    bool listed;            /* all plans on the numbers of devices so far were listed */
    double least_us;        /* with `listed`: no plan on these takes less */
};

/* Returns whether this many devices could be faster than the best plan so far or, after a
 * search that listed all plans, whether the proof needs this number of devices too. */
static bool may_help(const struct idle *d, int n) {
    const struct search_result *out = d->out;
    double least_us = shared_us(&d->p->cluster, d->facts.alone_us, n);
    /* a proof by listing holds for one number of devices only */
    bool closed = out->n && d->p->gap > 0 &&
                  out->plans[0].time_us * (1 - d->p->gap) <= d->facts.bound_us;
    if (closed || !search_in_time(d->p))
        return false;
    return !out->n || d->listed || (least_us > 0 && least_us < out->plans[0].time_us);
}

static void note_proof(struct idle *d, const struct search_result *r,
                       const struct run_facts *facts) {
    d->listed &= r->n ? !strcmp(r->relaxation, BOUND_LISTED) : facts->proven;
    if (r->n)
        d->least_us = fmin(d->least_us, r->lower_bound_us);
}

/* The certificate is the least of what the lists prove or, without these, the
 * relaxation's bound, which holds for all numbers of devices. */
static void certify(struct idle *d) {
    struct search_result *out = d->out;
    if (d->listed) {
        out->lower_bound_us = d->least_us;
        out->relaxation = BOUND_LISTED;
    } else {
        out->lower_bound_us = d->facts.bound_us;
        out->relaxation = out->lower_bound_us > 0 ? d->facts.relaxation : "";
    }
}

/* Returns whether a first look comes near enough to the best plan so far. Searches have
 * found plans that are a fifth faster than their first look. Where more devices had no
 * plan, the first look has to find one that fits. */
static bool promises(const struct search_problem *q, const struct search_result *out) {
    static const double NEAR = 0.7;
    double best_us = out->n ? out->plans[0].time_us : INFINITY;
    return search_first_estimate_us(q, 1) * NEAR < best_us;
}

/* Searches on n devices and merges the result, unless a first look promises too
 * little. */
static void try_fewer(struct idle *d, int n) {
    struct search_problem q = *d->p;
    struct search_result r;
    struct run_facts facts;
    q.devices = n;
    q.may_idle = false;
    q.from = NULL;
    q.gap = 0;
    q.no_bound |= !d->listed;
    if (!d->listed && !promises(&q, d->out))
        return;
    if (!d->listed && d->out->n)
        q.beat_us = q.top == 1 ? d->out->plans[0].time_us : 0;
    if (search_run_orders(&q, d->algorithm, &r, &facts, NULL) < 0)
        r.n = 0;
    note_proof(d, &r, &facts);
    r.complete = facts.complete;
    search_result_merge(d->out, &r, d->p);
}

/* If no plan fits on all devices, the reason is kept for the message even if a plan on
 * fewer is found. */
int search_resident(const struct search_problem *p, search_algorithm *algorithm,
                    struct search_result *out, struct err *err) {
    /* numbers of devices without a plan after which the search gives up */
    enum { MOST_WITHOUT = 2 };
    struct idle d = {.p = p, .algorithm = algorithm, .out = out};
    int without = 0;
    int rc = search_run_orders(p, algorithm, out, &d.facts, err);
    if (!p->may_idle || !d.facts.ended)
        return rc;
    d.listed = true;
    d.least_us = INFINITY;
    note_proof(&d, out, &d.facts);
    for (int n = p->devices - 1; n > 0 && (out->n || without++ < MOST_WITHOUT); n--) {
        while (n > 1 && !devices_may_be(p, n))
            n--;
        if (!may_help(&d, n)) {
            d.listed = false;
            break;
        }
        try_fewer(&d, n);
    }
    if (!out->n)
        return rc;
    certify(&d);
    if (rc < 0 && err)
        snprintf(out->idle, sizeof out->idle, "%.*s", (int)sizeof out->idle - 1, err->msg);
    if (err)
        *err = (struct err){0};
    return 0;
}
