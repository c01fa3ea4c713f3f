/* joint.c - the search over the greatest stage time.
 *
 * "Is there a plan with all stage times <= T" is answered exactly by joint_dp.c. A yes
 * comes with a plan, whose own greatest time is the new incumbent; a no comes with the
 * least time among all stages that T excluded, and no plan can be faster than that: below
 * it the same stages would be excluded. T is bisected between the two, and the last
 * question is always asked just below the incumbent, so that the proof does not rest on the
 * bisection.
 */
#include "solve/joint.h"

#include "common/progress.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BELOW (1 - 1e-12) /* "just below": the rounding of sums of times is far smaller */

struct search {
    const struct joint_problem *p;
    const struct solve_limits *limits;
    struct joint_ideals x;
    struct joint_dp dp;
    struct joint_plan best, plan;
    double bound; /* proven */
    double reach; /* no plan that the down-sets allow is faster */
    int questions;
};

/* All devices together cannot do the work of one sample faster. */
static double work_bound(const struct joint_problem *p) {
    double sum = 0;
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *n = &p->node[v];
        double least = INFINITY;
        for (int g = 0; g < p->num_degrees; g++)
            for (int c = n->first[g]; c < n->first[g + 1]; c++)
                least = fmin(least, n->choices[c].p * p->degrees[g]);
        sum += least;
    }
    return isfinite(sum) ? sum / p->devices * (1 - 1e-12) : 0;
}

static double gap_of(double value, double bound) {
    return value <= bound ? 0 : (value - bound) / fmax(fabs(bound), DBL_MIN);
}

/* Asks whether T can be kept; 1, 0, -1 as joint_dp_run. */
static int ask(struct search *s, double T) {
    int answer = joint_dp_run(&s->dp, T, &s->plan);
    s->questions++;
    if (answer == 1 && s->plan.value < s->best.value) {
        s->best.n = s->plan.n;
        s->best.value = s->plan.value;
        memcpy(s->best.stages, s->plan.stages, (size_t)s->plan.n * sizeof *s->plan.stages);
    }
    if (answer == 0)
        s->reach = fmax(s->reach, fmin(s->dp.next, s->best.value));
    if (!s->x.line) /* a "no" along one order says nothing of the others */
        s->bound = fmax(s->bound, s->reach);
    return answer;
}

/* Bisects until the incumbent is proven (or near enough, or time is up). */
static void search_run(struct search *s) {
    while (gap_of(s->best.value, s->reach) > s->limits->gap &&
           gap_of(s->best.value, s->bound) > s->limits->gap) {
        double hi = s->best.value, lo = s->reach;
        bool last = hi - lo <= 1e-7 * hi;
        int answer = ask(s, last ? hi * BELOW : lo + (hi - lo) / 2);
        if (answer < 0)
            return;
        if (answer == 0 && last) {
            if (s->reach >= hi * BELOW * BELOW)
                s->reach = hi; /* all that was excluded is no faster than the incumbent */
            else if (s->reach <= lo)
                return; /* an exact choice of alternatives was beyond measure */
            if (!s->x.line)
                s->bound = s->reach;
        }
        if (answer == 1 && s->best.value >= hi && last)
            return; /* rounding: the plan is no better than it was */
    }
}

/* ---- no plan at all -------------------------------------------------------------- */

/* Least memory that node v takes alone, over degrees and alternatives. */
static double lone_memory(const struct joint_problem *p, int v) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (int c = n->first[0]; c < n->first[p->num_degrees]; c++)
        least = fmin(least, n->choices[c].a + n->choices[c].b);
    return least;
}

static int explain(const struct search *s, struct err *err) {
    const struct joint_problem *p = s->p;
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
    if (s->x.line)
        return err_no(err,
                      "memory: no plan along one topological order of the %d nodes fits; "
                      "the graph is too wide to try them all",
                      p->nodes);
    int most = joint_dp_reach(&s->dp), lead = -1;
    const uint64_t *set = s->x.bits + (int64_t)most * s->x.words;
    for (int v = 0; v < p->nodes && lead < 0; v++) {
        bool ready = !(set[v >> 6] >> (v & 63) & 1);
        for (int i = 0; i < p->node[v].num_out; i++) {
            int u = p->node[v].out[i].node;
            ready &= set[u >> 6] >> (u & 63) & 1;
        }
        lead = ready ? v : -1;
    }
    return err_no(err,
                  "memory: at most the last %d of %d nodes fit into stages on %d devices "
                  "of %.9g bytes; node %lld before them no longer does",
                  s->x.size[most], p->nodes, p->devices, p->capacity,
                  (long long)p->node[lead < 0 ? 0 : lead].id);
}

/* ---- the answer ------------------------------------------------------------------ */

static json_t *stage_json(struct search *s, const struct joint_stage *st) {
    const struct joint_problem *p = s->p;
    const uint64_t *small = s->x.bits + (int64_t)st->small * s->x.words;
    const uint64_t *large = s->x.bits + (int64_t)st->large * s->x.words;
    struct joint_items it = {0};
    joint_items_make(&it, p, small, large, st->degree);
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

static json_t *answer_json(struct search *s, double time_s) {
    double value = s->best.value, bound = fmin(s->bound, value);
    struct rusage use;
    char proof[480];
    json_t *stages = json_array();
    int devices = 0;
    for (int i = 0; i < s->best.n; i++) {
        const struct joint_stage *st = &s->best.stages[i];
        devices += s->p->degrees[st->degree] * st->d;
        json_array_append_new(stages, stage_json(s, st));
    }
    getrusage(RUSAGE_SELF, &use);
    const char *how = bound >= value ? "exact"
                      : s->x.line
                          ? "along one topological order, the graph being too wide for "
                            "all; bound: work over devices"
                          : "stopped early";
    snprintf(
        proof, sizeof proof,
        "%s: %d questions \"all stages within T\" to a dynamic program over %d down-sets "
        "and %lld possible stages, least sum of data degrees per down-set and number of "
        "devices, alternatives chosen exactly (%lld knapsacks)%s",
        how, s->questions, s->x.n, (long long)s->x.pairs.n, (long long)s->dp.knapsacks,
        bound >= value ? "; the last answer was no, just below the value" : "");
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:b, s:s, s:f, s:I, s:i, s:o}", "format",
                     "weft-answer/1", "problem", "joint", "value", value, "bound", bound,
                     "gap", gap_of(value, bound), "optimal", bound >= value, "proof", proof,
                     "time_s", time_s, "peak_bytes", (json_int_t)use.ru_maxrss * 1024,
                     "devices", devices, "stages", stages);
}

static json_t *solve(struct search *s, double start, struct err *err) {
    int first = ask(s, INFINITY);
    if (first < 0) {
        err_no(err, "no answer was found within the time budget; there may be one");
        return NULL;
    }
    if (first == 0) {
        explain(s, err);
        return NULL;
    }
    s->bound = s->reach = work_bound(s->p);
    search_run(s);
    return answer_json(s, now_s() - start);
}

json_t *solve_joint_json(const json_t *doc, const struct solve_limits *limits,
                         struct err *err) {
    double start = now_s(), value;
    struct joint_problem p;
    if (joint_read(&p, doc, err) < 0)
        return NULL;
    double deadline = limits->time_budget_s > 0 ? start + limits->time_budget_s : INFINITY;
    struct search s = {.p = &p, .limits = limits, .best = {.value = INFINITY}};
    json_t *answer = NULL;
    if (joint_ideals_make(&s.x, &p, deadline, err) == 0) {
        joint_dp_init(&s.dp, &p, &s.x, deadline);
        s.best.stages = mem_array((size_t)p.nodes, sizeof *s.best.stages);
        s.plan.stages = mem_array((size_t)p.nodes, sizeof *s.plan.stages);
        answer = solve(&s, start, err);
        joint_dp_release(&s.dp);
        joint_ideals_release(&s.x);
        free(s.best.stages);
        free(s.plan.stages);
    }
    joint_release(&p);
    if (answer && joint_check(doc, answer, &value, err) < 0) {
        json_decref(answer);
        return NULL;
    }
    return answer;
}
