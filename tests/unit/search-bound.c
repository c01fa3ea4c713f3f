/* Bounds and proofs on random small problems: chains and DAGs of a few ops, on one node or two, with
 * memory loose or tight.
 *
 * exhaustive lists all plans; dp, ilp and auto, which branch and bound, must end with a plan as
 * good. The relaxation's bound is never above the time of any legal plan: not of the best one,
 * nor of random ones. What the algorithms print as a bound is not above the best plan's time
 * either, and no plan breaks its limit. The seed is printed. */
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/bound/op_bounds.h"
#include "search/run/runs.h"
#include "search/space/devices.h"
#include "search/space/order.h"
#include "search/state.h"

#include "search-random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random plans ------------------------------------------------------------------------ */

static void random_layouts(const struct space *sp, struct search_stage *st,
                           int64_t micro_batch) {
    const struct blocks *g = &sp->blocks;
    struct layout *at = mem_array((size_t)g->x.n_nodes, sizeof *at);
    struct mesh mesh;
    stage_mesh(st->devices, NULL, &mesh);
    for (int i = 0; i < g->x.model->n_ops; i++) {
        const struct model_op *op = &g->x.model->ops[i];
        struct layout *l = &at[g->x.node_of[i]];
        do {
            memset(l, PLACE_NONE, sizeof *l);
            for (int a = 0; a < mesh.n_axes; a++)
                l->dim[a] = (int8_t)(draw(op->space.n + 1) - 1);
        } while (layout_check(g->x.model, op, &mesh, l, micro_batch, NULL) < 0);
    }
    st->layouts = space_layouts(sp, at);
    free(at);
}

/* Stages on each group, with this micro-batch: 1, or more where rounds come out even. */
static int random_chunks(const struct space *sp, int groups, int64_t micro_batch) {
    int chunks = 2 + (int)draw(MOST_CHUNKS - 1), n = groups * chunks;
    bool may = groups > 1 && n <= sp->p.model->n_ops && n <= sp->max_stages &&
               sp->p.batch / micro_batch % groups == 0 &&
               (space_has_places(sp) || sp->p.devices % groups == 0);
    return may ? chunks : 1;
}

static void random_candidate(const struct space *sp, struct candidate *c) {
    const struct search_problem *p = &sp->p;
    int n_ops = p->model->n_ops, most = sp->max_groups, op = 0, left = p->devices;
    c->n_stages = c->n_groups = 1 + (int)draw(most);
    c->micro_batch = p->micro[draw(p->n_micro)];
    c->schedule = (enum schedule)draw(SCHEDULE_COUNT);
    if (c->schedule == SCHEDULE_interleaved) {
        int chunks = random_chunks(sp, c->n_groups, c->micro_batch);
        c->n_stages *= chunks;
        c->schedule = chunks > 1 ? SCHEDULE_interleaved : SCHEDULE_1f1b;
    }
    for (int k = 0; k < c->n_stages; k++) {
        int behind = c->n_stages - 1 - k, others = c->n_groups - 1 - k;
        struct search_stage *st = &c->stages[k];
        *st = (struct search_stage){.first = op};
        bool even = c->n_groups < c->n_stages && !space_has_places(sp);
        st->devices = even         ? p->devices / c->n_groups
                      : others < 0 ? c->stages[k - c->n_groups].devices
                      : others > 0 ? 1 + (int)draw(left - others)
                                   : left;
        left -= st->devices;
        op = behind ? op + 1 + (int)draw(n_ops - op - behind) : n_ops;
        st->end = op;
        st->zero = (int)draw(space_zero_levels(sp));
        st->regather = space_may_regather(sp) && draw(2);
        st->recompute_level = (int)draw(RECOMPUTE_LEVELS);
        st->recompute_blocks = (int)draw(space_stage_blocks(sp, st) + 1);
        random_layouts(sp, st, c->micro_batch);
    }
    for (int i = 0; i < 4 && space_has_places(sp); i++)
        candidate_swap(c, (int)draw(c->n_groups), (int)draw(c->n_groups));
}

static struct probed {
    double bound_us, least_us;
    /* By what factor an estimate is above the simulated time at most: of all, and of plans that are
     * less than a quarter slower than the best. */
    double slack, near_slack;
    int plans, above;
} probed;

static double best_us; /* of all plans; 0: not known */

/* The bound, and the simulated times of random plans that fit. */
static int probe(struct search *s, struct err *err) {
    (void)err;
    struct candidate c = candidate_make(&s->space);
    probed = (struct probed){.bound_us = bound_us(&s->eval, NULL), .least_us = INFINITY};
    for (int i = 0; i < 30; i++) {
        random_candidate(&s->space, &c);
        if (!eval_legal(&s->eval, &c))
            continue;
        struct plan *plan = space_plan_of(&s->space, &c);
        struct program *g =
            plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
        struct simulation sim;
        bool fits = g != NULL;
        for (int k = 0; fits && k < g->n_stages && s->space.p.memory_bytes; k++)
            fits = g->stages[k].arena_bytes <= space_stage_memory(&s->space, plan, k);
        if (fits && simulate_program(g, &s->eval.cost, NULL, &sim, NULL) == 0) {
            probed.plans++;
            probed.least_us = fmin(probed.least_us, sim.time_us);
            double slack = pool_score(&s->pool, &c).time_us / sim.time_us;
            probed.slack = fmax(probed.slack, slack);
            if (sim.time_us < 1.25 * best_us)
                probed.near_slack = fmax(probed.near_slack, slack);
            probed.above += probed.bound_us > sim.time_us * (1 + 1e-9);
            if (probed.bound_us > sim.time_us * (1 + 1e-9)) {
                json_t *doc = plan_to_json(plan);
                printf("# bound %g above %g: ", probed.bound_us, sim.time_us);
                json_write_line(doc, stdout);
                json_decref(doc);
            }
            simulation_release(&sim);
        }
        program_destroy(g);
        plan_destroy(plan);
    }
    candidate_release(&c);
    return 0;
}

/* ---- lower bounds of every kind ---------------------------------------------------------------- */

static struct {
    int stages, faster, smaller;
    double time,
        bytes; /* the least of what a stage takes beyond its lower bounds, as a share of these */
} floored;

/* The whole model as one stage, in random layouts, against the lower bounds of its ops. */
static void compare_floors(struct evaluate *ev, struct op_bounds *f, struct candidate *c) {
    const struct blocks *g = &ev->space->blocks;
    struct search_stage *st = &c->stages[0];
    double m = (double)(ev->space->p.batch / c->micro_batch), us = 0, bytes = 0;
    for (int i = 0; i < g->s.n_ops; i++) {
        struct op_bound o = op_bounds_at(f, g->x.of[i], c->micro_batch, st->devices);
        double least = INFINITY;
        for (int k = 0; k < o.n; k++) {
            double all = o.strategies[k].fixed;
            for (int j = 0; j < OP_BOUND_ITEMS; j++)
                all += o.strategies[k].kept[j];
            least = fmin(least, all);
        }
        us += op_bound_least(&o, m, 1, 0);
        bytes += least;
    }
    struct plan *plan = space_plan_of(ev->space, c);
    struct program *p = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    struct simulation sim;
    if (p && simulate_program(p, &ev->cost, NULL, &sim, NULL) == 0) {
        const struct stage_program *sp = &p->stages[0];
        double has = (double)(sp->bytes[MEM_parameters] + sp->bytes[MEM_gradients] +
                              sp->bytes[MEM_optimizer] + sp->slots[0].bytes);
        double has_us = sim.time_us - sim.norm_us;
        simulation_release(&sim);
        floored.stages++;
        floored.faster += has_us < us * (1 - 1e-9);
        floored.smaller += has < bytes * (1 - 1e-9);
        floored.time = fmin(floored.time, has_us / us - 1);
        floored.bytes = fmin(floored.bytes, has / bytes - 1);
    }
    program_destroy(p);
    plan_destroy(plan);
}

static int probe_floors(struct search *s, struct err *err) {
    (void)err;
    struct candidate c = candidate_make(&s->space);
    struct op_bounds *f = op_bounds_make(&s->eval, NULL);
    for (int i = 0; i < 40; i++) {
        c.n_stages = c.n_groups = 1;
        c.schedule = SCHEDULE_1f1b;
        c.micro_batch = s->space.p.micro[draw(s->space.p.n_micro)];
        c.stages[0] =
            (struct search_stage){.end = s->space.p.model->n_ops,
                                  .devices = s->space.p.devices,
                                  .zero = (int)draw(space_zero_levels(&s->space))};
        if (i % 2)
            random_layouts(&s->space, &c.stages[0], c.micro_batch);
        else
            space_apply_preset(&s->space, &c.stages[0], c.micro_batch,
                               (struct preset){.model_axes = (int)draw(4),
                                               .inner = ~0u,
                                               .sequence = draw(2)});
        if (eval_legal(&s->eval, &c))
            compare_floors(&s->eval, f, &c);
    }
    op_bounds_free(f);
    candidate_release(&c);
    return 0;
}

static void test_floors(const char *model, const char *set) {
    static const int64_t micro[] = {4, 8};
    struct err err = {0};
    struct search_result none;
    int nodes = 1 + (int)draw(2), each = 1 + (int)draw(4);
    struct search_problem p = {.devices = nodes * each,
                               .optimizer = (enum optimizer)draw(OPTIMIZER_COUNT),
                               .dtype = draw(2) ? DTYPE_bf16 : DTYPE_f32,
                               .batch = 16,
                               .micro = micro,
                               .n_micro = 2,
                               .max_zero = ZERO_PARAMETERS,
                               .memory_bytes = (int64_t)1 << 40,
                               .schedules = 1u << SCHEDULE_1f1b,
                               .top = 1};
    struct cost_provider *times = NULL;
    memset(&floored, 0, sizeof floored);
    floored.time = floored.bytes = INFINITY;
    p.model = model_load(model, set, &err);
    if (p.model && random_cluster(nodes, each, &p.cluster))
        times = provider_analytic(&p.cluster, &err);
    p.provider = times;
    if (times) {
        search_run(&p, probe_floors, &none, NULL);
        search_result_release(&none);
    }
    ok(times && floored.stages && !floored.faster && !floored.smaller,
       "%s on %d x %d: %d stages, %d faster than their lower bounds, %d smaller; beyond them at least %.1f %% time, "
       "%.1f %% bytes%s",
       model, nodes, each, floored.stages, floored.faster, floored.smaller,
       100 * floored.time, 100 * floored.bytes, err.msg);
    provider_destroy(times);
    model_destroy(p.model);
}

/* ---- problems ---------------------------------------------------------------------------- */

static struct tally {
    int seeds, problems, without_plan, differ, bound_above, claim_above, random_above,
        large, unproven, plans, refused, found;
    double gap, slack, near_slack;
} tally;

/* Each stage the memory of its kind: compiled again, apart from the search. */
static bool fits(const struct search_problem *p, const struct search_result *r) {
    struct plan *plan = r->plans[0].plan;
    struct program *g = program_compile(plan, NULL);
    bool good = g != NULL;
    for (int k = 0; good && k < g->n_stages && p->memory_bytes; k++) {
        const struct stage *st = &plan->stages[k];
        int64_t kind = cluster_memory(&p->cluster, st->first_rank, mesh_devices(&st->mesh));
        good = g->stages[k].arena_bytes <= p->memory_bytes &&
               (!p->memory_of_kinds || g->stages[k].arena_bytes <= kind);
    }
    program_destroy(g);
    return good;
}

static void print_differing(const struct search_problem *p, const char *name,
                            const struct search_result *r) {
    json_t *doc = plan_to_json(r->plans[0].plan);
    printf("# %s %.6f us, %.6f proven, limit %lld: ", name, r->plans[0].time_us,
           r->lower_bound_us, (long long)p->memory_bytes);
    json_write_line(doc, stdout);
    json_decref(doc);
}

/* An algorithm that branches and bounds, against the list of all plans (rc < 0: it has none). */
static void compare_exact(const struct search_problem *p, const char *name, int rc,
                          const struct search_result *all) {
    struct search_result r;
    struct err err = {0};
    int b = search_run(p, algorithm_find(name)->run, &r, &err);
    if (rc < 0 || b < 0) {
        tally.differ += rc != b;
        if (rc != b)
            printf("# %s: %s\n", name, err.msg);
        if (b == 0)
            search_result_release(&r);
        return;
    }
    double us = all->plans[0].time_us;
    if (fabs(us - r.plans[0].time_us) > 1e-9 * us) {
        tally.differ++;
        print_differing(p, "exhaustive", all);
        print_differing(p, name, &r);
    }
    tally.claim_above += r.lower_bound_us > us * (1 + 1e-9);
    tally.unproven += !r.complete;
    tally.large += !fits(p, &r);
    tally.gap = fmax(tally.gap, 1 - r.lower_bound_us / r.plans[0].time_us);
    search_result_release(&r);
}

static void compare(const struct search_problem *p, int64_t *bytes) {
    struct search_result all, none;
    struct err err = {0};
    int a = search_run(p, search_exhaustive, &all, &err);
    tally.problems++;
    compare_exact(p, "dp", a, &all);
    compare_exact(p, "ilp", a, &all);
    compare_exact(p, "auto", a, &all);
    if (a < 0) {
        tally.refused += strstr(err.msg, "exhaustive") != NULL;
        tally.without_plan++;
    } else {
        double us = all.plans[0].time_us;
        *bytes = all.plans[0].max_bytes;
        tally.claim_above += all.lower_bound_us > us * (1 + 1e-9);
        tally.unproven += !all.complete;
        tally.large += !fits(p, &all);
    }
    best_us = a == 0 ? all.plans[0].time_us : 0;
    struct search_problem listed = *p;
    listed.as_listed = true;
    probed =
        (struct probed){.least_us = INFINITY}; /* where nothing can fit, it is not asked */
    search_run(&listed, probe, &none, NULL);
    search_result_release(&none);
    double bound = orders_bound_us(p, NULL, INFINITY);
    if (a == 0 && probed.least_us < all.lower_bound_us * (1 - 1e-9)) {
        printf("# a random plan takes %.6f us, %.6f are proven\n", probed.least_us,
               all.lower_bound_us);
        tally.random_above++;
    }
    tally.found += a < 0 && probed.plans;
    tally.plans += probed.plans;
    tally.slack = fmax(tally.slack, probed.slack);
    tally.near_slack = fmax(tally.near_slack, probed.near_slack);
    tally.random_above += probed.above;
    tally.bound_above += a == 0 && bound > all.plans[0].time_us * (1 + 1e-9);
    if (a == 0 && bound > all.plans[0].time_us * (1 + 1e-9)) {
        json_t *doc = plan_to_json(all.plans[0].plan);
        printf("# bound %g above the best %g: ", bound, all.plans[0].time_us);
        json_write_line(doc, stdout);
        json_decref(doc);
    }
    search_result_release(&all);
}

static void test_problem(void) {
    static const int64_t micro[] = {2, 4, 8};
    static const int nodes[] = {1, 1, 2, 3, 1, 2}, each[] = {2, 3, 1, 1, 4, 2};
    int machine = (int)draw(draw(6) ? 4 : 6),
        n_ops = nodes[machine] * each[machine] == 4 ? 3 : 3 + (int)draw(3);
    if (draw(5) == 0)
        machine = n_ops = 0;
    struct err err = {0};
    struct search_problem p = {.devices = nodes[machine] * each[machine],
                               .batch = 8,
                               .micro = micro + draw(2),
                               .n_micro = 2,
                               .max_stages = n_ops ? 0 : 2,
                               .max_zero = (int)draw(4),
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = 1,
                               .seed = 1};
    p.model = legal_model(n_ops);
    struct cost_provider *times = NULL;
    if (!random_cluster(nodes[machine], each[machine], &p.cluster) ||
        !(times = provider_analytic(&p.cluster, &err))) {
        printf("# %s\n", err.msg);
        tally.differ++;
    } else {
        int64_t bytes = 0;
        p.provider = times;
        compare(&p, &bytes);
        p.memory_bytes = (int64_t)((0.4 + 0.1 * (double)draw(7)) * (double)bytes);
        if (p.memory_bytes)
            compare(&p, &bytes);
    }
    provider_destroy(times);
    model_destroy(p.model);
}

/* Algorithms that prove nothing, on the same problem: their plans fit and are no better than what is
 * proven. */
static struct {
    const char *name;
    search_algorithm *run;
    int found, wrong;
    double log_ratio, worst;
} others[] = {{.name = "hops", .run = search_hops},
              {.name = "mcmc", .run = search_mcmc},
              {.name = "gradient", .run = search_gradient},
              {.name = "grid", .run = search_grid}};
enum { OTHERS = sizeof others / sizeof *others };

static void compare_others(const struct search_problem *p) {
    struct search_result best, r;
    struct search_problem q = *p;
    q.no_bound = true;
    if (search_run(p, search_dp, &best, NULL) < 0)
        return;
    for (int i = 0; i < OTHERS; i++) {
        if (search_run(&q, others[i].run, &r, NULL) == 0) {
            double ratio = r.plans[0].time_us / best.plans[0].time_us;
            others[i].found++;
            others[i].wrong += ratio < 1 - 1e-9 || !fits(&q, &r);
            others[i].log_ratio += log(ratio);
            others[i].worst = fmax(others[i].worst, ratio);
        }
        search_result_release(&r);
    }
    search_result_release(&best);
}

/* Where devices may be left idle the best is the least over all numbers of them, and so is what is
 * proven. */
static struct { int problems, fewer, differ; } idle;

static void compare_idle(const struct search_problem *p) {
    struct search_problem q = *p;
    struct search_result r;
    double least = INFINITY;
    int second = p->cluster.n_groups > 1 ? (int)p->cluster.groups[1].first_rank : 0;
    for (q.devices = 1; q.devices <= p->devices; q.devices++) {
        if ((p->devices % q.devices == 0 || q.devices == second) &&
            search_run(&q, search_dp, &r, NULL) == 0)
            least = fmin(least, r.plans[0].time_us);
        search_result_release(&r);
    }
    q = *p;
    q.may_idle = true;
    bool found = search_run(&q, search_dp, &r, NULL) == 0;
    double us = found ? r.plans[0].time_us : INFINITY;
    idle.problems++;
    idle.fewer += found && r.plans[0].plan->devices < p->devices;
    idle.differ += found != isfinite(least) || fabs(us - least) > 1e-9 * least ||
                   (found && fabs(r.lower_bound_us - least) > 1e-9 * least);
    search_result_release(&r);
}

/* The same on devices of two kinds, where it also counts on which of them a stage stands. */
static void test_kinds(void) {
    static const int64_t micro[] = {2, 4, 8};
    static const int first[] = {1, 1, 2}, second[] = {1, 2, 1};
    int machine = (int)draw(3), n_ops = 3 + (int)draw(2);
    struct err err = {0};
    struct search_problem p = {.devices = first[machine] + second[machine],
                               .batch = 8,
                               .micro = micro + draw(2),
                               .n_micro = 2,
                               .max_zero = (int)draw(4),
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = 1,
                               .seed = 1};
    p.model = legal_model(n_ops);
    struct cost_provider *times = NULL;
    if (!random_kinds(first[machine], second[machine], &p.cluster) ||
        !(times = provider_analytic(&p.cluster, &err))) {
        printf("# %s\n", err.msg);
        tally.differ++;
    } else {
        int64_t bytes = 0;
        p.provider = times;
        compare(&p, &bytes);
        p.memory_of_kinds = true;
        for (int g = 0; g < 2 && bytes; g++) {
            int64_t kind = (int64_t)((0.4 + 0.1 * (double)draw(10)) * (double)bytes);
            p.cluster.groups[g].memory_bytes = kind;
            p.memory_bytes = kind > p.memory_bytes ? kind : p.memory_bytes;
        }
        if (bytes)
            compare(&p, &bytes);
        compare_others(&p);
        compare_idle(&p);
    }
    provider_destroy(times);
    model_destroy(p.model);
}

int main(void) {
    static const char *const models[][2] = {{"gpt:nano", "layers=4"},
                                            {"llama:nano", NULL},
                                            {"t5:nano", NULL},
                                            {"moe:nano", NULL},
                                            {"mixtral:nano", NULL},
                                            {"wide-resnet:nano", NULL},
                                            {"transformer", "layers=4"},
                                            {"tests/models/convnet.json", NULL},
                                            {"tests/models/encdec.json", NULL},
                                            {"tests/models/experts.json", NULL},
                                            {"tests/models/patches.json", NULL},
                                            {"tests/models/pairs.json", NULL},
                                            {"tests/models/nested.json", NULL},
                                            {"tests/models/windows.json", NULL},
                                            {"tests/models/adapters.json", "layers=4"}};
    const char *from = getenv("FIRST"), *count = getenv("COUNT");
    int64_t first = from ? atol(from) : 1, n = count ? atol(count) : 150;
    for (int64_t i = 0; i < n; i++) {
        if (!count &&
            !is_of_today(i, 5)) /* of both sorts of problems: 3 does not divide 5 */
            continue;
        int before =
            tally.differ + tally.bound_above + tally.random_above + tally.claim_above;
        rng = (struct rng){(uint64_t)(first + i), 0};
        tally.seeds++;
        if (i % 3)
            test_problem();
        else
            test_kinds();
        if (tally.differ + tally.bound_above + tally.random_above + tally.claim_above >
            before)
            printf("# seed %lld\n", (long long)(first + i));
    }
    ok(!tally.differ && tally.problems > tally.seeds,
       "of %d problems, %d without a plan, dp, ilp and auto end as exhaustive but in %d",
       tally.problems, tally.without_plan, tally.differ);
    ok(!tally.bound_above && !tally.random_above,
       "no bound is above the best plan (%d), nor above %d random ones (%d)",
       tally.bound_above, tally.plans, tally.random_above);
    ok(tally.near_slack > 0.5 && tally.near_slack < SEARCH_SLACK,
       "estimates of random plans within 25 %% of the best are at most %.2f %% above the simulated "
       "time (of all %.2f %%)",
       100 * (tally.near_slack - 1), 100 * (tally.slack - 1));
    ok(!tally.claim_above && !tally.large && !tally.unproven && tally.gap < 1e-9,
       "certificates hold, plans fit, gaps are 0 (%.3f %% at most)", 100 * tally.gap);
    ok(!tally.refused && !tally.found,
       "no space is refused (%d), and where there is no plan random ones find none (%d)",
       tally.refused, tally.found);
    for (int i = 0; i < OTHERS; i++)
        ok(others[i].found && !others[i].wrong,
           "devices of two kinds: %s finds %d plans, %d better than proven or too large; its time is %.4f "
           "of the best on average, %.4f at most",
           others[i].name, others[i].found, others[i].wrong,
           exp(others[i].log_ratio / others[i].found), others[i].worst);
    ok(idle.problems && idle.fewer && !idle.differ,
       "of %d problems, %d are best done with devices left idle, and %d end otherwise",
       idle.problems, idle.fewer, idle.differ);
    rng = (struct rng){(uint64_t)first, 0};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        test_floors(models[i][0], models[i][1]);
    return done_testing();
}
