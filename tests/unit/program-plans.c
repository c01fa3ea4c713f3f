/* Random legal plans on up to six axes and thousands of devices, through the compiler and the
 * validator, which need no ranks. Each plan is named by its seed and number, and runs alone as
 *
 *     program-plans SEED FIRST COUNT
 */
#include "plan-random.h"

#include "program/program.h"

#include <time.h>

static struct model *choose_model(struct rng *r, struct err *err) {
    switch (rng_below(r, 6)) {
    case 0:
        return model_load("gpt:nano", "layers=3,hidden=96,heads=12,seq=48,vocab=96", err);
    case 1: return model_load("mlp", NULL, err);
    case 2: return model_load("wide-resnet:nano", NULL, err);
    case 3: return model_load("./tests/models/windows.json", NULL, err);
    default: return random_model(r, (int)rng_below(r, 4));
    }
}

static void describe(const struct plan *p) {
    json_t *doc = plan_to_json(p);
    if (!p->model->ref)
        json_object_del(doc, "model");
    char *text = json_dumps(doc, JSON_SORT_KEYS);
    printf("# %s\n", text);
    free(text);
    json_decref(doc);
}

static int check_program(const struct plan *p, struct err *err) {
    struct program *g = program_compile(p, err);
    int rc = g ? program_validate(g, err) : -1;
    program_destroy(g);
    return rc;
}

/* Devices of the plan, or -1. */
static int check_plan(uint64_t seed, int64_t k, struct err *err) {
    struct rng r = {rng_bits(seed, 0, (uint64_t)k), 0};
    static const int devices[] = {64, 64, 64, 256, 256, 1024, 4096};
    struct plan_limits lim = {.least_axes = 4,
                              .axes = 6,
                              .stages = 1 + (int)rng_below(&r, 4),
                              .devices = devices[rng_below(&r, 7)]};
    lim.devices /= lim.stages;
    struct model *m = choose_model(&r, err);
    struct plan *p = m ? random_plan(&r, m, &lim) : NULL;
    int rc = p ? plan_check(p, err) : -1;
    if (rc == 0)
        rc = check_program(p, err);
    int n = p ? p->devices : 0;
    if (rc < 0) {
        printf("# plan %llu.%lld: %s\n", (unsigned long long)seed, (long long)k, err->msg);
        if (p)
            describe(p);
    }
    plan_destroy(p);
    model_destroy(m);
    return rc < 0 ? -1 : n;
}

static void test_plans(uint64_t seed, int64_t first, int64_t count) {
    int bad = 0, most = 0;
    for (int64_t k = first; k < first + count && bad < 3; k++) {
        struct err err = {0};
        int n = check_plan(seed, k, &err);
        bad += n < 0;
        most = n > most ? n : most;
    }
    ok(!bad, "plans %llu.%lld to %llu.%lld on 4 to 6 axes, the largest on %d devices",
       (unsigned long long)seed, (long long)first, (unsigned long long)seed,
       (long long)(first + count - 1), most);
}

int main(int argc, char **argv) {
    if (argc == 4) {
        test_plans(strtoull(argv[1], NULL, 10), atoll(argv[2]), atoll(argv[3]));
        return done_testing();
    }
    int64_t count = getenv("WEFT_LONG") ? 1000 : 30;
    for (int64_t i = 0; i < 10; i++)
        test_plans(1, i * count, count);
    return done_testing();
}
