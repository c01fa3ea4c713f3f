/* What fits nowhere else lives in the memory of hosts: where a search without finds no plan, one
 * that may offload does, within the memory, by stages no more than they must; its bound holds, it
 * is verified, and is the same when it is read back. */
#include "search/algorithms/algorithms.h"

#include "tap.h"

#include <math.h>
#include <string.h>

static const int64_t micro[] = {1, 2, 4, 8};

static void judge(const struct search_problem *p, const struct search_result *r) {
    const struct search_plan *best = &r->plans[0];
    struct search_claim claim = {best->time_us, (double)best->max_bytes, r->lower_bound_us};
    struct search_verdict v;
    struct err err = {0};
    ok(search_verify_plan(p, best->plan, &claim, &v, &err) == 0 && r->lower_bound_us > 0,
       "it is verified: %.1f us, not less than %.1f us %s", best->time_us,
       r->lower_bound_us, err.msg);
    struct search_problem from = *p;
    struct search_result recompute = {0};
    from.from = best->plan;
    int rc = search_run(&from, search_hops, &recompute, &err);
    ok(rc == 0 && recompute.plans[0].time_us <= best->time_us * (1 + 1e-9) &&
           !strstr(recompute.lost, "offloading,") && !strstr(recompute.lost, "overlap"),
       "where the search starts from it, it is there again: %.1f us, dropped: \"%s\" %s",
       recompute.n ? recompute.plans[0].time_us : NAN, recompute.lost,
       rc < 0 ? err.msg : "");
    search_result_release(&recompute);
}

static void test(const char *model, const char *set, int devices, int64_t memory,
                 int stages) {
    struct search_problem p = {.devices = devices,
                               .memory_bytes = memory,
                               .batch = 16,
                               .micro = micro,
                               .n_micro = 4,
                               .max_stages = stages,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .may_overlap = true,
                               .top = 1,
                               .seed = 1};
    struct search_result r = {0};
    struct err err = {0};
    if (cluster_read(&p.cluster, "h100-2x8", &err) == 0)
        p.provider = provider_open(NULL, NULL, &p.cluster, true, &err);
    p.model = p.provider ? model_load(model, set, &err) : NULL;
    int rc = p.model ? search_run(&p, search_hops, &r, &err) : 0;
    ok(rc < 0 && r.overflow > 0, "%s on %d without: %s", model, devices, err.msg);
    search_result_release(&r);
    p.may_offload = true;
    rc = p.model ? search_run(&p, search_hops, &r, &err) : -1;
    ok(rc == 0 && r.n == 1 && r.plans[0].max_bytes <= memory, "with: %.1f us, %.1f MiB %s",
       r.n ? r.plans[0].time_us : NAN, r.n ? (double)r.plans[0].max_bytes / (1 << 20) : NAN,
       rc < 0 ? err.msg : "");
    if (rc == 0) {
        ok(search_offloaded(r.plans[0].plan) != 0, "something is offloaded");
        ok(r.complete, "the search came to its end");
        judge(&p, &r);
    }
    search_result_release(&r);
    p.memory_bytes = 1 << 20;
    rc = p.model ? search_run(&p, search_hops, &r, &err) : 0;
    ok(rc < 0 && strstr(err.hint, "hosts"), "where nothing helps: %s (%s)", err.msg,
       err.hint);
    search_result_release(&r);
    model_destroy(p.model);
    provider_destroy((struct cost_provider *)p.provider);
}

int main(void) {
    test("gpt:nano", "layers=4", 1, 96 << 20, 0);
    test("gpt:nano", "layers=4", 4, 26 << 20, 0);
    test("mlp:mnist", "layers=3", 2, 36 << 20, 0);
    return done_testing();
}
