/* joint.c - the search over the greatest stage time.
 *
 * "Is there a plan with all stage times <= T" is answered exactly by joint_dp.c over a
 * family of down-sets. A yes comes with a plan, whose own greatest time is the new
 * incumbent; a no over all down-sets says that no plan is as fast. T is bisected between
 * the two, and the last question is asked just below the incumbent, so that the proof does
 * not rest on the bisection.
 *
 * The down-sets of one topological order, which are few, give a first plan. Where all
 * down-sets are too many, that is all, and the bound is that of joint_bound.c.
 */
#include "solve/joint/joint.h"

#include "common/progress.h"
#include "solve/solve_doc.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define BELOW (1 - 1e-12) /* "just below": the rounding of sums of times is smaller */
#define MOST  20000       /* down-sets: with more, the questions take hours */

struct search {
    const struct joint_problem *p;
    const struct solve_limits *limits;
    struct joint_bound root;
    struct joint_plan best, plan;
    double bound; /* proven */
    int questions;
    bool part; /* down-sets of one order alone were searched */
    int64_t sets, pairs, evaluated, knapsacks;
};

static double gap_of(double value, double bound) {
    return value <= bound ? 0 : (value - bound) / fmax(fabs(bound), DBL_MIN);
}

static bool near_enough(const struct search *s) {
    return gap_of(s->best.value, s->bound) <= s->limits->gap;
}

/* ---- questions to one family of down-sets ------------------------------------------- */

/* Asks whether all stages can keep to T. Returns 1, 0 or -1 as joint_dp_run does. */
static int ask(struct search *s, struct joint_dp *dp, double T) {
    int answer = joint_dp_run(dp, T, &s->plan);
    s->questions++;
    if (answer == 1 && s->plan.value < s->best.value)
        joint_plan_copy(&s->best, &s->plan);
    return answer;
}

/* Bisects until the optimum over these sets is known. Below a gap of 1 %, every other
 * question is whether there is anything better at all. Returns false when stopped. */
static bool narrow(struct search *s, struct joint_dp *dp) {
    double lo = s->bound;
    if (isinf(s->best.value)) {
        int first = ask(s, dp, INFINITY);
        if (first <= 0)
            return first == 0;
    }
    for (bool below = false;; below = !below) {
        double hi = s->best.value, T = lo + (hi - lo) / 2;
        if (hi <= lo || near_enough(s))
            return true;
        below = (below && hi - lo <= 0.01 * hi) || hi - lo <= 1e-7 * hi;
        if (below)
            T = fmax(hi * BELOW, lo);
        int answer = ask(s, dp, T);
        if (answer < 0)
            return false;
        if (answer == 0) {
            double no = below && dp->open >= T ? hi : fmin(T, dp->open);
            if (no <= lo)
                return true; /* a choice of alternatives could not be decided */
            lo = no;
            if (!s->part)
                s->bound = lo;
        } else if (s->best.value >= hi) {
            return true; /* rounding: the plan is no better than it was */
        }
    }
}

static int explain(struct search *s, struct joint_dp *dp, struct err *err);

/* Searches a family of down-sets, which it takes over. Returns 0, 1 when stopped, or -1
 * when all were searched and there is no plan. */
static int search_sets(struct search *s, struct joint_sets *x, struct err *err) {
    struct joint_table t;
    struct joint_dp dp;
    int stopped = joint_table_init(&t, s->p, &s->root, x) < 0, bad = 0;
    joint_dp_init(&dp, s->p, &t);
    s->sets = t.n;
    if (!stopped)
        stopped = !narrow(s, &dp);
    if (!stopped && !s->part && isinf(s->best.value))
        bad = explain(s, &dp, err);
    s->pairs += dp.pairs;
    s->evaluated += dp.evaluated;
    s->knapsacks += dp.knapsacks;
    joint_dp_release(&dp);
    joint_table_release(&t);
    return bad < 0 ? bad : stopped;
}

/* ---- no plan at all -------------------------------------------------------------- */

/* Returns the least memory that node v takes alone, over degrees and alternatives. */
static double lone_memory(const struct joint_problem *p, int v) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (int c = n->first[0]; c < n->first[p->num_degrees]; c++)
        least = fmin(least, n->choices[c].a + n->choices[c].b);
    return least;
}

static int check_nodes(const struct joint_problem *p, struct err *err) {
    for (int v = 0; v < p->nodes; v++) {
        double need = lone_memory(p, v);
        if (isinf(need))
            return err_no(err,
                          "node %lld: no alternative at a tensor degree up to %d devices "
                          "is allowed",
                          (long long)p->node[v].id, p->devices);
        if (need > p->capacity)
            return err_no(err,
                          "memory: node %lld alone takes at least %.9g of %.9g bytes per "
                          "device",
                          (long long)p->node[v].id, need, p->capacity);
    }
    return 0;
}

/* Names the largest set of last nodes that fits, and a node before them that no longer
 * does. */
static int explain(struct search *s, struct joint_dp *dp, struct err *err) {
    const struct joint_problem *p = s->p;
    dp->prune = false;
    if (joint_dp_run(dp, INFINITY, &s->plan) < 0)
        return 0;
    const uint64_t *set = joint_dp_reach(dp);
    int lead = -1, size = 0;
    for (int v = 0; v < p->nodes; v++) {
        bool ready = !joint_has(set, v);
        size += !ready;
        for (int i = 0; i < p->node[v].num_out; i++)
            ready &= joint_has(set, p->node[v].out[i].node);
        if (ready && lead < 0)
            lead = v;
    }
    return err_no(err,
                  "memory: at most the last %d of %d nodes fit into stages on %d devices "
                  "of %.9g bytes; node %lld before them no longer does",
                  size, p->nodes, p->devices, p->capacity,
                  (long long)p->node[lead < 0 ? 0 : lead].id);
}

/* ---- the answer ------------------------------------------------------------------ */

static json_t *stage_json(struct search *s, int at) {
    const struct joint_problem *p = s->p;
    const struct joint_stage *st = &s->best.stages[at];
    const uint64_t *large = s->best.sets + (int64_t)at * s->best.words;
    struct joint_items it = {0};
    joint_items_make(&it, p, large + s->best.words, large, st->degree);
    int *picks = mem_array((size_t)it.group.n, sizeof *picks);
    int64_t y = (st->s + st->d - 1) / st->d;
    double memory = 0;
    struct joint_pick pick = joint_knapsack(p, &it, st->d, y, 0, INFINITY, picks);
    json_t *nodes = json_array(), *choices = json_array();
    for (int64_t g = 0; g + 1 < it.group.n; g++) {
        const struct joint_item *i = &it.items.p[picks[g]];
        json_array_append_new(nodes, json_integer(p->node[i->node].id));
        json_array_append_new(choices, json_string(p->node[i->node].choices[i->choice].id));
        memory += i->a * (double)y + i->b;
    }
    free(picks);
    joint_items_release(&it);
    return json_pack("{s:o, s:o, s:i, s:i, s:I, s:f, s:f}", "nodes", nodes, "choices",
                     choices, "tensor_degree", p->degrees[st->degree], "data_degree", st->d,
                     "in_flight", (json_int_t)y, "time", pick.time, "memory", memory);
}

static void describe(const struct search *s, bool exact, char *proof, size_t size) {
    int n = snprintf(proof, size,
                     "%s: %d questions \"all stages within T\" to a dynamic program over ",
                     exact     ? "exact"
                     : s->part ? "the down-sets are too many to try them all"
                               : "stopped early",
                     s->questions);
    n += snprintf(proof + n, size - (size_t)n, "%lld down-sets%s", (long long)s->sets,
                  s->part ? " of one order" : "");
    n += snprintf(
        proof + n, size - (size_t)n,
        "; of %lld possible stages %lld evaluated by their nodes, %lld by an exact "
        "choice of alternatives",
        (long long)s->pairs, (long long)s->evaluated, (long long)s->knapsacks);
    snprintf(proof + n, size - (size_t)n, "%s",
             exact                      ? s->bound > s->root.value
                                              ? "; the last answer was no, just below the value"
                                              : "; no devices do the work faster"
             : s->bound > s->root.value ? "; bound: the largest T answered with no"
                                        : "; bound: work and memory over the devices");
}

static json_t *answer_json(struct search *s) {
    double value = s->best.value, bound = fmin(s->bound, value);
    char proof[520];
    int devices = 0;
    describe(s, bound >= value, proof, sizeof proof);
    json_t *stages = json_array(), *o = solve_answer(value, bound, proof);
    for (int i = 0; i < s->best.n; i++) {
        devices += s->p->degrees[s->best.stages[i].degree] * s->best.stages[i].d;
        json_array_append_new(stages, stage_json(s, i));
    }
    json_object_set_new(o, "devices", json_integer(devices));
    json_object_set_new(o, "stages", stages);
    return o;
}

/* ---- the whole ------------------------------------------------------------------- */

static int search_all(struct search *s, struct err *err) {
    struct joint_sets x;
    joint_sets_line(&x, s->p);
    s->part = true;
    if (search_sets(s, &x, err) || near_enough(s))
        return 0;
    s->part = joint_sets_all(&x, s->p, MOST) != 0;
    return s->part ? 0 : search_sets(s, &x, err);
}

static json_t *run(struct search *s, struct err *err) {
    if (check_nodes(s->p, err) < 0)
        return NULL;
    s->bound = s->root.value;
    if (search_all(s, err) < 0)
        return NULL;
    if (isfinite(s->best.value))
        return answer_json(s);
    if (interrupted())
        err_no(err, "interrupted before there was an answer");
    else if (joint_stopped(s->p))
        err_no(err, "no answer was found within the time budget; there may be one");
    else if (isinf(s->root.value))
        err_no(
            err,
            "memory: the %d nodes take at least %.9g bytes, more than %d devices of %.9g "
            "bytes hold",
            s->p->nodes, s->root.m[2].total, s->p->devices, s->p->capacity);
    else
        err_no(
            err,
            "memory: no plan along one topological order of the %d nodes fits; the graph "
            "is too wide to try them all",
            s->p->nodes);
    return NULL;
}

/* ---- documents ------------------------------------------------------------------- */

struct document {
    struct joint_problem p; /* borrows names of doc */
    struct joint_doc doc;
};

static void *read_problem(struct json_stream *stream, struct err *err) {
    struct document *d = mem_alloc(sizeof *d);
    if (joint_doc_read(&d->doc, stream, err) == 0 && joint_read(&d->p, &d->doc, err) == 0)
        return d;
    joint_doc_release(&d->doc);
    free(d);
    if (!stream->failed)
        err_prefix(err, "%s", stream->name);
    return NULL;
}

static void release(void *problem) {
    struct document *d = problem;
    joint_release(&d->p);
    joint_doc_release(&d->doc);
    free(d);
}

static json_t *solve(const void *problem, const struct solve_limits *limits,
                     struct err *err) {
    double budget_s = limits->time_budget_s;
    struct joint_problem p = ((const struct document *)problem)->p;
    p.deadline_s = budget_s > 0 ? now_s() + budget_s : INFINITY;
    struct search s = {.p = &p, .limits = limits};
    joint_bound_init(&s.root, &p);
    joint_plan_init(&s.best, &p);
    joint_plan_init(&s.plan, &p);
    json_t *answer = run(&s, err);
    joint_plan_release(&s.best);
    joint_plan_release(&s.plan);
    joint_bound_release(&s.root);
    return answer;
}

static int check(const void *problem, const json_t *answer, double *value,
                 struct err *err) {
    return joint_check(&((const struct document *)problem)->doc, answer, value, err);
}

const struct solve_kind solve_joint = {.name = "joint",
                                       .about =
                                           "stages, data and tensor degrees, recomputation",
                                       .read = read_problem,
                                       .solve = solve,
                                       .check = check,
                                       .release = release};
