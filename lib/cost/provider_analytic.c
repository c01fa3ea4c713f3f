/* Datasheets as a provider.
 *
 * An instruction takes its latency and the longer of its arithmetic at the device's peak and its
 * traffic at the bandwidth of its memory (the roofline of Williams, Waterman, Patterson 2009). A
 * collective is a ring: in each of g - 1 rounds a rank passes on a g-th of the bytes over the
 * slowest link of the ring, in an all-reduce twice (Patarasuk, Yuan 2009). Small collectives were
 * measured to take as long as g - 1 messages whatever their kind, an all-reduce no longer than the
 * others, so that is what the latency counts.
 *
 * Peaks are what no device exceeds, so the time is nearly a lower bound. How far above it the
 * truth lies was seen in the profile published with Alpa (8 x V100 a node, 25 Gb/s): all of 63
 * products in f32 below 1.8 times, 94 % of 4,782 collectives between half and four times. */
#include "cost/provider.h"

#include "common/mem.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct slack {
    double low, high; /* where the truth lies, as factors */
};
static const struct slack op_slack = {1, 2}, comm_slack = {0.5, 4};

struct analytic {
    struct cost_provider base;
    struct cluster cluster;
};

static struct cost_time datasheet(double us, struct slack s) {
    return (struct cost_time){
        .us = us, .low_us = s.low * us, .high_us = s.high * us, .from = COST_DATASHEET};
}

/* A copy between a device and its host, by an engine of its own. */
static struct cost_time over_host(const struct cluster_group *g,
                                  const struct instr_key *k) {
    if (g->host_bandwidth <= 0)
        return (struct cost_time){0};
    double us =
        1e6 * (double)(dtype_size(k->dtype) * k->n.reload.elems) / g->host_bandwidth;
    struct cost_time t = datasheet(g->latency_us + us, comm_slack);
    t.overlap = 1;
    return t;
}

static struct cost_time analytic_op(const struct cost_provider *p,
                                    const struct op_question *q) {
    const struct cluster_group *g = &((const struct analytic *)p)->cluster.groups[q->group];
    if (opcode_is_move(q->key->code))
        return over_host(g, q->key);
    struct instr_work w;
    if (g->flops[q->key->dtype] <= 0)
        return (struct cost_time){0};
    instr_work(q->key->code, &q->key->n, &w);
    double arithmetic = w.flops / g->flops[q->key->dtype];
    double traffic = instr_bytes(&w, q->key->dtype) / g->bandwidth;
    return datasheet(g->latency_us + 1e6 * fmax(arithmetic, traffic), op_slack);
}

static struct cost_time over_link(const struct link_class *l, double rounds, double bytes,
                                  double bandwidth) {
    if (!l->level || bandwidth <= 0)
        return (struct cost_time){0};
    return datasheet(rounds * l->latency_us + 1e6 * bytes / bandwidth, comm_slack);
}

static struct cost_time analytic_collective(const struct cost_provider *p,
                                            const struct comm_question *q) {
    (void)p;
    double rounds = (double)(q->size - 1);
    double bytes = rounds / (double)q->size * (double)q->bytes;
    if (q->code == I_all_to_all)
        return over_link(&q->link, rounds, bytes, q->link.pairs);
    if (q->code == I_all_reduce)
        bytes *= 2;
    return over_link(&q->link, rounds, bytes, q->link.bandwidth);
}

static struct cost_time analytic_message(const struct cost_provider *p,
                                         const struct comm_question *q) {
    (void)p;
    return over_link(&q->link, 1, (double)q->bytes, q->link.bandwidth);
}

static void analytic_destroy(struct cost_provider *p) {
    free(p);
}

static const struct provider_kind analytic_kind = {analytic_op, analytic_collective,
                                                   analytic_message, analytic_destroy};

/* Which key a datasheet lacks, or NULL. */
static const char *lacks(const struct cluster_group *g) {
    if (g->flops[DTYPE_f32] <= 0)
        return "flops";
    if (g->bandwidth <= 0)
        return "bandwidth";
    for (int i = 0; i < g->n_links; i++)
        if (g->links[i].bandwidth <= 0 && g->devices > 1)
            return "links";
    return NULL;
}

static int check(const struct cluster *c, struct err *err) {
    for (int i = 0; i < c->n_groups; i++) {
        const char *key = lacks(&c->groups[i]);
        if (key)
            return err_usage(err, "the cluster does not give its devices' %s", key);
    }
    for (int i = 0; i < c->n_links; i++)
        if (c->links[i].bandwidth <= 0)
            return err_usage(err, "the cluster gives no bandwidth for its level \"%s\"",
                             c->links[i].level);
    return 0;
}

/* Lists the types that all groups have: "fp32, fp16". */
static void list_dtypes(const struct cluster *c, char *buf, size_t n) {
    static const enum dtype all[] = {DTYPE_f32, DTYPE_bf16, DTYPE_f16};
    size_t used = 0;
    buf[0] = '\0';
    for (size_t k = 0; k < sizeof all / sizeof *all && used < n; k++) {
        bool have = true;
        for (int i = 0; i < c->n_groups; i++)
            have &= c->groups[i].flops[all[k]] > 0;
        if (have)
            used += (size_t)snprintf(buf + used, n - used, "%s%s", used ? ", " : "",
                                     plan_dtype_name(all[k]));
    }
}

int provider_check_dtype(const struct cluster *c, enum dtype dtype, struct err *err) {
    char have[64];
    for (int i = 0; i < c->n_groups; i++) {
        const char *device = c->groups[i].device;
        if (c->groups[i].flops[dtype] > 0)
            continue;
        list_dtypes(c, have, sizeof have);
        err_usage(err, "the datasheet of %s gives no flops for %s",
                  *device ? device : "the cluster's devices", plan_dtype_name(dtype));
        return err_hint(
            err, "take one of its types (%s), another cluster, or a profile (-p FILE)",
            have);
    }
    return 0;
}

struct cost_provider *provider_analytic(const struct cluster *c, struct err *err) {
    if (check(c, err) < 0)
        return NULL;
    struct analytic *a = mem_alloc(sizeof *a);
    *a = (struct analytic){.base = {.kind = &analytic_kind, .subadditive = true},
                           .cluster = *c};
    const char *device = c->groups[0].device;
    snprintf(a->base.device, sizeof a->base.device, "%s", *device ? device : "datasheet");
    return &a->base;
}
