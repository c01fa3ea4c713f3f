/* partition_check.c - the evaluator: checks a partition and computes its value.
 *
 * Works on nodes and edges as they were read, with one pass per rule and none of the
 * solver's tables, so that a mistake there cannot hide here.
 */
#include "solve/partition/partition.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Allows for the last bits, in which sums of doubles in another order differ. */
static bool exceeds(double x, double limit) {
    return x > limit + 1e-9 * fabs(limit);
}

static int check_stages(const struct partition_problem *p, const int32_t *stage_of,
                        const bool *is_cpu, int stages, struct err *err) {
    int kinds[2] = {0};
    bool *used = mem_array((size_t)stages + 1, sizeof *used);
    int status = 0;
    for (int32_t i = 0; i < p->n && !status; i++) {
        int32_t s = stage_of[i];
        if (s < 0 || s >= stages) {
            status = err_no(err, "nodes[%d]: on stage %d of %d", i, s, stages);
            break;
        }
        used[s] = true;
        if (!is_cpu[s] && !p->nodes[i].supported)
            status = err_no(err, "nodes[%d]: not supported on the accelerator of stage %d",
                            i, s);
    }
    for (int s = 0; s < stages && !status; s++) {
        kinds[is_cpu[s]]++;
        if (!used[s])
            status = err_no(err, "stage %d: empty", s);
    }
    if (!status && (kinds[0] > p->accels || kinds[1] > p->cpus))
        status = err_no(err, "uses %d accelerators and %d CPUs of %d and %d", kinds[0],
                        kinds[1], p->accels, p->cpus);
    free(used);
    return status;
}

static int check_order(const struct partition_problem *p, const int32_t *stage_of,
                       struct err *err) {
    int32_t *stage_of_color = mem_array((size_t)p->colors + 1, sizeof *stage_of_color);
    bool *has_forward = mem_array((size_t)p->colors + 1, sizeof *has_forward);
    memset(stage_of_color, -1, ((size_t)p->colors + 1) * sizeof *stage_of_color);
    int status = 0;
    for (int32_t i = 0; i < p->n && !status; i++) {
        int32_t *s = &stage_of_color[p->nodes[i].color];
        if (*s >= 0 && *s != stage_of[i])
            status = err_no(err, "nodes[%d]: its colour class is on stages %d and %d", i,
                            *s, stage_of[i]);
        *s = stage_of[i];
        if (!p->nodes[i].backward)
            has_forward[p->nodes[i].color] = true;
    }
    for (int32_t i = 0; i < p->m && !status; i++) {
        int32_t u = p->edges[i].from, v = p->edges[i].to;
        const struct partition_node *from = &p->nodes[u], *to = &p->nodes[v];
        if (!from->backward && !to->backward && stage_of[u] > stage_of[v])
            status = err_no(err, "edges[%d]: leads back from stage %d to %d", i,
                            stage_of[u], stage_of[v]);
        if (from->backward && to->backward &&
            (!has_forward[from->color] || !has_forward[to->color]) &&
            stage_of[u] < stage_of[v])
            status =
                err_no(err, "edges[%d]: backward edge leads forward from stage %d to %d", i,
                       stage_of[u], stage_of[v]);
    }
    free(stage_of_color);
    free(has_forward);
    return status;
}

/* Groups edges by their source: start[u]..start[u+1] in `to`. */
static void group_edges(const struct partition_problem *p, int32_t **start, int32_t **to) {
    int32_t *s = mem_array((size_t)p->n + 2, sizeof *s);
    int32_t *t = mem_array((size_t)p->m + 1, sizeof *t);
    for (int32_t i = 0; i < p->m; i++)
        s[p->edges[i].from + 2]++;
    for (int32_t u = 0; u < p->n; u++)
        s[u + 2] += s[u + 1];
    for (int32_t i = 0; i < p->m; i++)
        t[s[p->edges[i].from + 1]++] = p->edges[i].to;
    *start = s;
    *to = t;
}

/* Sums have more digits than double, so that the order of the nodes does not matter. */
struct total {
    long double compute, memory, comm;
};

static void add_nodes(const struct partition_problem *p, const int32_t *stage_of,
                      const bool *is_cpu, int stages, struct total *out) {
    for (int32_t i = 0; i < p->n; i++) {
        const struct partition_node *node = &p->nodes[i];
        struct total *s = &out[stage_of[i]];
        int64_t flight = stages - stage_of[i];
        if (flight > p->micro_batches)
            flight = p->micro_batches;
        s->compute += is_cpu[stage_of[i]] ? node->cpu_s : node->accel_s;
        s->memory += node->size + (long double)flight * node->activation;
    }
}

/* Adds tensors: one that leaves its stage costs once there and once at every stage that
 * reads it. */
static void add_tensors(const struct partition_problem *p, const int32_t *stage_of,
                        const bool *is_cpu, int stages, struct total *out) {
    int32_t *start, *to, *seen = mem_array((size_t)stages + 1, sizeof *seen);
    group_edges(p, &start, &to);
    for (int32_t u = 0; u < p->n; u++) {
        bool leaves = false;
        for (int32_t i = start[u]; i < start[u + 1]; i++) {
            int32_t s = stage_of[to[i]];
            if (s == stage_of[u] || seen[s] == u + 1)
                continue;
            seen[s] = u + 1;
            leaves = true;
            if (!is_cpu[s])
                out[s].comm += p->nodes[u].send_s;
        }
        if (leaves && !is_cpu[stage_of[u]])
            out[stage_of[u]].comm += p->nodes[u].send_s;
    }
    free(start), free(to), free(seen);
}

int partition_check(const struct partition_problem *p, const int32_t *stage_of,
                    const bool *is_cpu, int stages, struct partition_stage *out,
                    double *value, struct err *err) {
    if (check_stages(p, stage_of, is_cpu, stages, err) < 0 ||
        check_order(p, stage_of, err) < 0)
        return -1;
    struct partition_stage *st = mem_array((size_t)stages + 1, sizeof *st);
    struct total *sum = mem_array((size_t)stages + 1, sizeof *sum);
    add_nodes(p, stage_of, is_cpu, stages, sum);
    add_tensors(p, stage_of, is_cpu, stages, sum);
    int status = 0;
    *value = 0;
    for (int s = 0; s < stages; s++) {
        st[s] = (struct partition_stage){(double)(sum[s].compute + sum[s].comm),
                                         (double)sum[s].compute, (double)sum[s].memory};
        *value = fmax(*value, st[s].load);
    }
    for (int s = 0; s < stages && !status; s++)
        if (!is_cpu[s] && exceeds(st[s].memory, p->max_size))
            status = err_no(err, "maxSizePerFPGA: stage %d needs %.17g bytes, not %.17g", s,
                            st[s].memory, p->max_size);
    if (out)
        memcpy(out, st, (size_t)stages * sizeof *out);
    free(st), free(sum);
    return status;
}
