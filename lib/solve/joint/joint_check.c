/* joint_check.c - computes a joint answer again, from the two documents alone.
 *
 * Shares no code with the solver: the cost formula of joint.h is written down a second
 * time, over the documents, edge by edge.
 */
#include "solve/joint/joint.h"

#include <math.h>
#include <string.h>

#define TOL 1e-9

static double num(const json_t *v, double otherwise) {
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* Returns a parameter of the instance, or what the wrapper says instead. */
static double parameter(const struct joint_doc *doc, const char *wrapper, const char *own) {
    double x = num(json_object_get(doc->instance, own), NAN);
    return doc->instance == doc->rest ? x : num(json_object_get(doc->rest, wrapper), x);
}

static const struct joint_doc_node *find_node(const struct joint_doc *doc, int64_t id) {
    for (int64_t i = 0; i < doc->nodes.n; i++)
        if (doc->nodes.p[i].id == id)
            return &doc->nodes.p[i];
    return NULL;
}

static bool holds(const json_t *stage, int64_t id) {
    const json_t *nodes = json_object_get(stage, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++)
        if (json_integer_value(json_array_get(nodes, i)) == id)
            return true;
    return false;
}

struct params {
    const struct joint_doc *doc;
    const json_t *exclude;
    double devices, capacity, bandwidth, samples;
};

/* Returns the alternative that the answer names. */
static const struct joint_alternative *find_choice(const struct params *q, int64_t node,
                                                   int t, const char *id) {
    const struct joint_doc_node *v = find_node(q->doc, node);
    for (size_t i = 0; i < json_array_size(q->exclude); i++)
        if (!strcmp(json_string_value(json_array_get(q->exclude, i)), id))
            return NULL;
    for (int i = 0; v && i < v->n; i++)
        if (v->choices[i].degree == t && !strcmp(v->choices[i].id, id))
            return &v->choices[i];
    return NULL;
}

static double sync_bytes(const struct joint_sync *sync, int n, int64_t node) {
    for (int i = 0; i < n; i++)
        if (sync[i].node == node)
            return sync[i].bytes;
    return NAN;
}

/* Adds up the bytes over the edges of a node that leave the stage, sync bytes of its
 * choice included. */
static double bytes_out(const struct params *q, const json_t *stage, int64_t id,
                        const struct joint_alternative *choice) {
    double bytes = 0;
    for (int64_t i = 0; i < q->doc->edges.n; i++) {
        const struct joint_doc_edge *e = &q->doc->edges.p[i];
        int64_t other = e->from == id ? e->to : e->from;
        if ((e->from != id && e->to != id) || holds(stage, other))
            continue;
        bytes += e->bytes + (e->from == id ? sync_bytes(choice->bw, choice->num_bw, other)
                                           : sync_bytes(choice->fw, choice->num_fw, other));
    }
    return bytes;
}

static int stage_cost(const struct params *q, const json_t *stage, double s, double *time,
                      struct err *err) {
    const json_t *nodes = json_object_get(stage, "nodes");
    const json_t *choices = json_object_get(stage, "choices");
    int t = (int)json_integer_value(json_object_get(stage, "tensor_degree"));
    double d = num(json_object_get(stage, "data_degree"), NAN), memory = 0;
    *time = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        int64_t id = json_integer_value(json_array_get(nodes, i));
        const char *name = json_string_value(json_array_get(choices, i));
        const struct joint_alternative *c = find_choice(q, id, t, name ? name : "");
        if (!c)
            return err_no(err, "node %lld has no such alternative", (long long)id);
        double comm =
            2 * bytes_out(q, stage, id, c) / d + 4 * (d - 1) * c->params / (d * q->samples);
        *time += c->time / d + comm / q->bandwidth;
        memory += c->memory_a * ceil(s / d) + c->memory_b;
    }
    if (!(memory <= q->capacity * (1 + TOL)))
        return err_no(err, "a stage takes %g of %g bytes", memory, q->capacity);
    if (fmod(q->samples, d) != 0)
        return err_no(err, "data degree %g does not divide the batch", d);
    return 0;
}

/* Returns whether the edge goes from a later stage to an earlier one. */
static bool goes_back(const json_t *stages, const struct joint_doc_edge *e) {
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *stage = json_array_get(stages, i);
        if (holds(stage, e->from))
            return false;
        if (holds(stage, e->to))
            return true;
    }
    return true;
}

/* Checks that every node is there once, and that no edge goes from a later stage to an
 * earlier one. */
static int check_order(const struct params *q, const json_t *stages, struct err *err) {
    int64_t placed = 0;
    for (size_t i = 0; i < json_array_size(stages); i++)
        placed +=
            (int64_t)json_array_size(json_object_get(json_array_get(stages, i), "nodes"));
    for (int64_t v = 0; v < q->doc->nodes.n; v++) {
        int64_t id = q->doc->nodes.p[v].id;
        int times = 0;
        for (size_t i = 0; i < json_array_size(stages); i++)
            times += holds(json_array_get(stages, i), id);
        if (times != 1)
            return err_no(err, "node %lld is in %d stages", (long long)id, times);
    }
    if (placed != q->doc->nodes.n)
        return err_no(err, "%lld places for %lld nodes", (long long)placed,
                      (long long)q->doc->nodes.n);
    for (int64_t e = 0; e < q->doc->edges.n; e++)
        if (goes_back(stages, &q->doc->edges.p[e]))
            return err_no(err, "edge %lld to %lld goes back",
                          (long long)q->doc->edges.p[e].from,
                          (long long)q->doc->edges.p[e].to);
    return 0;
}

int joint_check(const struct joint_doc *doc, const json_t *answer, double *value,
                struct err *err) {
    const json_t *stages = json_object_get(answer, "stages");
    bool wrapped = doc->instance != doc->rest;
    struct params q = {doc,
                       wrapped ? json_object_get(doc->rest, "exclude") : NULL,
                       parameter(doc, "max_devices", "maxDevices"),
                       parameter(doc, "max_memory_per_device", "maxMemoryPerDevice"),
                       parameter(doc, "bandwidth", "bandwidth"),
                       parameter(doc, "samples_in_batch", "mbsInBatch")};
    double devices = 0, s = 0;
    *value = 0;
    if (check_order(&q, stages, err) < 0)
        return -1;
    for (size_t i = json_array_size(stages); i-- > 0;) { /* s counts from the end */
        const json_t *st = json_array_get(stages, i);
        double time, d = num(json_object_get(st, "data_degree"), NAN);
        s += d;
        devices += d * num(json_object_get(st, "tensor_degree"), NAN);
        if (stage_cost(&q, st, s, &time, err) < 0)
            return -1;
        *value = fmax(*value, time);
    }
    if (!(devices <= q.devices) || !(s <= q.samples))
        return err_no(err, "%g of %g devices, %g of %g samples", devices, q.devices, s,
                      q.samples);
    return 0;
}
