/* The search against its oracle and against what its plans really cost.
 *
 * Profiles are invented (search-machine.h). On spaces that are small enough to list, hops must
 * find a plan as good as the best of the list (it may find a better one: it also changes single
 * ops). The quick estimates, on which every decision rests, are compared with compiled and
 * simulated plans at random places of the space. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/improve.h"
#include "search/state.h"

#include "common/progress.h"
#include "common/rng.h"
#include "search-machine.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- problems ------------------------------------------------------------------------ */

struct space_case {
    const char *model, *set;
    int nodes, per_node, max_stages;
    int64_t batch, micro[4];
};

static bool problem_open(const struct space_case *sp, const struct machine *mc,
                         const char *dir, struct search_problem *p) {
    struct err err = {0};
    *p = (struct search_problem){.devices = sp->nodes * sp->per_node,
                                 .batch = sp->batch,
                                 .max_stages = sp->max_stages,
                                 .max_zero = ZERO_PARAMETERS,
                                 .schedules = (1u << SCHEDULE_COUNT) - 1,
                                 .top = 1,
                                 .seed = 1};
    char cluster[64];
    snprintf(cluster, sizeof cluster, "node:%d gpu:%d", sp->nodes, sp->per_node);
    if (cluster_read(&p->cluster, cluster, &err) < 0)
        return ok(false, "%s", err.msg);
    p->micro = sp->micro;
    while (p->n_micro < 4 && sp->micro[p->n_micro])
        p->n_micro++;
    p->model = model_load(sp->model, sp->set, &err);
    p->provider = p->model ? invent(p->model, mc, p, dir) : NULL;
    return ok(p->provider != NULL, "%s %s on %d x %d devices %s", sp->model, sp->set,
              sp->nodes, sp->per_node, err.msg);
}

static void problem_close(struct search_problem *p) {
    provider_destroy((struct cost_provider *)p->provider);
    model_destroy(p->model);
}

/* Legal, runnable, and the same after writing and reading. */
static bool good_plan(const struct search_problem *p, const struct search_plan *sp) {
    struct err err = {0};
    bool good = plan_check(sp->plan, &err) == 0 && sp->plan->devices == p->devices &&
                sp->plan->batch == p->batch;
    struct program *g = good ? program_compile(sp->plan, &err) : NULL;
    good = g && program_validate(g, &err) == 0;
    for (int s = 0; good && s < g->n_stages; s++)
        good = g->stages[s].arena_bytes <= sp->max_bytes &&
               (!p->memory_bytes || g->stages[s].arena_bytes <= p->memory_bytes);
    json_t *doc = plan_to_json(sp->plan), *recompute = NULL;
    struct plan *copy = good ? plan_from_json(doc, &err) : NULL;
    if (copy)
        recompute = plan_to_json(copy);
    good = copy && json_equal(doc, recompute);
    if (!good)
        printf("# %s\n", err.msg);
    plan_destroy(copy);
    json_decref(doc);
    json_decref(recompute);
    program_destroy(g);
    return good;
}

static bool good_plans(const struct search_problem *p, const struct search_result *r) {
    bool good = true;
    for (int i = 0; i < r->n; i++)
        good &= good_plan(p, &r->plans[i]);
    return good;
}

/* ---- hops against the list of all plans ---------------------------------------------- */

/* The least memory that any plan of the list needs. */
static int64_t least_memory(struct search_problem p) {
    struct search_result r;
    struct err err = {0};
    p.memory_bytes = 1;
    search_run(&p, search_presets, &r, &err);
    int64_t bytes = r.overflow + 1;
    search_result_release(&r);
    return bytes;
}

static void print_plan(const char *who, const struct search_result *r) {
    json_t *doc = r->n ? plan_to_json(r->plans[0].plan) : json_null();
    printf("# %s: ", who);
    json_write_line(doc, stdout);
    json_decref(doc);
}

static void compare(const struct search_problem *p, const char *name) {
    struct search_result all, hops;
    struct err err = {0}, err2 = {0};
    int a = search_run(p, search_presets, &all, &err);
    int b = search_run(p, search_hops, &hops, &err2);
    bool good = a < 0 || b < 0 ? a < 0 && b < 0
                               : hops.plans[0].time_us <= 1.01 * all.plans[0].time_us;
    if (!good) {
        print_plan("hops", &hops);
        print_plan("exhaustive", &all);
    }
    if (a < 0 || b < 0) {
        ok(a < 0 && b < 0, "%s: no plan fits, say both: %s", name, err2.msg);
    } else {
        double ratio = hops.plans[0].time_us / all.plans[0].time_us;
        ok(ratio <= 1.01,
           "%s: hops %.1f us, the best of %.0f plans %.1f us, ratio %.4f (%lld "
           "plans scored)",
           name, hops.plans[0].time_us, all.space, all.plans[0].time_us, ratio,
           (long long)hops.scored);
        ok(hops.complete && all.complete && good_plans(p, &hops) && good_plans(p, &all),
           "%s: complete, legal, the same after writing", name);
    }
    search_result_release(&all);
    search_result_release(&hops);
}

static void test_space(const struct space_case *sp, const struct machine *mc,
                       const char *links, const char *dir) {
    struct search_problem p;
    char name[64];
    if (!problem_open(sp, mc, dir, &p))
        return;
    snprintf(name, sizeof name, "%s links, no limit", links);
    compare(&p, name);
    int64_t least = least_memory(p);
    for (int i = 0; i < 3; i++) {
        static const double room[] = {1.6, 1.1, 0.7};
        p.memory_bytes = (int64_t)(room[i] * (double)least);
        snprintf(name, sizeof name, "%s links, %.1f of the least memory", links, room[i]);
        compare(&p, name);
    }
    problem_close(&p);
}

/* ---- estimates against compiled and simulated plans ---------------------------------- */

static struct rng random_state;
static struct estimates {
    double worst_time, above, worst_memory, times[200], memories[200];
    int n, unknown, disagree;
} estimates;

/* Of those that the algorithms look at; every other 1f1b runs further ahead. */
static enum schedule random_schedule(const struct search *s) {
    static int plain;
    int n = 0, some[SCHEDULE_COUNT], f;
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        if (schedule_traits((enum schedule)i)->further <= 1)
            some[n++] = i;
    do
        f = some[rng_below(&random_state, n)];
    while (!space_has_schedule(&s->space, (enum schedule)f));
    if (f == SCHEDULE_1f1b && s->space.further >> SCHEDULE_eager_1f1b & 1 && plain++ % 2)
        return SCHEDULE_eager_1f1b;
    return (enum schedule)f;
}

static bool random_candidate(struct search *s, struct candidate *c) {
    struct rng *r = &random_state;
    const struct search_problem *p = &s->space.p;
    int n_ops = p->model->n_ops, most = p->devices < 4 ? p->devices : 4, op = 0;
    c->n_stages = c->n_groups = 1 + (int)rng_below(r, most);
    c->micro_batch = p->micro[rng_below(r, p->n_micro)];
    c->schedule = random_schedule(s);
    if (c->schedule == SCHEDULE_interleaved && c->n_groups > 1)
        c->n_stages *= 2;
    for (int k = 0, left = p->devices; k < c->n_stages; k++) {
        struct search_stage *st = &c->stages[k];
        int behind = c->n_stages - 1 - k, after = c->n_groups - 1 - k;
        st->devices = after > 0 ? 1 + (int)rng_below(r, left - after) : left;
        st->devices = after < 0 ? c->stages[k % c->n_groups].devices : st->devices;
        left -= after < 0 ? 0 : st->devices;
        st->first = op;
        op += 1 + (int)rng_below(r, 2 * (n_ops - op) / (behind + 1));
        op = behind ? (op > n_ops - behind ? n_ops - behind : op) : n_ops;
        st->end = op;
        st->zero = (int)rng_below(r, space_zero_levels(&s->space));
        st->recompute_level = (int)rng_below(r, RECOMPUTE_LEVELS);
        st->recompute_blocks = (int)rng_below(r, space_stage_blocks(&s->space, st) + 1);
        space_apply_preset(&s->space, st, c->micro_batch,
                           (struct preset){.model_axes = (int)rng_below(r, 3),
                                           .inner = (unsigned)rng_next(r),
                                           .sequence = rng_below(r, 2),
                                           .outer = rng_below(r, 2),
                                           .ascending = rng_below(r, 2),
                                           .context_axes = (int)rng_below(r, 2),
                                           .expert_axes = space_has_experts(&s->space)
                                                              ? (int)rng_below(r, 2)
                                                              : 0});
    }
    return eval_legal(&s->eval, c);
}

struct truth {
    bool known;
    double time_us, bytes;
};

static struct truth judge(struct evaluate *ev, const struct candidate *c) {
    struct truth t = {0};
    struct plan *plan = space_plan_of(ev->space, c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    struct simulation sim = {0};
    cost_forget(&ev->cost);
    if (g && simulate_program(g, &ev->cost, NULL, &sim, NULL) == 0) {
        t = (struct truth){ev->cost.n_missing == 0, sim.time_us, 0};
        for (int k = 0; k < g->n_stages; k++)
            t.bytes = fmax(t.bytes, (double)g->stages[k].arena_bytes);
        simulation_release(&sim);
    }
    program_destroy(g);
    plan_destroy(plan);
    return t;
}

static void print_candidate(const struct space *sp, const struct candidate *c, double time,
                            double memory) {
    struct plan *plan = space_plan_of(sp, c);
    json_t *doc = plan_to_json(plan);
    printf("# worst so far, time %+.2f %%, memory %+.2f %%: ", 100 * time, 100 * memory);
    json_write_line(doc, stdout);
    json_decref(doc);
    plan_destroy(plan);
}

/* An algorithm that only compares. The memory allowed is 1 byte: what is missing tells
 * how much the estimate asks for. */
static int probe(struct search *s, struct err *err) {
    (void)err;
    struct estimates *e = &estimates;
    *e = (struct estimates){0};
    struct candidate c = candidate_make(&s->space);
    while (e->n < 200) {
        if (!random_candidate(s, &c))
            continue;
        struct score score = pool_score(&s->pool, &c);
        struct truth t = judge(&s->eval, &c);
        e->disagree += score.unknown == t.known;
        if (score.unknown || !t.known) {
            e->unknown++;
            continue;
        }
        double time = score.time_us / t.time_us - 1;
        double memory = ((double)score.overflow + 1) / t.bytes - 1;
        if (fabs(time) > fmax(e->worst_time, 0.02) ||
            fabs(memory) > fmax(e->worst_memory, 0.03))
            print_candidate(&s->space, &c, time, memory);
        e->worst_time = fmax(e->worst_time, fabs(time));
        /* Those that run further ahead are simulated anyway: 1.7 % too much was seen. */
        if (schedule_traits(c.schedule)->further <= 1)
            e->above = fmax(e->above, time);
        e->worst_memory = fmax(e->worst_memory, fabs(memory));
        e->times[e->n] = fabs(time);
        e->memories[e->n++] = fabs(memory);
    }
    candidate_release(&c);
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time errs where a pipeline's longest path is a detour that the closed form does not know, or
 * where a message finds its links taken otherwise than the busiest pair says. `most` holds in 19
 * of 20, `above` always: the estimate is too high by no more than that. Memory errs by gaps between
 * temporaries, which are a larger part of it under ZeRO 3. Stages that go round unevenly wait for room
 * to send, so that their times are only a bound from below, and the further the smaller the model is;
 * how many messages wait there is not counted either. */
static void test_estimates(const struct space_case *sp, const struct machine *mc,
                           bool large, double most, double above, unsigned schedules,
                           uint64_t seed, const char *dir) {
    struct search_problem p;
    struct search_result r;
    if (!problem_open(sp, mc, dir, &p))
        return;
    p.memory_bytes = 1;
    p.max_stages = 0;
    p.schedules = schedules;
    random_state = (struct rng){seed, 0};
    search_run(&p, probe, &r, NULL);
    search_result_release(&r);
    struct estimates *e = &estimates;
    qsort(e->times, (size_t)e->n, sizeof *e->times, by_size);
    qsort(e->memories, (size_t)e->n, sizeof *e->memories, by_size);
    double t = e->times[e->n * 19 / 20], b = e->memories[e->n * 19 / 20];
    ok(t <= most && e->above <= above && e->worst_time <= (large ? 0.03 : 0.16),
       "%d random plans: estimated time off by %.2f %% in the median, %.2f %% in 19 of "
       "20, %.2f %% at most, %.2g %% too much",
       e->n, 100 * e->times[e->n / 2], 100 * t, 100 * e->worst_time, 100 * e->above);
    bool alone = !(schedules >> SCHEDULE_interleaved & 1);
    ok(large && alone ? b <= 0.01 && e->worst_memory <= 0.025 : b <= (alone ? 0.08 : 0.1),
       "and estimated memory by %.2f %%, %.2f %%, %.2f %%", 100 * e->memories[e->n / 2],
       100 * b, 100 * e->worst_memory);
    ok(e->disagree <= (large ? e->n / 50 : e->n / 6),
       "%d more are not in the profile, of %d this was told wrongly", e->unknown,
       e->disagree);
    problem_close(&p);
}

/* ---- what the solvers give ------------------------------------------------------------- */

static struct solved {
    double solved_us, listed_us, slice_us;
    int64_t listed;
    bool legal;
} solved;

/* All layouts of all nodes of a stage, one after the other; the best score. */
static void list_layouts(struct search *s, struct candidate *c, struct layout *at, int op) {
    const struct blocks *g = &s->space.blocks;
    if (op == s->space.p.model->n_ops) {
        c->stages[0].layouts = space_layouts(&s->space, at);
        if (eval_legal(&s->eval, c)) {
            solved.listed++;
            solved.listed_us = fmin(solved.listed_us, pool_score(&s->pool, c).time_us);
        }
        return;
    }
    const struct op_space *space = &g->whole->ops[op].space;
    int next = structure_next_distinct(&s->space.blocks.s, 0, op),
        node = g->x.node_of[g->x.of[op]];
    for (int d = PLACE_NONE; d < space->n; d++) {
        if (d >= 0 && space->role[d] == ROLE_whole)
            continue;
        at[node].dim[0] = (int8_t)d;
        list_layouts(s, c, at, next);
    }
}

/* From each uniform preset by the solver, again and again; and the whole list. */
static int solve_layouts(struct search *s, struct err *err) {
    (void)err;
    struct candidate c = candidate_make(&s->space);
    struct layout at[32];
    solved = (struct solved){.solved_us = INFINITY, .listed_us = INFINITY, .legal = true};
    struct search_stage whole = {.end = s->space.p.model->n_ops,
                                 .devices = s->space.p.devices};
    for (int j = 0; j <= space_mesh_axes(&s->space, &whole); j++) {
        space_even(&s->space, 1, s->space.p.micro[0],
                   (struct preset){.model_axes = j, .inner = ~0u}, &c);
        while (search_relayout(s, &c, 0)) {
            double us = pool_score(&s->pool, &c).time_us, before = solved.solved_us;
            solved.legal &= eval_legal(&s->eval, &c);
            solved.solved_us = fmin(us, before);
            if (us >= before)
                break;
        }
    }
    memset(at, PLACE_NONE, sizeof at);
    list_layouts(s, &c, at, 0);
    candidate_release(&c);
    return 0;
}

static void test_relayout(const struct space_case *sp, const struct machine *mc,
                          const char *dir) {
    struct search_problem p;
    struct search_result r;
    if (!problem_open(sp, mc, dir, &p))
        return;
    search_run(&p, solve_layouts, &r, NULL);
    search_result_release(&r);
    ok(solved.legal && solved.solved_us <= 1.001 * solved.listed_us,
       "layouts by the solver %.1f us, the best of all %lld %.1f us", solved.solved_us,
       (long long)solved.listed, solved.listed_us);
    problem_close(&p);
}

static int slice(struct search *s, struct err *err) {
    (void)err;
    struct candidate c = candidate_make(&s->space);
    solved = (struct solved){.slice_us = INFINITY, .legal = true};
    for (int i = 0; i < s->space.p.n_micro; i++) {
        if (!search_slice(s, s->space.p.micro[i], false, &c))
            continue;
        int devices = 0;
        for (int k = 0; k < c.n_stages; k++)
            devices += c.stages[k].devices;
        solved.legal &= eval_legal(&s->eval, &c) && devices == s->space.p.devices &&
                        c.stages[0].first == 0 &&
                        c.stages[c.n_stages - 1].end == s->space.p.model->n_ops;
        struct score score = pool_score(&s->pool, &c);
        if (!score.overflow)
            solved.slice_us = fmin(solved.slice_us, score.time_us);
    }
    candidate_release(&c);
    return 0;
}

/* What the stages solver cuts is a whole plan within the memory, and not far from the end. */
static void test_slice(const struct space_case *sp, const struct machine *mc,
                       int64_t memory, const char *dir) {
    struct search_problem p;
    struct search_result r;
    if (!problem_open(sp, mc, dir, &p))
        return;
    p.memory_bytes = memory;
    p.schedules =
        1u << SCHEDULE_gpipe | 1u << SCHEDULE_1f1b; /* the solver knows no other */
    search_run(&p, slice, &r, NULL);
    search_result_release(&r);
    search_run(&p, search_hops, &r, NULL);
    double ratio = r.n ? solved.slice_us / r.plans[0].time_us : INFINITY;
    ok(solved.legal && ratio <= 1.1,
       "cut by the solver: %.4f of the time that hops ends with", ratio);
    search_result_release(&r);
    problem_close(&p);
}

/* ---- promises ------------------------------------------------------------------------ */

static bool same_results(const struct search_result *a, const struct search_result *b) {
    bool same = a->n == b->n && a->scored == b->scored;
    for (int i = 0; same && i < a->n; i++) {
        json_t *x = plan_to_json(a->plans[i].plan), *y = plan_to_json(b->plans[i].plan);
        same = json_equal(x, y) && a->plans[i].time_us == b->plans[i].time_us;
        json_decref(x);
        json_decref(y);
    }
    return same;
}

static bool sorted_and_distinct(const struct search_result *r) {
    bool good = true;
    for (int i = 0; i < r->n; i++) {
        json_t *x = plan_to_json(r->plans[i].plan);
        good &= i == 0 || r->plans[i - 1].time_us <= r->plans[i].time_us;
        for (int j = 0; j < i; j++) {
            json_t *y = plan_to_json(r->plans[j].plan);
            good &= !json_equal(x, y);
            json_decref(y);
        }
        json_decref(x);
    }
    return good;
}

static void test_promises(const struct space_case *sp, const char *dir) {
    struct search_problem p;
    struct search_result a, b;
    struct err err = {0};
    if (!problem_open(sp, &fast, dir, &p))
        return;
    p.top = 7;
    search_run(&p, search_hops, &a, &err);
    search_run(&p, search_hops, &b, &err);
    ok(a.n > 0 && same_results(&a, &b), "the same seed gives the same plans, %lld scored",
       (long long)a.scored);
    ok(a.n == 7 && sorted_and_distinct(&a) && good_plans(&p, &a),
       "the 7 best are legal, sorted and distinct");
    search_result_release(&a);
    search_result_release(&b);
    search_run(&p, search_presets, &a, &err);
    ok(a.n == 7 && sorted_and_distinct(&a), "those of the list, too");
    search_result_release(&a);
    p.memory_bytes = 1000;
    ok(search_run(&p, search_hops, &a, &err) < 0 && err.status == EXIT_NO &&
           strstr(err.msg, "no plan fits: the best needs") && strstr(err.msg, "of stage "),
       "too little memory: %s", err.msg);
    search_result_release(&a);
    problem_close(&p);
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
}

/* A stage has too many ways to list: the programs of ilp say which are of no use, so it proves
 * its plan. */
static void test_proof(const struct space_case *sp, const struct machine *mc,
                       const char *dir) {
    struct search_problem p;
    struct search_result ilp, dp, hops;
    struct err err = {0};
    if (!problem_open(sp, mc, dir, &p))
        return;
    int a = search_run(&p, search_ilp, &ilp, &err),
        b = search_run(&p, search_dp, &dp, &err),
        c = search_run(&p, search_hops, &hops, &err);
    bool all = a == 0 && b == 0 && c == 0;
    ok(all && ilp.lower_bound_us >= ilp.plans[0].time_us * (1 - 1e-9),
       "ilp proves its plan, %.3f us (dp: %.3f) %s", all ? ilp.plans[0].time_us : 0,
       all ? dp.lower_bound_us : 0, err.msg);
    ok(all && ilp.plans[0].time_us <= dp.plans[0].time_us * (1 + 1e-9) &&
           ilp.plans[0].time_us <= hops.plans[0].time_us * (1 + 1e-9) &&
           good_plans(&p, &ilp),
       "dp and hops find none that is faster: %.3f, %.3f us", all ? dp.plans[0].time_us : 0,
       all ? hops.plans[0].time_us : 0);
    search_result_release(&ilp);
    search_result_release(&dp);
    search_result_release(&hops);
    problem_close(&p);
}

/* Seconds of the processor to compile the plan once. */
static double compiling_s(const struct plan *plan) {
    enum { TIMES = 20 };
    double start = cpu_s();
    for (int i = 0; i < TIMES; i++)
        program_destroy(program_compile(plan, NULL));
    return (cpu_s() - start) / TIMES;
}

/* The sizes that the search is meant for. It may take as long as compiling its plan a number of
 * times: how fast the machine is and what else runs on it matter little. 700 and
 * 1,200 to 1,600 times were measured. */
static void test_scale(const struct space_case *sp, int64_t memory, double most_ms,
                       const char *dir) {
    struct search_problem p;
    struct search_result r;
    struct err err = {0};
    if (!problem_open(sp, &v100, dir, &p))
        return;
    p.memory_bytes = memory;
    double start = cpu_s();
    int rc = search_run(&p, search_hops, &r, &err);
    double took = cpu_s() - start;
    double times = rc == 0 ? took / compiling_s(r.plans[0].plan) : INFINITY;
    ok(times < 3000,
       "%.2f s of CPU, aim 1: as long as compiling the plan %.0f times; %lld plans scored %s",
       took, times, (long long)r.scored, err.msg);
    ok(rc == 0 && r.plans[0].time_us / 1e3 <= most_ms && good_plans(&p, &r),
       "a step of %.1f ms", rc == 0 ? r.plans[0].time_us / 1e3 : 0);
    search_result_release(&r);
    p.time_budget_s = took / 10;
    rc = search_run(&p, search_hops, &r, &err);
    ok(rc == 0 && !r.complete && good_plans(&p, &r) && r.seconds < took + 1,
       "with %.3f s it stops early after %.3f s, with a plan", p.time_budget_s, r.seconds);
    search_result_release(&r);
    problem_close(&p);
}

int main(void) {
    enum { SMALL = 6 }; /* for the list of all plans */
    static const struct space_case spaces[] = {
        {"gpt:nano", "layers=2,hidden=64,heads=4,seq=32,vocab=64", 1, 2, 4, 8, {1, 2, 4}},
        {"gpt:nano", "layers=3,hidden=96,heads=6,seq=24,vocab=96", 1, 3, 2, 12, {3, 6}},
        {"gpt:nano", "layers=2,hidden=64,heads=4,seq=32,vocab=256", 1, 4, 2, 8, {2, 4}},
        {"gpt:nano", "layers=2,hidden=64,heads=4,seq=32,vocab=64", 2, 2, 2, 8, {4}},
        {"mlp:mnist",
         "pixels=96,hidden=96,inner=192,classes=24,layers=2",
         1,
         3,
         3,
         12,
         {3, 6, 12}},
        {"mlp:mnist",
         "pixels=64,hidden=64,inner=128,classes=16,layers=3",
         1,
         4,
         3,
         16,
         {8}},
        {"mlp:mnist", "pixels=96,hidden=96,inner=192,classes=24,layers=1", 1, 2, 1, 8, {8}},
        {"mlp:mnist", "layers=2", 1, 2, 2, 64, {32}},
    };
    const unsigned go_round = 1u << SCHEDULE_interleaved,
                   one_each = ((1u << SCHEDULE_COUNT) - 1) & ~go_round;
    static const struct space_case large[] = {
        {"gpt:1.3B", NULL, 1, 4, 0, 64, {1, 2, 4, 8}},
        {"gpt:13B", NULL, 4, 8, 0, 256, {1, 2, 4, 8}},
        {"moe:10B", "layers=4", 16, 8, 0, 256, {16, 32}},
    };
    char dir[] = "/tmp/weft-search-XXXXXX";
    if (!mkdtemp(dir))
        return 1;
    for (int i = 0; i < 2 * SMALL; i++)
        if (is_of_today(i, 5))
            test_space(&spaces[i / 2], i % 2 ? &slow : &fast, i % 2 ? "slow" : "fast", dir);
    test_estimates(&spaces[1], &slow, false, 0.006, 0.04, one_each, 1, dir);
    test_estimates(&spaces[2], &fast, false, 0.002, 0.04, one_each, 1, dir);
    test_estimates(&spaces[3], &slow, false, 0.006, 0.04, one_each, 1, dir);
    test_estimates(&spaces[5], &fast, false, 0.005, 0.04, one_each, 1, dir);
    test_estimates(&large[1], &v100, true, 0.002, 0.015, one_each, 1, dir);
    test_estimates(&large[2], &v100, false, 0.01, 0.13, one_each, 1, dir);
    test_estimates(&spaces[1], &slow, false, 0.006, 0.04, go_round, 1, dir);
    test_estimates(&spaces[2], &fast, false, 0.03, 0.04, go_round, 1, dir);
    /* With 13 there are two groups, each slow in another of its chunks. */
    test_estimates(&large[1], &v100, true, 0.001, 0.015, go_round, 1, dir);
    test_estimates(&large[1], &v100, true, 0.001, 0.015, go_round, 13, dir);
    test_relayout(&spaces[6], &fast, dir);
    test_relayout(&spaces[6], &slow, dir);
    test_proof(&spaces[7], &v100, dir);
    test_slice(&spaces[2], &fast, 0, dir);
    test_slice(&spaces[3], &slow, 0, dir);
    test_slice(&large[1], &v100, (int64_t)40 << 30, dir);
    test_promises(&spaces[0], dir);
    test_scale(&large[0], (int64_t)32 << 30, INFINITY, dir);
    test_scale(&large[1], (int64_t)40 << 30, INFINITY, dir);
    rmdir(dir);
    return done_testing();
}
