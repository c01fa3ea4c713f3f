/* search-machine.h - invented profiles, as a roofline would be: work over a rate, bytes over a link.
 *
 *     struct cost_provider *times = invent(model, &v100, &problem, folder);
 *     provider_destroy(times);
 */
#ifndef WEFT_TEST_SEARCH_MACHINE_H
#define WEFT_TEST_SEARCH_MACHINE_H

#include "search/search.h"

#include "cost/enumerate.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* A machine: work per microsecond, and what a message costs. */
struct machine {
    double flops_us, bytes_us, latency_us;
    double node_bytes_us, node_latency_us, cross_bytes_us, cross_latency_us;
};

static const struct machine fast = {1e3, 2e3, 0.5, 1e4,
                                    0.5, 2e3, 2}, /* for models of toy size */
    slow = {1e3, 2e3, 0.5, 20, 5, 5, 20}, v100 = {1e8, 8e5, 5, 4e4, 10, 5e3, 20};

static double op_us(const struct machine *mc, const struct instr_key *k) {
    double n = 1, flops = 0;
    int rank = opcode_key(k->code) == KEY_CURVE ? 1 : instr_info(k->code)->n_shape;
    bool matrix = k->code == I_linear || k->code == I_linear_dx || k->code == I_linear_dw;
    bool attention = k->code == I_attention || k->code == I_attention_bwd;
    for (int i = 0; i < rank && i < (matrix ? 3 : 2); i++)
        n *= (double)(k->n.v[i] > 0 ? k->n.v[i] : 1);
    double m = (double)k->n.v[0], w = (double)k->n.v[1], d = (double)k->n.v[2];
    if (matrix) {
        flops = 2 * n;
        n = m * w + w * d + m * d;
    } else if (attention) {
        const struct attention_n *t = &k->n.attention;
        n = (double)(t->batch * t->heads * t->seq * t->dim);
        flops = (k->code == I_attention ? 4 : 10) * n * (double)t->kv_seq;
    }
    return mc->latency_us + fmax(flops / mc->flops_us, 4 * n / mc->bytes_us);
}

static int put_ops(struct profile *p, const struct machine *mc, const struct enumeration *e,
                   struct err *err) {
    for (int64_t i = 0; i < e->n; i++) {
        char shape[160];
        struct profile_op row = {
            .device = "test",
            .instr = opcode_name(e->p[i].code),
            .shape = instr_shape_format(e->p[i].code, &e->p[i].n, shape, sizeof shape),
            .dtype = "f32",
            .median_us = op_us(mc, &e->p[i]),
            .source = "roofline"};
        if (profile_put_op(p, &row, err) < 0)
            return -1;
    }
    return 0;
}

static int put_comm(struct profile *p, const struct machine *mc, int devices, int64_t most,
                    struct err *err) {
    static const char *const names[] = {"p2p", "all_gather", "all_reduce", "reduce_scatter",
                                        "all_to_all"};
    for (int i = 0; i < 2 * 5 * (devices - 1); i++) {
        int cross = i % 2, kind = i / 2 % 5, g = i / 10 + 2;
        if (kind == 0 && g > 2)
            continue;
        double share = kind ? (double)(g - 1) / g * (kind == 2 ? 2 : 1) : 1;
        for (int64_t bytes = 16; bytes < 16 * most; bytes *= 16) {
            double rate = cross ? mc->cross_bytes_us : mc->node_bytes_us;
            struct profile_comm row = {
                .device = "test",
                .collective = names[kind],
                .group_size = g,
                .stride = 1,
                .groups = 1,
                .link = cross ? "cross" : "node",
                .bytes = bytes,
                .median_us =
                    (cross ? mc->cross_latency_us : mc->node_latency_us) * log2(g) +
                    share * (double)bytes / rate,
                .source = "roofline"};
            if (profile_put_comm(p, &row, err) < 0)
                return -1;
        }
    }
    return 0;
}

static struct cost_provider *invent(const struct model *m, const struct machine *mc,
                                    const struct search_problem *p, const char *dir) {
    struct err err = {0};
    struct enumeration e;
    static int number;
    char path[256];
    snprintf(path, sizeof path, "%s/%d.db", dir, number++);
    struct profile *db = profile_open(path, true, &err);
    enumerate_model(m, p->micro, p->n_micro, p->devices, p->dtype, &e);
    struct profile_times *t = NULL;
    if (db && profile_begin(db, &err) == 0 && put_ops(db, mc, &e, &err) == 0 &&
        put_comm(db, mc, p->devices, e.largest_comm_bytes, &err) == 0 &&
        profile_commit(db, &err) == 0)
        t = profile_load(db, "test", &err);
    if (!t)
        printf("Bail out! %s\n", err.msg);
    enumeration_release(&e);
    profile_close(db);
    unlink(path);
    return t ? provider_profile(&t, 1) : NULL;
}

#endif
