/* partition_json.c - the partition solver for documents: problems in, answers out and
 * checked. */
#include "solve/partition/partition.h"

#include "common/json.h"
#include "common/mem.h"
#include "solve/solve_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *stages_json(const struct partition_problem *p,
                           const struct partition_answer *a) {
    struct partition_stage *st = mem_array((size_t)a->stages + 1, sizeof *st);
    double value;
    partition_check(p, a->stage_of, a->is_cpu, a->stages, st, &value, NULL);
    json_t *list = json_array();
    for (int s = 0; s < a->stages; s++) {
        json_t *nodes = json_array();
        for (int32_t i = 0; i < p->n; i++)
            if (a->stage_of[i] == s)
                json_array_append_new(nodes, json_integer(p->nodes[i].id));
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:o}", "kind",
                                              a->is_cpu[s] ? "cpu" : "fpga", "load",
                                              st[s].load, "compute", st[s].compute,
                                              "memory", st[s].memory, "nodes", nodes));
    }
    free(st);
    return list;
}

static void *read_problem(struct json_stream *s, struct err *err) {
    struct partition_problem *p = mem_alloc(sizeof *p);
    if (partition_read(s, p, err) == 0)
        return p;
    free(p);
    return NULL;
}

static void release(void *problem) {
    partition_release(problem);
    free(problem);
}

static json_t *solve(const void *problem, const struct solve_limits *limits,
                     struct err *err) {
    const struct partition_problem *p = problem;
    struct partition_answer a;
    if (partition_solve(p, limits, &a, err) < 0)
        return NULL;
    json_t *o = solve_answer(a.value, a.bound, a.proof);
    json_object_set_new(o, "steps", json_integer(a.steps));
    json_object_set_new(o, "devices", stages_json(p, &a));
    partition_answer_release(&a);
    return o;
}

/* ---- checking an answer ---------------------------------------------------------- */

struct named {
    int64_t id;
    int32_t index;
};

static int by_id(const void *pa, const void *pb) {
    const struct named *a = pa, *b = pb;
    return (a->id > b->id) - (a->id < b->id);
}

static struct named *sort_nodes(const struct partition_problem *p) {
    struct named *v = mem_array((size_t)p->n + 1, sizeof *v);
    for (int32_t i = 0; i < p->n; i++)
        v[i] = (struct named){p->nodes[i].id, i};
    qsort(v, (size_t)p->n, sizeof *v, by_id);
    return v;
}

/* Reads the nodes of device s. */
static int read_device(const struct partition_problem *p, const struct named *names,
                       const json_t *device, int s, int32_t *stage_of, struct err *err) {
    json_t *list;
    if (json_array_member(device, "nodes", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct named key = {json_integer_value(json_array_get(list, i)), 0};
        const struct named *found = bsearch(&key, names, (size_t)p->n, sizeof key, by_id);
        if (!found)
            return err_no(err, "nodes[%zu]: no node has the id %lld", i, (long long)key.id);
        if (stage_of[found->index] >= 0)
            return err_no(err, "nodes[%zu]: node %lld is on two devices", i,
                          (long long)key.id);
        stage_of[found->index] = s;
    }
    return 0;
}

static int verify_devices(const struct partition_problem *p, const json_t *devices,
                          double *value, struct err *err) {
    int n = (int)json_array_size(devices), rc = 0;
    struct named *names = sort_nodes(p);
    int32_t *stage_of = mem_array((size_t)p->n + 1, sizeof *stage_of);
    bool *is_cpu = mem_array((size_t)n + 1, sizeof *is_cpu);
    memset(stage_of, -1, ((size_t)p->n + 1) * sizeof *stage_of);
    for (int s = 0; s < n && rc == 0; s++) {
        const json_t *device = json_array_get(devices, (size_t)s);
        const char *kind = json_string_value(json_object_get(device, "kind"));
        is_cpu[s] = kind && !strcmp(kind, "cpu");
        if (read_device(p, names, device, s, stage_of, err) < 0)
            rc = err_at(err, "devices[%d]", s);
    }
    if (rc == 0)
        rc = partition_check(p, stage_of, is_cpu, n, NULL, value, err);
    free(names), free(stage_of), free(is_cpu);
    return rc;
}

static int check(const void *problem, const json_t *answer, double *value,
                 struct err *err) {
    json_t *devices;
    if (json_array_member(answer, "devices", &devices, err) < 0)
        return -1;
    return verify_devices(problem, devices, value, err);
}

const struct solve_kind solve_partition = {
    .name = "partition",
    .about = "the nodes of a graph on devices, in convex pieces",
    .read = read_problem,
    .solve = solve,
    .check = check,
    .release = release};
