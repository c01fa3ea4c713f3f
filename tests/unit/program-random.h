/* program-random.h - random plans of shipped models, of those in tests/models and of random ones,
 * compiled.
 *
 *     struct compiled c = random_program(seed, k);
 *     ok(c.g != NULL, "plan %d", k);
 *     compiled_release(&c);
 */
#ifndef WEFT_TEST_PROGRAM_RANDOM_H
#define WEFT_TEST_PROGRAM_RANDOM_H

#include "plan-random.h"
#include "program.h"

static struct model *random_choice(struct rng *r, uint64_t k, struct err *err) {
    static const struct {
        const char *name, *set;
    } files[] = {{"encdec", "dropout=0.1"}, {"nested", "dropout=0.1"},
                 {"patches", NULL},         {"products", NULL},
                 {"pairs", NULL},           {"experts", NULL},
                 {"windows", NULL},         {"capped", NULL},
                 {"places", NULL},          {"turns", NULL}},
      shipped[] = {{"llama:nano", "layers=2,heads=16,kv_heads=4,seq=16,hidden=64,ffn=96"},
                   {"t5:nano", "layers=2,heads=8,seq=32,target_seq=16,hidden=64,ffn=96"},
                   {"mixtral:nano",
                    "layers=2,heads=16,kv_heads=4,seq=16,hidden=64,ffn=96,experts=8"},
                   {"gemma:nano", "layers=2,heads=16,kv_heads=4,seq=16,hidden=64,ffn=96"},
                   {"gpt-neox:nano", "layers=2,heads=16,seq=16,hidden=64"},
                   {"deepseek-v3:nano",
                    "layers=2,heads=16,seq=16,hidden=64,q_rank=32,kv_rank=16,"
                    "ffn=96,expert_ffn=32"}};
    const uint64_t n = sizeof files / sizeof *files,
                   n_shipped = sizeof shipped / sizeof *shipped;
    char path[64];
    if (k % 4 == 1)
        return model_load(shipped[k / 4 % n_shipped].name, shipped[k / 4 % n_shipped].set,
                          err);
    if (k % 2)
        return random_model(r, 2);
    snprintf(path, sizeof path, "./tests/models/%s.json", files[k / 2 % n].name);
    return model_load(path, files[k / 2 % n].set, err);
}

/* Plan k of a seed: up to four stages on up to three axes and 16 devices each. */
static struct compiled random_program(uint64_t seed, uint64_t k) {
    struct rng r = {rng_bits(seed, 0, k), 0};
    struct plan_limits limits = {.axes = 3, .devices = 16};
    struct err err = {0};
    struct model *m = random_choice(&r, k, &err);
    struct compiled c = {.plan = m ? random_plan(&r, m, &limits) : NULL};
    if (c.plan) {
        c.plan->owns_model = true;
        c.plan->overlap = rng_below(&r, 3) == 0;
        c.g = plan_check(c.plan, &err) == 0 ? program_compile(c.plan, &err) : NULL;
    }
    if (!c.g)
        printf("# plan %llu.%llu: %s\n", (unsigned long long)seed, (unsigned long long)k,
               err.msg);
    return c;
}

#endif
