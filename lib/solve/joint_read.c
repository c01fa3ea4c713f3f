/* joint_read.c - Piper's documents, as they are or wrapped with overrides:
 *
 *   {"format": "weft-problem/1", "problem": "joint", "instance": {...Piper's...},
 *    "max_devices": 64, "max_memory_per_device": 2147483648, "bandwidth": 26843545600,
 *    "samples_in_batch": 1920, "max_data_degree": 1, "max_tensor_degree": 1,
 *    "exclude": ["activation recomp"]}
 *
 * Everything but the instance is optional.
 */
#include "solve/joint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES   4096
#define MAX_DEVICES 16384

struct reader {
    struct joint_problem *p;
    const json_t *exclude;
    int64_t max_tensor;
    struct err *err;
};

static int node_index(const struct joint_problem *p, int64_t id) {
    for (int i = 0; i < p->nodes; i++)
        if (p->node[i].id == id)
            return i;
    return -1;
}

/* A key of a JSON object that is a number. */
static int64_t key_number(const char *key) {
    char *end;
    int64_t v = strtoll(key, &end, 10);
    return *key && !*end && v >= 0 ? v : -1;
}

/* ---- edges ----------------------------------------------------------------------- */

static int read_edge(struct reader *r, const json_t *v, int *from, int *to, double *bytes) {
    int64_t s, t;
    if (json_keys(v, "sourceId destId communicationCost", r->err) < 0 ||
        json_int(v, "sourceId", 0, INT64_MAX, &s, r->err) < 0 ||
        json_int(v, "destId", 0, INT64_MAX, &t, r->err) < 0 ||
        json_num(v, "communicationCost", 0, 1e200, bytes, r->err) < 0)
        return -1;
    *from = node_index(r->p, s);
    *to = node_index(r->p, t);
    if (*from < 0)
        return err_input(r->err, "sourceId: no node has the id %lld", (long long)s);
    if (*to < 0)
        return err_input(r->err, "destId: no node has the id %lld", (long long)t);
    if (*from == *to)
        return err_input(r->err, "destId: node %lld feeds itself", (long long)s);
    for (int i = 0; i < r->p->node[*from].num_out; i++)
        if (r->p->node[*from].out[i].node == *to)
            return err_input(r->err, "sourceId: a second edge from %lld to %lld",
                             (long long)s, (long long)t);
    return 0;
}

static void add_edge(struct joint_problem *p, struct joint_edge **list, int *n, int node,
                     double bytes) {
    if (!(*n & (*n - 1))) { /* room doubles at every power of two */
        struct joint_edge *more =
            arena_array(&p->arena, (size_t)(*n ? 2 * *n : 1), sizeof *more);
        memcpy(more, *list ? *list : more, (size_t)*n * sizeof *more);
        *list = more;
    }
    (*list)[(*n)++] = (struct joint_edge){node, bytes};
}

static int read_edges(struct reader *r, const json_t *doc) {
    json_t *list;
    if (json_array_member(doc, "edges", &list, r->err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int from, to;
        double bytes;
        if (read_edge(r, json_array_get(list, i), &from, &to, &bytes) < 0)
            return err_at(r->err, "edges[%zu]", i);
        struct joint_node *a = &r->p->node[from], *b = &r->p->node[to];
        add_edge(r->p, &a->out, &a->num_out, to, bytes);
        add_edge(r->p, &b->in, &b->num_in, from, bytes);
    }
    return 0;
}

/* Takes nodes without open predecessors away until none is left; what stays is a cycle. */
static int check_acyclic(const struct joint_problem *p, struct err *err) {
    int *open = mem_array((size_t)p->nodes, sizeof *open);
    int *ready = mem_array((size_t)p->nodes, sizeof *ready), n = 0, done = 0;
    for (int v = 0; v < p->nodes; v++)
        if (!(open[v] = p->node[v].num_in))
            ready[n++] = v;
    while (done < n) {
        const struct joint_node *v = &p->node[ready[done++]];
        for (int i = 0; i < v->num_out; i++)
            if (!--open[v->out[i].node])
                ready[n++] = v->out[i].node;
    }
    int bad = 0;
    while (bad < p->nodes && !open[bad])
        bad++;
    free(open);
    free(ready);
    return bad < p->nodes ? err_input(err, "edges: node %lld is on a cycle, or behind one",
                                      (long long)p->node[bad].id)
                          : 0;
}

/* ---- alternatives ---------------------------------------------------------------- */

/* Sync bytes per neighbour: exactly the neighbours must be named. */
static int read_sync(struct reader *r, const json_t *v, const char *key,
                     const struct joint_edge *edges, int n, double **out) {
    const json_t *obj = json_object_get(v, key), *x;
    const char *name;
    if (!json_is_object(obj))
        return err_input(r->err, "%s: expected an object, got %s", key,
                         json_type_name(obj));
    *out = arena_array(&r->p->arena, (size_t)n + 1, sizeof **out);
    for (int i = 0; i < n; i++)
        (*out)[i] = NAN;
    json_object_foreach((json_t *)obj, name, x) {
        int at = 0, node = node_index(r->p, key_number(name));
        while (at < n && edges[at].node != node)
            at++;
        double bytes = json_is_number(x) ? json_number_value(x) : NAN;
        if (at == n)
            return err_input(r->err, "%s: \"%.40s\" is not a neighbour of this node", key,
                             name);
        if (!(bytes >= 0 && bytes <= 1e200))
            return err_input(r->err, "%s.%.40s: expected bytes >= 0", key, name);
        (*out)[at] = bytes;
    }
    for (int i = 0; i < n; i++)
        if (isnan((*out)[i]))
            return err_input(r->err, "%s: neighbour %lld is missing", key,
                             (long long)r->p->node[edges[i].node].id);
    return 0;
}

static int read_choice(struct reader *r, const json_t *v, struct joint_node *node,
                       struct joint_choice *c) {
    if (!json_is_object(v))
        return err_input(r->err, "expected an object, got %s", json_type_name(v));
    if (json_str(v, "id", &c->id, r->err) < 0 ||
        json_num(v, "timePerSample", 0, 1e200, &c->p, r->err) < 0 ||
        json_num(v, "parameterSize", 0, 1e200, &c->w, r->err) < 0 ||
        json_num(v, "memoryUsageA", 0, 1e200, &c->a, r->err) < 0 ||
        json_num(v, "memoryUsageB", 0, 1e200, &c->b, r->err) < 0 ||
        read_sync(r, v, "syncTimeFw", node->in, node->num_in, &c->fw) < 0 ||
        read_sync(r, v, "syncTimeBw", node->out, node->num_out, &c->bw) < 0)
        return -1;
    return 0;
}

static bool excluded(const struct reader *r, const char *id) {
    for (size_t i = 0; i < json_array_size(r->exclude); i++)
        if (!strcmp(json_string_value(json_array_get(r->exclude, i)), id))
            return true;
    return false;
}

static int read_choices(struct reader *r, const json_t *v, struct joint_node *node) {
    const json_t *all = json_object_get(v, "TMPCs");
    size_t total = 0, n = 0;
    const char *key;
    json_t *list;
    json_object_foreach((json_t *)all, key, list) total += json_array_size(list);
    node->choices = arena_array(&r->p->arena, total + 1, sizeof *node->choices);
    node->first = arena_array(&r->p->arena, (size_t)r->p->num_degrees + 1, sizeof(int));
    for (int g = 0; g < r->p->num_degrees; g++) {
        char name[16];
        node->first[g] = (int)n;
        snprintf(name, sizeof name, "%d", r->p->degrees[g]);
        list = json_object_get(all, name);
        for (size_t i = 0; i < json_array_size(list); i++) {
            if (read_choice(r, json_array_get(list, i), node, &node->choices[n]) < 0)
                return err_at(r->err, "TMPCs.%s[%zu]", name, i);
            n += !excluded(r, node->choices[n].id);
        }
    }
    node->first[r->p->num_degrees] = (int)n;
    return 0;
}

/* ---- nodes ----------------------------------------------------------------------- */

static int add_degree(struct reader *r, const char *key) {
    struct joint_problem *p = r->p;
    int64_t t = key_number(key);
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)t);
    if (t < 1 || t > MAX_DEVICES || strcmp(name, key))
        return err_input(r->err, "TMPCs: expected tensor degrees as keys, got \"%.40s\"",
                         key);
    if (t > r->max_tensor || t > p->devices)
        return 0;
    int at = 0;
    while (at < p->num_degrees && p->degrees[at] < t)
        at++;
    if (at < p->num_degrees && p->degrees[at] == t)
        return 0;
    if (p->num_degrees == 64)
        return err_input(r->err, "TMPCs: more than 64 tensor degrees");
    memmove(p->degrees + at + 1, p->degrees + at,
            (size_t)(p->num_degrees - at) * sizeof *p->degrees);
    p->degrees[at] = (int)t;
    p->num_degrees++;
    return 0;
}

/* First look: ids and degrees. */
static int read_ids(struct reader *r, const json_t *list) {
    struct joint_problem *p = r->p;
    for (int i = 0; i < p->nodes; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        json_t *all, *x;
        const char *key;
        int64_t id;
        if (json_int(v, "id", 0, INT64_MAX, &id, r->err) < 0 ||
            json_object_member(v, "TMPCs", &all, r->err) < 0)
            return err_at(r->err, "nodes[%d]", i);
        p->node[i].id = -1;
        if (node_index(p, id) >= 0)
            return err_input(r->err, "nodes[%d].id: %lld appears twice", i, (long long)id);
        p->node[i].id = id;
        json_object_foreach(all, key, x) {
            if (!json_is_array(x))
                return err_input(r->err, "nodes[%d].TMPCs.%.40s: expected an array", i,
                                 key);
            if (add_degree(r, key) < 0)
                return err_at(r->err, "nodes[%d]", i);
        }
    }
    return 0;
}

static int read_graph(struct reader *r, const json_t *doc) {
    struct joint_problem *p = r->p;
    json_t *list;
    if (json_array_member(doc, "nodes", &list, r->err) < 0)
        return -1;
    if (json_array_size(list) < 1 || json_array_size(list) > MAX_NODES)
        return err_input(r->err, "nodes: expected 1 to %d of them", MAX_NODES);
    p->nodes = (int)json_array_size(list);
    p->node = arena_array(&p->arena, (size_t)p->nodes, sizeof *p->node);
    p->degrees = arena_array(&p->arena, 65, sizeof *p->degrees);
    for (int i = 0; i < p->nodes; i++)
        p->node[i].id = -1;
    if (read_ids(r, list) < 0 || read_edges(r, doc) < 0 || check_acyclic(p, r->err) < 0)
        return -1;
    for (int i = 0; i < p->nodes; i++)
        if (read_choices(r, json_array_get(list, (size_t)i), &p->node[i]) < 0)
            return err_at(r->err, "nodes[%d]", i);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------- */

static int read_overrides(struct reader *r, const json_t *doc, int64_t *devices,
                          double *memory, double *bandwidth, int64_t *samples,
                          int64_t *data) {
    if (json_format(doc, "weft-problem/1", r->err) < 0 ||
        json_keys(doc,
                  "format problem name comment instance max_devices "
                  "max_memory_per_device bandwidth samples_in_batch max_data_degree "
                  "max_tensor_degree exclude",
                  r->err) < 0 ||
        json_opt_int(doc, "max_devices", 1, MAX_DEVICES, devices, r->err) < 0 ||
        json_opt_num(doc, "max_memory_per_device", 1, 1e300, memory, r->err) < 0 ||
        json_opt_num(doc, "bandwidth", 1e-9, 1e300, bandwidth, r->err) < 0 ||
        json_opt_int(doc, "samples_in_batch", 1, INT64_C(1) << 40, samples, r->err) < 0 ||
        json_opt_int(doc, "max_data_degree", 1, MAX_DEVICES, data, r->err) < 0 ||
        json_opt_int(doc, "max_tensor_degree", 1, MAX_DEVICES, &r->max_tensor, r->err) < 0)
        return -1;
    r->exclude = json_object_get(doc, "exclude");
    for (size_t i = 0; i < json_array_size(r->exclude); i++)
        if (!json_is_string(json_array_get(r->exclude, i)))
            return err_input(r->err, "exclude[%zu]: expected a string", i);
    if (r->exclude && !json_is_array(r->exclude))
        return err_input(r->err, "exclude: expected an array of ids");
    return 0;
}

int joint_read(struct joint_problem *p, const json_t *doc, struct err *err) {
    struct reader r = {.p = p, .max_tensor = MAX_DEVICES, .err = err};
    int64_t devices = -1, samples = -1, data = MAX_DEVICES;
    double memory = -1, bandwidth = -1;
    json_t *instance = (json_t *)doc;
    bool wrapped = json_object_get(doc, "instance") != NULL;
    *p = (struct joint_problem){.deadline_s = INFINITY};
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (wrapped &&
        (read_overrides(&r, doc, &devices, &memory, &bandwidth, &samples, &data) < 0 ||
         json_object_member(doc, "instance", &instance, err) < 0))
        return -1;
    int bad =
        (devices < 0 && json_int(instance, "maxDevices", 1, MAX_DEVICES, &devices, err)) ||
        (memory < 0 &&
         json_num(instance, "maxMemoryPerDevice", 1e-9, 1e300, &memory, err)) ||
        (bandwidth < 0 && json_num(instance, "bandwidth", 1e-9, 1e300, &bandwidth, err)) ||
        (samples < 0 &&
         json_int(instance, "mbsInBatch", 1, INT64_C(1) << 40, &samples, err));
    p->devices = (int)devices;
    p->samples = samples;
    p->capacity = memory;
    p->bandwidth = bandwidth;
    p->max_data = (int)data;
    p->limit_s = (int)(samples < devices ? samples : devices);
    if (bad || read_graph(&r, instance) < 0) {
        if (wrapped)
            err_at(err, "instance");
        joint_release(p);
        return -1;
    }
    return 0;
}

void joint_release(struct joint_problem *p) {
    arena_release(&p->arena);
    *p = (struct joint_problem){0};
}
