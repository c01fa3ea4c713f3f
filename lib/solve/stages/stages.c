/* stages.c - the search over the greatest stage time.
 *
 * With f(T) the least sum of stage times when none exceeds T, the optimum is the least
 * f(T) + (B-1) T over the distinct times T. f falls as T rises, so an interval [a, b] of T
 * is worth at least f(b) + (B-1) a. Intervals whose bound reaches the incumbent are
 * dropped, the others are split at a T inside. One pass of the dynamic program at T also
 * tells the greatest time t that its plan really has, and f is constant on [t, T]. Before
 * that, candidate stages through which no plan can beat the incumbent are dropped by sums
 * of prefix and suffix, which leaves few. Passes relax memory at first, which lets them be
 * vectorized. Only where the relaxed plan breaks memory does the exact pass run, with
 * fronts of (stages, sum).
 *
 * Every interval is either searched or excluded by a bound, so the end of the loop is a
 * proof.
 */
#include "solve/stages/stages_dp.h"

#include "common/progress.h"
#include "solve/solve_doc.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct interval {
    int64_t i, j;  /* levels i..j */
    double sum_lo; /* no plan with max <= levels[j] has a smaller sum */
    bool middle;   /* cut it in the middle next, not at its top */
};

struct search {
    const struct stages_problem *p;
    const struct solve_limits *limits;
    struct stages_dp dp;
    struct stages_plan best, plan;
    double root_bound; /* proven before any interval was looked at */
    bool listed;       /* all that may beat the incumbent is in `open` */
    double *levels;    /* distinct times of the candidate stages, rising */
    int64_t num_levels, all_levels;
    ARR(struct interval) open;
    double *scratch, *scratch2; /* tables of the pass at one T */
    int64_t label_passes;
    bool stopped;
};

static double batches(const struct search *s) {
    return s->p->micro_batches - 1;
}

static double interval_bound(const struct search *s, const struct interval *v) {
    return v->sum_lo + batches(s) * s->levels[v->i];
}

static double bound_now(const struct search *s) {
    double b = s->listed ? s->best.value : 0;
    for (int64_t i = 0; i < s->open.n; i++)
        b = fmin(b, interval_bound(s, &s->open.p[i]));
    return fmax(b, fmin(s->root_bound, s->best.value));
}

static void offer(struct search *s) {
    if (s->plan.value < s->best.value)
        stages_plan_copy(&s->best, &s->plan);
}

/* Finds f(T) as far as it matters above `lo`. Returns 1 with s->plan, 0 when no plan whose
 * greatest time is in [lo, T] beats the incumbent, -1 when stopped. */
static int solve_at(struct search *s, double T, double lo) {
    struct stages_dp *dp = &s->dp;
    int64_t root = s->p->devices;
    double cap = s->best.value - batches(s) * lo;
    if (!stages_dp_suffix(dp, T, STAGES_DP_SUM, s->scratch))
        return -1;
    if (!(s->scratch[root] < cap))
        return 0;
    stages_dp_trace(dp, T, s->scratch, &s->plan);
    if (stages_dp_fits(dp, &s->plan))
        return 1;
    if (!stages_dp_prefix(dp, T, s->scratch2))
        return -1;
    s->label_passes++;
    return stages_dp_labels(dp, T, s->scratch2, s->scratch, cap, &s->plan);
}

/* ---- the loop over intervals ---------------------------------------------------- */

/* Returns the index of the last of levels i..j that is <= x, or i - 1 if there is none. */
static int64_t level_at_most(const struct search *s, double x, int64_t i, int64_t j) {
    i--;
    while (i < j) {
        int64_t mid = i + (j - i + 1) / 2;
        if (s->levels[mid] <= x)
            i = mid;
        else
            j = mid - 1;
    }
    return i;
}

static void push(struct search *s, int64_t i, int64_t j, double sum_lo, bool middle) {
    struct interval v = {i, j, sum_lo, middle};
    if (i <= j && interval_bound(s, &v) < s->best.value)
        arr_push(&s->open, v);
}

/* Removes and returns the interval with the least bound. */
static struct interval pop(struct search *s) {
    int64_t at = 0;
    for (int64_t i = 1; i < s->open.n; i++)
        if (interval_bound(s, &s->open.p[i]) < interval_bound(s, &s->open.p[at]))
            at = i;
    struct interval v = s->open.p[at];
    s->open.p[at] = s->open.p[--s->open.n];
    return v;
}

/* Chooses where to cut an interval. At its top a pass either closes the interval or
 * raises its sum_lo; in its middle a pass may halve it. The two alternate; while nothing
 * feasible is known, only the top is tried. */
static int64_t cut_level(const struct search *s, const struct interval *v) {
    if (isinf(s->best.value) || !v->middle)
        return v->j;
    double mid = s->levels[v->i] + (s->levels[v->j] - s->levels[v->i]) / 2;
    int64_t at = level_at_most(s, mid, v->i, v->j);
    return at < v->i ? v->i : at;
}

static void search_interval(struct search *s, struct interval v) {
    if (isfinite(s->best.value) && batches(s) > 0)
        v.j = level_at_most(s, (s->best.value - v.sum_lo) / batches(s), v.i, v.j);
    if (v.i > v.j || interval_bound(s, &v) >= s->best.value)
        return;
    int64_t at = batches(s) > 0 ? cut_level(s, &v) : v.j;
    int found = solve_at(s, s->levels[at], s->levels[v.i]);
    if (found < 0) {
        s->stopped = true;
        arr_push(&s->open, v);
        return;
    }
    if (found) {
        double sum = s->plan.sum, max = s->plan.max;
        offer(s);
        push(s, v.i, level_at_most(s, max, v.i, at) - 1, sum, !v.middle);
    }
    push(s, at + 1, v.j, v.sum_lo, false);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void make_levels(struct search *s, double lo) {
    int64_t n = 0;
    free(s->levels);
    s->levels = mem_array((size_t)s->dp.triples.n + 1, sizeof *s->levels);
    for (int64_t i = 0; i < s->dp.triples.n; i++)
        s->levels[i] = fmax(s->dp.triples.p[i].time, lo);
    qsort(s->levels, (size_t)s->dp.triples.n, sizeof *s->levels, by_value);
    for (int64_t i = 0; i < s->dp.triples.n; i++)
        if (!n || s->levels[i] > s->levels[n - 1])
            s->levels[n++] = s->levels[i];
    s->num_levels = n;
}

static double gap_of(double value, double bound) {
    return value <= bound ? 0 : (value - bound) / fmax(fabs(bound), DBL_MIN);
}

/* Filters candidates, lists the levels and searches the intervals. `lo`: no plan has a
 * smaller maximum. */
static void search_levels(struct search *s, double lo) {
    double sum_lo = s->dp.suffix[s->p->devices];
    if (!stages_dp_prefix(&s->dp, INFINITY, s->dp.prefix) ||
        !stages_dp_filter(&s->dp, lo, s->best.value)) {
        s->stopped = true;
        return;
    }
    make_levels(s, lo);
    push(s, 0, s->num_levels - 1, sum_lo, true);
    s->listed = true;
    while (s->open.n && !s->stopped) {
        if (gap_of(s->best.value, bound_now(s)) <= s->limits->gap)
            break;
        double before = s->best.value;
        search_interval(s, pop(s));
        s->stopped |= stages_dp_stopped(&s->dp);
        /* prefix and suffix sums of the unfiltered list stay valid bounds */
        if (s->best.value < before && !s->stopped)
            stages_dp_filter(&s->dp, lo, s->best.value);
    }
}

/* ---- infeasible problems -------------------------------------------------------- */

/* Names what cannot be met: a layer, the devices, or memory. */
static int explain(struct search *s, struct err *err) {
    const struct stages_problem *p = s->p;
    struct stages_dp *dp = &s->dp;
    bool *held = mem_array((size_t)p->layers, sizeof *held);
    int reach = p->layers;
    for (int l = 0; l < p->layers; l++)
        for (int64_t i = dp->start[l]; i < dp->start[l + 1]; i++)
            for (int k = l; k <= dp->triples.p[i].k; k++)
                held[k] = true;
    int lone = 0;
    while (lone < p->layers && held[lone])
        lone++;
    free(held);
    if (lone < p->layers)
        return err_no(err,
                      "memory: layer %d fits into no stage: every submesh and "
                      "configuration that covers it is excluded by its time (null) or "
                      "by the successors that its memory allows",
                      lone);
    stages_dp_suffix(dp, INFINITY, STAGES_DP_SUM, dp->suffix);
    for (int l = p->layers - 1; l >= 0; l--)
        for (int d = 0; d <= p->devices; d++)
            if (isfinite(dp->suffix[dp->width * l + d]))
                reach = l;
    if (reach > 0)
        return err_no(err,
                      "devices: layers %d to %d fit on no number of devices up to %d; "
                      "layers %d to %d do",
                      reach - 1, p->layers - 1, p->devices, reach, p->layers - 1);
    if (isinf(dp->suffix[p->devices]))
        return err_no(err,
                      "devices: the layers can be cut into stages, but their submeshes do "
                      "not add up to %s%d devices",
                      p->use_all ? "exactly " : "at most ", p->devices);
    return err_no(err,
                  "memory: every slicing of the %d layers onto %d devices has a stage with "
                  "more successors than its memory allows, or more than %d stages",
                  p->layers, p->devices, p->max_stages);
}

/* ---- the answer ----------------------------------------------------------------- */

/* Runs the whole search. Returns 0, or -1 with an error. */
static int run(struct search *s, struct err *err) {
    const struct stages_problem *p = s->p;
    struct stages_dp *dp = &s->dp;
    stages_even(dp, &s->best);
    /* sum >= max, so B * max <= value: no better plan has a longer stage */
    if (!stages_dp_build(dp, s->best.value / p->micro_batches * (1 + 1e-12), err))
        return -1;
    double lo = INFINITY;
    s->stopped = !stages_dp_suffix(dp, INFINITY, STAGES_DP_MAX, s->scratch);
    if (!s->stopped) {
        lo = s->scratch[p->devices];
        s->root_bound = isfinite(lo) ? p->micro_batches * lo : 0; /* sum >= max */
        s->stopped = !stages_dp_suffix(dp, INFINITY, STAGES_DP_SUM, dp->suffix);
    }
    if (!s->stopped && isfinite(lo)) {
        s->root_bound = dp->suffix[p->devices] + batches(s) * lo;
        search_levels(s, lo);
    } else if (!s->stopped) {
        s->root_bound = INFINITY; /* the incumbent, if any, is the only plan left */
    }
    if (isfinite(s->best.value))
        return 0;
    if (!s->stopped) /* the filter may have dropped what explains it */
        stages_dp_build(dp, INFINITY, err);
    if (s->stopped || stages_dp_stopped(dp))
        return err_no(err, "no answer was found within the time budget; there may be one");
    return explain(s, err);
}

int stages_solve(const struct stages_problem *p, const struct solve_limits *limits,
                 struct stages_answer *a, struct err *err) {
    double budget_s = limits->time_budget_s;
    size_t cells = (size_t)(p->layers + 1) * (size_t)(p->devices + 1);
    struct search s = {.p = p, .limits = limits};
    stages_dp_init(&s.dp, p, budget_s > 0 ? now_s() + budget_s : INFINITY);
    stages_plan_init(&s.best, p);
    stages_plan_init(&s.plan, p);
    s.scratch = mem_array(cells, sizeof *s.scratch);
    s.scratch2 = mem_array(cells, sizeof *s.scratch2);
    int rc = run(&s, err);
    *a = (struct stages_answer){.plan = s.best,
                                .bound = bound_now(&s),
                                .passes = s.dp.passes,
                                .label_passes = s.label_passes};
    free(s.scratch);
    free(s.scratch2);
    free(s.levels);
    free(s.plan.stages);
    arr_release(&s.open);
    stages_dp_release(&s.dp);
    if (rc < 0)
        stages_answer_release(a);
    return rc;
}

void stages_answer_release(struct stages_answer *a) {
    free(a->plan.stages);
    *a = (struct stages_answer){0};
}
