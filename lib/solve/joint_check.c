/* joint_check.c - works a joint answer out again, from the two documents alone.
 *
 * Shares no code with the reader or the solver: the cost formula of joint.h is written down
 * a second time, over the JSON, edge by edge.
 */
#include "solve/joint.h"

#include <math.h>
#include <string.h>

#define TOL 1e-9

static double num(const json_t *v, double otherwise) {
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* A parameter of the instance, or what the wrapper says instead. */
static double parameter(const json_t *doc, const char *wrapper, const char *own) {
    const json_t *instance = json_object_get(doc, "instance");
    double x = num(json_object_get(instance ? instance : doc, own), NAN);
    return instance ? num(json_object_get(doc, wrapper), x) : x;
}

static const json_t *find_node(const json_t *instance, int64_t id) {
    const json_t *list = json_object_get(instance, "nodes");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_object_get(json_array_get(list, i), "id")) == id)
            return json_array_get(list, i);
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
    const json_t *instance, *exclude;
    double devices, capacity, bandwidth, samples;
};

/* The alternative that the answer names. */
static const json_t *find_choice(const struct params *q, const json_t *node, int t,
                                 const char *id) {
    char key[16];
    snprintf(key, sizeof key, "%d", t);
    const json_t *list = json_object_get(json_object_get(node, "TMPCs"), key);
    for (size_t i = 0; i < json_array_size(q->exclude); i++)
        if (!strcmp(json_string_value(json_array_get(q->exclude, i)), id))
            return NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        if (!strcmp(json_string_value(json_object_get(c, "id")), id))
            return c;
    }
    return NULL;
}

/* Bytes over the edges of a node that leave the stage, sync bytes of its choice included.
 */
static double bytes_out(const struct params *q, const json_t *stage, int64_t id,
                        const json_t *choice) {
    const json_t *edges = json_object_get(q->instance, "edges");
    double bytes = 0;
    for (size_t i = 0; i < json_array_size(edges); i++) {
        const json_t *e = json_array_get(edges, i);
        int64_t from = json_integer_value(json_object_get(e, "sourceId"));
        int64_t to = json_integer_value(json_object_get(e, "destId"));
        if ((from != id && to != id) || holds(stage, from == id ? to : from))
            continue;
        char other[24];
        snprintf(other, sizeof other, "%lld", (long long)(from == id ? to : from));
        const json_t *sync =
            json_object_get(choice, from == id ? "syncTimeBw" : "syncTimeFw");
        bytes += num(json_object_get(e, "communicationCost"), NAN) +
                 num(json_object_get(sync, other), NAN);
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
        const json_t *c = find_choice(q, find_node(q->instance, id), t, name ? name : "");
        if (!c)
            return err_system(err, "check: node %lld has no such alternative",
                              (long long)id);
        double w = num(json_object_get(c, "parameterSize"), NAN);
        double comm =
            2 * bytes_out(q, stage, id, c) / d + 4 * (d - 1) * w / (d * q->samples);
        *time += num(json_object_get(c, "timePerSample"), NAN) / d + comm / q->bandwidth;
        memory += num(json_object_get(c, "memoryUsageA"), NAN) * ceil(s / d) +
                  num(json_object_get(c, "memoryUsageB"), NAN);
    }
    if (!(memory <= q->capacity * (1 + TOL)))
        return err_system(err, "check: a stage takes %g of %g bytes", memory, q->capacity);
    if (fmod(q->samples, d) != 0)
        return err_system(err, "check: data degree %g does not divide the batch", d);
    return 0;
}

/* Every node once, and no edge from a later stage to an earlier one. */
static int check_order(const struct params *q, const json_t *stages, struct err *err) {
    const json_t *nodes = json_object_get(q->instance, "nodes");
    const json_t *edges = json_object_get(q->instance, "edges");
    size_t placed = 0;
    for (size_t i = 0; i < json_array_size(stages); i++)
        placed += json_array_size(json_object_get(json_array_get(stages, i), "nodes"));
    for (size_t v = 0; v < json_array_size(nodes); v++) {
        int64_t id = json_integer_value(json_object_get(json_array_get(nodes, v), "id"));
        int times = 0;
        for (size_t i = 0; i < json_array_size(stages); i++)
            times += holds(json_array_get(stages, i), id);
        if (times != 1)
            return err_system(err, "check: node %lld is in %d stages", (long long)id,
                              times);
    }
    if (placed != json_array_size(nodes))
        return err_system(err, "check: %zu places for %zu nodes", placed,
                          json_array_size(nodes));
    for (size_t e = 0; e < json_array_size(edges); e++) {
        const json_t *v = json_array_get(edges, e);
        int64_t from = json_integer_value(json_object_get(v, "sourceId"));
        int64_t to = json_integer_value(json_object_get(v, "destId"));
        bool seen = false;
        for (size_t i = 0; i < json_array_size(stages) && !seen; i++) {
            seen = holds(json_array_get(stages, i), to);
            if (seen && !holds(json_array_get(stages, i), from))
                for (size_t j = i + 1; j < json_array_size(stages); j++)
                    if (holds(json_array_get(stages, j), from))
                        return err_system(err, "check: edge %lld to %lld goes back",
                                          (long long)from, (long long)to);
        }
    }
    return 0;
}

int joint_check(const json_t *doc, const json_t *answer, double *value, struct err *err) {
    const json_t *instance = json_object_get(doc, "instance");
    const json_t *stages = json_object_get(answer, "stages");
    struct params q = {instance ? instance : doc,
                       instance ? json_object_get(doc, "exclude") : NULL,
                       parameter(doc, "max_devices", "maxDevices"),
                       parameter(doc, "max_memory_per_device", "maxMemoryPerDevice"),
                       parameter(doc, "bandwidth", "bandwidth"),
                       parameter(doc, "samples_in_batch", "mbsInBatch")};
    double devices = 0, s = 0, stated = num(json_object_get(answer, "value"), NAN);
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
        return err_system(err, "check: %g of %g devices, %g of %g samples", devices,
                          q.devices, s, q.samples);
    if (!(fabs(*value - stated) <= TOL * fmax(stated, 1e-300)))
        return err_system(err, "check: the value is %.17g, not %.17g", *value, stated);
    if (num(json_object_get(answer, "bound"), NAN) > *value * (1 + TOL))
        return err_system(err, "check: the bound exceeds the value");
    return 0;
}
