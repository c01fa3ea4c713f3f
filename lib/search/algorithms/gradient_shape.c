/* From the shape of a pipeline to a relaxed problem, and from an answer to a candidate.
 *
 * A class is a repeat, or one op outside of repeats. A unit is an instance of a repeat
 * or such an op, or several of them where there are more than GRADIENT_UNITS. */
#include "search/algorithms/gradient.h"

#include <math.h>
#include <stdlib.h>

/* Takes every place where a unit may begin or, where there are too many, every second,
 * third, ... of them. */
static void find_units(const struct space *sp, struct gradient_shape *g) {
    const struct structure *st = &sp->blocks.s;
    int all = structure_units(st), step = (all + GRADIENT_UNITS - 1) / GRADIENT_UNITS;
    int n = 0, seen = 0;
    struct relax_count *counts = arena_array(&g->arena, (size_t)all, sizeof *counts);
    int *counts_of = arena_array(&g->arena, GRADIENT_UNITS + 1, sizeof *counts_of);
    int n_counts = 0;
    for (int i = 0; i < st->n_ops; i++) {
        if (!structure_begins_unit(st, i))
            continue;
        if (seen++ % step == 0) {
            g->bound[n] = i;
            counts_of[n++] = n_counts;
        }
        int class = g->class_of[sp->blocks.x.node_of[sp->blocks.x.of[i]]],
            j = counts_of[n - 1];
        while (j < n_counts && counts[j].class != class)
            j++;
        n_counts += j == n_counts;
        counts[j].class = class;
        counts[j].times++;
    }
    g->bound[n] = st->n_ops;
    counts_of[n] = n_counts;
    g->relaxed.n_units = n;
    g->relaxed.counts = counts;
    g->relaxed.counts_of = counts_of;
}

/* The first classes are the repeats, the others the ops outside of them. The last node is
 * an extra one without a choice. */
static void find_classes(const struct evaluate *ev, struct gradient_shape *g) {
    const struct graph *graph = &ev->graph;
    const struct structure *st = &graph->b->s;
    int n_ops = graph->b->x.model->n_ops, classes = st->n_repeats, n = 0;
    int *nodes = arena_array(&g->arena, (size_t)n_ops, sizeof *nodes);
    int *nodes_of =
        arena_array(&g->arena, (size_t)(st->n_repeats + n_ops) + 1, sizeof *nodes_of);
    g->class_of = arena_array(&g->arena, (size_t)graph->b->x.n_nodes + 1, sizeof(int));
    for (int r = 0; r < st->n_repeats; r++) {
        int first = gradient_unit_of_repeat(&st->repeats[r]);
        for (int i = first; i < first + st->repeats[r].period; i++) {
            nodes[n] = graph->b->x.node_of[graph->b->x.of[i]];
            g->class_of[nodes[n++]] = r;
        }
        nodes_of[r + 1] = n;
    }
    for (int x = 0; x < n_ops; x++) {
        if (st->repeat_of[graph->b->x.from[x]] >= 0)
            continue;
        nodes[n] = graph->b->x.node_of[x];
        g->class_of[nodes[n++]] = classes++;
        nodes_of[classes] = n;
    }
    g->relaxed.n_classes = classes;
    g->relaxed.n_nodes = graph->b->x.n_nodes + 1;
    g->relaxed.nodes = nodes;
    g->relaxed.nodes_of = nodes_of;
}

/* Cuts cost what stages like the first one pass to each other. */
static void find_cuts(struct evaluate *ev, struct gradient_shape *g) {
    size_t n = (size_t)g->relaxed.n_units + 1;
    double *in = arena_array(&g->arena, 2 * n, sizeof *in), *out = in + n;
    const struct prefix *t = g->types[g->type_of[0]].t;
    for (int u = 1; u < g->relaxed.n_units; u++)
        eval_takes(ev, t, g->bound[u], false, &in[u], &out[u]);
    cost_forget(&ev->cost);
    g->relaxed.cut_in = in;
    g->relaxed.cut_out = out;
}

/* The number of micro-batches in flight that would hold the same bytes if all pools
 * held equally many. */
static double in_flight(struct evaluate *ev, const struct candidate *c, int k,
                        const struct prefix *t) {
    const struct stage_sum *sum = eval_stage_sum(ev, t, &c->stages[k]);
    struct in_flight f = candidate_in_flight(ev, c, k);
    double all = 0;
    for (int p = 0; p < POOL_COUNT; p++)
        all += sum->slot[p];
    return all > 0 ? held_bytes(sum->slot, &f) / all : 0;
}

/* Groups the stages by type, with the micro-batches that each stage has in flight. */
static void find_types(struct evaluate *ev, struct gradient_shape *g) {
    const struct candidate *c = &g->c;
    size_t stages = (size_t)c->n_stages;
    double *flights = arena_array(&g->arena, stages, sizeof *flights);
    g->types = arena_array(&g->arena, stages, sizeof *g->types);
    g->type_of = arena_array(&g->arena, stages, sizeof *g->type_of);
    for (int k = 0; k < c->n_stages; k++) {
        int rank = candidate_rank(c, k);
        const struct prefix *t = candidate_prefix(ev, c, k, rank);
        int i = 0;
        while (i < g->n_types && g->types[i].t != t)
            i++;
        if (i == g->n_types)
            g->types[g->n_types++] = (struct gradient_stage_type){.t = t, .c = c, .k = k};
        g->type_of[k] = i;
        g->types[i].scale =
            ev->space->p.memory_bytes
                ? (double)search_memory(&ev->space->p, 0, ev->space->p.devices) /
                      (double)search_memory(&ev->space->p, rank, c->stages[k].devices)
                : 1;
        g->types[i].in_stage =
            fmax(1, (double)structure_units(&ev->space->blocks.s) / c->n_stages);
        flights[k] = in_flight(ev, c, k, t);
    }
    g->relaxed.in_flight = flights;
}

/* All arrays of the shape are in its arena, so that they are freed at once. */
struct gradient_shape *gradient_shape_make(struct evaluate *ev, const struct candidate *c) {
    struct gradient_shape *g = mem_alloc(sizeof *g);
    g->c = candidate_make(ev->space);
    candidate_copy(&g->c, c);
    int64_t room = eval_stage_room(ev, 0, ev->space->p.devices);
    g->relaxed = (struct relax_problem){.n_stages = c->n_stages,
                                        .micro_batches =
                                            (double)(ev->space->p.batch / c->micro_batch),
                                        .memory = room ? (double)room : INFINITY};
    find_classes(ev, g);
    find_units(ev->space, g);
    find_types(ev, g);
    find_cuts(ev, g);
    const struct relax_costs **costs =
        arena_array(&g->arena, (size_t)c->n_stages, sizeof(void *));
    for (int i = 0; i < g->n_types; i++)
        gradient_price(ev, g, &g->types[i]);
    for (int k = 0; k < c->n_stages; k++)
        costs[k] = &g->types[g->type_of[k]].costs;
    g->relaxed.costs = costs;
    return g;
}

void gradient_shape_free(struct gradient_shape *g) {
    if (!g)
        return;
    candidate_release(&g->c);
    arena_release(&g->arena);
    free(g);
}

/* Layouts, cuts and recompute come from the answer, all else from the shape's
 * candidate. */
void gradient_decode(const struct space *sp, const struct gradient_shape *g,
                     const struct relax_answer *a, struct candidate *out) {
    int nodes = sp->blocks.x.n_nodes;
    struct layout *layouts = mem_array((size_t)nodes, sizeof *layouts);
    candidate_copy(out, &g->c);
    for (int k = 0; k < out->n_stages; k++) {
        const struct gradient_stage_type *type = &g->types[g->type_of[k]];
        struct search_stage *st = &out->stages[k];
        for (int v = 0; v < nodes; v++)
            layouts[v] =
                type->layouts[v * GRADIENT_CHOICES + a->choice[k * g->relaxed.n_nodes + v]];
        st->first = g->bound[a->first[k]];
        st->end = g->bound[a->first[k + 1]];
        st->layouts = space_layouts(sp, layouts);
        st->recompute_level = a->option[k];
        st->recompute_blocks = st->recompute_level ? space_stage_blocks(sp, st) : 0;
        st->recompute_level = st->recompute_blocks ? st->recompute_level : 0;
    }
    free(layouts);
}
