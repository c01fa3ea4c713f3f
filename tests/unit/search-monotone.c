/* More memory, more devices or a longer budget give no slower plan: step by step, with devices
 * left idle where all of them would be slower. Budgets are of work, so they are the same on any
 * machine. All times are those of datasheets. */
#include "search/algorithms/algorithms.h"

#include "tap.h"

#include <math.h>

struct job {
    const char *model, *set;
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
static double best_by(const struct search_problem *p, search_algorithm *algorithm,
                      int64_t *bytes, bool *complete) {
    struct search_result r = {0};
    double us = INFINITY;
    *complete = false;
    if (search_run(p, algorithm, &r, NULL) == 0) {
        us = r.plans[0].time_us;
        *bytes = r.plans[0].max_bytes;
        *complete = r.complete;
        search_result_release(&r);
    }
    return us;
}

static double best_us(const struct search_problem *p, int64_t *bytes) {
    bool complete;
    return best_by(p, search_auto, bytes, &complete);
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

/* In twentieths of what the fastest plan holds, from where it may not be found, since estimates
 * of memory are a little above it, to where it has to be. */
static void test_memory(const struct job *t, struct search_problem p) {
    double before = INFINITY;
    int64_t most = 0, bytes;
    p.devices = 2;
    double fastest = best_us(&p, &most);
    for (int i = 19; i <= 27; i++) {
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

/* Four times as much work again and again, up to what is enough; and far more than that. */
static void test_budgets(const struct job *t, struct search_problem p, const char *name,
                         double share) {
    enum { LEAST = 64, MOST = 1 << 20 };
    search_algorithm *run = algorithm_find(name)->run;
    double before = INFINITY;
    int64_t bytes, most;
    int different = 0;
    bool complete;
    p.devices = 2 * t->per_node;
    p.may_idle = false;
    p.no_bound = true;
    p.gap = 0;
    best_by(&p, search_hops, &most, &complete);
    p.memory_bytes = (int64_t)(share * (double)most);
    double all = best_by(&p, run, &bytes, &complete);
    for (p.work_budget = LEAST; p.work_budget <= MOST;
         p.work_budget = complete && p.work_budget < MOST ? MOST : 4 * p.work_budget) {
        double us = best_by(&p, run, &bytes, &complete);
        if (!(us <= before * (1 + 1e-9)))
            ok(false, "%s by %s, %d stages scored: %.1f us, with a part of that: %.1f us",
               t->model, name, (int)p.work_budget, us, before);
        different += us < before * (1 - 1e-9);
        before = us;
    }
    ok(different > 1 && fabs(before / all - 1) < 1e-9,
       "%s in %.2f of the memory by %s: %d better plans on the way to %.1f us", t->model,
       share, name, different, before);
}

/* The job with its number: devices of the small ones always, of the rest a part each day. */
static void test_job(const struct job *t, int number, bool small) {
    struct err err = {0};
    struct cluster c = cluster_of(t);
    struct model *m = model_load(t->model, t->set, &err);
    struct cost_provider *times = provider_open(NULL, NULL, &c, true, &err);
    if (!m || !times) {
        ok(false, "%s: %s", t->model, err.msg);
    } else {
        struct search_problem p = problem_of(t, m, times, &c);
        if (small || is_of_today(3 * number, 6))
            test_devices(t, p);
        if (small && is_of_today(number, 2))
            test_memory(t, p);
        if (!small && is_of_today(3 * number + 1, 6))
            test_budgets(t, p, "hops", 0.75);
        if (!small && is_of_today(3 * number + 2, 6))
            test_budgets(t, p, "auto", 0.9);
    }
    provider_destroy(times);
    model_destroy(m);
}

int main(void) {
    static const int64_t powers[] = {1, 2, 4, 8, 16, 32, 64};
    const struct job small[] = {
        {"mlp:mnist", NULL, 2, 1e9, 64, powers + 4, 2},
        {"mlp:mnist", NULL, 2, 100e9, 64, powers + 5, 2},
    };
    const struct job large[] = {
        {"gpt:350M", "layers=8,seq=256", 2, 1e9, 32, powers, 6},
        {"wide-resnet:250M", NULL, 2, 10e9, 64, powers + 2, 5},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        test_job(&small[i], (int)i, true);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        test_job(&large[i], (int)i, false);
    return done_testing();
}
