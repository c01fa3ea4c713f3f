/* The devices' even share of all work as a bound: what it rests on, and that it says as much as prices.
 *
 * Where times come from datasheets, an op on d devices takes at least a d-th of what it takes on one, under
 * every layout: that is asked of the lower bounds of all kinds of ops. Where the bound is that share,
 * prices with the lower bounds of all groups must not prove more than a thousandth beyond it. */
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/bound/op_bounds.h"
#include "search/state.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { MICRO = 5 };
static const int64_t micro[MICRO] = {4, 8, 16, 64, 256};

static bool problem_open(const char *model, const char *cluster, int64_t memory,
                         struct search_problem *p) {
    struct err err = {0};
    *p = (struct search_problem){.memory_bytes = memory,
                                 .batch = 1024,
                                 .micro = micro,
                                 .n_micro = MICRO,
                                 .max_zero = ZERO_PARAMETERS,
                                 .schedules = (1u << SCHEDULE_COUNT) - 1,
                                 .top = 1,
                                 .seed = 1};
    json_t *doc = json_loads(cluster, 0, NULL);
    if (doc && cluster_from_json(&p->cluster, doc, &err) == 0) {
        p->devices = (int)cluster_devices(&p->cluster);
        p->provider = provider_open(NULL, NULL, &p->cluster, true, &err);
    }
    json_decref(doc);
    p->model = p->provider ? model_load(model, NULL, &err) : NULL;
    return p->model || ok(false, "%s: %s", model, err.msg);
}

static void problem_close(struct search_problem *p) {
    provider_destroy((struct cost_provider *)p->provider);
    model_destroy(p->model);
}

#define CLUSTER(nodes)                                                                     \
    "{\"format\": \"weft-cluster/1\", \"nodes\": " nodes ", \"devices_per_node\": 8, "     \
    "\"device\": \"toy\", \"flops\": {\"f32\": 1e12}, \"bandwidth\": 1e11, "               \
    "\"latency_us\": 2, \"links\": [{\"level\": \"node\", \"bandwidth\": 5e10, "           \
    "\"latency_us\": 3}, {\"level\": \"between\", \"bandwidth\": 5e9, \"latency_us\": 9}]}"

/* On 1 to 24 devices. */
static void test_floors(const char *model) {
    struct search_problem p;
    struct search s;
    int asked = 0, faster = 0;
    if (!problem_open(model, CLUSTER("3"), 0, &p))
        return;
    search_begin(&s, &p);
    struct op_bounds *f = op_bounds_make(&s.eval, NULL);
    for (int i = 0; i < MICRO; i++)
        for (int op = 0; op < s.space.blocks.x.model->n_ops; op++) {
            double m = (double)(p.batch / micro[i]);
            struct op_bound one = op_bounds_at(f, op, micro[i], 1);
            double alone_us = op_bound_least(&one, m, 1, 0);
            for (int d = 2; d <= p.devices; d++) {
                struct op_bound some = op_bounds_at(f, op, micro[i], d);
                double us = d * op_bound_least(&some, m, 1, 0);
                asked++;
                faster += us < alone_us * (1 - 1e-9);
            }
        }
    op_bounds_free(f);
    search_end(&s);
    ok(asked > 0 && !faster, "%s: in %d cases of %d devices take less together than one",
       model, faster, asked);
    problem_close(&p);
}

/* On 256 devices. */
static void test_bound(const char *model, int64_t memory) {
    struct search_problem p;
    struct search s;
    double each[MICRO], least = INFINITY;
    if (!problem_open(model, CLUSTER("32"), memory, &p))
        return;
    search_begin(&s, &p);
    double us = bound_us(&s.eval, NULL);
    bound_us(&s.eval, each);
    search_end(&s);
    for (int i = 0; i < MICRO; i++)
        least = fmin(least, each[i]);
    ok(us > 0 && fabs(us - least) <= 1e-3 * least,
       "%s, %lld MB: %.3f us, %.3f us by the prices of all groups", model,
       (long long)(memory / 1000000), us, least);
    problem_close(&p);
}

int main(void) {
    static const char *const models[] = {"gpt:nano",  "llama:nano",       "t5:nano",
                                         "moe:nano",  "wide-resnet:nano", "mixtral:nano",
                                         "mlp:mnist", "transformer:nano"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        test_floors(models[i]);
    test_bound("gpt:350M", 0);
    test_bound("gpt:350M", 2000000000);
    test_bound("gpt:350M", 300000000);
    test_bound("t5:770M", 2000000000);
    return done_testing();
}
