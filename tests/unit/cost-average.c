/* Replicas that train apart: what is compiled for them, what their steps cost, and what a partner's link gives. */
#include "program.h"

#include "cost/estimate.h"
#include "cost/simulate.h"

#include <math.h>
#include <string.h>

/* A small GPT on a mesh of nodes and devices, which both split the batch unless `layout` says else. */
static struct compiled compile_on(const char *mesh, const char *layout, const char *keys) {
    char text[768];
    snprintf(text, sizeof text,
             "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'batch': 16, 'micro_batch': 8,"
             " 'set': 'layers=2,hidden=64,heads=4,vocab=128,seq=32',%s"
             " 'stages': [{'mesh': '%s', 'layout': {%s}}]}",
             keys, mesh, layout);
    return compile(text);
}
#define BOTH "'node': 'batch', 'dp': 'batch'"

/* ---- the program --------------------------------------------------------------------------- */

static int count(const struct stage_program *sp, enum segment segment, enum opcode code) {
    int n = 0;
    FOR_SEGMENT(sp, segment, i) n += i->code == code;
    return n;
}

/* Numbers that instructions of this code are of, along these axes. */
static int64_t elements(const struct stage_program *sp, enum segment segment,
                        enum opcode code, unsigned axes) {
    int64_t n = 0;
    FOR_SEGMENT(sp, segment, i) n += i->code == code && i->axes == axes ? i->n.v[0] : 0;
    return n;
}

static int64_t bytes_kept(const struct stage_program *sp) {
    return sp->bytes[MEM_parameters] + sp->bytes[MEM_optimizer];
}

static void test_program(void) {
    struct compiled c = compile_on("node:2 dp:4", BOTH, "");
    const int64_t gradients = elements(c.g->stages, SEG_REDUCE, I_all_reduce, 3);
    ok(gradients > 0 && c.g->stages->seg[SEG_PAIR] == c.g->stages->n_instrs,
       "who sums gradients has no means");
    compiled_release(&c);

    c = compile_on("node:2 dp:4", BOTH, " 'average': 'all',");
    const struct stage_program *sp = c.g->stages;
    ok(count(sp, SEG_REDUCE, I_all_reduce) == 0 &&
           4 * elements(sp, SEG_AVERAGE, I_all_reduce, 3) == bytes_kept(sp) &&
           count(sp, SEG_PAIR, I_swap) == 0,
       "replicas apart sum no gradients; all that they keep is averaged, once");
    compiled_release(&c);

    c = compile_on("node:2 dp:4", BOTH, " 'average': 'pairs',");
    sp = c.g->stages;
    ok(4 * elements(sp, SEG_PAIR, I_swap, 3) == bytes_kept(sp) &&
           4 * elements(sp, SEG_AVERAGE, I_all_reduce, 3) == bytes_kept(sp),
       "in pairs, the same is swapped, and averaged where one model is wanted");
    compiled_release(&c);

    c = compile_on("node:2 dp:4", BOTH, " 'average': 'all', 'average_axes': ['node'],");
    sp = c.g->stages;
    ok(elements(sp, SEG_REDUCE, I_all_reduce, 2) == gradients &&
           elements(sp, SEG_REDUCE, I_all_reduce, 3) == 0 &&
           4 * elements(sp, SEG_AVERAGE, I_all_reduce, 1) == bytes_kept(sp),
       "apart between nodes: sums inside a node, means between them");
    compiled_release(&c);

    c = compile_on("node:2 dp:4", "'node': 'batch', 'dp': ['heads', 'ffn', 'vocab']",
                   " 'average': 'all', 'optimizer': 'sgd',");
    sp = c.g->stages;
    ok(4 * elements(sp, SEG_AVERAGE, I_all_reduce, 1) == bytes_kept(sp) &&
           elements(sp, SEG_REDUCE, I_all_reduce, 1) == 0,
       "tensor parallel: each rank has its part averaged over the nodes");
    compiled_release(&c);
}

/* ---- what is tied, frozen or shared out ------------------------------------------------------- */

static void test_parts(void) {
    struct compiled c = compile(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'batch': 8, 'average': 'all',"
        " 'set': 'layers=2,hidden=64,heads=4,vocab=128,seq=32,dropout=0',"
        " 'stages': [{'ops': ['wte', 'wpe', 'layer.0'], 'mesh': 'dp:2',"
        "             'layout': {'dp': 'batch'}},"
        "            {'mesh': 'dp:2', 'layout': {'dp': 'batch'}}]}");
    int summed = 0, others = 0;
    for (int s = 0; s < 2; s++)
        FOR_SEGMENT(&c.g->stages[s], SEG_UPDATE, i) {
            const bool tied =
                i->param >= 0 && i->code == I_adamw && c.plan->model->params[i->param].tied;
            summed += tied && !i->replicas;
            others += i->code == I_adamw && !tied && i->replicas != 2;
        }
    ok(summed == 1 && !others,
       "a parameter of two stages is summed at every step, all others train apart");
    compiled_release(&c);

    c = compile_on("node:2 dp:4", BOTH,
                   " 'average': 'all', 'average_axes': ['node'], 'dtype': 'bf16',");
    const int64_t whole = c.g->stages->own[MEM_optimizer];
    compiled_release(&c);
    c = compile(
        "{'format': 'weft-plan/1', 'model': 'gpt:nano', 'batch': 16, 'dtype': 'bf16',"
        " 'set': 'layers=2,hidden=64,heads=4,vocab=128,seq=32',"
        " 'average': 'all', 'average_axes': ['node'],"
        " 'stages': [{'mesh': 'node:2 dp:4', 'zero': 3,"
        "             'layout': {'node': 'batch', 'dp': 'batch'}}]}");
    ok(c.g->stages->own[MEM_optimizer] * 4 < whole * 11 / 10 &&
           c.g->stages->own[MEM_optimizer] * 8 > whole,
       "ZeRO shares out inside a node alone: %lld bytes of %lld",
       (long long)c.g->stages->own[MEM_optimizer], (long long)whole);
    compiled_release(&c);
}

/* ---- times ---------------------------------------------------------------------------------- */

static double step_us(const struct cluster *cl, const char *keys, double *update_us) {
    struct err err = {0};
    struct compiled c = compile_on("node:4 dp:2", BOTH, keys);
    struct cost_provider *p = provider_analytic(cl, &err);
    struct cost cost;
    struct simulation sim;
    double us = NAN;
    cost_init(&cost, p, cl);
    if (p && simulate_program(c.g, &cost, NULL, &sim, &err) == 0) {
        us = sim.time_us;
        *update_us = sim.stages[0].update_us;
        if (fabs(estimate_program_us(c.g, &cost) / us - 1) > 1e-9)
            ok(0, "estimate %g, simulated %g", estimate_program_us(c.g, &cost), us);
        simulation_release(&sim);
    }
    cost_release(&cost);
    provider_destroy(p);
    compiled_release(&c);
    return us;
}

static bool near(double a, double b) {
    return fabs(a / b - 1) < 1e-6;
}

static void test_times(void) {
    static const char nodes[] =
        "{'format': 'weft-cluster/1', 'nodes': 4, 'devices_per_node': 2, 'device': 'slow',"
        " 'flops': 1e12, 'bandwidth': 1e11, 'latency_us': 5, 'links': ["
        " {'level': 'node', 'bandwidth': 5e10, 'latency_us': 2},"
        " {'level': 'cross', 'bandwidth': 1e8, 'latency_us': 50}]}";
    struct err err = {0};
    struct cluster cl;
    json_t *doc = json_of(nodes, &err);
    double u[4] = {0}, t[4];
    if (!doc || cluster_from_json(&cl, doc, &err) < 0) {
        ok(0, "a cluster: %s", err.msg);
        return;
    }
    json_decref(doc);
    t[0] = step_us(&cl, " 'average': 'all',", &u[0]);
    t[1] = step_us(&cl, " 'average': 'all', 'average_every': 4,", &u[1]);
    t[2] = step_us(&cl, " 'average': 'all', 'average_every': 16,", &u[2]);
    t[3] = step_us(&cl, "", &u[3]);
    const double mean = (u[0] - u[2]) * 16 / 15;
    ok(near(u[0] - u[1], mean * 3 / 4) && near(t[0] - t[2], u[0] - u[2]),
       "a mean every K steps costs each a K-th: %.0f, %.0f, %.0f us", u[0], u[1], u[2]);
    ok(t[0] > t[3] && t[2] < t[3] / 2, "rarely enough, that beats sums over slow links");

    /* All that is kept, over the slow link: 2 flows of a node that each may go anywhere. */
    struct compiled c = compile_on("node:4 dp:2", BOTH, " 'average': 'pairs',");
    const double bytes = (double)bytes_kept(c.g->stages);
    const int swaps = count(c.g->stages, SEG_PAIR, I_swap);
    compiled_release(&c);
    double pairs[2];
    step_us(&cl, " 'average': 'pairs',", &pairs[0]);
    step_us(&cl, " 'average': 'pairs', 'average_every': 2,", &pairs[1]);
    const double swap = 2 * (pairs[0] - pairs[1]);
    const double wire = bytes / (1e8 / 2 * 7 / 6) * 1e6 + 50 * swaps;
    ok(swap > wire && swap < 1.05 * wire,
       "a swap takes what the fullest link needs, %.0f us of %.0f", wire, swap);
}

int main(void) {
    test_program();
    test_parts();
    test_times();
    return done_testing();
}
