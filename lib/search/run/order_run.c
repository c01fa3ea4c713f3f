/* A search in several orders of the model's ops.
 *
 * The model's own order comes first. Another one is searched if a first look is promising,
 * and only for what its bound does not rule out. The certificate covers the ranges of all
 * orders that are searched: no plan takes less than the least of their bounds. */
#include "search/space/order.h"

#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/run/runs.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- searches -------------------------------------------------------------------------------- */

struct order_search {
    const struct search_problem *p;
    search_algorithm *algorithm;
    struct search_result *out;
    struct run_facts *facts;
    int orders;      /* orders that were looked at */
    bool listed;     /* all plans of these orders were listed */
    double least_us; /* no plan of these orders takes less; 0 = not known */
    double first_us; /* what a first look at the model's own order finds; 0 = not known */
};

/* Combines the bound with what is proven about one more order. */
static void note_bound(struct order_search *r, double least_us, bool listed,
                       double bound_us) {
    r->listed &= listed;
    r->least_us = fmin(r->least_us, least_us);
    r->facts->bound_us = fmin(r->facts->bound_us, bound_us);
}

static void note_result(struct order_search *r, const struct search_result *result,
                        const struct run_facts *facts) {
    bool listed = result->n && !strcmp(result->relaxation, BOUND_LISTED);
    if (result->n)
        note_bound(r, result->lower_bound_us, listed, facts->bound_us);
    else /* nothing fits in this order, or nothing is known */
        note_bound(r, facts->proven ? INFINITY : facts->bound_us, facts->proven,
                   facts->bound_us);
}

/* plan: NULL, or the one whose certificate is checked, which may have overlap, offload less
 * than all ops do, and have fewer pieces of logits. */
static double order_bound_us(const struct search_problem *q, const struct plan *plan) {
    struct search s;
    search_begin(&s, q);
    if (plan) {
        s.space.hides = plan->overlap && q->provider->overlap > 0;
        s.space.blocks.offload = 0;
        s.eval.graph.plan.logits = 1;
    }
    double us = space_check_pins(&s.space, NULL) == 0 ? bound_us(&s.eval, NULL) : INFINITY;
    search_end(&s);
    return us;
}

/* Returns whether a first look in another order finds a pipeline that is near enough to the
 * best plan so far, and better than what a first look finds in the model's own order:
 * *first_us, which is found here if it is 0. */
static bool promises(const struct search_problem *own, const struct search_problem *other,
                     double best_us, double *first_us) {
    static const double NEAR = 0.8, BETTER = 0.97;
    double us = search_first_estimate_us(other, LOOK_PIPELINE);
    if (us * NEAR >= best_us)
        return false;
    if (*first_us <= 0)
        *first_us = search_first_estimate_us(own, LOOK_PIPELINE);
    return us < BETTER * *first_us;
}

/* Searches in one more order. Returns -1 if the plan to start from is impossible. */
static int run_order(struct order_search *r, const struct order *o, struct err *err) {
    struct search_problem q = order_problem(o, r->p);
    struct search_result result;
    struct run_facts facts;
    double best_us = r->out->n ? r->out->plans[0].time_us : 0;
    struct plan *from = r->p->from ? order_translate(o, r->p->from) : NULL;
    q.from = from;
    /* the order of the plan to start from is searched even if time is up */
    if (from ? interrupted() : !search_in_time(&q)) {
        plan_destroy(from);
        note_bound(r, 0, false, 0);
        return 0;
    }
    if (!from && best_us > 0 && !o->all && !promises(r->p, &q, best_us, &r->first_us))
        return 0;
    q.known_us = order_bound_us(&q, NULL);
    r->orders++;
    if (!from && best_us > 0 && q.known_us >= best_us * (1 - q.gap) && r->p->top == 1) {
        note_bound(r, q.known_us, q.known_us >= best_us, q.known_us);
        return 0;
    }
    q.beat_us = r->p->top == 1 ? best_us : 0;
    int rc = search_run_on(&q, r->algorithm, &result, &facts, err);
    plan_destroy(from);
    if (rc < 0 && from && !facts.ended)
        return -1;
    if (rc < 0)
        result.n = 0;
    if (facts.ended)
        note_result(r, &result, &facts);
    r->facts->proven &= facts.proven;
    r->facts->complete &= facts.complete;
    result.complete = facts.complete;
    search_result_merge(r->out, &result, r->p);
    return 0;
}

/* Grids have no other orders: a person would cut them between the blocks of the file. */
static bool takes_orders(const struct search_problem *p, search_algorithm *algorithm) {
    return !p->as_listed && algorithm != search_grid && algorithm != search_dp_only;
}

/* Searches in the model's own order. */
static int run_first(struct order_search *r, const struct orders *o, struct err *err) {
    struct search_problem q = *r->p;
    if (o->n && q.from && !plan_is_as_listed(q.from))
        q.from = NULL;
    int rc = search_run_on(&q, r->algorithm, r->out, r->facts, err);
    r->first_us = r->facts->first_us;
    r->orders = 1;
    r->listed = true;
    r->least_us = INFINITY;
    if (r->facts->ended) {
        double bound_us = r->facts->bound_us;
        r->facts->bound_us = INFINITY;
        note_result(r, r->out, r->facts);
        r->facts->bound_us = bound_us;
    }
    return rc;
}

/* If no plan is found in any order, the message is that of the model's own order. */
int search_run_orders(const struct search_problem *p, search_algorithm *algorithm,
                      struct search_result *out, struct run_facts *facts, struct err *err) {
    struct order_search r = {.p = p, .algorithm = algorithm, .out = out, .facts = facts};
    struct orders o = {0};
    if (!takes_orders(p, algorithm))
        return search_run_on(p, algorithm, out, facts, err);
    orders_find(p, p->from, &o);
    int rc = run_first(&r, &o, err);
    struct err first = err ? *err : (struct err){0};
    bool go_on = o.n && facts->ended;
    for (int i = 0; i < o.n && go_on; i++)
        if (run_order(&r, o.p[i], err) < 0) {
            search_result_release(out);
            orders_release(&o);
            return -1;
        }
    orders_release(&o);
    if (!go_on)
        return rc;
    if (err)
        *err = out->n ? (struct err){0} : first;
    out->orders = r.orders;
    out->lower_bound_us = out->n && isfinite(r.least_us) ? r.least_us : 0;
    out->relaxation = out->lower_bound_us <= 0 ? ""
                      : r.listed               ? BOUND_LISTED
                                               : facts->relaxation;
    return out->n ? 0 : rc;
}

/* Returns whether the plan is one of this order and not of the model's own. */
static bool is_of(const struct plan *plan, const struct order *o) {
    struct plan *t = plan && !plan_is_as_listed(plan) ? order_translate(o, plan) : NULL;
    plan_destroy(t);
    return t != NULL;
}

double orders_bound_us(const struct search_problem *p, const struct plan *plan,
                       double time_us) {
    struct orders o;
    double least = order_bound_us(p, plan), first_us = 0;
    orders_find(p, plan, &o);
    for (int i = 0; i < o.n; i++) {
        struct search_problem q = order_problem(o.p[i], p);
        if (o.p[i]->all || is_of(plan, o.p[i]) || promises(p, &q, time_us, &first_us))
            least = fmin(least, order_bound_us(&q, plan));
    }
    orders_release(&o);
    return least;
}
