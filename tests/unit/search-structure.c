/* What repeats in a model, found in the graph alone; and models that are not one repeat,
 * searched: two repeats with a tensor that every block of the second reads, repeats inside
 * each other, a model written out layer by layer, a graph in which nothing repeats. */
#include "search/algorithms/algorithms.h"
#include "search/state.h"

#include "model.h"
#include "tap.h"

#include <math.h>
#include <string.h>

static struct model *load(const char *ref, const char *set) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    ok(m != NULL, "%s %s %s", ref, set ? set : "", err.msg);
    return m;
}

/* ---- repeats ------------------------------------------------------------------------------ */

static bool is_run(const struct structure *s, int i, int first, int period, int count) {
    return i < s->n_repeats && s->repeats[i].first == first &&
           s->repeats[i].period == period && s->repeats[i].count == count;
}

static void test_gpt(void) {
    struct model *m = load("gpt:nano", "layers=7");
    struct structure s;
    struct dedup x;
    structure_find(m, NULL, &s);
    dedup_make(m, &s, &x);
    int first = op_find(m, "layer.0.ln1"), period = op_find(m, "layer.1.ln1") - first;
    ok(s.n_repeats == 1 && is_run(&s, 0, first, period, 7), "gpt: 7 layers are one run");
    ok(x.model->n_ops == m->n_ops - 4 * period && x.n_nodes == m->n_ops - 6 * period,
       "the excerpt has 3 of them, and one node for each op of a layer");
    int mid = op_find(m, "layer.4.qkv"), last = op_find(m, "layer.6.qkv");
    ok(x.of[mid] == x.of[op_find(m, "layer.1.qkv")] && x.of[last] != x.of[mid] &&
           x.node_of[x.of[last]] == x.node_of[x.of[mid]],
       "an op in the middle is that of the second layer, the last is its own");
    bool good = true;
    for (int i = 0; i < x.model->n_ops; i++)
        for (int k = 0; k < x.model->ops[i].n_in; k++)
            good &= x.model->tensors[x.model->ops[i].in[k]].producer < i;
    ok(good, "operands stand before their readers there");
    const struct edge *e = &s.edges[s.edges_of[op_find(m, "wte")] + 1];
    ok(e->param >= 0 && e->n == 1 && e->readers[0] == op_find(m, "head"),
       "the tied table is an edge from wte to head");
    dedup_release(&x);
    structure_release(&s);
    model_destroy(m);
}

/* A model of n layers, written out; odd: the layers' widths differ. */
static struct model *written_out(int n, bool odd, struct err *err) {
    char text[16384], *p = text, *end = text + sizeof text;
    p += snprintf(p, (size_t)(end - p),
                  "{'format': 'weft-model/1', 'name': 'plain', 'sizes': {'pixels': 64, "
                  "'h': 64, 'classes': 16");
    for (int i = 0; i < n; i++)
        p += snprintf(p, (size_t)(end - p), ", 'w%d': %d", i, odd ? 64 * (i + 1) : 128);
    p +=
        snprintf(p, (size_t)(end - p),
                 "}, 'inputs': {'image': {'dims': ['batch', 'pixels'], 'source': 'image'}, "
                 "'label': {'dims': ['batch'], 'source': 'label'}}, 'ops': ["
                 "{'name': 'in', 'kind': 'einsum', 'in': ['image'], 'out': 'x', 'dims': "
                 "['batch', 'h'], 'weight': {'dims': ['pixels', 'h']}},");
    for (int i = 0; i < n; i++)
        p += snprintf(
            p, (size_t)(end - p),
            "{'name': 'up%d', 'kind': 'einsum', 'in': ['x'], 'out': 'y', 'dims': ['batch', "
            "'w%d'], 'weight': {'dims': ['h', 'w%d']}}, {'name': 'act%d', 'kind': 'relu', "
            "'in': ['y'], 'out': 'y', 'dims': ['batch', 'w%d']}, {'name': 'down%d', 'kind': "
            "'einsum', 'in': ['y'], 'out': 'x', 'dims': ['batch', 'h'], 'weight': {'dims': "
            "['w%d', 'h']}},",
            i, odd ? i : 0, odd ? i : 0, i, odd ? i : 0, i, odd ? i : 0);
    snprintf(p, (size_t)(end - p),
             "{'name': 'out', 'kind': 'einsum', 'in': ['x'], 'out': 'z', 'dims': ['batch', "
             "'classes'], 'weight': {'dims': ['h', 'classes']}}, {'name': 'loss', 'kind': "
             "'cross-entropy', 'in': ['z', 'label'], 'out': 'loss', 'dims': []}]}");
    return model_of(text, NULL, err);
}

static void test_others(void) {
    struct structure s;
    struct err err = {0};
    struct model *m = load("tests/models/encdec.json", "encoders=5,decoders=6");
    structure_find(m, NULL, &s);
    int enc = op_find(m, "enc.0.ln"), dec = op_find(m, "dec.0.fc");
    ok(s.n_repeats == 2 && is_run(&s, 0, enc, op_find(m, "enc.1.ln") - enc, 5) &&
           is_run(&s, 1, dec, op_find(m, "dec.1.fc") - dec, 6),
       "encdec: both repeats are found though all decoders read one tensor");
    const struct edge *e = &s.edges[s.edges_of[op_find(m, "memory")]];
    ok(e->n == 7 && edge_reader_from(e, dec) == 1, "which has its head and 6 decoders");
    structure_release(&s);
    model_destroy(m);
    m = written_out(6, false, &err);
    ok(m != NULL, "a model written out %s", err.msg);
    structure_find(m, NULL, &s);
    ok(s.n_repeats == 1 && is_run(&s, 0, 1, 3, 6), "its 6 layers are a run");
    structure_release(&s);
    model_destroy(m);
    m = written_out(6, true, &err);
    structure_find(m, NULL, &s);
    ok(s.n_repeats == 0, "of 6 different layers nothing repeats");
    structure_release(&s);
    model_destroy(m);
}

/* ---- searches -------------------------------------------------------------------------- */

/* Datasheets of a small machine, so that every shape has a time. */
static bool open_problem(struct search_problem *p, struct model *m, int devices,
                         struct cost_provider **provider) {
    static const int64_t micro[] = {2, 4, 8};
    struct err err = {0};
    *p = (struct search_problem){.model = m,
                                 .schedules = (1u << SCHEDULE_COUNT) - 1,
                                 .devices = devices,
                                 .batch = 16,
                                 .micro = micro,
                                 .n_micro = 3,
                                 .top = 1,
                                 .seed = 1};
    if (cluster_read(&p->cluster, "v100-4x8", &err) == 0)
        *provider = provider_analytic(&p->cluster, &err);
    p->provider = *provider;
    return ok(*provider != NULL, "datasheets %s", err.msg);
}

static bool good_plan(const struct search_problem *p, const struct search_plan *sp) {
    struct err err = {0};
    bool good = plan_check(sp->plan, &err) == 0 && sp->plan->devices == p->devices;
    struct program *g = good ? program_compile(sp->plan, &err) : NULL;
    good = g && program_validate(g, &err) == 0;
    for (int k = 0; good && k < g->n_stages; k++)
        good = !p->memory_bytes || g->stages[k].arena_bytes <= p->memory_bytes;
    program_destroy(g);
    if (!good)
        printf("# %s\n", err.msg);
    return good;
}

static double search_with(const struct search_problem *p, search_algorithm *algorithm,
                          const char *name, int64_t *bytes) {
    struct search_result r;
    struct err err = {0};
    double us = INFINITY;
    if (search_run(p, algorithm, &r, &err) == 0) {
        us = r.plans[0].time_us;
        *bytes = r.plans[0].max_bytes;
        ok(r.complete && good_plan(p, &r.plans[0]), "%s: %d stages, %.1f us, legal", name,
           r.plans[0].plan->n_stages, us);
        search_result_release(&r);
    } else {
        ok(false, "%s: %s", name, err.msg);
    }
    return us;
}

/* The written-out model cannot do with 0.7: the list of all plans says so, too, of the
 * smallest micro-batch, which needs the least. */
static void test_tight(struct search_problem *p) {
    struct search_result r;
    struct err err = {0};
    bool found = search_run(p, search_hops, &r, &err) == 0;
    if (found)
        ok(good_plan(p, &r.plans[0]), "with 0.7 of that memory: %.1f us, legal",
           r.plans[0].time_us);
    p->n_micro = 1;
    if (!found)
        ok(search_run(p, search_presets, &r, &err) < 0, "of no plan: %s", err.msg);
    search_result_release(&r);
}

static void test_search(struct model *m, const char *name, int max_stages) {
    struct search_problem p;
    struct cost_provider *provider = NULL;
    int64_t bytes = 0;
    if (!open_problem(&p, m, 4, &provider))
        return;
    search_with(&p, search_hops, name, &bytes);
    p.memory_bytes = bytes * 7 / 10;
    test_tight(&p);
    p.memory_bytes = 0;
    p.devices = 2;
    p.max_stages = max_stages;
    p.n_micro = 1;
    double us = search_with(&p, search_hops, "on two devices", &bytes);
    double best = search_with(&p, search_presets, "and exhaustive", &bytes);
    ok(us <= 1.01 * best, "hops %.4f of exhaustive", us / best);
    provider_destroy(provider);
    model_destroy(m);
}

int main(void) {
    struct err err = {0};
    test_gpt();
    test_others();
    test_search(load("tests/models/encdec.json", NULL), "encdec", 2);
    test_search(load("tests/models/encdec.json", "encoders=4,decoders=5"), "more of it", 2);
    test_search(load("tests/models/nested.json", NULL), "nested", 2);
    test_search(written_out(5, false, &err), "written out", 2);
    test_search(written_out(5, true, &err), "nothing repeats", 2);
    return done_testing();
}
