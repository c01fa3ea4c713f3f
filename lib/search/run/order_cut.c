/* Pipelines cut out of a graph of units (see order_cut.h). */
#include "search/run/order_cut.h"

#include "solve/partition/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- units ------------------------------------------------------------------------------- */

enum { MOST_UNITS = 400 };

static void find_units(const struct structure *st, bool ops, struct cut_graph *g) {
    g->first = mem_array((size_t)st->n_ops + 1, sizeof *g->first);
    for (int i = 0; i < st->n_ops; i++)
        if (ops || structure_begins_unit(st, i))
            g->first[g->n++] = i;
    g->first[g->n] = st->n_ops;
}

/* Finds the time of each unit on one device that does the whole model. If the profile lacks
 * it, times are in proportion to the flops. */
static void find_loads(struct evaluate *ev, struct cut_graph *g) {
    int64_t micro_batch = ev->space->p.micro[0];
    struct search_stage st = {.end = ev->space->p.model->n_ops, .devices = 1};
    space_apply_preset(ev->space, &st, micro_batch, (struct preset){.inner = ~0u});
    const struct prefix *t = eval_prefix(ev, &st, micro_batch, 0, false);
    bool known =
        prefix_legal(ev->space, t, 0, st.end) && !eval_stage_sum(ev, t, &st)->missing;
    g->work_us = mem_array((size_t)g->n, sizeof *g->work_us);
    g->fixed = mem_array((size_t)g->n, sizeof *g->fixed);
    g->slot = mem_array((size_t)g->n, sizeof *g->slot);
    for (int u = 0; u < g->n; u++) {
        int first = g->first[u], end = g->first[u + 1];
        struct brief a = prefix_brief(ev->space, t, first),
                     b = prefix_brief(ev->space, t, end);
        g->work_us[u] = known ? fmax(b.time_us - a.time_us, 0)
                              : (ev->space->flops[end] - ev->space->flops[first]) * 3 / 1e7;
        g->fixed[u] = fmax(b.fixed - a.fixed, 0);
        for (int p = 0; p < POOL_COUNT; p++)
            g->slot[u] += fmax(b.slot[p] - a.slot[p], 0);
    }
    g->micro_batches = ev->space->p.batch / micro_batch;
}

/* ---- what passes between them ------------------------------------------------------------ */

static double tensor_bytes(const struct space *sp, int tensor) {
    const struct model *m = sp->p.model;
    struct extents x = model_extents(m, &m->tensors[tensor].shape, sp->p.micro[0]);
    return (double)extents_count(&x) *
           (double)dtype_size(m->tensors[tensor].wide ? DTYPE_f32 : sp->p.dtype);
}

static void find_reads(struct cut_graph *g, int n_readers) {
    g->reads = mem_array((size_t)n_readers + 1, sizeof *g->reads);
    g->reads_of = mem_array((size_t)g->n + 2, sizeof *g->reads_of);
    for (int i = 0; i < n_readers; i++)
        g->reads_of[g->readers[i] + 2]++;
    for (int u = 0; u < g->n; u++)
        g->reads_of[u + 2] += g->reads_of[u + 1];
    for (int k = 0; k < g->n_tensors; k++)
        for (int r = 0; r < g->tensors[k].n; r++)
            g->reads[g->reads_of[g->readers[g->tensors[k].first_reader + r] + 1]++] = k;
}

/* Lists the tensors and ties that cross from one unit to another, with their readers. */
static void find_tensors(const struct space *sp, struct cut_graph *g) {
    const struct structure *st = &sp->blocks.s;
    int *unit = mem_array((size_t)st->n_ops, sizeof *unit), n = 0;
    for (int u = 0; u < g->n; u++)
        for (int i = g->first[u]; i < g->first[u + 1]; i++)
            unit[i] = u;
    g->tensors = mem_array((size_t)st->n_edges + 1, sizeof *g->tensors);
    g->readers = mem_array((size_t)st->n_readers + 1, sizeof *g->readers);
    g->of = mem_array((size_t)g->n + 1, sizeof *g->of);
    for (int i = 0; i < st->n_edges; i++) {
        const struct edge *e = &st->edges[i];
        struct cut_tensor *t = &g->tensors[g->n_tensors];
        *t = (struct cut_tensor){.origin = unit[e->origin], .first_reader = n};
        for (int k = 0; k < e->n; k++) {
            int u = unit[e->readers[k]];
            if (u != t->origin && (!t->n || g->readers[n - 1] != u)) {
                g->readers[n++] = u;
                t->n++;
            }
        }
        t->bytes = e->tensor >= 0 ? tensor_bytes(sp, e->tensor) : 0;
        if (t->n) {
            g->of[t->origin + 1]++;
            g->n_tensors++;
        }
    }
    for (int u = 0; u < g->n; u++)
        g->of[u + 1] += g->of[u];
    g->send_us = mem_array((size_t)g->n_tensors + 1, sizeof *g->send_us);
    find_reads(g, n);
    free(unit);
}

bool cut_graph_make(struct evaluate *ev, bool ops, struct cut_graph *g) {
    *g = (struct cut_graph){0};
    find_units(&ev->space->blocks.s, ops, g);
    if (g->n > MOST_UNITS)
        return false;
    find_tensors(ev->space, g);
    if (!cut_graph_is_chain(g))
        find_loads(ev, g);
    return true;
}

void cut_graph_release(struct cut_graph *g) {
    free(g->first);
    free(g->work_us);
    free(g->fixed);
    free(g->slot);
    free(g->tensors);
    free(g->of);
    free(g->readers);
    free(g->reads);
    free(g->reads_of);
    free(g->send_us);
    *g = (struct cut_graph){0};
}

static bool feeds(const struct cut_graph *g, int from, int to) {
    for (int i = g->of[from]; i < g->of[from + 1]; i++)
        for (int k = 0; k < g->tensors[i].n; k++)
            if (g->readers[g->tensors[i].first_reader + k] == to)
                return true;
    return false;
}

bool cut_graph_is_chain(const struct cut_graph *g) {
    for (int u = 0; u + 1 < g->n; u++)
        if (!feeds(g, u, u + 1))
            return false;
    return true;
}

/* A stage of d devices does a d-th of the work and sends a d-th of each tensor. Instead of
 * dividing loads by d, this multiplies messages and memory by it. */
void cut_graph_stages(struct evaluate *ev, struct cut_graph *g, int stages) {
    int d = ev->space->p.devices / stages > 0 ? ev->space->p.devices / stages : 1;
    for (int i = 0; i < g->n_tensors; i++) {
        double bytes = ceil(g->tensors[i].bytes / d);
        g->send_us[i] = bytes > 0 && d < ev->space->p.devices
                            ? d * cost_message_us(&ev->cost, 0, d, d, (int64_t)bytes)
                            : 0;
    }
    cost_forget(&ev->cost); /* what the profile lacks costs nothing here */
    g->memory =
        ev->space->p.memory_bytes ? (double)ev->space->p.memory_bytes * d : INFINITY;
}

/* ---- stretches of a list ----------------------------------------------------------------- */

struct line {
    const struct cut_graph *g;
    const int *list;
    int *at;   /* [n] the position of each unit */
    int *last; /* [tensors] the position of the last reader */
    int *in;   /* scratch: [tensors] 1 + the first position of the range that counted it */
};

/* Fills the costs of every range that begins at `first`, by its end: [n + 1]. */
static void stretch_loads(struct line *l, int first, double *us, double *fixed,
                          double *slot) {
    const struct cut_graph *g = l->g;
    double sum = 0, a = 0, b = 0;
    for (int i = first; i < g->n; i++) {
        int u = l->list[i];
        sum += g->work_us[u];
        a += g->fixed[u];
        b += g->slot[u];
        for (int k = g->of[u]; k < g->of[u + 1]; k++)
            sum += g->send_us[k];
        for (int j = g->reads_of[u]; j < g->reads_of[u + 1]; j++) {
            int k = g->reads[j];
            bool inside = l->at[g->tensors[k].origin] >= first;
            if (inside && l->last[k] == i)
                sum -= g->send_us[k];
            if (!inside && l->in[k] != first + 1) {
                sum += g->send_us[k];
                l->in[k] = first + 1;
            }
        }
        us[i + 1] = sum, fixed[i + 1] = a, slot[i + 1] = b;
    }
}

static void line_make(struct line *l, const struct cut_graph *g, const int *list) {
    *l = (struct line){.g = g, .list = list};
    l->at = mem_array((size_t)g->n, sizeof *l->at);
    l->last = mem_array((size_t)g->n_tensors + 1, sizeof *l->last);
    l->in = mem_array((size_t)g->n_tensors + 1, sizeof *l->in);
    for (int i = 0; i < g->n; i++)
        l->at[list[i]] = i;
    for (int k = 0; k < g->n_tensors; k++)
        for (int r = 0; r < g->tensors[k].n; r++) {
            int at = l->at[g->readers[g->tensors[k].first_reader + r]];
            l->last[k] = at > l->last[k] ? at : l->last[k];
        }
}

/* A dynamic program from the back, because the number of stages from a range on is the
 * number of micro-batches that it holds. */
double cut_list_us(const struct cut_graph *g, int stages, const int *list) {
    struct line l;
    size_t n = (size_t)g->n + 1;
    double *us = mem_array(3 * n, sizeof *us), *fixed = us + n, *slot = fixed + n;
    /* best[k][u]: the longest stage of units u and on in at most k stages. */
    double *best = mem_array(n * (size_t)(stages + 1), sizeof *best);
    line_make(&l, g, list);
    for (int k = 0; k <= stages; k++)
        for (int i = 0; i < g->n; i++)
            best[(size_t)k * n + (size_t)i] = INFINITY;
    for (int first = g->n - 1; first >= 0; first--) {
        stretch_loads(&l, first, us, fixed, slot);
        for (int k = 1; k <= stages; k++) {
            double *to = &best[(size_t)k * n + (size_t)first];
            double flights = fmin(k, (double)g->micro_batches);
            for (int end = first + 1; end <= g->n; end++) {
                double rest = best[(size_t)(k - 1) * n + (size_t)end];
                if (fixed[end] + flights * slot[end] <= g->memory)
                    *to = fmin(*to, fmax(us[end], rest));
            }
        }
    }
    double all = best[(size_t)stages * n];
    free(l.at);
    free(l.last);
    free(l.in);
    free(best);
    free(us);
    return all;
}

/* ---- any stages -------------------------------------------------------------------------- */

/* Tensors are nodes of their own, placed with their origin, so each has one message. */
static void put_nodes(const struct cut_graph *g, struct partition_problem *p) {
    for (int u = 0; u < g->n; u++)
        p->nodes[p->n++] = (struct partition_node){.id = u,
                                                   .accel_s = g->work_us[u],
                                                   .size = g->fixed[u],
                                                   .activation = g->slot[u],
                                                   .color = u,
                                                   .supported = true};
    for (int k = 0; k < g->n_tensors; k++) {
        const struct cut_tensor *t = &g->tensors[k];
        p->edges[p->m++] = (struct partition_edge){t->origin, p->n};
        for (int r = 0; r < t->n; r++)
            p->edges[p->m++] =
                (struct partition_edge){p->n, g->readers[t->first_reader + r]};
        p->nodes[p->n] = (struct partition_node){
            .id = p->n, .send_s = g->send_us[k], .color = t->origin, .supported = true};
        p->n++;
    }
}

/* The partition solver stops after MOST_STEPS, a second of work, with the best cut so
 * far. */
bool cut_graph_solve(const struct cut_graph *g, int stages, double *us, int *stage_of) {
    enum { MOST_STEPS = 200000 };
    int n_readers = 0;
    for (int k = 0; k < g->n_tensors; k++)
        n_readers += g->tensors[k].n;
    size_t nodes = (size_t)(g->n + g->n_tensors),
           edges = (size_t)(n_readers + g->n_tensors);
    struct partition_problem p = {.nodes = mem_array(nodes, sizeof *p.nodes),
                                  .edges = mem_array(edges + 1, sizeof *p.edges),
                                  .colors = g->n,
                                  .accels = stages,
                                  .max_size = g->memory,
                                  .micro_batches = g->micro_batches};
    struct solve_limits limits = {
        .gap = 1e-3, .seed = 1, .threads = 1, .steps = MOST_STEPS};
    struct partition_answer a;
    put_nodes(g, &p);
    bool found = partition_solve(&p, &limits, &a, NULL) == 0;
    for (int u = 0; u < g->n && found; u++)
        stage_of[u] = a.stage_of[u];
    if (found) {
        *us = a.value;
        partition_answer_release(&a);
    }
    free(p.nodes);
    free(p.edges);
    return found;
}
