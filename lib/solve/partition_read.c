/* partition_read.c - the published JSON format of the device placement instances.
 *
 * Keys that the format does not know (names, layer ids) are allowed, as it says itself.
 * Every message names the place, so that a broken file can be mended.
 */
#include "solve/partition.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ids and colours are arbitrary integers: sorted pairs find them. */
struct named {
    int64_t name;
    int32_t index;
};

static int named_order(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int32_t named_find(const struct named *v, int32_t n, int64_t name) {
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (v[mid].name < name)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && v[lo].name == name ? v[lo].index : -1;
}

/* true, false, 0 or 1. */
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
    if (!json_is_object(obj))
        return err_input(err, "expected an object, got %s", json_type_name(obj));
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

/* Colour classes get numbers 0.. in the order of their first node. */
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

static int read_nodes(const json_t *list, struct partition_problem *p, struct named *ids,
                      struct err *err) {
    bool *has_color = mem_array((size_t)p->n + 1, sizeof *has_color);
    double accel = 0, cpu = 0, size = 0;
    int status = 0;
    for (int32_t i = 0; i < p->n && !status; i++) {
        struct partition_node *node = &p->nodes[i];
        if (read_node(json_array_get(list, (size_t)i), node, &has_color[i], err) < 0) {
            status = err_at(err, "nodes[%d]", i);
            break;
        }
        ids[i] = (struct named){node->id, i};
        accel += node->accel_s;
        cpu += node->cpu_s;
        size += node->size + node->activation * (double)p->micro_batches;
        const char *over = !isfinite(accel)  ? "fpgaLatency"
                           : !isfinite(cpu)  ? "cpuLatency"
                           : !isfinite(size) ? "size"
                                             : NULL;
        if (over)
            status = err_input(err, "nodes[%d].%s: the sum of all overflows here", i, over);
    }
    if (!status) {
        qsort(ids, (size_t)p->n, sizeof *ids, named_order);
        for (int32_t i = 1; i < p->n && !status; i++)
            if (ids[i].name == ids[i - 1].name)
                status = err_input(err, "nodes[%d].id: %lld is the id of nodes[%d] too",
                                   ids[i].index, (long long)ids[i].name, ids[i - 1].index);
    }
    if (!status)
        number_colors(p, has_color);
    free(has_color);
    return status;
}

static int read_edge(const json_t *obj, struct partition_problem *p, int32_t index,
                     const struct named *ids, int32_t *first_edge, struct err *err) {
    if (!json_is_object(obj))
        return err_input(err, "expected an object, got %s", json_type_name(obj));
    int64_t from, to;
    double cost, bytes;
    if (json_int(obj, "sourceId", INT64_MIN, INT64_MAX, &from, err) < 0 ||
        json_int(obj, "destId", INT64_MIN, INT64_MAX, &to, err) < 0 ||
        json_num(obj, "cost", 0, 1e300, &cost, err) < 0)
        return -1;
    bytes = cost; /* without sizes, times stand for bytes */
    if (json_opt_num(obj, "size", 0, 1e300, &bytes, err) < 0)
        return -1;
    struct partition_edge *e = &p->edges[index];
    e->from = named_find(ids, p->n, from);
    e->to = named_find(ids, p->n, to);
    if (e->from < 0)
        return err_input(err, "sourceId: no node has the id %lld", (long long)from);
    if (e->to < 0)
        return err_input(err, "destId: no node has the id %lld", (long long)to);
    if (e->from == e->to)
        return err_input(err, "destId: node %lld feeds itself", (long long)to);
    struct partition_node *u = &p->nodes[e->from], *v = &p->nodes[e->to];
    if (u->backward && !v->backward)
        return err_input(err, "destId: backward node %lld feeds forward node %lld",
                         (long long)from, (long long)to);
    if (first_edge[e->from] < 0) {
        first_edge[e->from] = index;
        u->send_s = cost;
    } else if (fabs(u->send_s - cost) > 1e-6) {
        return err_input(
            err, "cost: node %lld sends at a cost of %.17g here, but of %.17g at edges[%d]",
            (long long)from, cost, u->send_s, first_edge[e->from]);
    }
    u->bytes = fmax(u->bytes, bytes); /* one tensor: the largest part that is read */
    return 0;
}

static int read_edges(const json_t *list, struct partition_problem *p,
                      const struct named *ids, struct err *err) {
    int32_t *first_edge = mem_array((size_t)p->n + 1, sizeof *first_edge);
    memset(first_edge, -1, ((size_t)p->n + 1) * sizeof *first_edge);
    int status = 0;
    double cost = 0, bytes = 0;
    for (int32_t i = 0; i < p->m && !status; i++) {
        if (read_edge(json_array_get(list, (size_t)i), p, i, ids, first_edge, err) < 0) {
            status = err_at(err, "edges[%d]", i);
            break;
        }
        cost += 2 * p->nodes[p->edges[i].from].send_s; /* paid on both sides at most */
        bytes += p->nodes[p->edges[i].from].bytes;
        if (!isfinite(cost) || !isfinite(bytes))
            status = err_input(err, "edges[%d].%s: the sum of all overflows here", i,
                               isfinite(cost) ? "size" : "cost");
    }
    free(first_edge);
    return status;
}

/* Takes nodes without predecessors away; what stays lies on or behind a cycle. */
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
    const char *goal = "maxload";
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (json_num(doc, "maxSizePerFPGA", 0, 1e300, &p->max_size, err) < 0 ||
        json_int(doc, "maxFPGAs", 0, 4096, &accels, err) < 0 ||
        json_int(doc, "maxCPUs", 0, 4096, &cpus, err) < 0 ||
        json_opt_int(doc, "microBatches", 1, 1 << 20, &micro, err) < 0 ||
        json_opt_str(doc, "objective", &goal, err) < 0 ||
        json_opt_num(doc, "maxLoad", 0, 1e300, &p->max_load, err) < 0)
        return -1;
    if (strcmp(goal, "maxload") && strcmp(goal, "bytes"))
        return err_input(err, "objective: expected \"maxload\" or \"bytes\", got \"%.64s\"",
                         goal);
    p->goal = strcmp(goal, "bytes") ? PARTITION_MAXLOAD : PARTITION_BYTES;
    p->accels = (int)accels;
    p->cpus = (int)cpus;
    p->micro_batches = micro;
    return 0;
}

/* loadBalance r is maxLoad = r times an even share of all latencies. */
static int read_balance(const json_t *doc, struct partition_problem *p, struct err *err) {
    double ratio = 0, total = 0;
    if (json_opt_num(doc, "loadBalance", 0, 1e300, &ratio, err) < 0)
        return -1;
    if (ratio <= 0)
        return 0;
    if (isfinite(p->max_load))
        return err_input(err, "loadBalance: give this or maxLoad, not both");
    for (int32_t i = 0; i < p->n; i++)
        total += p->nodes[i].accel_s;
    p->max_load = ratio * total / (p->accels ? p->accels : 1);
    return 0;
}

int partition_read(const json_t *doc, struct partition_problem *p, struct err *err) {
    *p = (struct partition_problem){.max_load = INFINITY};
    json_t *nodes, *edges;
    if (read_header(doc, p, err) < 0 || json_array_member(doc, "nodes", &nodes, err) < 0 ||
        json_array_member(doc, "edges", &edges, err) < 0)
        return -1;
    if (json_array_size(nodes) > 1000000 || json_array_size(edges) > 10000000)
        return err_input(err, "nodes: at most 1000000 nodes and 10000000 edges");
    p->n = (int32_t)json_array_size(nodes);
    p->m = (int32_t)json_array_size(edges);
    p->nodes = mem_array((size_t)p->n + 1, sizeof *p->nodes);
    p->edges = mem_array((size_t)p->m + 1, sizeof *p->edges);
    struct named *ids = mem_array((size_t)p->n + 1, sizeof *ids);
    int status = read_nodes(nodes, p, ids, err);
    if (!status)
        status = read_edges(edges, p, ids, err);
    if (!status)
        status = check_acyclic(p, err);
    if (!status)
        status = read_balance(doc, p, err);
    free(ids);
    if (status)
        partition_release(p);
    return status;
}

void partition_release(struct partition_problem *p) {
    free(p->nodes);
    free(p->edges);
    *p = (struct partition_problem){0};
}
