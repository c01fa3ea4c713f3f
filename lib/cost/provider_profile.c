/* The measured table as a provider. A time is off by less than half the inter-quartile
 * range of its row as often as not; the bounds are twice that on either side. */
#include "cost/provider.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table {
    struct cost_provider base;
    bool near; /* sizes far below all rows of a curve are left to the provider behind it */
    int n;
    struct profile_times *times[CLUSTER_MAX_GROUPS];
};

static const struct profile_times *times_of(const struct cost_provider *p, int group) {
    const struct table *t = (const struct table *)p;
    return t->times[group < t->n ? group : 0];
}

static struct cost_time answer(struct profile_time t, double overlap) {
    if (t.us < 0)
        return (struct cost_time){0};
    double off = 2 * t.spread < 1 ? 2 * t.spread : 1;
    return (struct cost_time){.us = t.us,
                              .low_us = t.us * (1 - off),
                              .high_us = t.us * (1 + off),
                              .overlap = overlap,
                              .from = t.estimated  ? COST_FITTED
                                      : t.computed ? COST_DATASHEET
                                                   : COST_MEASURED};
}

static struct cost_time table_op(const struct cost_provider *p,
                                 const struct op_question *q) {
    struct profile_time t = profile_op_time(times_of(p, q->group), q->key);
    if (t.below && ((const struct table *)p)->near)
        return (struct cost_time){0};
    return answer(t, 0);
}

static struct cost_time ask_comm(const struct cost_provider *p, const char *name,
                                 const struct comm_question *q) {
    const struct profile_times *t = times_of(p, q->group);
    return answer(profile_comm_time(t, name, q->size, q->stride, q->link.cross, q->bytes),
                  profile_overlap_of(t, name, q->link.cross));
}

static struct cost_time table_collective(const struct cost_provider *p,
                                         const struct comm_question *q) {
    return ask_comm(p, opcode_name(q->code), q);
}

static struct cost_time table_message(const struct cost_provider *p,
                                      const struct comm_question *q) {
    return ask_comm(p, "p2p", q);
}

static void table_destroy(struct cost_provider *p) {
    struct table *t = (struct table *)p;
    for (int i = 0; i < t->n; i++)
        profile_times_destroy(t->times[i]);
    free(t);
}

static const struct provider_kind table_kind = {table_op, table_collective, table_message,
                                                table_destroy};

static double most_overlap(const struct table *t) {
    static const enum opcode codes[] = {I_all_reduce, I_all_gather, I_reduce_scatter};
    double most = 0;
    for (int i = 0; i < t->n; i++)
        for (size_t k = 0; k < 2 * sizeof codes / sizeof *codes; k++) {
            double part = profile_overlap_of(t->times[i], opcode_name(codes[k / 2]), k % 2);
            most = part > most ? part : most;
        }
    return most;
}

struct cost_provider *provider_profile(struct profile_times *const *times, int n) {
    struct table *t = mem_alloc(sizeof *t);
    *t = (struct table){.base.kind = &table_kind, .n = n};
    memcpy(t->times, times, (size_t)n * sizeof *times);
    snprintf(t->base.device, sizeof t->base.device, "%.63s",
             profile_times_device(times[0]));
    snprintf(t->base.roofline, sizeof t->base.roofline, "%.63s",
             profile_times_roofline(times[0]));
    snprintf(t->base.links, sizeof t->base.links, "%.127s", profile_times_links(times[0]));
    t->base.overlap = most_overlap(t);
    return &t->base;
}

void provider_profile_near(struct cost_provider *p) {
    ((struct table *)p)->near = true;
}
