/* search-random.h - random small problems of the search: chains and DAGs of a few ops, and
 * clusters for them.
 *
 *     rng = (struct rng){seed, 0};
 *     struct model *m = legal_model(4);
 *     struct cluster c;
 *     if (random_cluster(2, 1, &c)) ...          // two nodes of one device
 *
 * All is drawn from `rng`, so it is the same for the same seed. */
#ifndef WEFT_TEST_SEARCH_RANDOM_H
#define WEFT_TEST_SEARCH_RANDOM_H

#include "common/rng.h"
#include "model/model.h"
#include "plan/cluster.h"

#include <math.h>
#include <stdio.h>

static struct rng rng;

static int64_t draw(int64_t below) {
    return rng_below(&rng, below);
}

/* ---- models ------------------------------------------------------------------------------ */

static const char *const dims[] = {"p", "q", "r"};

struct value {
    char name[8];
    int dim;
};

/* Adds an op that reads one value, or two of the same dims. */
static json_t *random_op(const struct value *values, int n, int number,
                         struct value *made) {
    const struct value *x = &values[draw(3) ? n - 1 : draw(n)], *z = NULL;
    json_t *op = json_object();
    char name[8];
    snprintf(name, sizeof name, "o%d", number);
    snprintf(made->name, sizeof made->name, "v%d", number);
    made->dim = x->dim;
    for (int i = 0; i < n; i++)
        if (&values[i] != x && values[i].dim == x->dim)
            z = &values[i];
    int kind = (int)draw(4);
    json_object_set_new(op, "name", json_string(name));
    json_object_set_new(op, "in", json_pack("[s]", x->name));
    if (kind == 0) {
        json_object_set_new(op, "kind", json_string("relu"));
    } else if (kind == 1 && z) {
        json_object_set_new(op, "kind", json_string("add"));
        json_array_append_new(json_object_get(op, "in"), json_string(z->name));
    } else if (kind == 2) {
        json_object_set_new(op, "kind", json_string("layernorm"));
        json_object_set_new(op, "weight", json_pack("{s:[s]}", "dims", dims[x->dim]));
        json_object_set_new(op, "bias", json_pack("{s:[s]}", "dims", dims[x->dim]));
    } else {
        made->dim = (x->dim + 1 + (int)draw(2)) % 3;
        json_object_set_new(op, "kind", json_string("einsum"));
        json_object_set_new(op, "weight",
                            json_pack("{s:[s,s]}", "dims", dims[x->dim], dims[made->dim]));
    }
    json_object_set_new(op, "out", json_string(made->name));
    json_object_set_new(op, "dims", json_pack("[s,s]", "batch", dims[made->dim]));
    return op;
}

/* Two blocks that may be recomputed. */
static json_t *blocks(void) {
    return json_pack(
        "{s:s, s:i, s:[{s:s, s:s, s:[s], s:s, s:[s,s], s:{s:[s,s]}}, {s:s, s:s, "
        "s:[s], s:s, s:[s,s], s:{s:[s,s]}}]}",
        "name", "layer", "repeat", 2, "ops", "name", "a", "kind", "einsum", "in", "image",
        "out", "h", "dims", "batch", "q", "weight", "dims", "p", "q", "name", "b", "kind",
        "einsum", "in", "h", "out", "image", "dims", "batch", "p", "weight", "dims", "q",
        "p");
}

static json_t *random_model(int n_ops) {
    static const int sizes[] = {8, 12, 16, 24};
    struct value values[8] = {{"image", 0}};
    json_t *ops = json_array();
    int n = 1;
    if (n_ops == 0) {
        json_array_append_new(ops, blocks());
        n_ops = 2;
    }
    for (; n < n_ops - 1; n++)
        json_array_append_new(ops, random_op(values, n, n, &values[n]));
    json_array_append_new(ops,
                          json_pack("{s:s, s:s, s:[s], s:s, s:[s,s], s:{s:[s,s]}}", "name",
                                    "head", "kind", "einsum", "in", values[n - 1].name,
                                    "out", "logits", "dims", "batch", "classes", "weight",
                                    "dims", dims[values[n - 1].dim], "classes"));
    json_array_append_new(ops, json_pack("{s:s, s:s, s:[s,s], s:s, s:[]}", "name", "loss",
                                         "kind", "cross-entropy", "in", "logits", "label",
                                         "out", "loss", "dims"));
    return json_pack(
        "{s:s, s:s, s:{s:i, s:i, s:i, s:i}, s:{s:{s:[s,s], s:s}, s:{s:[s], s:s}}, s:o}",
        "format", "weft-model/1", "name", "random", "sizes", "p", sizes[draw(4)], "q",
        sizes[draw(4)], "r", sizes[draw(4)], "classes", sizes[draw(4)], "inputs", "image",
        "dims", "batch", "p", "source", "image", "label", "dims", "batch", "source",
        "label", "ops", ops);
}

/* Drawn until it is one: where a result is not used it is none. */
__attribute__((unused)) static struct model *legal_model(int n_ops) {
    struct model *m = NULL;
    while (!m) {
        json_t *doc = random_model(n_ops);
        m = model_from_json(doc, NULL, NULL, NULL);
        json_decref(doc);
    }
    return m;
}

/* ---- clusters ---------------------------------------------------------------------------- */

/* Takes the document over; false, and said, where it is no cluster. */
static bool cluster_of(json_t *doc, struct cluster *out) {
    struct err err = {0};
    bool good = cluster_from_json(out, doc, &err) == 0;
    if (!good)
        printf("# %s\n", err.msg);
    json_decref(doc);
    return good;
}

__attribute__((unused)) static bool random_cluster(int nodes, int devices,
                                                   struct cluster *out) {
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:s, s:{s:f, s:f}, s:f, s:f, s:[{s:s, s:f, s:f}, {s:s, s:f, s:f}]}",
        "format", "weft-cluster/1", "nodes", nodes, "devices_per_node", devices, "device",
        "toy", "flops", "f32", 1e9 * exp2((double)draw(4)), "bf16",
        4e9 * exp2((double)draw(4)), "bandwidth", 1e9 * exp2((double)draw(4)), "latency_us",
        0.1 * (double)draw(5), "links", "level", "node", "bandwidth",
        1e8 * exp2((double)draw(6)), "latency_us", 0.2 * (double)draw(6), "level",
        "between", "bandwidth", 1e8 * exp2((double)draw(6)), "latency_us",
        0.5 * (double)draw(6));
    return cluster_of(doc, out);
}

/* Two kinds of devices, a node of each, which differ in speed, memory and links. */
__attribute__((unused)) static bool random_kinds(int first, int second,
                                                 struct cluster *out) {
    json_t *groups = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(
            groups,
            json_pack("{s:i, s:i, s:s, s:{s:f}, s:f, s:f, s:[{s:s, s:f, s:f}]}", "nodes", 1,
                      "devices", i ? second : first, "device", i ? "slow" : "fast", "flops",
                      "f32", 1e9 * exp2((double)draw(4)), "bandwidth",
                      1e9 * exp2((double)draw(4)), "latency_us", 0.1 * (double)draw(5),
                      "links", "level", "node", "bandwidth", 1e8 * exp2((double)draw(6)),
                      "latency_us", 0.2 * (double)draw(6)));
    json_t *doc =
        json_pack("{s:s, s:o, s:[{s:s, s:f, s:f}]}", "format", "weft-cluster/1", "groups",
                  groups, "links", "level", "between", "bandwidth",
                  1e8 * exp2((double)draw(6)), "latency_us", 0.5 * (double)draw(6));
    return cluster_of(doc, out);
}

#endif
