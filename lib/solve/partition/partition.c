/* partition.c - the partition solver from problem to answer.
 *
 * 1. Merge what may be merged (partition_core.c), find incumbents by dynamic programs over
 *    orders (partition_line.c).
 * 2. Search the down-sets for anything better (partition_ideal.c): first straight away with
 *    a limit on steps, then with cuts that rise from the lower bound to the incumbent. A low
 *    cut is cheap and either proves a better bound or finds a better partition.
 * 3. Where merging idle leaves might be wrong because memory binds, solve twice: merged
 *    gives an incumbent, merged with their memory forgotten a bound. Only if they differ the
 *    unmerged graph is searched.
 * 4. Where a cost says "never", all of this is first done without it (partition_ban.c).
 * 5. The evaluator (partition_check.c) computes the value that is reported.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known while the cores are solved one after the other. */
struct state {
    const struct partition_problem *p;
    const struct solve_limits *limits;
    struct partition_watch w;
    struct partition_ban ban;
    struct partition_chain best; /* on nodes, pipeline order */
    double bound;                /* proven for the problem itself */
    bool cut_short;              /* by time, memory or interruption */
    const char *proof;
};

/* Returns a value that no answer is below, which takes no search. */
static double first_bound(const struct partition_core *c) {
    if (c->goal == PARTITION_BYTES)
        return 0;
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
    w->stopped = partition_watch_over(w); /* and not the steps, or the memory */
    return ended;
}

/* Steps of the first pass, whose cut is the incumbent: about half a second. */
static const int64_t first_steps = 3000000;

/* Relative difference below which sums of the same numbers in another order may lie. */
static const double rounding = 1e-11;

/* Returns whether nothing is left to prove. */
static bool settled(double bound, const struct partition_chain *best, double gap,
                    double ceiling) {
    return bound >= fmin(good_enough(best->value, gap), ceiling) * (1 - rounding);
}

/* What is known about one core. */
struct hunt {
    const struct partition_core *c;
    struct partition_chain *best;
    double bound;
    double gap, ceiling; /* close enough; no value may be above */
    uint64_t seed;
};

static bool hunt_over(const struct hunt *h) {
    return settled(h->bound, h->best, h->gap, h->ceiling);
}

static double hunt_top(const struct hunt *h) {
    return fmin(good_enough(h->best->value, h->gap), h->ceiling);
}

static void improve(struct hunt *h, struct partition_watch *w) {
    partition_line(h->c, 20, h->seed + 1, w, h->best);
    h->seed += 2;
}

static void take_better(struct partition_chain *best, const struct partition_chain *ch,
                        int32_t n) {
    if (ch->value >= best->value)
        return;
    best->value = ch->value;
    best->stages = ch->stages;
    memcpy(best->stage_of, ch->stage_of, (size_t)n * sizeof *ch->stage_of);
    memcpy(best->is_cpu, ch->is_cpu, (size_t)ch->stages * sizeof *ch->is_cpu);
}

/* Finds the bound without communication: first just below the incumbent, which proves
 * the incumbent where communication does not matter, then by bisection. */
static void reach_bound(struct hunt *h, struct partition_watch *w) {
    const struct partition_core *c = h->c;
    struct partition_chain ch;
    if (!partition_reach_fit(c))
        return;
    partition_chain_init(&ch, c->n);
    double high = INFINITY; /* the least limit that was reached */
    for (int test = 0; test < 24 && !w->stopped && !hunt_over(h); test++) {
        double limit = hunt_top(h) * (1 - rounding);
        if (test && limit >= high)
            limit = h->bound + (high - h->bound) / 2;
        if (test && limit - h->bound < 1e-4 * limit)
            break;
        enum partition_reach end = partition_reach(c, limit, w, &ch);
        if (end == PARTITION_REACH_UNKNOWN)
            break;
        if (end == PARTITION_OUT_OF_REACH) {
            h->bound = limit;
            continue;
        }
        high = limit;
        take_better(h->best, &ch, c->n);
    }
    partition_chain_release(&ch);
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
        /* A low cut that is not much cheaper only wastes time: all at once then. */
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

/* Runs the searches on one core, cheap ones first. Returns the bound that they prove. No
 * value may be above the ceiling. */
static double search_core(const struct partition_core *c, struct state *st, double ceiling,
                          struct partition_chain *best) {
    struct partition_watch *w = &st->w;
    struct hunt h = {.c = c,
                     .best = best,
                     .bound = first_bound(c),
                     .gap = st->limits->gap,
                     .ceiling = ceiling,
                     .seed = st->limits->seed};
    partition_line(c, 40, h.seed, w, best);
    if (!w->stopped && !hunt_over(&h) &&
        !(c->desc && pass(c, hunt_top(&h), first_steps, w, best, &h.bound))) {
        improve(&h, w); /* good incumbents pay */
        reach_bound(&h, w);
        double cut = c->desc ? rising_cuts(&h, w) : INFINITY;
        if (isfinite(w->end_s))
            use_up(&h, cut, w);
    }
    st->cut_short = st->cut_short || !hunt_over(&h);
    return h.bound;
}

/* Solves one core: finds the best chain with value < best->value. Returns a bound for
 * this core, which is infinite when there is no answer at all. */
static double solve_core(const struct partition_core *c, struct state *st,
                         struct partition_chain *best) {
    double ceiling = c->goal == PARTITION_MAXLOAD ? c->max_load * (1 + 1e-12) : INFINITY;
    double bound = search_core(c, st, ceiling, best);
    return fmin(bound >= ceiling ? INFINITY : bound, best->value);
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

/* Solves the problem with one kind of merging. Returns the bound for that core. */
static double solve_mode(struct state *st, enum partition_core_mode mode, bool *heavy) {
    struct partition_core c;
    struct partition_chain best;
    struct partition_watch *w = &st->w;
    double end = w->end_s;
    w->stopped = partition_watch_over(w);
    *heavy = false;
    if (!partition_core_create(st->p, mode, st->ban, w, &c)) {
        partition_core_release(&c);
        st->cut_short = w->stopped = true;
        return 0;
    }
    partition_chain_init(&best, c.n);
    best.value = st->best.value; /* only better ones are of interest */
    if (mode == PARTITION_CORE_MERGED && c.merged_heavy && isfinite(end))
        w->end_s = (now_s() + end) / 2; /* the rest is for the bound */
    w->stopped = partition_watch_over(w);
    double bound = solve_core(&c, st, &best);
    if (mode != PARTITION_CORE_RELAXED && best.value < st->best.value)
        adopt(st, &c, &best);
    *heavy = c.merged_heavy;
    w->end_s = end;
    partition_chain_release(&best);
    partition_core_release(&c);
    return bound;
}

static void solve_modes(struct state *st) {
    bool heavy, other;
    st->proof = "exhaustive search over down-sets";
    st->bound = solve_mode(st, PARTITION_CORE_MERGED, &heavy);
    if (!heavy)
        return;
    st->cut_short = false; /* that bound was not for the problem itself */
    st->bound = solve_mode(st, PARTITION_CORE_RELAXED, &other);
    st->proof = "exhaustive search with the memory of idle leaves forgotten";
    if (st->bound < good_enough(st->best.value, st->limits->gap) &&
        !partition_watch_over(&st->w)) {
        st->cut_short = false;
        st->bound = fmax(st->bound, solve_mode(st, PARTITION_CORE_EXACT, &other));
        st->proof = "exhaustive search over down-sets";
    }
}

/* Solves without what is banned first, and with it only where that has no solution. */
static void solve_bans(struct state *st) {
    struct partition_ban bans[3];
    double end = st->w.end_s, floor = 0;
    int n = partition_bans(st->p, bans, 3);
    for (int i = 0; i < n; i++) {
        st->ban = bans[i];
        if (isfinite(end))
            st->w.end_s = (now_s() + end) / 2;
        solve_modes(st);
        st->w.end_s = end;
        if (st->best.value <= bans[i].rest * (1 + 1e-9))
            return;
        floor = isinf(st->bound) ? bans[i].least : floor;
        st->best.value = INFINITY;
        st->cut_short = false;
    }
    st->ban = (struct partition_ban){.least = INFINITY, .rest = INFINITY};
    solve_modes(st);
    st->bound = fmax(st->bound, fmin(floor, st->best.value));
}

/* ---- no answer: why? ------------------------------------------------------------- */

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
    struct partition_ban none = {.least = INFINITY, .rest = INFINITY};
    int status = 0;
    double total = 0;
    if (!partition_core_create(p, PARTITION_CORE_EXACT, none, &w, &c)) {
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
        double least = fmin(c.supported[x] && p->accels ? c.accel[x] : INFINITY,
                            p->cpus ? c.cpu[x] : INFINITY);
        if (!status && least > p->max_load * (1 + 1e-9))
            status = err_no(err,
                            "maxLoad: node %lld and what must be placed with it take "
                            "%.17g, more than %.17g",
                            (long long)p->nodes[i].id, least, p->max_load);
    }
    if (!status && !p->cpus && total > p->accels * p->max_size)
        status = err_no(err,
                        "maxSizePerFPGA: %.17g bytes in all, more than maxFPGAs (%d) times "
                        "%.17g",
                        total, p->accels, p->max_size);
    partition_core_release(&c);
    return status;
}

/* Returns whether the problem has an answer once the accelerators have all the memory
 * they want. */
static bool possible_with_room(const struct partition_problem *p) {
    struct partition_problem roomy = *p;
    struct partition_answer a;
    struct solve_limits limits = {.time_budget_s = 2, .gap = INFINITY};
    roomy.max_size = INFINITY;
    if (partition_solve(&roomy, &limits, &a, NULL) < 0)
        return false;
    partition_answer_release(&a);
    return true;
}

static int explain(const struct state *st, bool proven, struct err *err) {
    const struct partition_problem *p = st->p;
    if (proven && explain_group(p, err) < 0)
        return -1;
    bool load = isfinite(p->max_load), room = isfinite(p->max_size);
    if (!proven && interrupted())
        return err_no(err, "interrupted before there was an answer");
    if (!proven) {
        err_no(err,
               "no answer that keeps to %s was found within the time budget; there may be "
               "one",
               !load  ? "maxSizePerFPGA"
               : room ? "maxSizePerFPGA and maxLoad"
                      : "maxLoad");
        return err_hint(err, "a longer --time-budget, or more room");
    }
    const char *what =
        load && !(room && possible_with_room(p)) ? "maxLoad" : "maxSizePerFPGA";
    return err_no(
        err, "%s: no split into convex pieces on %d accelerators and %d CPUs keeps to it",
        what, p->accels, p->cpus);
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
    /* The two differ in the order of additions only when the search was complete. */
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
                       .proof = "there is nothing to place"};
    st.w.end_s = limits->time_budget_s > 0 ? start + limits->time_budget_s : INFINITY;
    partition_chain_init(&st.best, p->n);
    *a = (struct partition_answer){0};
    int status = explain_node(p, err);
    if (!status && p->n)
        solve_bans(&st);
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
