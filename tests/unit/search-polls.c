/* A search asks again and again whether it is to stop: the longest that a thread computes without it,
 * over settings that are unlike those of other tests. Every question, of the search and of the solvers
 * below it, asks interrupted() first, which the linker redirects to this file.
 *
 * What is measured is the processor's time of the thread, so other work on the machine does not
 * count. */
#include "search/algorithms/algorithms.h"

#include "common/progress.h"
#include "tap.h"

#include <pthread.h>
#include <time.h>

bool __real_interrupted(void);
bool __wrap_interrupted(void);

/* The program's promise is a twentieth of a second; the rest is for slow machines, and for others that
 * share their caches. */
static const double MOST_S = SANITIZED ? 2 : 0.125;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double longest_s;
static int64_t questions;
static _Thread_local double last_s; /* 0: a new thread, whose clock begins there */

static double thread_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool __wrap_interrupted(void) {
    double now = thread_s();
    pthread_mutex_lock(&lock);
    questions++;
    longest_s = now - last_s > longest_s ? now - last_s : longest_s;
    pthread_mutex_unlock(&lock);
    last_s = thread_s();
    return __real_interrupted();
}

struct setting {
    const char *model, *set, *pins, *algorithm;
    int nodes, per_node;
    int64_t memory, batch, micro;
    bool finds; /* is there a plan in time? */
};

static struct cluster cluster_of(const struct setting *t) {
    struct cluster c = {0};
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:I, s:f, s:f, s:[{s:s, s:f}, {s:s, s:f}]}", "format",
        "weft-cluster/1", "nodes", t->nodes, "devices_per_node", t->per_node, "memory",
        (json_int_t)t->memory, "flops", 52e12, "bandwidth", 900e9, "links", "level", "node",
        "bandwidth", 11e9, "level", "between", "bandwidth", 190e9);
    cluster_from_json(&c, doc, NULL);
    json_decref(doc);
    return c;
}

static struct pins *pins_of(const struct setting *t, const struct model *m) {
    struct err err = {0};
    struct pins *pins = pins_of_model(m, t->model, &err);
    json_t *doc = t->pins ? json_loads(t->pins, 0, NULL) : NULL;
    if (doc && pins_add(pins, doc, "pins", true, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    json_decref(doc);
    return pins;
}

static void test_setting(const struct setting *t) {
    struct err err = {0};
    struct model *m = model_load(t->model, t->set, &err);
    struct cluster c = cluster_of(t);
    struct cost_provider *times = provider_open(NULL, NULL, &c, true, &err);
    struct pins *pins = pins_of(t, m);
    int64_t micro[] = {t->micro, 2 * t->micro, 4 * t->micro};
    struct search_problem p = {.model = m,
                               .pins = pins,
                               .provider = times,
                               .cluster = c,
                               .devices = t->nodes * t->per_node,
                               .memory_bytes = t->memory,
                               .may_idle = true,
                               .batch = t->batch,
                               .micro = micro,
                               .n_micro = 3,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = 1,
                               .gap = 0.01,
                               .slack = 0.01,
                               .time_budget_s = 2,
                               .seed = 1};
    struct search_result r = {0};
    longest_s = 0;
    questions = 0;
    last_s = thread_s();
    double start_s = now_s();
    int rc = search_run(&p, algorithm_find(t->algorithm)->run, &r, &err);
    interrupted();
    ok(longest_s < MOST_S,
       "%s %s of %s on %d devices: %lld questions, at most %.0f ms apart, in %.1f s",
       t->algorithm, t->pins ? t->pins : "", t->model, p.devices, (long long)questions,
       1e3 * longest_s, now_s() - start_s);
    if (t->finds)
        ok(rc == 0, "and there is a plan%s%s", rc < 0 ? ": " : "", rc < 0 ? err.msg : "");
    search_result_release(&r);
    pins_destroy(pins);
    provider_destroy(times);
    model_destroy(m);
}

int main(void) {
    static const char pairs[] =
        "{\"format\": \"weft-plan/1\", \"pin\": {\"*\": {\"mesh\": \"tp:2\"}}}";
    static const char twelve[] =
        "{\"format\": \"weft-plan/1\", \"pin\": {\"stages\": 12, \"*\": {\"mesh\": \"tp:2\"}}}";
    static const struct setting all[] = {
        {"gpt:1.3B", "", pairs, "auto", 4, 6, 2610000000, 48, 1, true},
        {"t5:3B", "", twelve, "auto", 4, 6, 2610000000, 48, 1, false},
        {"gpt:1.3B", "", pairs, "dp", 4, 6, 2610000000, 48, 1, true},
        {"t5:3B", "", NULL, "auto", 4, 6, 2610000000, 96, 1, false},
        {"gpt:1.3B", "layers=512", NULL, "auto", 64, 8, 32000000000, 512, 1, false},
        {"mixtral:8x7B", "", NULL, "auto", 16, 8, 80000000000, 256, 1, false},
        {"wide-resnet:13B", "", NULL, "auto", 12, 8, 32000000000, 192, 8, false},
        {"llama:7B", "", NULL, "ilp", 2, 8, 24000000000, 64, 1, false},
        {"t5:770M", "layers=12", NULL, "gradient", 2, 6, 3000000000, 96, 1, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (is_of_today((int64_t)i, 2))
            test_setting(&all[i]);
    return done_testing();
}
