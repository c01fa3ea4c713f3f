/* partition.c - the partition solver from problem to answer.
 *
 * 1. Merge what may be merged (partition_core.c), find incumbents by dynamic programs over
 *    orders (partition_line.c).
 * 2. Search the down-sets for anything better (partition_ideal.c): first with the incumbent
 *    as the cut and a limit on steps, then with cuts that rise from the lower bound to it.
 *    A low cut is cheap and either proves a better bound or finds a better partition.
 * 3. The evaluator (partition_check.c) computes the value that is reported.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known while the problem is solved. */
struct state {
    const struct partition_problem *p;
    const struct solve_limits *limits;
    struct partition_watch w;
    struct partition_chain best; /* on nodes, pipeline order */
    double bound;                /* proven for the problem itself */
    bool cut_short;              /* by time, memory or interruption */
    const char *proof;
};

/* Returns a lower bound that takes no search. */
static double first_bound(const struct partition_core *c) {
    double bound = partition_rates_least(c) * (1 - 1e-12);
    for (int32_t i = 0; i < c->n; i++) {
        double best = INFINITY;
        if (c->accels && c->supported[i])
            best = c->accel[i];
        if (c->cpus)
            best = fmin(best, c->cpu[i]);
        bound = fmax(bound, best);
    }
    return bound;
}

/* Returns the bound at which a value counts as close enough to be proven. */
static double good_enough(double value, double gap) {
    return gap > 0 && isfinite(value) ? value / (1 + gap) : value;
}

/* Searches once with the given cut; `bound` rises to what that proves. Returns whether
 * the pass was complete. */
static bool pass(const struct partition_core *c, double cut, int64_t steps,
                 struct partition_watch *w, struct partition_chain *best, double *bound) {
    w->max_steps = steps ? w->steps + steps : INT64_MAX;
    double proven = partition_ideal(c, *bound, cut, w, best);
    *bound = fmax(*bound, fmin(proven, best->value));
    bool ended = !w->stopped;
    w->max_steps = INT64_MAX;
    w->stopped = partition_watch_over(w); /* steps and memory end only the pass */
    return ended;
}

/* Steps of the first pass, whose cut is the incumbent: about half a second. */
static const int64_t first_steps = 3000000;

/* Sums of the same numbers in another order may differ by this fraction. */
static const double rounding = 1e-11;

/* Returns whether nothing is left to prove. */
static bool settled(double bound, const struct partition_chain *best, double gap) {
    return bound >= good_enough(best->value, gap) * (1 - rounding);
}

/* What is known about one core. */
struct hunt {
    const struct partition_core *c;
    struct partition_chain *best;
    double bound;
    double gap; /* close enough */
    uint64_t seed;
};

static bool hunt_over(const struct hunt *h) {
    return settled(h->bound, h->best, h->gap);
}

static double hunt_top(const struct hunt *h) {
    return good_enough(h->best->value, h->gap);
}

static void improve(struct hunt *h, struct partition_watch *w) {
    partition_line(h->c, 20, h->seed + 1, w, h->best);
    h->seed += 2;
}

/* Searches with cuts that rise from the bound to the incumbent. Returns the cut that
 * took too much memory, INFINITY if none did. */
static double rising_cuts(struct hunt *h, struct partition_watch *w) {
    int64_t last = 0;
    for (double part = 1.0 / 32; !w->stopped && !hunt_over(h); part = fmin(1, 2 * part)) {
        double top = hunt_top(h), base = fmax(h->bound, fabs(h->bound) * 1e-3);
        double cut = isfinite(top) ? h->bound + part * (top - h->bound) : base * (1 + part);
        if (part >= 1 || cut >= top || base <= 0)
            cut = top;
        int64_t before = w->steps;
        if (!pass(h->c, cut, 0, w, h->best, &h->bound))
            return cut;
        /* Where a cut twice as high takes hardly more steps, low cuts waste time. */
        if (last > 1000 && w->steps - before < 3 * last / 2)
            part = 1;
        last = w->steps - before;
    }
    return INFINITY;
}

/* Spends the time that is left on better incumbents, and on cuts below the one that took
 * too much memory. */
static void use_up(struct hunt *h, double cut, struct partition_watch *w) {
    while (!w->stopped && !hunt_over(h)) {
        improve(h, w);
        double middle = h->bound + (fmin(cut, hunt_top(h)) - h->bound) / 2;
        if (!h->c->desc || !isfinite(middle) || middle - h->bound < 1e-4 * middle)
            continue; /* nothing left to prove */
        if (!w->stopped && !pass(h->c, middle, 0, w, h->best, &h->bound))
            cut = middle;
    }
}

/* Runs the searches on the core, cheap ones first. Returns the bound that they prove, which
 * is infinite when there is no answer at all. */
static double search_core(const struct partition_core *c, struct state *st,
                          struct partition_chain *best) {
    struct partition_watch *w = &st->w;
    struct hunt h = {.c = c,
                     .best = best,
                     .bound = first_bound(c),
                     .gap = st->limits->gap,
                     .seed = st->limits->seed};
    partition_line(c, 40, h.seed, w, best);
    if (!w->stopped && !hunt_over(&h) &&
        !(c->desc && pass(c, hunt_top(&h), first_steps, w, best, &h.bound))) {
        improve(&h, w); /* good incumbents pay */
        double cut = c->desc ? rising_cuts(&h, w) : INFINITY;
        if (isfinite(w->end_s))
            use_up(&h, cut, w);
    }
    st->cut_short = !hunt_over(&h);
    return fmin(h.bound, best->value);
}

/* Makes a chain over items the answer over nodes, in the order of the pipeline. */
static void adopt(struct state *st, const struct partition_core *c,
                  const struct partition_chain *ch) {
    st->best.value = ch->value;
    st->best.stages = ch->stages;
    for (int32_t i = 0; i < st->p->n; i++)
        st->best.stage_of[i] = ch->stages - 1 - ch->stage_of[c->item_of[i]];
    for (int s = 0; s < ch->stages; s++)
        st->best.is_cpu[s] = ch->is_cpu[ch->stages - 1 - s];
}

static void search_problem(struct state *st) {
    struct partition_core c;
    struct partition_chain best;
    struct partition_watch *w = &st->w;
    w->stopped = partition_watch_over(w);
    if (!partition_core_create(st->p, w, &c)) {
        partition_core_release(&c);
        st->cut_short = w->stopped = true;
        return;
    }
    partition_chain_init(&best, c.n);
    st->bound = search_core(&c, st, &best);
    if (isfinite(best.value))
        adopt(st, &c, &best);
    partition_chain_release(&best);
    partition_core_release(&c);
}

/* ---- why there is no answer ------------------------------------------------------ */

static int explain_node(const struct partition_problem *p, struct err *err) {
    if (p->n && !p->accels && !p->cpus)
        return err_no(err,
                      "maxFPGAs, maxCPUs: both are 0, which leaves no device for %d nodes",
                      p->n);
    for (int32_t i = 0; i < p->n; i++)
        if (!p->nodes[i].supported && !p->cpus)
            return err_no(err,
                          "nodes[%d]: node %lld is not supported on an accelerator "
                          "(supportedOnFpga) and maxCPUs is 0",
                          i, (long long)p->nodes[i].id);
    return 0;
}

/* Names a group of nodes that must stand together and does not fit anywhere. */
static int explain_group(const struct partition_problem *p, struct err *err) {
    struct partition_core c;
    struct partition_watch w = {.end_s = INFINITY, .max_steps = INT64_MAX};
    int status = 0;
    double total = 0;
    if (!partition_core_create(p, &w, &c)) {
        partition_core_release(&c);
        return 0;
    }
    for (int32_t i = 0; i < p->n && !status; i++) {
        int32_t x = c.item_of[i];
        double need = c.size[x] + c.act[x];
        total += p->nodes[i].size + p->nodes[i].activation;
        if (!p->cpus && need > p->max_size)
            status =
                err_no(err,
                       "maxSizePerFPGA: node %lld and what must be placed with it need "
                       "%.17g bytes, more than %.17g",
                       (long long)p->nodes[i].id, need, p->max_size);
    }
    if (!status && !p->cpus && total > p->accels * p->max_size)
        status = err_no(err,
                        "maxSizePerFPGA: %.17g bytes in all, more than maxFPGAs (%d) times "
                        "%.17g",
                        total, p->accels, p->max_size);
    partition_core_release(&c);
    return status;
}

static int explain(const struct state *st, bool proven, struct err *err) {
    const struct partition_problem *p = st->p;
    if (proven && explain_group(p, err) < 0)
        return -1;
    if (!proven && interrupted())
        return err_no(err, "interrupted before there was an answer");
    if (!proven) {
        err_no(err,
               "no answer that keeps to maxSizePerFPGA was found within the time budget; "
               "there may be one");
        return err_hint(err, "a longer --time-budget, or more room");
    }
    return err_no(err,
                  "maxSizePerFPGA: no split into convex pieces on %d accelerators and %d "
                  "CPUs keeps to it",
                  p->accels, p->cpus);
}

/* ---- answers --------------------------------------------------------------------- */

static int finish(struct state *st, struct partition_answer *a, struct err *err) {
    double value;
    struct err why = {0};
    if (partition_check(st->p, st->best.stage_of, st->best.is_cpu, st->best.stages, NULL,
                        &value, &why) < 0)
        return err_system(err, "partition: the evaluator refuses the answer: %s", why.msg);
    if (fabs(value - st->best.value) > 1e-9 * (1 + fabs(value)))
        return err_system(err, "partition: the evaluator finds %.17g, the solver %.17g",
                          value, st->best.value);
    a->stage_of = st->best.stage_of, a->is_cpu = st->best.is_cpu;
    a->stages = st->best.stages;
    st->best.stage_of = NULL, st->best.is_cpu = NULL;
    a->value = value;
    /* After a complete search the two differ only in the order of additions. */
    a->optimal = st->bound >= st->best.value * (1 - rounding);
    a->bound = a->optimal ? value : fmin(st->bound, value);
    a->proof = a->optimal || !st->cut_short ? st->proof
               : st->bound > 0 ? "stopped; least bound of what was not searched"
                               : "stopped; nothing is below zero";
    return 0;
}

int partition_solve(const struct partition_problem *p, const struct solve_limits *limits,
                    struct partition_answer *a, struct err *err) {
    double start = now_s();
    struct state st = {.p = p,
                       .limits = limits,
                       .w = {.max_steps = INT64_MAX, .all_steps = limits->steps},
                       .proof = "exhaustive search over down-sets"};
    st.w.end_s = limits->time_budget_s > 0 ? start + limits->time_budget_s : INFINITY;
    partition_chain_init(&st.best, p->n);
    *a = (struct partition_answer){0};
    int status = explain_node(p, err);
    if (!status && p->n)
        search_problem(&st);
    else
        st.best.value = 0;
    if (!status)
        status = isfinite(st.best.value) ? finish(&st, a, err)
                                         : explain(&st, isinf(st.bound), err);
    partition_chain_release(&st.best);
    a->steps = st.w.steps;
    a->time_s = now_s() - start;
    return status;
}

void partition_answer_release(struct partition_answer *a) {
    free(a->stage_of);
    free(a->is_cpu);
    *a = (struct partition_answer){0};
}
