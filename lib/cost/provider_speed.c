/* Devices that are slower than their kind: times that were measured on other devices of the
 * kind, or follow from its datasheet, are longer on these. Links are not affected. */
#include "cost/provider.h"

#include "common/mem.h"

#include <stdlib.h>

struct slowed {
    struct cost_provider base;
    struct cost_provider *times;
    double speed[CLUSTER_MAX_GROUPS];
};

static struct cost_time slowed_op(const struct cost_provider *base,
                                  const struct op_question *q) {
    const struct slowed *p = (const struct slowed *)base;
    const double speed = p->speed[q->group];
    struct cost_time t = p->times->kind->op(p->times, q);
    t.us /= speed;
    t.low_us /= speed;
    t.high_us /= speed;
    t.issue_us /= speed;
    return t;
}

static struct cost_time slowed_collective(const struct cost_provider *base,
                                          const struct comm_question *q) {
    const struct slowed *p = (const struct slowed *)base;
    return p->times->kind->collective(p->times, q);
}

static struct cost_time slowed_message(const struct cost_provider *base,
                                       const struct comm_question *q) {
    const struct slowed *p = (const struct slowed *)base;
    return p->times->kind->message(p->times, q);
}

static void slowed_destroy(struct cost_provider *base) {
    struct slowed *p = (struct slowed *)base;
    provider_destroy(p->times);
    free(p);
}

static const struct provider_kind slowed_kind = {slowed_op, slowed_collective,
                                                 slowed_message, slowed_destroy};

struct cost_provider *provider_speed(struct cost_provider *times, const struct cluster *c) {
    bool some = false;
    for (int g = 0; g < c->n_groups; g++)
        some |= c->groups[g].speed > 0 && c->groups[g].speed != 1;
    if (!some)
        return times;
    struct slowed *p = mem_alloc(sizeof *p);
    *p = (struct slowed){.base = *times, .times = times};
    p->base.kind = &slowed_kind;
    for (int g = 0; g < CLUSTER_MAX_GROUPS; g++)
        p->speed[g] = g < c->n_groups && c->groups[g].speed > 0 ? c->groups[g].speed : 1;
    return &p->base;
}
