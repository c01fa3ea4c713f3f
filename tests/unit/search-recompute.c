/* What recompute costs under layouts that do not split evenly. Balancing and slicing ask for stages that
 * are longer than the one whose layouts are legal: what cannot be compiled adds nothing there. */
#include "search/evaluate/evaluate.h"
#include "search/state.h"

#include "../unit/tap.h"

#include <math.h>
#include <stdlib.h>

/* Stages that were asked for, those of them that are illegal, and the answers that are wrong. */
struct counts {
    int stages, illegal, wrong;
};

/* Layouts that split the whole batch are asked for with fewer samples. Legal stages have to cost something where all of their blocks are recomputed. */
static void ask(struct search *s, const struct search_stage *st, int64_t micro_batch,
                struct counts *n) {
    const struct prefix *t = eval_prefix(&s->eval, st, micro_batch, 0, false);
    bool legal = prefix_legal(&s->space, t, st->first, st->end);
    struct load l = eval_recompute(&s->eval, t, st);
    double us = l.v[LOAD_forward] + l.v[LOAD_backward];
    n->stages++;
    n->illegal += !legal;
    n->wrong += !isfinite(us) || us < 0 || (legal && us <= 0);
}

static void test_model(const char *model, const char *set, int devices) {
    static const int64_t micro[] = {1, 2, 3, 7, 8};
    struct err err = {0};
    struct search_problem p = {.devices = devices, .batch = 168, .schedules = 1, .top = 1};
    struct counts n = {0};
    if (cluster_read(&p.cluster, "a100-2x8", &err) < 0 ||
        !(p.model = model_load(model, set, &err)) ||
        !(p.provider = provider_open(NULL, NULL, &p.cluster, true, &err))) {
        ok(false, "%s: %s", model, err.msg);
        return;
    }
    struct search s;
    struct preset preset;
    search_begin(&s, &p);
    struct search_stage st = {.end = p.model->n_ops, .devices = devices};
    for (int i = 0; space_preset(&s.space, &st, i, &preset); i++) {
        space_apply_preset(&s.space, &st, p.batch, preset);
        for (st.recompute_level = 1; st.recompute_level < RECOMPUTE_LEVELS;
             st.recompute_level++) {
            st.recompute_blocks = space_stage_blocks(&s.space, &st);
            for (size_t m = 0; m < sizeof micro / sizeof *micro; m++)
                ask(&s, &st, micro[m], &n);
        }
    }
    ok(n.illegal > 0 && n.illegal < n.stages && !n.wrong,
       "%s on %d: of %d stages %d are illegal, %d answers are wrong", model, devices,
       n.stages, n.illegal, n.wrong);
    search_end(&s);
    provider_destroy((struct cost_provider *)p.provider);
    model_destroy(p.model);
}

int main(void) {
    test_model("wide-resnet:250M", NULL, 6);
    test_model("wide-resnet:250M", NULL, 16);
    test_model("t5:770M", "layers=2", 6);
    test_model("moe:380M", "layers=2", 12);
    test_model("gpt:350M", "layers=3", 12);
    return done_testing();
}
