#include "solve/partition/partition_flow.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void partition_flow_init(struct partition_flow *f, int32_t nodes) {
    size_t n = (size_t)nodes;
    *f = (struct partition_flow){.nodes = nodes};
    f->head = mem_array(n, sizeof *f->head), f->level = mem_array(n, sizeof *f->level);
    f->now = mem_array(n, sizeof *f->now), f->queue = mem_array(n, sizeof *f->queue);
    memset(f->head, -1, n * sizeof *f->head);
}

void partition_flow_release(struct partition_flow *f) {
    free(f->head), free(f->level), free(f->now), free(f->queue);
    arr_release(&f->arcs);
}

static void half_arc(struct partition_flow *f, int32_t from, int32_t to, double room) {
    arr_push(&f->arcs, (struct partition_flow_arc){to, f->head[from], room});
    f->head[from] = (int32_t)f->arcs.n - 1;
}

void partition_flow_arc(struct partition_flow *f, int32_t from, int32_t to, double room) {
    if (from == to)
        return;
    half_arc(f, from, to, room);
    half_arc(f, to, from, 0);
}

/* Distances from node 0 over arcs with room; whether node 1 is reached. */
static bool level(struct partition_flow *f) {
    int32_t lo = 0, hi = 0;
    memset(f->level, -1, (size_t)f->nodes * sizeof *f->level);
    f->level[0] = 0;
    for (f->queue[hi++] = 0; lo < hi; lo++)
        for (int32_t e = f->head[f->queue[lo]]; e >= 0; e = f->arcs.p[e].next) {
            int32_t to = f->arcs.p[e].to;
            if (f->arcs.p[e].room > 0 && f->level[to] < 0) {
                f->level[to] = f->level[f->queue[lo]] + 1;
                f->queue[hi++] = to;
            }
        }
    return f->level[1] >= 0;
}

/* One path down the levels, by the arcs in `queue`; what flows along it, 0 when none is left. */
static double push_path(struct partition_flow *f) {
    int32_t depth = 0, v = 0;
    while (v != 1) {
        int32_t e = f->now[v];
        while (e >= 0 &&
               !(f->arcs.p[e].room > 0 && f->level[f->arcs.p[e].to] == f->level[v] + 1))
            e = f->arcs.p[e].next;
        f->now[v] = e;
        if (e >= 0) {
            f->queue[depth++] = e;
            v = f->arcs.p[e].to;
        } else if (depth) {
            v = f->arcs.p[f->queue[--depth] ^ 1].to;
            f->now[v] = f->arcs.p[f->now[v]].next;
        } else {
            return 0;
        }
    }
    double flow = INFINITY;
    for (int32_t i = 0; i < depth; i++)
        flow = fmin(flow, f->arcs.p[f->queue[i]].room);
    for (int32_t i = 0; i < depth; i++) {
        f->arcs.p[f->queue[i]].room -= flow;
        f->arcs.p[f->queue[i] ^ 1].room += flow;
    }
    return flow;
}

double partition_flow_cut(struct partition_flow *f) {
    double cut = 0;
    while (level(f)) {
        memcpy(f->now, f->head, (size_t)f->nodes * sizeof *f->now);
        for (double flow; (flow = push_path(f)) > 0;)
            cut += flow;
    }
    return cut;
}
