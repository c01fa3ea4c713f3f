/* The costs of a type of stage, from the strategy graph.
 *
 * Nodes are those of the strategy graph. A node chooses among the layout that it has
 * in the shape's candidate, the layout that splits nothing, and those of uniform
 * presets. The cost of an edge is divided into three parts: its cost under the
 * candidate's layouts goes to the class of its origin; what changing one op alone adds
 * goes to that op; what changing two ops adds beyond both single changes goes to the
 * pair. So sums are exact where at most two ops of an edge change. An option of a
 * stage is a level of recompute, with costs under the candidate's layouts. */
#include "search/algorithms/gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int gradient_unit_of_repeat(const struct repeat *r) {
    return r->first + (r->count > 2 ? r->period : 0);
}

/* How many ops of an edge are considered in pairs, at most. An edge rarely has more ops
 * with a choice. The relaxation lacks the costs of further ones, but the score of the
 * rounded plan has them. */
enum { MOST_TOGETHER = 4 };

struct worth {
    double us, fixed, slot; /* us: INFINITY if the profile lacks something */
};

/* The costs of one type of stage while they are worked out. */
struct pricing {
    struct evaluate *ev;
    struct gradient_shape *g;
    struct gradient_stage_type *type;
    struct layout *at;   /* [nodes] the layouts under which costs are taken */
    struct worth *nodes; /* [nodes x GRADIENT_CHOICES] */
    /* [classes] costs under the candidate's layouts, except those of nodes */
    struct worth *classes;
    ARR(struct relax_edge) edges;
};

/* ---- loads ----------------------------------------------------------------------------- */

/* Returns the bytes of a load and its time for a micro-batch, with a share of the update.
 * All gradients of a stage are reduced in one collective, so one instance is charged its
 * share of the collective for all instances of the stage. */
static struct worth worth_of(struct pricing *w, const struct load *l) {
    const double *v = l->v;
    double m = (double)(w->ev->space->p.batch / w->g->c.micro_batch), n = w->type->in_stage;
    bool missing = v[LOAD_missing] > 0.5;
    double update = v[LOAD_before_norm] + v[LOAD_update];
    for (int i = 0; i < LOAD_REDUCTIONS && l->over[i]; i++) {
        double elems = n * l->elems[i];
        update += copysign(graph_reduce_us(&w->ev->graph, &w->type->t->st, l->over[i],
                                           fabs(elems), &missing),
                           elems) /
                  n;
    }
    double us = v[LOAD_forward] + v[LOAD_backward] + v[LOAD_weights] + update / m;
    struct worth out = {missing ? INFINITY : us, v[LOAD_fixed] + v[LOAD_across], 0};
    for (int p = 0; p < POOL_COUNT; p++)
        out.slot += v[LOAD_slot + p];
    out.fixed *= w->type->scale;
    out.slot *= w->type->scale;
    return out;
}

static void add_worth(struct worth *to, struct worth more, double times) {
    to->us += times * more.us;
    to->fixed += times * more.fixed;
    to->slot += times * more.slot;
}

static void set(struct pricing *w, int node, int choice) {
    w->at[node] = w->type->layouts[node * GRADIENT_CHOICES + choice];
}

/* ---- choices --------------------------------------------------------------------------- */

static void add_layout(struct pricing *w, int x, const struct layout *l) {
    const struct model *m = w->ev->space->blocks.x.model;
    const struct setting *st = &w->type->t->st;
    int node = w->ev->space->blocks.x.node_of[x], *n = &w->type->n_layouts[node];
    struct layout *all = &w->type->layouts[node * GRADIENT_CHOICES];
    struct mesh mesh;
    stage_mesh(st->devices, st->mesh, &mesh);
    for (int i = 0; i < *n; i++)
        if (!memcmp(&all[i], l, sizeof *l))
            return;
    if (*n < GRADIENT_CHOICES &&
        layout_check(m, &m->ops[x], &mesh, l, st->micro_batch, NULL) == 0 &&
        space_pins_allow(w->ev->space, x, st->mesh, &mesh, l))
        all[(*n)++] = *l;
}

/* The candidate's own layout is always a choice, whatever it is, because the candidate
 * is legal. The others are the layout in which all devices do all of the work, which
 * pays on slow links, and the layouts of uniform presets. */
static void find_choices(struct pricing *w) {
    const struct blocks *g = &w->ev->space->blocks;
    struct search_stage st = w->type->c->stages[w->type->k];
    struct preset preset;
    struct layout whole;
    memset(&whole, PLACE_NONE, sizeof whole);
    for (int node = 0; node < g->x.n_nodes; node++) {
        w->type->layouts[node * GRADIENT_CHOICES] = w->type->t->layouts[node];
        w->type->n_layouts[node] = 1;
    }
    w->type->n_layouts[g->x.n_nodes] = 1;
    for (int x = 0; x < g->x.model->n_ops; x++)
        add_layout(w, x, &whole);
    for (int i = 0; space_preset(w->ev->space, &st, i, &preset); i++) {
        space_apply_preset(w->ev->space, &st, w->g->c.micro_batch, preset);
        for (int x = 0; x < g->x.model->n_ops && st.mesh == w->type->t->st.mesh; x++)
            add_layout(w, x, &st.layouts[g->x.node_of[x]]);
    }
}

/* ---- nodes and edges --------------------------------------------------------------------- */

static void price_node(struct pricing *w, int x) {
    int node = w->ev->space->blocks.x.node_of[x];
    for (int i = 0; i < w->type->n_layouts[node]; i++) {
        set(w, node, i);
        add_worth(&w->nodes[node * GRADIENT_CHOICES + i],
                  worth_of(w, graph_node(&w->ev->graph, &w->type->t->st, x, w->at)), 1);
    }
    set(w, node, 0);
}

static struct worth price_edge(struct pricing *w, const struct edge *e) {
    return worth_of(w, graph_edge(&w->ev->graph, &w->type->t->st, e, 0,
                                  w->ev->space->blocks.s.n_ops, w->at));
}

/* Lists the nodes of an edge that have a choice, each once. */
static int choosers_of(const struct pricing *w, const struct edge *e, int *out) {
    const struct blocks *g = &w->ev->space->blocks;
    int n = 0;
    for (int i = -1; i < e->n && n < MOST_TOGETHER; i++) {
        int node = g->x.node_of[g->x.of[i < 0 ? e->origin : e->readers[i]]], j = 0;
        while (j < n && out[j] != node)
            j++;
        if (j == n && w->type->n_layouts[node] > 1)
            out[n++] = node;
    }
    return n;
}

/* Adds an edge with the cost of changing both a and b, beyond the changes of each alone. */
static void price_pair(struct pricing *w, const struct edge *e, int class, int a, int b,
                       double now_us, const double *us_a, const double *us_b) {
    int na = w->type->n_layouts[a], nb = w->type->n_layouts[b];
    double *us = arena_array(&w->g->arena, (size_t)(na * nb), sizeof *us);
    for (int i = 1; i < na; i++) {
        for (int j = 1; j < nb; j++) {
            set(w, a, i);
            set(w, b, j);
            if (isfinite(us_a[i]) && isfinite(us_b[j]))
                us[i * nb + j] = price_edge(w, e).us - now_us - us_a[i] - us_b[j];
        }
    }
    set(w, a, 0);
    set(w, b, 0);
    arr_push(&w->edges, (struct relax_edge){class, a, b, us});
}

/* Adds the cost of changing one op alone: to the node if every unit of its class has
 * such an edge; otherwise as an edge to the node that has no choice. */
static void put_alone(struct pricing *w, int class, int node, int i, struct worth more,
                      double *us) {
    if (w->g->class_of[node] == class)
        add_worth(&w->nodes[node * GRADIENT_CHOICES + i], more, 1);
    else
        us[i] = isfinite(more.us) ? more.us : 0;
}

static void price_alone(struct pricing *w, const struct edge *e, int class, int node,
                        struct worth now, double *alone) {
    int n = w->type->n_layouts[node], none = w->ev->space->blocks.x.n_nodes;
    double *us = arena_array(&w->g->arena, (size_t)n, sizeof *us);
    for (int i = 0; i < n; i++) {
        set(w, node, i);
        struct worth more = price_edge(w, e);
        add_worth(&more, now, -1);
        alone[i] = more.us;
        put_alone(w, class, node, i, more, us);
    }
    set(w, node, 0);
    if (w->g->class_of[node] != class)
        arr_push(&w->edges, (struct relax_edge){class, node, none, us});
}

/* Returns whether the edge is a parameter that units of several classes use. They share it
 * only if they happen to be in the same stage, so its cost is left out. */
static bool is_shared_by_chance(const struct pricing *w, const struct edge *e) {
    const struct blocks *g = &w->ev->space->blocks;
    bool other = false;
    for (int i = 0; i < e->n; i++)
        other |= w->g->class_of[g->x.node_of[g->x.of[e->readers[i]]]] !=
                 w->g->class_of[g->x.node_of[g->x.of[e->origin]]];
    return e->param >= 0 && other && w->g->c.n_stages > 1;
}

static void price_whole_edge(struct pricing *w, const struct edge *e, int class) {
    int who[MOST_TOGETHER], n = choosers_of(w, e, who);
    double alone[MOST_TOGETHER][GRADIENT_CHOICES];
    if (is_shared_by_chance(w, e))
        return;
    struct worth now = price_edge(w, e);
    add_worth(&w->classes[class], now, 1);
    for (int k = 0; k < n; k++)
        price_alone(w, e, class, who[k], now, alone[k]);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            price_pair(w, e, class, who[a], who[b], now.us, alone[a], alone[b]);
}

/* Adds the costs of the ops first .. end-1, which are one unit of a class. */
static void price_class(struct pricing *w, int first, int end) {
    const struct blocks *g = &w->ev->space->blocks;
    int class = w->g->class_of[g->x.node_of[g->x.of[first]]];
    for (int i = first; i < end; i++) {
        price_node(w, g->x.of[i]);
        for (int e = g->s.edges_of[i]; e < g->s.edges_of[i + 1]; e++)
            price_whole_edge(w, &g->s.edges[e], class);
    }
}

static void price_classes(struct pricing *w) {
    const struct structure *st = &w->ev->space->blocks.s;
    for (int r = 0; r < st->n_repeats; r++) {
        int first = gradient_unit_of_repeat(&st->repeats[r]);
        price_class(w, first, first + st->repeats[r].period);
    }
    for (int i = 0; i < st->n_ops; i++) {
        if (st->repeat_of[i] < 0)
            price_class(w, i, i + 1);
        /* The class of the repeat is priced already: continue behind its last
         * instance. */
        else
            i = st->repeats[st->repeat_of[i]].first +
                st->repeats[st->repeat_of[i]].period * st->repeats[st->repeat_of[i]].count -
                1;
    }
}

/* ---- the solver's form ------------------------------------------------------------------- */

/* Writes the nodes' costs and the edges into the solver's arrays. A choice that the profile
 * lacks costs as much as all known ones together. */
static void put_nodes(struct pricing *w) {
    int nodes = w->g->relaxed.n_nodes, n = 0;
    struct relax_costs *c = &w->type->costs;
    double most = 0, *all;
    int *first = arena_array(&w->g->arena, (size_t)nodes + 1, sizeof *first);
    for (int v = 0; v < nodes; v++) {
        first[v] = n;
        n += w->type->n_layouts[v];
        for (int i = 0; i < w->type->n_layouts[v]; i++)
            if (isfinite(w->nodes[v * GRADIENT_CHOICES + i].us))
                most += fabs(w->nodes[v * GRADIENT_CHOICES + i].us);
    }
    first[nodes] = n;
    all = arena_array(&w->g->arena, 3 * (size_t)n + 1, sizeof *all);
    for (int v = 0; v < nodes; v++)
        for (int i = 0; i < w->type->n_layouts[v]; i++) {
            const struct worth *x = &w->nodes[v * GRADIENT_CHOICES + i];
            all[first[v] + i] = isfinite(x->us) ? x->us : most;
            all[n + first[v] + i] = x->fixed;
            all[2 * n + first[v] + i] = x->slot;
        }
    c->first = first;
    c->time = all;
    c->fixed = all + n;
    c->slot = all + 2 * n;
    struct relax_edge *edges =
        arena_array(&w->g->arena, (size_t)w->edges.n + 1, sizeof *edges);
    if (w->edges.n)
        memcpy(edges, w->edges.p, (size_t)w->edges.n * sizeof *edges);
    c->edges = edges;
    c->n_edges = (int)w->edges.n;
}

/* Returns what recomputing one unit of a repeat adds and saves. */
static struct worth price_recompute(struct pricing *w, const struct repeat *r, int level) {
    struct search_stage st = w->type->c->stages[w->type->k];
    st.first = gradient_unit_of_repeat(r);
    st.end = st.first + r->period;
    st.recompute_level = level;
    st.recompute_blocks = 1;
    struct load l = eval_recompute(w->ev, w->type->t, &st);
    return worth_of(w, &l);
}

/* Writes the options of the stage: no recompute or one of its levels, with the costs
 * of every class. Without a memory limit nothing is recomputed. */
static void put_options(struct pricing *w) {
    const struct structure *st = &w->ev->space->blocks.s;
    int classes = w->g->relaxed.n_classes,
        n = w->ev->space->p.memory_bytes ? RECOMPUTE_LEVELS : 1;
    struct relax_costs *c = &w->type->costs;
    size_t cells = (size_t)(n * classes);
    double *more = arena_array(&w->g->arena, 3 * cells + 2 * (size_t)n, sizeof *more);
    const struct stage_sum *sum =
        eval_stage_sum(w->ev, w->type->t, &w->type->c->stages[w->type->k]);
    for (int o = 0; o < n; o++) {
        for (int d = 0; d < classes; d++) {
            struct worth all = w->classes[d];
            if (o && d < st->n_repeats)
                add_worth(&all, price_recompute(w, &st->repeats[d], o), 1);
            more[o * classes + d] = isfinite(all.us) ? all.us : 0;
            more[(int)cells + o * classes + d] = all.fixed;
            more[2 * (int)cells + o * classes + d] = all.slot;
        }
        more[3 * (int)cells + n + o] = sum->temp;
    }
    c->n_options = n;
    c->more_time = more;
    c->more_fixed = more + cells;
    c->more_slot = more + 2 * cells;
    c->once_time = more + 3 * cells;
    c->once_bytes = more + 3 * cells + n;
}

/* Works out all costs of a type of stage: nodes, edges, and options. */
void gradient_price(struct evaluate *ev, struct gradient_shape *g,
                    struct gradient_stage_type *type) {
    size_t nodes = (size_t)g->relaxed.n_nodes, choices = nodes * GRADIENT_CHOICES;
    struct pricing w = {.ev = ev, .g = g, .type = type};
    w.at = mem_array(nodes, sizeof *w.at);
    memcpy(w.at, type->t->layouts, (size_t)ev->space->blocks.x.n_nodes * sizeof *w.at);
    w.nodes = mem_array(choices, sizeof *w.nodes);
    w.classes = mem_array((size_t)g->relaxed.n_classes, sizeof *w.classes);
    type->layouts = arena_array(&g->arena, choices, sizeof *type->layouts);
    type->n_layouts = arena_array(&g->arena, nodes, sizeof *type->n_layouts);
    find_choices(&w);
    price_classes(&w);
    put_nodes(&w);
    put_options(&w);
    free(w.at);
    free(w.nodes);
    free(w.classes);
    arr_release(&w.edges);
}
