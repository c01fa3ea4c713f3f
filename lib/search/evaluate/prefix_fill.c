/* Filling prefix sums: what every op of the deduplicated model adds, and the sums.
 *
 * What an op adds depends on its own layout and on the layouts of the ops that read
 * its results. A search tries many layouts that differ from previous ones in an op or
 * two. So what was computed for the last layouts under the same setting is kept, and
 * only ops that depend on a change are looked up again. */
#include "search/evaluate/evaluate.h"

#include <stdlib.h>
#include <string.h>

/* Settings whose last filling is kept. A search has more only on hundreds of devices. */
enum { FILLED = 64 };

/* What the gradient that one reader makes holds while it waits (add_waiting). */
struct waiting {
    int64_t bytes; /* 0: it does not wait */
    bool made;     /* computed by the reader, not passed on unchanged */
};

/* The last filling under a setting. */
struct filled {
    struct setting st;
    const struct layout *layouts; /* [nodes]; NULL: none yet */
    bool *changed;           /* [nodes] whether the layout differs from the last filling */
    bool *illegal;           /* [ops of the deduplicated model] */
    struct load *own;        /* [ops] what a legal op adds */
    struct waiting *waiting; /* [readers of the deduplicated model's edges] */
};

/* For every op the nodes on whose layouts its load depends: its own and those of its
 * readers. */
struct dependence {
    int *first; /* [ops + 1] */
    ARR(int) nodes;
};

struct filling {
    struct dependence on;
    struct filled last[FILLED];
};

/* ---- what depends on what -------------------------------------------------------------- */

static void add_node(struct dependence *on, int from, int node) {
    for (int64_t i = from; i < on->nodes.n; i++)
        if (on->nodes.p[i] == node)
            return;
    arr_push(&on->nodes, node);
}

static void find_nodes(const struct blocks *g, struct dependence *on) {
    int n = g->x.model->n_ops;
    on->first = mem_array((size_t)n + 1, sizeof *on->first);
    for (int i = 0; i < n; i++) {
        int from = g->x.from[i];
        on->first[i] = (int)on->nodes.n;
        add_node(on, on->first[i], g->x.node_of[i]);
        for (int e = g->s.edges_of[from]; e < g->s.edges_of[from + 1]; e++)
            for (int k = 0; k < g->s.edges[e].n; k++)
                add_node(on, on->first[i], g->x.node_of[g->x.of[g->s.edges[e].readers[k]]]);
    }
    on->first[n] = (int)on->nodes.n;
}

static bool depends_on_change(const struct filling *all, const struct filled *f, int op) {
    for (int i = all->on.first[op]; i < all->on.first[op + 1]; i++)
        if (f->changed[all->on.nodes.p[i]])
            return true;
    return false;
}

static bool same_setting(const struct setting *a, const struct setting *b) {
    return a->devices == b->devices && a->micro_batch == b->micro_batch &&
           a->first_rank == b->first_rank && a->zero == b->zero && a->mesh == b->mesh &&
           a->apart == b->apart && a->regather == b->regather;
}

static struct filling *filling_of(struct evaluate *ev) {
    if (!ev->filling) {
        ev->filling = mem_alloc(sizeof *ev->filling);
        find_nodes(&ev->space->blocks, &ev->filling->on);
    }
    return ev->filling;
}

/* Returns the last filling under this setting, with `changed` set for the new one. If its
 * place has another setting, that filling is lost. */
static struct filled *last_filled(const struct space *sp, struct filling *all,
                                  const struct prefix *t) {
    const struct blocks *g = &sp->blocks;
    size_t ops = (size_t)g->x.model->n_ops, nodes = (size_t)g->x.n_nodes;
    struct filled *f = &all->last[graph_setting_hash(&t->st, 1) % FILLED];
    if (!f->own) {
        f->own = mem_array(ops, sizeof *f->own);
        f->waiting = mem_array((size_t)g->xs.n_readers, sizeof *f->waiting);
        f->illegal = mem_array(ops + nodes, sizeof *f->illegal);
        f->changed = f->illegal + ops;
    }
    if (!same_setting(&f->st, &t->st))
        f->layouts = NULL;
    f->st = t->st;
    for (size_t i = 0; i < nodes; i++)
        f->changed[i] =
            !f->layouts || memcmp(&f->layouts[i], &t->layouts[i], sizeof *f->layouts) != 0;
    f->layouts = t->layouts;
    return f;
}

void prefix_forget_filling(struct evaluate *ev) {
    for (int i = 0; ev->filling && i < FILLED; i++) {
        free(ev->filling->last[i].own);
        free(ev->filling->last[i].waiting);
        free(ev->filling->last[i].illegal);
    }
    if (ev->filling) {
        free(ev->filling->on.first);
        arr_release(&ev->filling->on.nodes);
    }
    free(ev->filling);
    ev->filling = NULL;
}

/* ---- what ops add ---------------------------------------------------------------------- */

static bool is_legal(const struct space *sp, const struct prefix *t, int op) {
    const struct model *m = sp->blocks.x.model;
    const struct layout *l = &t->layouts[sp->blocks.x.node_of[op]];
    return layout_check(m, &m->ops[op], &t->mesh, l, t->st.micro_batch, NULL) == 0 &&
           space_pins_allow(sp, op, t->st.mesh, &t->mesh, l);
}

/* The load of an op and of its edges to its readers, as if all of them were in its
 * stage. Next to its readers it may hold less at once than alone: a gradient that
 * replaces a saved value needs no buffer of its own. */
static struct load load_of(struct evaluate *ev, const struct prefix *t, int op) {
    struct graph *g = &ev->graph;
    int from = g->b->x.from[op];
    struct load l = *graph_node(g, &t->st, op, t->layouts);
    struct setting plain = graph_without_zero(&t->st);
    int64_t alone = l.temp, alone_plain = alone;
    if (blocks_zero(g->b, op, t->st.zero) > ZERO_OPTIMIZER)
        alone_plain = graph_node(g, &plain, op, t->layouts)->temp;
    l.temp = 0;
    for (int e = g->b->s.edges_of[from]; e < g->b->s.edges_of[from + 1]; e++) {
        const struct load *edge = prefix_edge(ev, t, &g->b->s.edges[e]);
        if (edge)
            load_add(&l, edge, 1);
    }
    if (l.temp && l.temp < alone_plain)
        alone -= alone_plain - l.temp;
    l.temp = l.temp > alone ? l.temp : alone;
    return l;
}

static struct waiting waiting_of(struct evaluate *ev, const struct prefix *t,
                                 const struct edge *e, int reader) {
    if (!prefix_op_is_legal(t, reader) || reader - e->origin < 2 ||
        !ev->space->blocks.x.model->tensors[e->tensor].gradient)
        return (struct waiting){0};
    const struct load *l = graph_node(&ev->graph, &t->st, reader, t->layouts);
    double elems = prefix_shard_of(ev->space, t, e, reader).want;
    return (struct waiting){(int64_t)((double)dtype_size(ev->space->p.dtype) * elems),
                            l->v[LOAD_backward] > 0};
}

/* Gradients wait for the producer's turn while the ops between it and its readers have
 * theirs. A gradient that an op passes on unchanged to two producers is one buffer,
 * which is already counted at the nearer one. */
static void add_waiting(const struct space *sp, struct prefix *t, const struct edge *e,
                        int reader, struct waiting w) {
    const struct model *m = sp->blocks.x.model;
    for (int j = e->origin + 1; j < reader && w.bytes; j++) {
        bool passed = false;
        for (int q = 0; q < m->ops[reader].n_in; q++)
            passed |= m->tensors[m->ops[reader].in[q]].producer == j;
        if (!passed || w.made)
            t->temp[j] += w.bytes;
    }
}

static void add_all_waiting(struct evaluate *ev, struct prefix *t, struct filled *f) {
    const struct blocks *g = &ev->space->blocks;
    for (int i = 0; i < g->xs.n_edges; i++) {
        const struct edge *e = &g->xs.edges[i];
        for (int k = 0; k < e->n && e->tensor >= 0; k++) {
            struct waiting *w = &f->waiting[&e->readers[k] - g->xs.readers];
            if (f->changed[g->x.node_of[e->readers[k]]])
                *w = waiting_of(ev, t, e, e->readers[k]);
            add_waiting(ev->space, t, e, e->readers[k], *w);
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------ */

struct brief prefix_brief_of(const struct space *sp, const struct prefix *t,
                             const struct load *l) {
    double m = (double)(sp->p.batch / t->st.micro_batch);
    struct brief b = {.time_us = l->v[LOAD_forward] + l->v[LOAD_backward] +
                                 l->v[LOAD_weights] +
                                 (l->v[LOAD_before_norm] + l->v[LOAD_update]) / m,
                      .forward_us = l->v[LOAD_forward],
                      .backward_us = l->v[LOAD_backward],
                      .fixed = l->v[LOAD_fixed],
                      .across = l->v[LOAD_across]};
    memcpy(b.slot, &l->v[LOAD_slot], sizeof b.slot);
    return b;
}

/* Adds the load of op i to the sums, and to `instance` if it is in the second instance. */
static void add_load(const struct space *sp, struct prefix *t, int i,
                     const struct load *l) {
    const struct blocks *g = &sp->blocks;
    int from = g->x.from[i], r = g->s.repeat_of[from];
    t->until[i + 1] = t->until[i];
    load_add(&t->until[i + 1], l, 1);
    if (r < 0 || structure_instance(&g->s, from) != 1)
        return;
    load_add(&t->instance[r], l, 1);
    /* behind the second instance follow the ones that are left out */
    const struct repeat *repeat = &g->s.repeats[r];
    if (from == repeat->first + 2 * repeat->period - 1 && repeat->count > 3)
        load_add(&t->until[i + 1], &t->instance[r], repeat->count - 3);
}

static void find_spans(struct prefix *t, int n) {
    for (int i = 0; i < n; i++) {
        int64_t *most = &t->temp_of_span[i / TEMP_SPAN],
                *update = &t->update_temp_of_span[i / TEMP_SPAN];
        *most = t->temp[i] > *most ? t->temp[i] : *most;
        *update = t->update_temp[i] > *update ? t->update_temp[i] : *update;
        t->groups_of_span[i / TEMP_SPAN] |= t->groups[i];
    }
}

/* Ops that are illegal under these layouts add nothing, since no candidate uses them. */
void prefix_fill(struct evaluate *ev, struct prefix *t) {
    static const struct load nothing;
    const struct blocks *g = &ev->space->blocks;
    struct filling *all = filling_of(ev);
    struct filled *f = last_filled(ev->space, all, t);
    int n = g->x.model->n_ops;
    for (int i = 0; i < n; i++) {
        if (f->changed[g->x.node_of[i]])
            f->illegal[i] = !is_legal(ev->space, t, i);
        t->illegal[i + 1] = t->illegal[i] + f->illegal[i];
    }
    add_all_waiting(ev, t, f);
    for (int i = 0; i < n; i++) {
        if (f->illegal[i]) {
            add_load(ev->space, t, i, &nothing);
            continue;
        }
        if (depends_on_change(all, f, i))
            f->own[i] = load_of(ev, t, i);
        t->temp[i] += f->own[i].temp;
        t->update_temp[i] = f->own[i].update_temp;
        t->groups[i] = f->own[i].groups;
        add_load(ev->space, t, i, &f->own[i]);
    }
    find_spans(t, n);
    for (int i = 0; i <= n + g->s.n_repeats; i++)
        t->brief[i] = prefix_brief_of(ev->space, t, &t->until[i]);
}
