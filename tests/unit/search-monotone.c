/* More memory or more devices give no slower plan: step by step in small spaces, with devices left idle
 * where all of them would be slower. All times are those of datasheets. */
#include "search/algorithms.h"

#include "tap.h"

#include <math.h>

struct job {
    const char *model;
    int per_node;
    double between; /* bytes/s */
    int64_t batch;
    const int64_t *micro;
    int n_micro;
};

/* Two nodes; what is between them may be slow. */
static struct cluster cluster_of(const struct job *t) {
    struct cluster c = {0};
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:s, s:{s:f}, s:f, s:f, s:[{s:s, s:f, s:f}, {s:s, s:f, s:f}]}",
        "format", "weft-cluster/1", "nodes", 2, "devices_per_node", t->per_node, "device",
        "test", "flops", "f32", 1e12, "bandwidth", 100e9, "latency_us", 5.0, "links",
        "level", "node", "bandwidth", 40e9, "latency_us", 5.0, "level", "between",
        "bandwidth", t->between, "latency_us", 20.0);
    cluster_from_json(&c, doc, NULL);
    json_decref(doc);
    return c;
}

static struct search_problem problem_of(const struct job *t, struct model *m,
                                        const struct cost_provider *times,
                                        const struct cluster *c) {
    return (struct search_problem){.model = m,
                                   .provider = times,
                                   .cluster = *c,
                                   .devices = 1,
                                   .may_idle = true,
                                   .batch = t->batch,
                                   .micro = t->micro,
                                   .n_micro = t->n_micro,
                                   .max_zero = ZERO_PARAMETERS,
                                   .schedules = (1u << SCHEDULE_COUNT) - 1,
                                   .top = 1,
                                   .gap = 0.01,
                                   .seed = 1};
}

/* Microseconds of the best plan; INFINITY where there is none. */
static double best_us(const struct search_problem *p, int64_t *bytes) {
    struct search_result r = {0};
    double us = INFINITY;
    if (search_run(p, search_auto, &r, NULL) == 0) {
        us = r.plans[0].time_us;
        *bytes = r.plans[0].max_bytes;
        search_result_release(&r);
    }
    return us;
}

static void test_devices(const struct job *t, struct search_problem p) {
    double before = INFINITY;
    int64_t bytes;
    for (p.devices = 1; p.devices <= 2 * t->per_node; p.devices *= 2) {
        double us = best_us(&p, &bytes);
        ok(us <= before * (1 + 1e-9), "%s on %d devices: %.1f us, half as many: %.1f us",
           t->model, p.devices, us, before);
        before = us;
    }
}

/* In twentieths of what the fastest plan holds, from where it may not be found, since estimates of memory are
 * a little above it, to where it has to be. */
static void test_memory(const struct job *t, struct search_problem p) {
    double before = INFINITY;
    int64_t most = 0, bytes;
    p.devices = 2;
    double fastest = best_us(&p, &most);
    for (int i = 19; i <= 27; i += SANITIZED ? 4 : 1) {
        p.memory_bytes = most * i / 20;
        double us = best_us(&p, &bytes);
        ok(us <= before * (1 + 1e-9),
           "%s in %d twentieths of the memory: %.1f us, with less: %.1f us", t->model, i,
           us, before);
        before = us;
    }
    ok(before <= fastest * (1 + 1e-9), "%s: a third more than it holds is enough",
       t->model);
}

int main(void) {
    static const int64_t micro[] = {16, 32, 64};
    const struct job jobs[] = {
        {"mlp:mnist", 2, 1e9, 64, micro, 2},
        {"mlp:mnist", 2, 100e9, 64, micro + 1, 2},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct err err = {0};
        struct cluster c = cluster_of(&jobs[i]);
        struct model *m = model_load(jobs[i].model, NULL, &err);
        struct cost_provider *times = provider_open(NULL, NULL, &c, true, &err);
        if (!m || !times) {
            ok(false, "%s: %s", jobs[i].model, err.msg);
        } else {
            struct search_problem p = problem_of(&jobs[i], m, times, &c);
            test_devices(&jobs[i], p);
            test_memory(&jobs[i], p);
        }
        provider_destroy(times);
        model_destroy(m);
    }
    return done_testing();
}
