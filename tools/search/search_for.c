/* weft-search --for: plans that another trainer can run. The space is cut down to what its options can
 * say at all, and of the plans that are found those are kept of which they say everything. */
#include "search_tool.h"

#include "plan_tool.h"

#include <stdlib.h>
#include <string.h>

#define BIT(name) (1u << SCHEDULE_##name)
static const struct target {
    const char *name;
    unsigned schedules;
    int max_zero, max_stages; /* 0: any number of stages */
    char *(*say)(const struct plan *p, struct err *err);
} targets[] = {
    {"megatron", BIT(1f1b) | BIT(interleaved), ZERO_OPTIMIZER, 0, plan_to_megatron},
    {"torchtitan", BIT(1f1b) | BIT(interleaved) | BIT(gpipe), ZERO_PARAMETERS, 0,
     plan_to_torchtitan},
    {"deepspeed", BIT(1f1b), ZERO_PARAMETERS, 1, plan_to_deepspeed},
    {"accelerate", BIT(1f1b), ZERO_PARAMETERS, 1, plan_to_accelerate},
};

enum { CANDIDATES = 32 /* plans among which some can be said */ };

static const struct target *find_target(const char *name) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i].name, name))
            return &targets[i];
    return NULL;
}

int search_for_limit(struct search_problem *p, const char *name, struct err *err) {
    const struct target *t = find_target(name);
    if (!t)
        return err_usage(
            err,
            "--for: expected megatron, torchtitan, deepspeed or accelerate, got "
            "\"%s\"",
            name);
    p->schedules &= t->schedules;
    if (!p->schedules)
        return err_usage(err, "--schedule: none of these is one of %s", name);
    p->max_zero = p->max_zero < t->max_zero ? p->max_zero : t->max_zero;
    if (t->max_stages && (!p->max_stages || p->max_stages > t->max_stages))
        p->max_stages = t->max_stages;
    p->as_listed = true;
    p->may_offload = false;
    p->slack = 0;
    p->top = p->top < CANDIDATES ? CANDIDATES : p->top;
    return 0;
}

int search_for_keep(struct search_result *r, const char *name, int wanted,
                    struct err *err) {
    const struct target *t = find_target(name);
    struct err first = {0};
    int kept = 0;
    for (int i = 0; i < r->n; i++) {
        struct err why = {0};
        char *text = kept < wanted ? t->say(r->plans[i].plan, &why) : NULL;
        if (text)
            r->plans[kept++] = r->plans[i];
        else
            plan_destroy(r->plans[i].plan);
        if (!text && !first.status)
            first = why;
        free(text);
    }
    r->n = kept;
    return kept ? 0
                : err_no(err,
                         "--for %s: none of the plans that were found can be said; the "
                         "fastest: %.400s",
                         name, first.msg);
}
