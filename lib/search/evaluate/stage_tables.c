/* Tables of a stage (see stage_tables.h). */
#include "search/evaluate/stage_tables.h"

#include "search/space/layouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_NEAR = 10,     /* layouts of an op if not all are listed */
    MOST_LAYOUTS = 256, /* layouts of an op if all are listed */
    MOST_TUPLES = 1000, /* Entries of a table: three ops with MOST_NEAR layouts each. */
    MOST_AXES = 1 << MESH_MAX_AXES,
    NO_VARIABLE = -1,
};

struct worth {
    double us, bytes; /* us: INFINITY if the profile lacks something */
};

struct maker {
    struct evaluate *ev;
    const struct setting *setting;
    const struct search_stage *st;
    const struct in_flight *in_flight;
    struct stage_tables *t;
    bool all;
    double m, most_elems;
    /* by set of mesh axes, the least time to reduce an element; negative: not known yet */
    double element_us[MOST_AXES];
    struct layout *at; /* [nodes] the layouts under which costs are looked up */
    int *variable;     /* [nodes] index of its variable, or NO_VARIABLE */
    /* [ops of the deduplicated model] how many ops of the stage it stands for */
    int *weight;
    /* [edges of the deduplicated model] how many edges of the stage it stands for */
    int *of_small;
};

/* ---- what a load is worth ------------------------------------------------------------------ */

/* Returns the least time per element of reducing gradients over these axes, for any number
 * of elements that the stage may have. */
static double element_us(struct maker *k, unsigned axes) {
    double *us = &k->element_us[axes];
    if (*us >= 0)
        return *us;
    *us = INFINITY;
    for (int doubled = 0; ldexp(16, doubled) < 2 * k->most_elems + 32; doubled++) {
        double n = ldexp(16, doubled);
        bool missing = false;
        double all = graph_reduce_us(&k->ev->graph, k->setting, axes, n, &missing);
        *us = fmin(*us, missing ? 0 : all / n);
    }
    return *us;
}

static struct worth worth_of(struct maker *k, const struct load *l, double times) {
    const double *v = l->v;
    struct worth w = {
        .us = k->m * (v[LOAD_forward] + v[LOAD_backward] + v[LOAD_weights]) +
              v[LOAD_before_norm] + v[LOAD_update] + element_us(k, 0) * v[LOAD_filled],
        .bytes = v[LOAD_fixed] + held_bytes(&v[LOAD_slot], k->in_flight) + v[LOAD_across]};
    for (int i = 0; i < LOAD_REDUCTIONS && l->over[i]; i++)
        w.us += element_us(k, l->over[i]) * l->elems[i];
    w.us = !k->all && v[LOAD_missing] > 0.5 ? INFINITY : times * w.us;
    w.bytes *= times;
    return w;
}

/* ---- variables ----------------------------------------------------------------------------- */

/* Makes a variable of an op's node, with the layouts that it may have. */
static void add_variable(struct maker *k, int x) {
    const struct blocks *g = &k->ev->space->blocks;
    struct stage_tables *t = k->t;
    int node = g->x.node_of[x], v = t->p.n++;
    struct layout_list list = {0};
    k->variable[node] = v;
    t->node[v] = node;
    if (k->all) {
        layouts_all(k->ev->space, k->st, k->setting->micro_batch, x, &list);
    } else {
        list.p = mem_array(MOST_NEAR, sizeof *list.p);
        list.p[0] = k->st->layouts[node];
        list.n =
            layouts_neighbours(k->ev->space, k->st, k->setting->micro_batch, x,
                               space_preset_of(k->ev->space, k->st), list.p, MOST_NEAR);
    }
    ((int *)t->p.size)[v] = (int)list.n;
    t->layouts[v] = arena_array(&t->arena, (size_t)list.n + 1, sizeof *t->layouts[v]);
    for (int64_t i = 0; i < list.n; i++)
        t->layouts[v][i] = list.p[i];
    arr_release(&list);
}

/* The number of layouts before illegal ones are left out. */
static double most_layouts(const struct maker *k, int x) {
    return pow(k->ev->space->blocks.x.model->ops[x].space.n + 1,
               space_mesh_axes(k->ev->space, k->st));
}

/* Adds all variables; returns false if an op has no layout, or too many to list. */
static bool add_variables(struct maker *k) {
    const struct blocks *g = &k->ev->space->blocks;
    bool good = true;
    for (int i = k->st->first; i < k->st->end && good; i++) {
        int x = g->x.of[i];
        k->weight[x]++;
        if (k->variable[g->x.node_of[x]] != NO_VARIABLE)
            continue;
        good = !k->all || most_layouts(k, x) <= MOST_LAYOUTS;
        if (good)
            add_variable(k, x);
        good = good && k->t->p.size[k->t->p.n - 1] > 0;
    }
    return good;
}

/* ---- critical ops ---------------------------------------------------------------------------- */

/* Returns whether more than one instance of a node reads the tensor. */
static bool is_wide(const struct blocks *g, const struct edge *e) {
    for (int i = 0; i < e->n; i++)
        for (int j = 0; j < i; j++)
            if (g->x.node_of[g->x.of[e->readers[i]]] ==
                g->x.node_of[g->x.of[e->readers[j]]])
                return true;
    return false;
}

/* Marks the variables of critical ops: `passing` counts the tensors that bypass each
 * op. */
static void find_critical(struct maker *k) {
    const struct structure *st = &k->ev->space->blocks.s;
    const struct search_stage *stage = k->st;
    bool *critical = (bool *)k->t->p.critical;
    int n = stage->end - stage->first, passing = 0;
    int *change = mem_array((size_t)n + 1, sizeof *change);
    bool *origin = mem_array((size_t)n + 1, sizeof *origin);
    for (int i = 0; i < n; i++) {
        for (int e = st->edges_of[stage->first + i]; e < st->edges_of[stage->first + i + 1];
             e++) {
            const struct edge *edge = &st->edges[e];
            if (edge->tensor < 0)
                continue;
            int last = edge_last(edge) - stage->first;
            origin[i] |= is_wide(&k->ev->space->blocks, edge);
            if (is_wide(&k->ev->space->blocks, edge) || last <= i + 1)
                continue;
            change[i + 1]++;
            change[last < n ? last : n]--;
        }
    }
    for (int i = 0; i < n; i++) {
        passing += change[i];
        if (!passing || origin[i])
            critical[k->variable[k->ev->space->blocks.x.node_of
                                     [k->ev->space->blocks.x.of[stage->first + i]]]] = true;
    }
    free(change);
    free(origin);
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Returns the table over these variables, which are ascending; makes it if there is
 * none. */
static struct critical_factor *factor_of(struct maker *k, int n, const int *var) {
    struct stage_tables *t = k->t;
    size_t size = 1;
    for (int64_t i = 0; i < t->factors.n; i++)
        if (t->factors.p[i].n == n &&
            !memcmp(t->factors.p[i].var, var, (size_t)n * sizeof *var))
            return &t->factors.p[i];
    struct critical_factor f = {.n = n};
    for (int i = 0; i < n; i++) {
        f.var[i] = var[i];
        size *= (size_t)t->p.size[var[i]];
    }
    f.cost = arena_array(&t->arena, size, sizeof *f.cost);
    f.usage = arena_array(&t->arena, size, sizeof *f.usage);
    arr_push(&t->factors, f);
    return &arr_last(&t->factors);
}

static void add_worth(const struct critical_factor *f, int64_t at, struct worth w) {
    ((double *)f->cost)[at] += w.us;
    ((double *)f->usage)[at] += w.bytes;
}

static void set(struct maker *k, int v, int value) {
    k->at[k->t->node[v]] = k->t->layouts[v][value];
}

static struct worth edge_worth(struct maker *k, const struct edge *e, double times) {
    return worth_of(
        k, graph_edge(&k->ev->graph, k->setting, e, k->st->first, k->st->end, k->at),
        times);
}

static void add_node(struct maker *k, int x) {
    int v = k->variable[k->ev->space->blocks.x.node_of[x]];
    const struct critical_factor *f = factor_of(k, 1, &v);
    for (int a = 0; a < k->t->p.size[v]; a++) {
        set(k, v, a);
        add_worth(
            f, a,
            worth_of(k, graph_node(&k->ev->graph, k->setting, x, k->at), k->weight[x]));
    }
    set(k, v, 0);
}

/* Lists the variables of an edge that are in the stage, ascending; at most `most`. */
static int variables_of(const struct maker *k, const struct edge *e, int most, int *out) {
    const struct blocks *g = &k->ev->space->blocks;
    int n = 0;
    for (int i = -1; i < e->n; i++) {
        int op = i < 0 ? e->origin : e->readers[i], at = 0;
        if (op < k->st->first || op >= k->st->end)
            continue;
        int v = k->variable[g->x.node_of[g->x.of[op]]];
        while (at < n && out[at] < v)
            at++;
        if ((at < n && out[at] == v) || n == most)
            continue;
        memmove(&out[at + 1], &out[at], (size_t)(n - at) * sizeof *out);
        out[at] = v;
        n++;
    }
    return n;
}

/* Adds an edge's costs under all combinations of layouts of these variables. */
static void add_together(struct maker *k, const struct edge *e, double times, int n,
                         const int *var) {
    const struct critical_factor *f = factor_of(k, n, var);
    int x[CRITICAL_ARITY] = {0}, i = 0;
    for (int64_t at = 0; i >= 0; at++) {
        for (int j = 0; j < n; j++)
            set(k, var[j], x[j]);
        add_worth(f, at, edge_worth(k, e, times));
        for (i = n - 1; i >= 0 && ++x[i] == k->t->p.size[var[i]]; i--)
            x[i] = 0;
    }
    for (int j = 0; j < n; j++)
        set(k, var[j], 0);
}

/* Adds what changing both ops of a pair costs beyond changing each alone, while all other
 * ops keep their layouts. */
static void add_pair(struct maker *k, const struct edge *e, double times, const int var[2],
                     struct worth now, struct worth *const alone[2]) {
    const struct critical_factor *f = factor_of(k, 2, var);
    int nb = k->t->p.size[var[1]];
    for (int a = 1; a < k->t->p.size[var[0]]; a++) {
        for (int b = 1; b < nb; b++) {
            set(k, var[0], a);
            set(k, var[1], b);
            struct worth w = edge_worth(k, e, times);
            if (isfinite(alone[0][a].us) && isfinite(alone[1][b].us))
                add_worth(f, (int64_t)a * nb + b,
                          (struct worth){w.us - alone[0][a].us - alone[1][b].us - now.us,
                                         w.bytes - alone[0][a].bytes - alone[1][b].bytes -
                                             now.bytes});
        }
    }
    set(k, var[0], 0);
    set(k, var[1], 0);
}

/* Approximates an edge with too many combinations: the cost of each change alone, and
 * of each pair of changes. */
static void add_pairs(struct maker *k, const struct edge *e, double times, int n,
                      const int *var) {
    struct worth now = edge_worth(k, e, times), *alone[CRITICAL_ARITY];
    k->t->exact = false;
    if (!isfinite(now.us))
        return;
    for (int i = 0; i < n; i++) {
        int size = k->t->p.size[var[i]];
        const struct critical_factor *f = factor_of(k, 1, &var[i]);
        alone[i] = mem_array((size_t)size, sizeof *alone[i]);
        for (int a = 0; a < size; a++) {
            set(k, var[i], a);
            struct worth w = edge_worth(k, e, times);
            alone[i][a] = (struct worth){w.us - now.us, w.bytes - now.bytes};
            add_worth(f, a, i ? alone[i][a] : w);
        }
        set(k, var[i], 0);
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            add_pair(k, e, times, (int[]){var[i], var[j]}, now,
                     (struct worth *[]){alone[i], alone[j]});
    for (int i = 0; i < n; i++)
        free(alone[i]);
}

static void add_edge(struct maker *k, const struct edge *e, double times) {
    int var[CRITICAL_ARITY + 1], n = variables_of(k, e, CRITICAL_ARITY + 1, var);
    double tuples = 1;
    for (int i = 0; i < n; i++)
        tuples *= k->t->p.size[var[i]];
    if (n <= CRITICAL_ARITY && tuples <= MOST_TUPLES)
        add_together(k, e, times, n, var);
    else
        add_pairs(k, e, times, n <= CRITICAL_ARITY ? n : CRITICAL_ARITY, var);
}

/* Adds the edges: equal ones inside the stage at once, times their number, and those that
 * cross its ends one by one. */
static void add_edges(struct maker *k) {
    const struct blocks *g = &k->ev->space->blocks;
    const struct crossing *in = &k->ev->space->crossings[k->st->first];
    for (int i = 0; i < in->n; i++)
        add_edge(k, &g->s.edges[in->edges[i]], 1);
    for (int pass = 0; pass < 2; pass++)
        for (int i = k->st->first; i < k->st->end; i++)
            for (int e = g->s.edges_of[i]; e < g->s.edges_of[i + 1]; e++) {
                const struct edge *edge = &g->s.edges[e];
                int *times = &k->of_small[blocks_small_edge(g, edge) - g->xs.edges];
                if (edge_last(edge) >= k->st->end) {
                    if (pass)
                        add_edge(k, edge, 1);
                } else if (!pass) {
                    ++*times;
                } else if (*times) {
                    add_edge(k, edge, *times);
                    *times = 0;
                }
            }
}

/* Hashes everything that a solution depends on, so that equal stages are solved once. */
static uint64_t hash_of(const struct stage_tables *t) {
    uint64_t h = memo_mix(1, (uint64_t)t->p.n);
    for (int64_t i = 0; i < t->factors.n; i++) {
        const struct critical_factor *f = &t->factors.p[i];
        int64_t n = 1;
        for (int j = 0; j < f->n; j++) {
            n *= t->p.size[f->var[j]];
            h = memo_mix(h, (uint64_t)f->var[j] << 32 | (uint64_t)t->p.size[f->var[j]]);
        }
        for (int64_t j = 0; j < n; j++) {
            uint64_t bits[2];
            memcpy(&bits[0], &f->cost[j], sizeof bits[0]);
            memcpy(&bits[1], &f->usage[j], sizeof bits[1]);
            h = memo_mix(memo_mix(h, bits[0]), bits[1]);
        }
    }
    return h;
}

static double elements_of(const struct space *sp) {
    const struct model *m = sp->p.model;
    double n = 0;
    for (int i = 0; i < m->n_params; i++) {
        struct extents x = model_extents(m, &m->params[i].shape, sp->p.micro[0]);
        n += (double)extents_count(&x);
    }
    return n;
}

/* Prepares empty tables; no op has a variable yet. */
static void begin(struct maker *k) {
    const struct blocks *g = &k->ev->space->blocks;
    size_t nodes = (size_t)g->x.n_nodes, ops = (size_t)g->x.model->n_ops;
    struct stage_tables *t = k->t;
    *t = (struct stage_tables){.exact = true, .p.limit = INFINITY};
    t->p.size = arena_array(&t->arena, nodes, sizeof *t->p.size);
    t->p.critical = arena_array(&t->arena, nodes, sizeof *t->p.critical);
    t->node = arena_array(&t->arena, nodes, sizeof *t->node);
    t->layouts = arena_array(&t->arena, nodes, sizeof(struct layout *));
    k->m = (double)(k->ev->space->p.batch / k->setting->micro_batch);
    k->most_elems = elements_of(k->ev->space);
    for (int i = 0; i < MOST_AXES; i++)
        k->element_us[i] = -1;
    k->at = mem_array(nodes, sizeof *k->at);
    memset(k->at, PLACE_NONE, nodes * sizeof *k->at);
    k->variable = mem_array(nodes, sizeof *k->variable);
    for (size_t i = 0; i < nodes; i++)
        k->variable[i] = NO_VARIABLE;
    k->weight = mem_array(ops, sizeof *k->weight);
    k->of_small = mem_array((size_t)g->xs.n_edges + 1, sizeof *k->of_small);
}

static void add_tables(struct maker *k) {
    struct stage_tables *t = k->t;
    find_critical(k);
    for (int v = 0; v < t->p.n; v++)
        set(k, v, 0);
    for (int x = 0; x < k->ev->space->blocks.x.model->n_ops; x++)
        if (k->weight[x])
            add_node(k, x);
    add_edges(k);
    t->p.factors = t->factors.p;
    t->p.n_factors = (int)t->factors.n;
    t->hash = hash_of(t);
}

bool stage_tables_make(struct evaluate *ev, const struct setting *setting,
                       const struct search_stage *st, const struct in_flight *in_flight,
                       bool all, struct stage_tables *out) {
    struct maker k = {
        .ev = ev, .setting = setting, .st = st, .in_flight = in_flight, .t = out};
    k.all = all;
    begin(&k);
    bool good = add_variables(&k);
    if (good)
        add_tables(&k);
    free(k.at);
    free(k.variable);
    free(k.weight);
    free(k.of_small);
    return good;
}

void stage_tables_release(struct stage_tables *t) {
    arr_release(&t->factors);
    arena_release(&t->arena);
}

void stage_tables_sum(const struct stage_tables *t, const int *choice, double *us,
                      double *bytes) {
    *us = *bytes = 0;
    for (int64_t i = 0; i < t->factors.n; i++) {
        const struct critical_factor *f = &t->factors.p[i];
        int64_t at = 0;
        for (int j = 0; j < f->n; j++)
            at = at * t->p.size[f->var[j]] + choice[f->var[j]];
        *us += f->cost[at];
        *bytes += f->usage[at];
    }
}
