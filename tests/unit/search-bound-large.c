/* The bound on problems that cannot be listed: nano models on 6 to 64 devices, in nodes of 6 or 8, links
 * fast and slow, memory loose and tight, one schedule or all. No plan that an algorithm ends
 * with, meshes merged or not, takes less than the bound. */
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"

#include "search-random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool make_cluster(int nodes, int devices, struct cluster *out) {
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:s, s:{s:f, s:f}, s:f, s:f, s:[{s:s, s:f, s:f}, {s:s, s:f, s:f}]}",
        "format", "weft-cluster/1", "nodes", nodes, "devices_per_node", devices, "device",
        "toy", "flops", "f32", 1e10 * exp2((double)draw(4)), "bf16", 1e11, "bandwidth",
        1e10 * exp2((double)draw(4)), "latency_us", 0.5 * (double)draw(5), "links", "level",
        "node", "bandwidth", 1e9 * exp2((double)draw(6)), "latency_us",
        0.5 * (double)draw(6), "level", "between", "bandwidth", 1e8 * exp2((double)draw(8)),
        "latency_us", (double)draw(6));
    return cluster_of(doc, out);
}

static struct tally {
    int searches, plans, above, large, unbounded;
    double gap; /* the sum */
} tally;

/* Returns the bytes of the best plan's fullest device. */
static int64_t search_with(const struct search_problem *p, search_algorithm *algorithm) {
    struct search_result r;
    int64_t bytes = 0;
    if (search_run(p, algorithm, &r, NULL) < 0) {
        search_result_release(&r);
        return 0;
    }
    tally.searches++;
    tally.unbounded += r.lower_bound_us <= 0;
    tally.gap += 1 - r.lower_bound_us / r.plans[0].time_us;
    for (int i = 0; i < r.n; i++) {
        tally.plans++;
        tally.above += r.lower_bound_us > r.plans[i].time_us * (1 + 1e-9);
        tally.large += p->memory_bytes && r.plans[i].max_bytes > p->memory_bytes;
        if (r.lower_bound_us > r.plans[i].time_us * (1 + 1e-9)) {
            json_t *doc = plan_to_json(r.plans[i].plan);
            printf("# bound %g above %g: ", r.lower_bound_us, r.plans[i].time_us);
            json_write_line(doc, stdout);
            json_decref(doc);
        }
    }
    bytes = r.plans[0].max_bytes;
    search_result_release(&r);
    return bytes;
}

static void test_problem(const char *model, const char *set) {
    static const int64_t micro[] = {4, 8, 16, 24, 48};
    static const int nodes[] = {1, 2, 1, 2, 4, 8}, each[] = {6, 6, 8, 8, 8, 8};
    int machine = (int)draw(6);
    struct err err = {0};
    struct search_problem p = {.devices = nodes[machine] * each[machine],
                               .optimizer = (enum optimizer)draw(OPTIMIZER_COUNT),
                               .batch = 48,
                               .micro = micro,
                               .n_micro = 5,
                               .max_zero = (int)draw(4),
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = 5,
                               .seed = 1};
    struct cost_provider *times = NULL;
    if (draw(2))
        p.schedules = 1u << draw(SCHEDULE_COUNT) | 1u << SCHEDULE_1f1b;
    p.model = model_load(model, set, &err);
    if (p.model && make_cluster(nodes[machine], each[machine], &p.cluster))
        times = provider_analytic(&p.cluster, &err);
    p.provider = times;
    if (times) {
        int64_t bytes = search_with(&p, search_grid);
        p.memory_bytes = (int64_t)((0.3 + 0.1 * (double)draw(6)) * (double)bytes);
        search_with(&p, search_hops);
        search_with(&p, search_gradient);
    } else {
        tally.unbounded++;
        printf("# %s\n", err.msg);
    }
    provider_destroy(times);
    model_destroy(p.model);
}

int main(void) {
    static const char *const models[][2] = {{"gpt:nano", "layers=6"},
                                            {"llama:nano", NULL},
                                            {"t5:nano", NULL},
                                            {"moe:nano", NULL},
                                            {"wide-resnet:nano", NULL},
                                            {"transformer", "layers=3"},
                                            {"tests/models/pairs.json", NULL}};
    const char *from = getenv("FIRST"), *count = getenv("COUNT");
    int64_t first = from ? atol(from) : 1, n = count ? atol(count) : 7, tried = 0;
    int n_models = (int)(sizeof models / sizeof *models);
    for (int64_t i = 0; i < n; i++) {
        if (!count && !is_of_today(i, 7))
            continue;
        tried++;
        int before = tally.above + tally.large;
        const char *const *model = models[(first + i) % n_models];
        rng = (struct rng){(uint64_t)(first + i), 0};
        test_problem(model[0], model[1]);
        if (tally.above + tally.large > before)
            printf("# seed %lld, %s\n", (long long)(first + i), model[0]);
    }
    ok(tally.plans > tried && !tally.above && !tally.unbounded,
       "%d plans of %d searches: %d faster than their bound; the best are %.1f %% above it on "
       "average",
       tally.plans, tally.searches, tally.above, 100 * tally.gap / tally.searches);
    ok(!tally.large, "%d too large", tally.large);
    return done_testing();
}
