/* Random legal plans on up to six axes and thousands of devices, through the compiler and the
 * validator, which need no ranks. Each plan is named by its seed and number, and runs alone as
 *
 *     program-plans SEED FIRST COUNT
 */
#include "plan-random.h"

#include "program/program.h"

#include <time.h>

/* Every shipped model and those of tests/models, with sizes that many axes divide. */
static struct model *choose_model(struct rng *r, struct err *err) {
    static const struct {
        const char *ref, *set;
    } models[] = {
        {"gpt:nano", "layers=3,hidden=96,heads=12,seq=48,vocab=96"},
        {"gpt-qkv:nano", "layers=2,hidden=96,heads=24,kv_heads=6,seq=48,vocab=96,tied=1"},
        {"llama:nano", "layers=3,hidden=96,heads=24,kv_heads=4,ffn=192,seq=48,vocab=96"},
        {"t5:nano",
         "layers=2,hidden=48,heads=24,kv=4,ffn=96,seq=48,target_seq=24,vocab=96"},
        {"moe:nano", "layers=4,hidden=48,heads=12,seq=24,vocab=96,experts=24"},
        {"transformer:nano", "layers=2,hidden=48,heads=12,kv=4,ffn=96,seq=48,vocab=96"},
        {"wide-resnet:nano", NULL},
        {"mlp", NULL},
        {"./tests/models/attend.json", "seq=24,other=48,hidden=48,heads=24,kv_heads=6"},
        {"./tests/models/block.json", "layers=2,seq=24,hidden=48,heads=12,ffn=96,vocab=96"},
        {"./tests/models/convnet.json", "height=24,width=48,hidden=12,out=24"},
        {"./tests/models/encdec.json", "dropout=0.1"},
        {"./tests/models/experts.json", "dropout=0.1"},
        {"./tests/models/nested.json", "dropout=0.1"},
        {"./tests/models/pairs.json", "seq=48,target_seq=24,heads=12"},
        {"./tests/models/patches.json", "rows=24,columns=48"},
        {"./tests/models/products.json", NULL},
        {"./tests/models/switch.json", "seq=24,hidden=48,ffn=96,experts=24"},
        {"./tests/models/tasks.json", NULL},
        {"./tests/models/towers.json", "dropout=0.1"},
        {"./tests/models/windows.json", NULL},
        {"llama:nano",
         "layers=2,hidden=96,heads=24,kv_heads=4,ffn=192,seq=48,vocab=96,documents=1"},
        {"gpt:nano", "layers=2,hidden=48,heads=12,seq=48,vocab=96,documents=95"},
    };
    const int n = sizeof models / sizeof *models;
    int k = (int)rng_below(r, n + n / 2);
    return k < n ? model_load(models[k].ref, models[k].set, err)
                 : random_model(r, (int)rng_below(r, 4));
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
    int64_t count = getenv("WEFT_LONG") ? 4000 : 30;
    for (int64_t i = 0; i < 10; i++)
        test_plans(1, i * count, count);
    return done_testing();
}
