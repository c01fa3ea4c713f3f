/* Orders of the model's ops: pipelines whose stages are no stretches of the file's list.
 *
 * On small random graphs with branches every order is listed here, and exhaustive goes through all plans
 * of each; auto and ilp must find the best of all of them, and no bound is above it. Plans of
 * other orders are legal plans of the model as it is; read back, they are the same candidates. On
 * larger graphs with branches cuts of other orders are better than those of the file's. */
#include "search/algorithms/algorithms.h"
#include "search/bound/bound.h"
#include "search/run/order_cut.h"
#include "search/run/runs.h"
#include "search/space/order.h"

#include "common/rng.h"
#include "model.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct rng rng;

static int draw(int below) {
    return (int)rng_below(&rng, below);
}

/* ---- models ------------------------------------------------------------------------------ */

/* A few branches of one or two products of the input, some behind one another, all added up. */
static struct model *branches(int n, struct err *err) {
    static const int sizes[] = {8, 16, 32, 64, 128};
    char text[4096], *p = text, *end = text + sizeof text;
    p += snprintf(p, (size_t)(end - p),
                  "{'format': 'weft-model/1', 'name': 'branches', 'sizes': {'pixels': %d, "
                  "'q': %d, 'classes': 8, 'a': %d, 'b': %d, 'c': %d}, 'inputs': {'image': "
                  "{'dims': ['batch', 'pixels'], 'source': 'image'}, 'label': {'dims': "
                  "['batch'], 'source': 'label'}}, 'ops': [",
                  sizes[draw(5)], sizes[draw(3)], sizes[draw(5)], sizes[draw(5)],
                  sizes[draw(5)]);
    for (int i = 0; i < n; i++) {
        bool two = i < 2 && draw(2);
        if (two)
            p += snprintf(
                p, (size_t)(end - p),
                "{'name': 'up%d', 'kind': 'einsum', 'in': ['image'], 'out': 'u%d', "
                "'dims': ['batch', '%c'], 'weight': {'dims': ['pixels', '%c']}},",
                i, i, "abc"[i], "abc"[i]);
        char from[8], dim[8];
        snprintf(from, sizeof from, two ? "u%d" : "image", i);
        snprintf(dim, sizeof dim, two ? "%c" : "pixels", "abc"[i]);
        p += snprintf(p, (size_t)(end - p),
                      "{'name': 'to%d', 'kind': 'einsum', 'in': ['%s'], 'out': 'x%d', "
                      "'dims': ['batch', 'q'], 'weight': {'dims': ['%s', 'q']}},",
                      i, from, i, dim);
    }
    for (int i = 1; i < n; i++)
        p += snprintf(p, (size_t)(end - p),
                      "{'name': 'add%d', 'kind': 'add', 'in': ['%c%d', 'x%d'], 'out': "
                      "'s%d', 'dims': ['batch', 'q']},",
                      i, i > 1 ? 's' : 'x', i - 1, i, i);
    snprintf(
        p, (size_t)(end - p),
        "{'name': 'head', 'kind': 'einsum', 'in': ['s%d'], 'out': 'z', 'dims': "
        "['batch', 'classes'], 'weight': {'dims': ['q', 'classes']}}, {'name': 'loss', "
        "'kind': 'cross-entropy', 'in': ['z', 'label'], 'out': 'loss', 'dims': []}]}",
        n - 1);
    return model_of(text, NULL, err);
}

/* Links and devices of many speeds. */
static bool random_cluster(int devices, struct cluster *out, struct err *err) {
    json_t *doc =
        json_pack("{s:s, s:i, s:i, s:s, s:{s:f}, s:f, s:f, s:[{s:s, s:f, s:f}]}", "format",
                  "weft-cluster/1", "nodes", 1, "devices_per_node", devices, "device",
                  "toy", "flops", "f32", 1e9 * exp2(draw(4)), "bandwidth",
                  1e9 * exp2(draw(4)), "latency_us", 0.1 * draw(5), "links", "level",
                  "node", "bandwidth", 1e8 * exp2(draw(6)), "latency_us", 0.2 * draw(6));
    bool good = cluster_from_json(out, doc, err) == 0;
    json_decref(doc);
    return good;
}

/* ---- all orders -------------------------------------------------------------------------- */

enum { MOST_LISTED = 200 };
struct listed {
    const struct model *m;
    int n;
    int *list[MOST_LISTED];
    int at[64];
    bool used[64];
};

static bool may_stand(const struct listed *l, int op) {
    const struct model_op *o = &l->m->ops[op];
    for (int k = 0; k < o->n_in; k++) {
        int producer = l->m->tensors[o->in[k]].producer;
        if (producer >= 0 && !l->used[producer])
            return false;
    }
    return !l->used[op];
}

static void list_orders(struct listed *l, int at) {
    if (at == l->m->n_ops && l->n < MOST_LISTED) {
        l->list[l->n] = mem_array((size_t)at, sizeof *l->at);
        memcpy(l->list[l->n++], l->at, sizeof *l->at * (size_t)at);
    }
    for (int op = 0; op < l->m->n_ops && at < l->m->n_ops; op++)
        if (may_stand(l, op)) {
            l->used[op] = true;
            l->at[at] = op;
            list_orders(l, at + 1);
            l->used[op] = false;
        }
}

/* ---- against the list of all plans ------------------------------------------------------- */

static struct {
    int problems, orders, other_best, differ, bound_above, claim_above, illegal, changed;
    double gain;
} tally;

/* The best of all plans in all orders; *own: in that of the file. */
static double best_of_all(const struct search_problem *p, const struct listed *l,
                          double *own) {
    double best = INFINITY;
    for (int i = 0; i < l->n; i++) {
        struct order *o = order_make(p->model, NULL, l->list[i]);
        struct search_problem q = order_problem(o, p);
        struct search_result r;
        q.as_listed = true;
        if (search_run(&q, search_exhaustive, &r, NULL) == 0) {
            tally.illegal +=
                plan_check(r.plans[0].plan, NULL) < 0 || r.plans[0].plan->model != p->model;
            best = fmin(best, r.plans[0].time_us);
            *own = i ? *own : r.plans[0].time_us;
        }
        search_result_release(&r);
        order_free(o);
    }
    return best;
}

static void compare(const struct search_problem *p, const char *name, double best) {
    struct search_result r;
    struct err err = {0};
    if (search_run(p, algorithm_find(name)->run, &r, &err) < 0) {
        tally.differ += isfinite(best);
        return;
    }
    tally.differ += fabs(r.plans[0].time_us - best) > 1e-9 * best;
    tally.claim_above += r.lower_bound_us > best * (1 + 1e-9);
    if (fabs(r.plans[0].time_us - best) > 1e-9 * best)
        printf("# %s: %.6f us, the best is %.6f, in %d orders\n", name, r.plans[0].time_us,
               best, r.orders);
    search_result_release(&r);
}

/* A plan of another order, found again as the candidate that it was. */
static void read_back(const struct search_problem *p) {
    struct search_result r, recompute;
    if (search_run(p, search_auto, &r, NULL) < 0)
        return;
    struct search_problem q = *p;
    struct search_claim claim = {.time_us = r.plans[0].time_us,
                                 .lower_bound_us = r.lower_bound_us};
    struct search_verdict v;
    struct err err = {0};
    q.from = r.plans[0].plan;
    q.time_budget_s = 1e-6; /* nothing is looked for */
    q.may_idle = false;
    if (search_run(&q, search_presets, &recompute, &err) < 0 ||
        recompute.plans[0].time_us > r.plans[0].time_us * (1 + 1e-9) || recompute.lost[0]) {
        tally.changed++;
        printf("# from: %s%s\n", err.msg, recompute.lost);
    }
    search_result_release(&recompute);
    if (search_verify_plan(p, r.plans[0].plan, &claim, &v, &err) < 0) {
        tally.changed++;
        printf("# verify: %s\n", err.msg);
    }
    search_result_release(&r);
}

static void test_small(int devices) {
    static const int64_t micro[] = {4};
    struct err err = {0};
    struct search_problem p = {.devices = devices,
                               .batch = 8,
                               .micro = micro,
                               .n_micro = 1,
                               .schedules = 1u << SCHEDULE_1f1b,
                               .top = 1,
                               .seed = 1};
    p.model = branches(2, &err);
    struct cost_provider *times = NULL;
    if (p.model && random_cluster(devices, &p.cluster, &err))
        times = provider_analytic(&p.cluster, &err);
    if (!times) {
        ok(false, "a problem: %s", err.msg);
        return;
    }
    p.provider = times;
    struct listed l = {.m = p.model};
    list_orders(&l, 0);
    double own = INFINITY, best = best_of_all(&p, &l, &own);
    tally.problems++;
    tally.orders += l.n;
    tally.other_best += best < own * (1 - 1e-9);
    tally.gain = fmax(tally.gain, own / best);
    tally.bound_above += orders_bound_us(&p, NULL, best) > best * (1 + 1e-9);
    compare(&p, "auto", best);
    compare(&p, "ilp", best);
    if (best < own * (1 - 1e-9))
        read_back(&p);
    for (int i = 0; i < l.n; i++)
        free(l.list[i]);
    provider_destroy(times);
    model_destroy(p.model);
}

/* ---- larger graphs ----------------------------------------------------------------------- */

static bool open_large(struct search_problem *p, const char *ref, const char *set,
                       struct cost_provider **times) {
    static const int64_t micro[] = {8, 16, 32, 64, 128, 256, 512};
    struct err err = {0};
    *p = (struct search_problem){.devices = 4,
                                 .batch = 4096,
                                 .micro = micro,
                                 .n_micro = 7,
                                 .max_zero = 1,
                                 .schedules = (1u << SCHEDULE_COUNT) - 1,
                                 .top = 1,
                                 .seed = 1,
                                 .gap = 0.01};
    p->model = model_load(ref, set, &err);
    if (p->model && cluster_read(&p->cluster, "v100-4x8", &err) == 0)
        *times = provider_analytic(&p->cluster, &err);
    p->provider = *times;
    return ok(*times != NULL, "%s %s%s", ref, set, err.msg);
}

static void test_large(const char *ref, const char *set, int orders, double gain) {
    struct search_problem p;
    struct cost_provider *times = NULL;
    struct search_result own, all;
    struct err err = {0};
    if (!open_large(&p, ref, set, &times))
        return;
    struct orders o;
    orders_find(&p, NULL, &o);
    ok(o.n >= orders && (orders || !o.n), "%d other orders to look at", o.n);
    orders_release(&o);
    struct search_problem listed = p;
    listed.as_listed = true;
    if (ok(search_run(&listed, search_hops, &own, &err) == 0 &&
               search_run(&p, search_hops, &all, &err) == 0,
           "searched %s", err.msg)) {
        double ratio = own.plans[0].time_us / all.plans[0].time_us;
        ok(ratio >= gain && (orders || ratio == 1) &&
               all.lower_bound_us <= all.plans[0].time_us,
           "in the file's order a step takes %.4f times as long", ratio);
        ok(plan_check(all.plans[0].plan, &err) == 0, "the plan is legal %s", err.msg);
    }
    search_result_release(&own);
    search_result_release(&all);
    provider_destroy(times);
    model_destroy(p.model);
}

int main(void) {
    const char *first = getenv("FIRST"), *count = getenv("COUNT");
    rng = (struct rng){first ? strtoull(first, NULL, 10) : 1, 0};
    for (int i = 0; i < (count ? atoi(count) : 30); i++)
        test_small(i % 5 ? 2 : 3);
    ok(tally.problems && !tally.differ && !tally.illegal,
       "of %d problems with %d orders, %d are best done in another than the file's, up to "
       "%.2f times as fast; auto and ilp end otherwise in %d; illegal: %d",
       tally.problems, tally.orders, tally.other_best, tally.gain, tally.differ,
       tally.illegal);
    ok(!tally.bound_above && !tally.claim_above,
       "no bound is above the best plan of all orders (%d), no claim (%d)",
       tally.bound_above, tally.claim_above);
    ok(!tally.changed, "such plans are read back as they are, and verified (%d not)",
       tally.changed);
    test_large("tests/models/towers.json",
               "wides=6,narrows=9,hidden=1024,wide=4096,narrow=2048,pixels=512,classes=512",
               1, 1);
    test_large("gpt:nano", "layers=6", 0, 1);
    return done_testing();
}
