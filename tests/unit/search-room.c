/* What scores count for NCCL's communicators, and what no plan can do without, against what the compiled
 * programs have of them: the plans of a grid, several stages on a group among them. */
#include "search/algorithms/grid.h"
#include "search/run/runs.h"
#include "search/space/space.h"

#include "../unit/tap.h"
#include "program/beside.h"

#include <math.h>
#include <stdlib.h>

static const char cluster_name[] = "a100-2x8";
static workspace_query *const no_workspace[] = {NULL};

/* Fills in the cluster, the model and the datasheets of a problem; false if one cannot be read. */
static bool problem_open(struct search_problem *p, const char *model, const char *set) {
    struct err err = {0};
    if (cluster_read(&p->cluster, cluster_name, &err) < 0 ||
        !(p->model = model_load(model, set, &err)) ||
        !(p->provider = provider_open(NULL, NULL, &p->cluster, true, &err))) {
        ok(false, "%s: %s", model, err.msg);
        return false;
    }
    return true;
}

static void problem_close(struct search_problem *p) {
    provider_destroy((struct cost_provider *)p->provider);
    model_destroy(p->model);
}

/* Hands out all plans of a wide grid. */
static void walk(struct search *s,
                 void (*take)(void *, const struct candidate *, struct score), void *arg) {
    const struct search_problem *p = &s->space.p;
    struct grid g;
    grid_init(&g, s);
    g.wide = true;
    g.take = take;
    g.arg = arg;
    for (int groups = 1; groups <= p->devices && groups <= g.n_blocks; groups *= 2)
        for (int i = 0; i < p->n_micro; i++)
            grid_walk(&g, groups, p->micro[i]);
    grid_release(&g);
}

/* Groups of devices of all plans: how many, what is compiled for them and by how much the counts are off
 * together, and how far one is below at most. In communicators of a collective: a message's is a quarter. */
struct counts {
    struct search *s;
    int64_t plans, groups;
    double compiled, off, most_below;
};

/* By group: what scores leave for the rest with communicators counted, less what they leave without. */
static void counted(struct search *s, const struct candidate *c, double *bytes) {
    double *without = mem_array((size_t)c->n_groups, sizeof *without);
    eval_overflows(&s->eval, c, bytes);
    s->space.p.beside = NULL;
    eval_overflows(&s->eval, c, without);
    s->space.p.beside = no_workspace;
    for (int g = 0; g < c->n_groups; g++)
        bytes[g] -= without[g];
    free(without);
}

static void compare(void *arg, const struct candidate *c, struct score score) {
    struct counts *n = arg;
    enum { EVERY = 7 };
    (void)score;
    if (n->plans++ % EVERY)
        return;
    struct plan *plan = space_plan_of(&n->s->space, c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    double *bytes = mem_array((size_t)c->n_groups, sizeof *bytes);
    counted(n->s, c, bytes);
    for (int k = 0; g && k < c->n_groups; k++) {
        const struct cluster *cl = &n->s->space.p.cluster;
        double one = (double)cl->groups[0].reserve.bytes[RESERVE_collectives];
        const struct workspace_site at = {g, k, cl, 1};
        double compiled = (double)beside_communicators(&at) / one,
               off = bytes[k] / one - compiled;
        n->groups++;
        n->compiled += compiled;
        n->off += fabs(off);
        n->most_below = fmax(n->most_below, -off);
    }
    free(bytes);
    program_destroy(g);
    plan_destroy(plan);
}

/* ---- what no plan can do without ------------------------------------------------------------ */

/* Of the plans of a grid on all devices together: the least bytes of parameters, gradients and the
 * optimizer's state. */
struct state {
    struct search *s;
    double least;
};

static void least_state(void *arg, const struct candidate *c, struct score score) {
    struct state *n = arg;
    (void)score;
    struct plan *plan = space_plan_of(&n->s->space, c);
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    double sum = 0;
    for (int k = 0; g && k < g->n_stages; k++) {
        const int64_t *bytes = g->stages[k].bytes;
        sum +=
            (double)(bytes[MEM_parameters] + bytes[MEM_gradients] + bytes[MEM_optimizer]) *
            c->stages[k].devices;
    }
    if (g)
        n->least = fmin(n->least, sum);
    program_destroy(g);
    plan_destroy(plan);
}

/* The memory of a device below which no plan can fit, by bisection. */
static double needed(struct space *sp) {
    int64_t low = 1, high = INT64_C(1) << 40;
    while (low + 1 < high) {
        sp->p.memory_bytes = (low + high) / 2;
        *(search_cannot_fit(sp) ? &low : &high) = sp->p.memory_bytes;
    }
    return (double)high;
}

/* All plans have at least what is said to be needed, and one that shards everything little more. */
static void test_needed(const char *model, const char *set, enum dtype dtype,
                        enum optimizer optimizer) {
    static const double PADDED = 1.03;
    enum { DEVICES = 4 };
    int64_t micro[] = {8};
    struct search_problem p = {.devices = DEVICES,
                               .batch = 16,
                               .micro = micro,
                               .n_micro = 1,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = 1u << SCHEDULE_1f1b,
                               .memory_bytes = 1,
                               .dtype = dtype,
                               .optimizer = optimizer,
                               .beside = no_workspace,
                               .top = 1,
                               .seed = 1};
    if (!problem_open(&p, model, set))
        return;
    struct search s;
    search_begin(&s, &p);
    struct state n = {.s = &s, .least = INFINITY};
    double said = needed(&s.space) * DEVICES;
    s.space.p.memory_bytes = 1; /* so the grid saves all that it can */
    walk(&s, least_state, &n);
    ok(said <= n.least && n.least <= PADDED * said,
       "%s in %s with %s: no plan does without %.0f bytes, the smallest takes %.3f of them",
       model, dtype_name(dtype), optimizer_name(optimizer), said, n.least / said);
    search_end(&s);
    problem_close(&p);
}

static void test_model(const char *model, const char *set, int devices, double most) {
    int64_t micro[] = {4, 16};
    struct search_problem p = {.devices = devices,
                               .batch = 64,
                               .micro = micro,
                               .n_micro = 2,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .memory_of_kinds = true,
                               .beside = no_workspace,
                               .top = 1,
                               .seed = 1};
    if (!problem_open(&p, model, set))
        return;
    p.memory_bytes = cluster_most_memory(&p.cluster, 0, devices);
    struct search s;
    struct counts n = {.s = &s};
    search_begin(&s, &p);
    walk(&s, compare, &n);
    ok(n.groups > 30 && n.off <= most * n.compiled && n.most_below <= 1.5,
       "%s on %d: %lld groups, off by %.1f %%, at most %.2f communicators below", model,
       devices, (long long)n.groups, 100 * n.off / n.compiled, n.most_below);
    search_end(&s);
    problem_close(&p);
}

int main(void) {
    test_model("gpt:350M", "layers=4", 8, 0.1);
    test_model("gpt:350M", "layers=4", 16, 0.1);
    test_model("moe:380M", "layers=4", 8, 0.1);
    test_model("t5:770M", "layers=2", 6, 0.1);
    test_model("wide-resnet:250M", NULL, 8, 0.1);
    for (int o = 0; o < OPTIMIZER_COUNT; o++) {
        test_needed("gpt:nano", NULL, DTYPE_f32, (enum optimizer)o);
        test_needed("gpt:nano", NULL, DTYPE_bf16, (enum optimizer)o);
    }
    test_needed("t5:770M", "layers=2", DTYPE_f32, OPTIMIZER_adamw);
    test_needed("wide-resnet:250M", NULL, DTYPE_f32, OPTIMIZER_adamw);
    test_needed("moe:380M", "layers=2", DTYPE_bf16, OPTIMIZER_adamw);
    return done_testing();
}
