/* The first good plan of hops: how near those few candidates are to what the whole search finds, and how
 * many they are. All times are those of datasheets. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/hops.h"
#include "search/state.h"

#include "tap.h"

#include <string.h>

struct job {
    const char *model;
    int nodes, per_node;
    double inside, between; /* links, bytes/s */
    int64_t memory, batch;
    double most; /* times the step of hops */
};

static struct cluster cluster_of(const struct job *t) {
    struct cluster c = {0};
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:s, s:{s:f}, s:f, s:f, s:[{s:s, s:f, s:f}, {s:s, s:f, s:f}]}",
        "format", "weft-cluster/1", "nodes", t->nodes, "devices_per_node", t->per_node,
        "device", "test", "flops", "f32", 15e12, "bandwidth", 900e9, "latency_us", 17.0,
        "links", "level", "node", "bandwidth", t->inside, "latency_us", 10.0, "level",
        "between", "bandwidth", t->between, "latency_us", 30.0);
    cluster_from_json(&c, doc, NULL);
    json_decref(doc);
    return c;
}

static int first_only(struct search *s, struct err *err) {
    (void)err;
    hops_first(s);
    search_mark_complete(s, 0);
    return 0;
}

static void test_job(const struct job *t) {
    enum { FEW = 200 };
    struct err err = {0};
    int64_t micro[16];
    struct search_problem p = {.model = model_load(t->model, NULL, &err),
                               .cluster = cluster_of(t),
                               .devices = t->nodes * t->per_node,
                               .memory_bytes = t->memory,
                               .batch = t->batch,
                               .micro = micro,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = 1,
                               .no_bound = true,
                               .seed = 1};
    for (int64_t b = 1; b <= t->batch && p.n_micro < 16; b *= 2)
        micro[p.n_micro++] = b;
    struct cost_provider *times = provider_open(NULL, NULL, &p.cluster, true, &err);
    struct search_result first = {0}, all = {0};
    p.provider = times;
    bool found = p.model && times && search_run(&p, first_only, &first, &err) == 0 &&
                 search_run(&p, search_hops, &all, &err) == 0;
    ok(found && first.scored <= FEW &&
           first.plans[0].time_us <= t->most * all.plans[0].time_us,
       "%s on %d x %d: %.2f times hops' step, %d candidates of %d%s", t->model, t->nodes,
       t->per_node, found ? first.plans[0].time_us / all.plans[0].time_us : 0.0,
       (int)first.scored, (int)all.scored, err.msg);
    search_result_release(&first);
    search_result_release(&all);
    provider_destroy(times);
    model_destroy(p.model);
}

int main(void) {
    const int64_t GB = 1 << 30;
    const struct job jobs[] = {
        {"gpt:1.3B", 4, 8, 40e9, 1e9, 30 * GB, 256, 1.05},
        {"gpt:13B", 1, 8, 40e9, 1e9, 50 * GB, 64, 1.05},
        {"t5:770M", 2, 4, 300e9, 50e9, 16 * GB, 128, 1.05},
        {"wide-resnet:1B", 1, 4, 300e9, 50e9, 30 * GB, 128, 1.05},
        {"moe:10B", 2, 8, 40e9, 1e9, 17 * GB, 256, 1.05},
        /* Most plans do not fit. */
        {"gpt:1.3B", 4, 8, 150e9, 3e9, 6 * GB, 512, 1.05},
        {"moe:1.3B", 2, 8, 150e9, 3e9, 8 * GB, 256, 1.05},
        {"t5:3B", 2, 4, 300e9, 50e9, 10 * GB, 256, 1.05},
        {"llama:1B", 2, 6, 40e9, 1e9, 44 * GB / 10, 384, 1.05},
        {"wide-resnet:1B", 2, 8, 40e9, 1e9, 3 * GB, 256,
         1.15}, /* its stages end with 4, 2 and 1 devices */
        /* Many devices. */
        {"llama:7B", 8, 8, 40e9, 1e9, 8 * GB, 512, 1.05},
        {"moe:10B", 64, 8, 300e9, 50e9, 30 * GB, 4096, 1.05},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (is_of_today((int64_t)i, 4))
            test_job(&jobs[i]);
    return done_testing();
}
