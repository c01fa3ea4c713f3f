/* joint_read.c - Piper's documents, as they are or wrapped with overrides:
 *
 *   {"format": "weft-problem/1", "problem": "joint", "instance": {...Piper's...},
 *    "max_devices": 64, "max_memory_per_device": 2147483648, "bandwidth": 26843545600,
 *    "samples_in_batch": 1920, "max_data_degree": 1, "max_tensor_degree": 1,
 *    "exclude": ["activation recomp"]}
 *
 * Everything but the instance is optional. joint_doc.c has packed it. Here the ends of
 * edges and the neighbours are found, and what is excluded or too wide is left out.
 */
#include "solve/joint/joint.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES JOINT_MOST_DEVICES

struct reader {
    struct joint_problem *p;
    const struct joint_doc *doc;
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

/* ---- edges ----------------------------------------------------------------------- */

static int find_ends(struct reader *r, const struct joint_doc_edge *e, int *from, int *to) {
    *from = node_index(r->p, e->from);
    *to = node_index(r->p, e->to);
    if (*from < 0)
        return err_input(r->err, "sourceId: no node has the id %lld", (long long)e->from);
    if (*to < 0)
        return err_input(r->err, "destId: no node has the id %lld", (long long)e->to);
    if (*from == *to)
        return err_input(r->err, "destId: node %lld feeds itself", (long long)e->from);
    for (int i = 0; i < r->p->node[*from].num_out; i++)
        if (r->p->node[*from].out[i].node == *to)
            return err_input(r->err, "sourceId: a second edge from %lld to %lld",
                             (long long)e->from, (long long)e->to);
    return 0;
}

static void add_edge(struct joint_problem *p, struct joint_edge **list, int *n, int node,
                     double bytes) {
    if (!(*n & (*n - 1))) { /* the array doubles at every power of two */
        struct joint_edge *more =
            arena_array(&p->arena, (size_t)(*n ? 2 * *n : 1), sizeof *more);
        memcpy(more, *list ? *list : more, (size_t)*n * sizeof *more);
        *list = more;
    }
    (*list)[(*n)++] = (struct joint_edge){node, bytes};
}

static int add_edges(struct reader *r) {
    for (int64_t i = 0; i < r->doc->edges.n; i++) {
        const struct joint_doc_edge *e = &r->doc->edges.p[i];
        int from, to;
        if (find_ends(r, e, &from, &to) < 0)
            return err_at(r->err, "edges[%lld]", (long long)i);
        struct joint_node *a = &r->p->node[from], *b = &r->p->node[to];
        add_edge(r->p, &a->out, &a->num_out, to, e->bytes);
        add_edge(r->p, &b->in, &b->num_in, from, e->bytes);
    }
    return 0;
}

/* Removes nodes without open predecessors until none is left. What stays lies on a cycle or
 * behind one. */
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

/* Puts sync bytes in the order of the edges; exactly the neighbours must be named. */
static int match_sync(struct reader *r, const char *key, const struct joint_sync *sync,
                      int named, const struct joint_edge *edges, int n, double **out) {
    *out = arena_array(&r->p->arena, (size_t)n + 1, sizeof **out);
    for (int i = 0; i < n; i++)
        (*out)[i] = NAN;
    for (int s = 0; s < named; s++) {
        int at = 0, node = node_index(r->p, sync[s].node);
        while (at < n && edges[at].node != node)
            at++;
        if (at == n)
            return err_input(r->err, "%s: \"%lld\" is not a neighbour of this node", key,
                             (long long)sync[s].node);
        (*out)[at] = sync[s].bytes;
    }
    for (int i = 0; i < n; i++)
        if (isnan((*out)[i]))
            return err_input(r->err, "%s: neighbour %lld is missing", key,
                             (long long)r->p->node[edges[i].node].id);
    return 0;
}

static bool excluded(const struct reader *r, const char *id) {
    for (size_t i = 0; i < json_array_size(r->exclude); i++)
        if (!strcmp(json_string_value(json_array_get(r->exclude, i)), id))
            return true;
    return false;
}

static int add_choice(struct reader *r, const struct joint_alternative *a,
                      struct joint_node *node, struct joint_choice *c) {
    *c = (struct joint_choice){
        .id = a->id, .p = a->time, .w = a->params, .a = a->memory_a, .b = a->memory_b};
    if (match_sync(r, "syncTimeFw", a->fw, a->num_fw, node->in, node->num_in, &c->fw) < 0 ||
        match_sync(r, "syncTimeBw", a->bw, a->num_bw, node->out, node->num_out, &c->bw) < 0)
        return err_at(r->err, "TMPCs.%d[%d]", a->degree, a->at);
    return 0;
}

/* Adds choices by rising degree, those of one degree in the order of the document. */
static int add_choices(struct reader *r, const struct joint_doc_node *from,
                       struct joint_node *node) {
    int n = 0;
    node->choices = arena_array(&r->p->arena, (size_t)from->n + 1, sizeof *node->choices);
    node->first = arena_array(&r->p->arena, (size_t)r->p->num_degrees + 1, sizeof(int));
    for (int g = 0; g < r->p->num_degrees; g++) {
        node->first[g] = n;
        for (int i = 0; i < from->n; i++) {
            const struct joint_alternative *a = &from->choices[i];
            if (a->degree != r->p->degrees[g])
                continue;
            if (add_choice(r, a, node, &node->choices[n]) < 0)
                return -1;
            n += !excluded(r, a->id);
        }
    }
    node->first[r->p->num_degrees] = n;
    return 0;
}

/* ---- nodes ----------------------------------------------------------------------- */

static int add_degree(struct reader *r, int t) {
    struct joint_problem *p = r->p;
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
    p->degrees[at] = t;
    p->num_degrees++;
    return 0;
}

static int add_graph(struct reader *r) {
    struct joint_problem *p = r->p;
    const struct joint_doc *doc = r->doc;
    json_t *list;
    if (!json_object_get(doc->instance, "nodes"))
        return json_array_member(doc->instance, "nodes", &list, r->err);
    if (!json_object_get(doc->instance, "edges"))
        return json_array_member(doc->instance, "edges", &list, r->err);
    if (doc->nodes.n < 1)
        return err_input(r->err, "nodes: expected 1 to %d of them", JOINT_MOST_NODES);
    p->nodes = (int)doc->nodes.n;
    p->node = arena_array(&p->arena, (size_t)p->nodes, sizeof *p->node);
    p->degrees = arena_array(&p->arena, 65, sizeof *p->degrees);
    for (int i = 0; i < p->nodes; i++) {
        p->node[i].id = doc->nodes.p[i].id;
        for (int c = 0; c < doc->nodes.p[i].n; c++)
            if (add_degree(r, doc->nodes.p[i].choices[c].degree) < 0)
                return err_at(r->err, "nodes[%d]", i);
    }
    if (add_edges(r) < 0 || check_acyclic(p, r->err) < 0)
        return -1;
    for (int i = 0; i < p->nodes; i++)
        if (add_choices(r, &doc->nodes.p[i], &p->node[i]) < 0)
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

int joint_read(struct joint_problem *p, const struct joint_doc *doc, struct err *err) {
    struct reader r = {.p = p, .doc = doc, .max_tensor = MAX_DEVICES, .err = err};
    int64_t devices = -1, samples = -1, data = MAX_DEVICES;
    double memory = -1, bandwidth = -1;
    const json_t *instance = doc->instance;
    bool wrapped = instance != doc->rest;
    *p = (struct joint_problem){.deadline_s = INFINITY};
    if (wrapped &&
        read_overrides(&r, doc->rest, &devices, &memory, &bandwidth, &samples, &data) < 0)
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
    if (bad || add_graph(&r) < 0) {
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

bool joint_stopped(const struct joint_problem *p) {
    return interrupted() || now_s() >= p->deadline_s;
}

double joint_sync_factor(const struct joint_problem *p) {
    return 4 / ((double)p->samples * p->bandwidth);
}
