/* Several plans at once are of different classes, and each read back is the plan that it was: a search
 * that sets out from it and does nothing else gives it back. */
#include "search/algorithms/algorithms.h"
#include "search/state.h"

#include "tap.h"

#include <math.h>
#include <string.h>

enum { PLANS = 8 };

static uint64_t class_of_from;

/* An algorithm that only incumbents at what it is given. */
static int look(struct search *s, struct err *err) {
    (void)err;
    class_of_from = space_class(&s->space, &s->from);
    search_mark_complete(s, 0);
    return 0;
}

struct reread {
    int different, same_time, lost, classes;
    uint64_t class[PLANS];
};

static void read_back(const struct search_problem *p, const struct search_plan *plan,
                      struct reread *t) {
    struct search_problem from = *p;
    struct search_result out;
    struct err err = {0};
    from.from = plan->plan;
    from.top = 1;
    if (search_run(&from, look, &out, &err) < 0) {
        printf("# %s\n", err.msg);
        return;
    }
    t->lost += out.lost[0] != '\0';
    t->same_time += fabs(out.plans[0].time_us / plan->time_us - 1) < 1e-9;
    bool seen = false;
    for (int i = 0; i < t->classes; i++)
        seen |= t->class[i] == class_of_from;
    t->different += !seen;
    t->class[t->classes++] = class_of_from;
    search_result_release(&out);
}

static void test(const char *model, const char *set, int devices, int64_t memory) {
    static const int64_t micro[] = {1, 2, 4, 8};
    struct search_problem p = {.devices = devices,
                               .batch = 32,
                               .micro = micro,
                               .n_micro = 4,
                               .memory_bytes = memory,
                               .max_zero = ZERO_PARAMETERS,
                               .schedules = (1u << SCHEDULE_COUNT) - 1,
                               .top = PLANS,
                               .seed = 1};
    struct err err = {0};
    struct search_result r = {0};
    struct reread t = {0};
    if (cluster_read(&p.cluster, "v100-4x8", &err) == 0)
        p.provider = provider_open(NULL, NULL, &p.cluster, true, &err);
    p.model = p.provider ? model_load(model, set, &err) : NULL;
    if (p.model && search_run(&p, search_hops, &r, &err) == 0)
        for (int i = 0; i < r.n; i++)
            read_back(&p, &r.plans[i], &t);
    ok(r.n == PLANS && t.different == r.n, "%s on %d: %d plans of %d different classes %s",
       model, devices, r.n, t.different, err.msg);
    ok(t.same_time == r.n && !t.lost, "%d of them are the same when they are read back",
       t.same_time);
    search_result_release(&r);
    model_destroy(p.model);
    provider_destroy((struct cost_provider *)p.provider);
}

int main(void) {
    test("gpt:nano", "layers=4", 4, 0);
    test("gpt:nano", "layers=4", 8, 48 << 20);
    test("mlp:mnist", "layers=3", 6, 0);
    return done_testing();
}
