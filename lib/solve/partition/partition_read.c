/* partition_read.c - the published JSON format of the device placement instances.
 *
 * Nodes and edges are packed as they come by. Edges that come before the nodes are stored
 * as they are until then. The others find their ends at once, and only these are kept. Keys
 * that the format does not define (names, layer ids) are allowed, as it says itself. Every
 * message names the place, so that a broken file can be mended.
 */
#include "solve/partition/partition.h"

#include "common/mem.h"
#include "solve/solve_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NODES 1000000
#define MOST_EDGES 10000000

/* An edge as the document has it. */
struct raw_edge {
    int64_t from, to; /* ids of nodes */
    double cost;
};

/* An integer that the document uses as a name, for a node or a colour, and its index.
 * Sorted by name, they find ids and colours. */
struct named {
    int64_t name;
    int32_t index;
};

struct reader {
    ARR(struct partition_node) nodes; /* colours by name */
    ARR(bool) colored;                /* of each node: it names a colour */
    struct named *ids;   /* of all nodes, sorted; NULL: they are still to come */
    int32_t *first_edge; /* of each node, as a source; -1: none */
    ARR(struct raw_edge) waiting;
    ARR(struct partition_edge) edges;
    double cost; /* sum over edges */
};

static int named_order(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int32_t named_find(const struct named *v, int32_t n, int64_t name) {
    int32_t lo = 0, hi = n;
    if (name >= 0 && name < n && v[name].name == name) /* ids are often 0, 1, ... */
        return v[name].index;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (v[mid].name < name)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && v[lo].name == name ? v[lo].index : -1;
}

/* Reads true, false, 0 or 1. */
static int read_flag(const json_t *obj, const char *key, bool *out, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (json_is_boolean(v)) {
        *out = json_is_true(v);
        return 0;
    }
    int64_t i;
    if (json_int(obj, key, 0, 1, &i, err) < 0)
        return -1;
    *out = i == 1;
    return 0;
}

static int read_node(const json_t *obj, struct partition_node *node, bool *has_color,
                     struct err *err) {
    if (json_int(obj, "id", INT64_MIN, INT64_MAX, &node->id, err) < 0 ||
        read_flag(obj, "supportedOnFpga", &node->supported, err) < 0 ||
        read_flag(obj, "isBackwardNode", &node->backward, err) < 0 ||
        json_num(obj, "cpuLatency", 0, 1e300, &node->cpu_s, err) < 0)
        return -1;
    const json_t *accel = json_object_get(obj, "fpgaLatency");
    bool none = !node->supported && (!accel || json_is_null(accel));
    if (!none && json_num(obj, "fpgaLatency", 0, 1e300, &node->accel_s, err) < 0)
        return -1;
    const json_t *color = json_object_get(obj, "colorClass");
    *has_color = color && !json_is_null(color);
    if (*has_color &&
        json_int(obj, "colorClass", INT64_MIN, INT64_MAX, &node->color, err) < 0)
        return -1;
    if (json_opt_num(obj, "size", 0, 1e300, &node->size, err) < 0 ||
        json_opt_num(obj, "activation", 0, 1e300, &node->activation, err) < 0)
        return -1;
    return 0;
}

/* Numbers colour classes from 0 on in the order of their first node. */
static void number_colors(struct partition_problem *p, const bool *has_color) {
    struct named *v = mem_array((size_t)p->n + 1, sizeof *v);
    int32_t count = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (has_color[i])
            v[count++] = (struct named){p->nodes[i].color, i};
    qsort(v, (size_t)count, sizeof *v, named_order);
    for (int32_t i = 0; i < p->n; i++) {
        int32_t first = has_color[i] ? named_find(v, count, p->nodes[i].color) : i;
        /* Classes of earlier nodes are numbered already, but their names are gone from
         * nodes[]: the sorted copy still knows them. */
        p->nodes[i].color = first == i ? p->colors++ : p->nodes[first].color;
    }
    free(v);
}

static int place_edge(struct reader *r, const struct raw_edge *raw, struct err *err) {
    int32_t n = (int32_t)r->nodes.n, index = (int32_t)r->edges.n;
    struct partition_edge e = {named_find(r->ids, n, raw->from),
                               named_find(r->ids, n, raw->to)};
    if (e.from < 0)
        return err_input(err, "sourceId: no node has the id %lld", (long long)raw->from);
    if (e.to < 0)
        return err_input(err, "destId: no node has the id %lld", (long long)raw->to);
    if (e.from == e.to)
        return err_input(err, "destId: node %lld feeds itself", (long long)raw->to);
    struct partition_node *u = &r->nodes.p[e.from];
    if (u->backward && !r->nodes.p[e.to].backward)
        return err_input(err, "destId: backward node %lld feeds forward node %lld",
                         (long long)raw->from, (long long)raw->to);
    if (r->first_edge[e.from] < 0) {
        r->first_edge[e.from] = index;
        u->send_s = raw->cost;
    } else if (fabs(u->send_s - raw->cost) > 1e-6) {
        return err_input(
            err, "cost: node %lld sends at a cost of %.17g here, but of %.17g at edges[%d]",
            (long long)raw->from, raw->cost, u->send_s, r->first_edge[e.from]);
    }
    r->cost += 2 * u->send_s; /* paid on both sides at most */
    if (!isfinite(r->cost))
        return err_input(err, "cost: the sum of all overflows here");
    arr_push(&r->edges, e);
    return 0;
}

/* Sorts the names of all nodes, which are known by now, and places the edges that came
 * before them. */
static int name_nodes(struct reader *r, struct err *err) {
    size_t n = (size_t)r->nodes.n;
    r->ids = mem_array(n + 1, sizeof *r->ids);
    r->first_edge = mem_array(n + 1, sizeof *r->first_edge);
    memset(r->first_edge, -1, (n + 1) * sizeof *r->first_edge);
    for (size_t i = 0; i < n; i++)
        r->ids[i] = (struct named){r->nodes.p[i].id, (int32_t)i};
    qsort(r->ids, n, sizeof *r->ids, named_order);
    for (size_t i = 1; i < n; i++)
        if (r->ids[i].name == r->ids[i - 1].name)
            return err_input(err, "nodes[%d].id: %lld is the id of nodes[%d] too",
                             r->ids[i].index, (long long)r->ids[i].name,
                             r->ids[i - 1].index);
    for (int64_t i = 0; i < r->waiting.n; i++)
        if (place_edge(r, &r->waiting.p[i], err) < 0)
            return err_at(err, "edges[%lld]", (long long)i);
    arr_release(&r->waiting);
    return 0;
}

static int take_node(void *to, const json_t *obj, struct err *err) {
    struct reader *r = to;
    struct partition_node node = {0};
    bool colored;
    if (r->nodes.n == MOST_NODES)
        return err_input(err, "id: more than %d nodes", MOST_NODES);
    if (read_node(obj, &node, &colored, err) < 0)
        return -1;
    arr_push(&r->nodes, node);
    arr_push(&r->colored, colored);
    return 0;
}

static int take_nodes(void *to, struct json_stream *s, struct err *err) {
    if (solve_doc_objects(s, "nodes", take_node, to, err) < 0)
        return -1;
    return name_nodes(to, err);
}

static int read_edge(const json_t *obj, struct raw_edge *e, struct err *err) {
    if (json_int(obj, "sourceId", INT64_MIN, INT64_MAX, &e->from, err) < 0 ||
        json_int(obj, "destId", INT64_MIN, INT64_MAX, &e->to, err) < 0)
        return -1;
    return json_num(obj, "cost", 0, 1e300, &e->cost, err);
}

static int take_edge(void *to, const json_t *obj, struct err *err) {
    struct reader *r = to;
    struct raw_edge e;
    if (r->edges.n + r->waiting.n == MOST_EDGES)
        return err_input(err, "sourceId: more than %d edges", MOST_EDGES);
    if (read_edge(obj, &e, err) < 0)
        return -1;
    if (r->ids)
        return place_edge(r, &e, err);
    arr_push(&r->waiting, e);
    return 0;
}

static int take_edges(void *to, struct json_stream *s, struct err *err) {
    return solve_doc_objects(s, "edges", take_edge, to, err);
}

/* Checks that sums over nodes stay finite. */
static int check_sums(const struct partition_problem *p, struct err *err) {
    double accel = 0, cpu = 0, size = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct partition_node *node = &p->nodes[i];
        accel += node->accel_s;
        cpu += node->cpu_s;
        size += node->size + node->activation * (double)p->micro_batches;
        const char *over = !isfinite(accel)  ? "fpgaLatency"
                           : !isfinite(cpu)  ? "cpuLatency"
                           : !isfinite(size) ? "size"
                                             : NULL;
        if (over)
            return err_input(err, "nodes[%d].%s: the sum of all overflows here", i, over);
    }
    return 0;
}

/* Removes nodes without predecessors until none is left; what stays lies on or behind a
 * cycle. */
static int check_acyclic(const struct partition_problem *p, struct err *err) {
    size_t n = (size_t)p->n + 1;
    int32_t *degree = mem_array(n, sizeof *degree), *head = mem_array(n, sizeof *head);
    int32_t *next = mem_array((size_t)p->m + 1, sizeof *next);
    int32_t *queue = mem_array(n, sizeof *queue), done = 0, count = 0;
    memset(head, -1, n * sizeof *head);
    for (int32_t i = 0; i < p->m; i++) {
        degree[p->edges[i].to]++;
        next[i] = head[p->edges[i].from];
        head[p->edges[i].from] = i;
    }
    for (int32_t i = 0; i < p->n; i++)
        if (!degree[i])
            queue[count++] = i;
    while (done < count)
        for (int32_t e = head[queue[done++]]; e >= 0; e = next[e])
            if (!--degree[p->edges[e].to])
                queue[count++] = p->edges[e].to;
    int status = 0;
    if (count < p->n) {
        /* Walk back along what is left, by any edge, until a node must have repeated. */
        int32_t v = -1, *back = queue;
        for (int32_t i = 0; i < p->m; i++)
            if (degree[p->edges[i].to] && degree[p->edges[i].from])
                back[v = p->edges[i].to] = p->edges[i].from;
        for (int32_t steps = 0; steps <= p->n; steps++)
            v = back[v];
        status =
            err_input(err, "edges: node %lld lies on a cycle", (long long)p->nodes[v].id);
    }
    free(degree), free(head), free(next), free(queue);
    return status;
}

static int read_header(const json_t *doc, struct partition_problem *p, struct err *err) {
    int64_t accels, cpus, micro = 1;
    if (json_num(doc, "maxSizePerFPGA", 0, 1e300, &p->max_size, err) < 0 ||
        json_int(doc, "maxFPGAs", 0, 4096, &accels, err) < 0 ||
        json_int(doc, "maxCPUs", 0, 4096, &cpus, err) < 0 ||
        json_opt_int(doc, "microBatches", 1, 1 << 20, &micro, err) < 0)
        return -1;
    p->accels = (int)accels;
    p->cpus = (int)cpus;
    p->micro_batches = micro;
    return 0;
}

/* Moves what the reader holds into the problem. */
static int put_together(struct reader *r, const json_t *doc, struct partition_problem *p,
                        struct err *err) {
    if (read_header(doc, p, err) < 0)
        return -1;
    if (!json_object_get(doc, "nodes") || !json_object_get(doc, "edges"))
        return err_input(err, "%s: missing (expected an array)",
                         json_object_get(doc, "nodes") ? "edges" : "nodes");
    p->n = (int32_t)r->nodes.n;
    p->m = (int32_t)r->edges.n;
    p->nodes = r->nodes.p ? r->nodes.p : mem_array(1, sizeof *p->nodes);
    p->edges = r->edges.p ? r->edges.p : mem_array(1, sizeof *p->edges);
    r->nodes.p = NULL;
    r->edges.p = NULL;
    number_colors(p, r->colored.p);
    return check_sums(p, err) < 0 ? -1 : check_acyclic(p, err);
}

static void reader_release(struct reader *r) {
    arr_release(&r->nodes);
    arr_release(&r->colored);
    arr_release(&r->waiting);
    arr_release(&r->edges);
    free(r->ids);
    free(r->first_edge);
}

int partition_read(struct json_stream *s, struct partition_problem *p, struct err *err) {
    static const struct solve_part parts[] = {
        {"nodes", take_nodes}, {"edges", take_edges}, {0}};
    struct reader r = {0};
    *p = (struct partition_problem){0};
    json_t *doc = solve_doc_read(s, "partition", parts, &r, err);
    int status = doc ? put_together(&r, doc, p, err) : -1;
    json_decref(doc);
    reader_release(&r);
    if (!status)
        return 0;
    partition_release(p);
    return s->failed ? -1 : err_prefix(err, "%s", s->name);
}

void partition_release(struct partition_problem *p) {
    free(p->nodes);
    free(p->edges);
    *p = (struct partition_problem){0};
}
