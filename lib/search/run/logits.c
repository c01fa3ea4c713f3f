/* Plans that make logits in pieces of their rows (pass_logits.c).
 *
 * Pieces cost a little time, because each of them adds to the gradient of the head's
 * weight, and they save memory in only one stage. So they are tried only if no plan fits
 * without them, if the plan to start from has them, or if the best plan pays for a lack of
 * memory and a first look with them is about as fast as one without or the latter finds
 * nothing. A search follows in which all plans have equally many pieces. At the end each
 * of the best plans gets the number with which it is fastest. Bounds proven in such a
 * space do not depend on memory (op_bounds.c). */
#include "search/run/runs.h"

#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"

#include "common/progress.h"

#include <math.h>

/* Few pieces cost next to nothing and save most; if no plan fits with these, many are
 * tried. */
enum { PIECES = 4, MANY = 16 };

/* A first look with pieces may be slower by this much, because the plan may get fewer. */
static const double NEAR = 1.01;

/* A share of a device's memory: where whole logits take less, pieces free so little that
 * none of 200 searches (scripts/same-plans.sh) found a faster plan. */
static const double LEAST = 0.02;

/* Elements of all logits of a step, because several micro-batches may be held at once; 0
 * where no loss can be cut. */
static double elements(const struct search_problem *p) {
    double n = 0;
    for (int i = 0; i < p->model->n_ops; i++) {
        const struct model_op *op = &p->model->ops[i];
        if (op->kind != OP_cross_entropy)
            continue;
        const struct shape *s = &p->model->tensors[op->in[0]].shape;
        struct extents x = model_extents(p->model, s, p->batch);
        n += (double)extents_count(&x);
    }
    return n;
}

static bool may_cut(const struct search_problem *p) {
    return p->may_logits && p->memory_bytes && elements(p) > 0;
}

bool search_from_pieces(const struct search_problem *p) {
    return may_cut(p) && p->from && p->from->logits > 1;
}

/* Returns whether pieces may free what is lacking: less than all logits and their
 * gradients take. */
static bool may_help(const struct search_problem *p, int64_t overflow) {
    return may_cut(p) && (double)overflow < 2 * (double)dtype_size(p->dtype) * elements(p);
}

static bool search_pieces(const struct search_problem *p, search_algorithm *algorithm,
                          int64_t pieces, const struct plan *from,
                          struct search_result *out) {
    struct search_problem q = search_following(p, from);
    q.logits = pieces;
    return search_follow(p, &q, algorithm, out);
}

/* Gives a plan the number of pieces with which it fits and is fastest. */
static void take_fewest(struct evaluate *ev, struct search_plan *p) {
    int64_t best = p->plan->logits;
    for (int64_t k = 1; k < p->plan->logits; k *= 2) {
        struct search_plan other = {.plan = p->plan};
        const int64_t had = p->plan->logits;
        p->plan->logits = k;
        if (eval_plan(ev, &other) && other.time_us < p->time_us * (1 - 1e-9)) {
            p->time_us = other.time_us;
            p->max_bytes = other.max_bytes;
            best = k;
        }
        p->plan->logits = had;
    }
    p->plan->logits = best;
    p->words += best > 1; /* a person mentions the pieces */
}

static bool any_pieces(const struct search_result *out) {
    for (int i = 0; i < out->n; i++)
        if (out->plans[i].plan->logits > 1)
            return true;
    return false;
}

/* The certificate is a bound that does not depend on memory. */
static void finish(const struct search_problem *p, struct search_result *out) {
    struct search s;
    struct search_problem q = *p;
    q.logits = PIECES;
    search_begin(&s, &q);
    s.eval.graph.plan.logits = 1; /* the proof also holds for plans without pieces */
    for (int i = 0; i < out->n; i++)
        take_fewest(&s.eval, &out->plans[i]);
    if (any_pieces(out)) {
        out->lower_bound_us = q.no_bound || interrupted() ? 0 : bound_us(&s.eval, NULL);
        out->relaxation = out->lower_bound_us > 0 ? bound_relaxation(&s.space) : "";
    }
    search_end(&s);
}

/* The bytes of logits and of their gradients that a device holds under the plan. */
static double logits_bytes(const struct plan *plan) {
    double n = 0;
    for (int k = 0; k < plan->n_stages; k++)
        for (int i = 0; i < plan->stages[k].n_ops; i++) {
            const struct stage *st = &plan->stages[k];
            const struct model_op *op = &plan->model->ops[st->ops[i]];
            if (op->kind != OP_cross_entropy)
                continue;
            const struct shape *s = &plan->model->tensors[op->in[0]].shape;
            struct extents x = model_extents(plan->model, s, plan->micro_batch);
            struct placement at =
                placement_operand(&st->mesh, &st->layouts[i], &op->in_map[0]);
            n += (double)placement_elements(&st->mesh, &x, at);
        }
    return 2 * (double)dtype_size(plan->dtype) * n;
}

/* Returns whether the plan is so far from its bound that there may be a faster one of
 * another kind, which does not split the vocabulary: of t5:770M with 12 layers on 12
 * devices with 0.8 GB each the best without pieces took 3.7 % longer. */
static bool is_far(const struct search_result *out) {
    static const double FAR = 0.2;
    return out->lower_bound_us < (1 - FAR) * out->plans[0].time_us;
}

/* Returns whether pieces may be faster than the plan that was found: it pays for a lack of
 * memory, of which logits take a part, and a first look does not rule pieces out. */
static bool is_worth_it(const struct search_problem *p, const struct search_result *out) {
    struct search_problem whole = *p, q = search_following(p, NULL);
    if (!may_cut(p) || interrupted() || q.deadline_s > 0 ||
        !search_pays(out->plans[0].plan) ||
        (!is_far(out) &&
         logits_bytes(out->plans[0].plan) < LEAST * (double)p->memory_bytes))
        return false;
    whole.from = NULL;
    q.logits = PIECES;
    const double whole_us = search_first_estimate_us(&whole, 1);
    /* where a first look finds nothing that fits, it says nothing of pieces either */
    return isinf(whole_us) || search_first_estimate_us(&q, 1) < NEAR * whole_us;
}

int search_logits(const struct search_problem *p, search_algorithm *algorithm, int rc,
                  struct search_result *out, struct err *err) {
    const struct plan *from = search_from_pieces(p) ? p->from : NULL;
    const bool lacks = rc < 0 && out->overflow > 0 && may_help(p, out->overflow);
    if (!from && !lacks && (rc < 0 || !is_worth_it(p, out)))
        return rc;
    const int64_t pieces = from && from->logits > PIECES ? from->logits : PIECES;
    bool found = search_pieces(p, algorithm, pieces, from, out);
    if (!found && !out->n && pieces < MANY)
        found = search_pieces(p, algorithm, MANY, NULL, out);
    if (!found && !out->n)
        return rc;
    if (err)
        *err = (struct err){0};
    finish(p, out);
    return 0;
}
