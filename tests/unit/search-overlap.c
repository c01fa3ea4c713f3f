/* Where a provider says that collectives go on beside computation, searches find plans with
 * overlap: none slower than without, dp as good as the list of all, and no bound above any of
 * them. */
#include "search/algorithms/algorithms.h"

#include "tap.h"

#include <math.h>
#include <string.h>

/* Datasheets of which a part of every collective is hidden. */
struct hiding {
    struct cost_provider base, *times;
};

static struct cost_time op(const struct cost_provider *p, const struct op_question *q) {
    const struct cost_provider *times = ((const struct hiding *)p)->times;
    return times->kind->op(times, q);
}

static struct cost_time collective(const struct cost_provider *p,
                                   const struct comm_question *q) {
    const struct cost_provider *times = ((const struct hiding *)p)->times;
    struct cost_time t = times->kind->collective(times, q);
    t.overlap = p->overlap;
    return t;
}

static struct cost_time message(const struct cost_provider *p,
                                const struct comm_question *q) {
    const struct cost_provider *times = ((const struct hiding *)p)->times;
    return times->kind->message(times, q);
}

static const struct provider_kind kind = {op, collective, message, NULL};

static const char cluster[] =
    "{\"format\": \"weft-cluster/1\", \"nodes\": 1, \"devices_per_node\": 4, \"device\": \"toy\","
    " \"flops\": 1e12, \"bandwidth\": 1e11, \"latency_us\": 1,"
    " \"links\": [{\"level\": \"node\", \"bandwidth\": 2e10, \"latency_us\": 5}]}";

struct repeat {
    double us, bound_us;
    bool overlap, listed;
};

static struct repeat run(struct search_problem p, const char *name, bool may_overlap) {
    struct search_result r;
    struct err err = {0};
    struct repeat out = {.us = INFINITY};
    p.may_overlap = may_overlap;
    if (search_run(&p, algorithm_find(name)->run, &r, &err) < 0) {
        printf("# %s: %s\n", name, err.msg);
        return out;
    }
    out = (struct repeat){r.plans[0].time_us, r.lower_bound_us, r.plans[0].plan->overlap,
                          !strcmp(r.relaxation, "all plans")};
    search_result_release(&r);
    return out;
}

struct problem {
    const char *model, *set;
    int devices, micro, n_micro;
    int64_t batch, memory;
    int zero;
    bool small;
};

static int overlapped; /* plans */

static void test(const struct problem *t, struct search_problem p) {
    static const int64_t micro[] = {1, 2, 4, 8, 16, 32, 64};
    static const char *const names[] = {"hops", "auto", "dp-only", "grid"};
    struct err err = {0};
    p.model = model_load(t->model, t->set, &err);
    p.devices = t->devices;
    p.micro = micro + t->micro;
    p.n_micro = t->n_micro;
    p.batch = t->batch;
    p.memory_bytes = t->memory;
    p.max_zero = t->zero;
    double least = INFINITY;
    for (size_t i = 0; i < sizeof names / sizeof *names && p.model; i++) {
        struct repeat without = run(p, names[i], false), with = run(p, names[i], true);
        least = fmin(least, with.us);
        overlapped += with.overlap && with.us < without.us && !without.overlap;
        ok(isinf(with.us) ? isinf(without.us)
                          : with.us <= without.us * (1 + 1e-9) && with.bound_us > 0 &&
                                with.bound_us <= with.us,
           "%s, %s: %.1f us with overlap, %.1f without, bound %.1f", t->model, names[i],
           with.us, without.us, with.bound_us);
    }
    struct repeat all = t->small ? run(p, "exhaustive", true) : (struct repeat){0};
    struct repeat dp = t->small ? run(p, "dp", true) : (struct repeat){0};
    if (t->small)
        ok(fabs(dp.us / all.us - 1) < 1e-9 && all.us <= least * (1 + 1e-9) && dp.listed &&
               dp.bound_us <= dp.us * (1 + 1e-9),
           "dp ends as the list of all plans, and proves it: %.1f and %.1f us", all.us,
           dp.us);
    model_destroy(p.model);
}

int main(void) {
    static const struct problem problems[] = {
        {"mlp:mnist", "layers=1,pixels=3072,hidden=2048", 2, 6, 1, 2048, 0, ZERO_NONE,
         true},
        {"mlp:mnist", "layers=3", 4, 3, 4, 64, 0, ZERO_PARAMETERS, false},
        {"gpt:nano", "layers=4", 4, 0, 3, 16, 0, ZERO_PARAMETERS, false},
        {"gpt:nano", "layers=4", 4, 0, 3, 16, 36 << 20, ZERO_PARAMETERS, false}};
    struct search_problem p = {
        .schedules = (1u << SCHEDULE_COUNT) - 1, .top = 1, .seed = 1};
    struct err err = {0};
    json_t *doc = json_loads(cluster, 0, NULL);
    struct hiding hiding = {.base = {.kind = &kind, .device = "toy", .overlap = 0.8}};
    if (cluster_from_json(&p.cluster, doc, &err) == 0)
        hiding.times = provider_analytic(&p.cluster, &err);
    p.provider = &hiding.base;
    ok(hiding.times != NULL, "a cluster %s", err.msg);
    for (size_t i = 0; i < sizeof problems / sizeof *problems && hiding.times; i++)
        test(&problems[i], p);
    ok(overlapped > 0, "%d plans are faster with overlap", overlapped);
    provider_destroy(hiding.times);
    json_decref(doc);
    return done_testing();
}
