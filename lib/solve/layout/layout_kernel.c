/* layout_kernel.c - a copy of the dual's core without its expensive values, and the
 * exact search of it. */
#include "solve/layout/layout_kernel.h"

#include <stdlib.h>
#include <string.h>

#define WORK INT64_C(400000000) /* entries of matrices times sweeps, about */

static int64_t *copy_of(const int64_t *from, int64_t n) {
    int64_t *to = mem_array((size_t)n + 1, sizeof *to);
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static void copy_var(struct layout_var *t, const struct layout_var *v) {
    t->k = v->k;
    if (!v->k)
        return;
    t->cost = copy_of(v->cost, v->k);
    for (int64_t s = 0; s < v->seg.n; s++) {
        struct layout_seg g = v->seg.p[s];
        g.use = copy_of(g.use, v->k);
        arr_push(&t->seg, g);
    }
    for (int64_t s = 0; s < v->pick.n; s++) {
        struct layout_pick p = v->pick.p[s];
        p.strategy = mem_array((size_t)v->k, sizeof *p.strategy);
        memcpy(p.strategy, v->pick.p[s].strategy, (size_t)v->k * sizeof *p.strategy);
        arr_push(&t->pick, p);
    }
}

static void copy_edges(struct layout_core *to, const struct layout_core *c) {
    to->n_edges = c->n_edges;
    to->edge = mem_array((size_t)c->n_edges + 1, sizeof *to->edge);
    for (int e = 0; e < c->n_edges; e++) {
        const struct layout_edge *g = &c->edge[e];
        to->edge[e] = *g;
        if (g->u < 0)
            continue;
        to->edge[e].w = layout_matrix_share(g->w);
        arr_push(&to->var[g->u].adj, e);
        arr_push(&to->var[g->v].adj, e);
    }
}

static void copy_core(struct layout_core *to, const struct layout_core *c) {
    *to = *c;
    to->var = mem_array((size_t)c->n_vars + 1, sizeof *to->var);
    for (int i = 0; i < c->n_vars; i++)
        copy_var(&to->var[i], &c->var[i]);
    copy_edges(to, c);
    to->cap = copy_of(c->cap, c->n_rows);
    to->row_time = copy_of(c->row_time, c->n_rows);
    to->lambda = mem_array((size_t)c->n_rows + 1, sizeof *to->lambda);
    memcpy(to->lambda, c->lambda, (size_t)c->n_rows * sizeof *to->lambda);
    to->fixed = mem_array((size_t)c->p->n_nodes + 1, sizeof *to->fixed);
    memcpy(to->fixed, c->fixed, (size_t)c->p->n_nodes * sizeof *to->fixed);
}

static int by_size(const void *pa, const void *pb) {
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

int64_t layout_kernel_reach(struct layout_dual *d, const int *keep, int open) {
    int64_t *extra = mem_array((size_t)d->off[d->n] + 1, sizeof *extra);
    int64_t *from = mem_array((size_t)d->n + 1, sizeof *from); /* least reach to open it */
    layout_dual_extra(d, extra);
    for (int i = 0; i < d->n; i++) {
        const int64_t *x = extra + d->off[i];
        int least = 0;
        for (int a = 1; a < d->k[i]; a++)
            least = x[a] < x[least] ? a : least;
        from[i] = keep && keep[i] >= 0 && x[keep[i]] > x[least] ? x[least] : LAYOUT_INF;
        for (int a = 0; a < d->k[i]; a++)
            if (a != least && x[a] < from[i])
                from[i] = x[a];
    }
    qsort(from, (size_t)d->n, sizeof *from, by_size);
    int64_t reach = d->n ? from[open < d->n ? open : d->n - 1] : 0;
    free(extra);
    free(from);
    return reach;
}

void layout_kernel_make(struct layout_kernel *k, struct layout_dual *d, int64_t reach,
                        const int *keep) {
    int64_t *extra = mem_array((size_t)d->off[d->n] + 1, sizeof *extra);
    *k = (struct layout_kernel){0};
    copy_core(&k->core, d->c);
    layout_dual_extra(d, extra);
    for (int i = 0; i < d->n; i++)
        for (int a = 0; a < d->k[i]; a++)
            if (extra[d->off[i] + a] > reach && a != keep[i])
                k->core.var[d->var[i]].cost[a] = LAYOUT_INF;
    free(extra);
    k->live = layout_core_shrink(&k->core, NULL) == 0;
    k->done = !k->live;
    for (int i = 0; i < k->core.n_vars; i++)
        k->vars += k->core.var[i].k > 0;
}

void layout_kernel_aim(struct layout_kernel *k, struct layout_dual *d, int64_t target) {
    *k = (struct layout_kernel){.target = target};
    copy_core(&k->core, d->c);
    layout_dual_fix(d, &k->core, target);
    k->live = layout_core_shrink(&k->core, NULL) == 0;
    k->done = !k->live && !interrupted();
    for (int i = 0; i < k->core.n_vars; i++)
        k->vars += k->core.var[i].k > 0;
}

/* Forbids the values of variable v that no choice has for the core's variable i. */
static void keep_seen(struct layout_var *v, int i, const int *const *x, int n) {
    for (int a = 0; a < v->k; a++) {
        bool seen = false;
        for (int s = 0; s < n && !seen; s++)
            seen = x[s][i] == a;
        if (!seen)
            v->cost[a] = LAYOUT_INF;
    }
}

void layout_kernel_mix(struct layout_kernel *k, const struct layout_whole *w,
                       const int *const *x, int n) {
    *k = (struct layout_kernel){0};
    layout_part(&k->core, w, NULL, 0);
    for (int q = 0; q < k->core.n_vars; q++)
        keep_seen(&k->core.var[q], k->core.var[q].pick.p[0].node, x, n);
    k->live = layout_core_shrink(&k->core, NULL) == 0;
    for (int q = 0; q < k->core.n_vars; q++)
        k->vars += k->core.var[q].k > 0;
}

void layout_kernel_drop(struct layout_kernel *k) {
    int64_t target = k->target;
    layout_kernel_release(k);
    k->target = target;
    k->large = true;
}

/* Returns how many nodes of the search take about as long as a batch of neighbourhoods. */
static int64_t most_nodes(const struct layout_core *c) {
    int64_t entries = 1;
    for (int e = 0; e < c->n_edges; e++)
        if (c->edge[e].u >= 0)
            entries += (int64_t)c->var[c->edge[e].u].k * c->var[c->edge[e].v].k;
    int64_t n = WORK / (36 * entries);
    return n < 8 ? 8 : n > 4000 ? 4000 : n;
}

void layout_kernel_run(struct layout_kernel *k) {
    if (!k->live)
        return;
    struct layout_search b = {
        .core = &k->core,
        .upper = k->target && k->target < k->upper ? k->target : k->upper,
        .max_nodes = most_nodes(&k->core) / (k->ease ? k->ease : 1) + 1,
        .deadline_s = k->deadline_s,
        .root_rounds = 100};
    b.x = mem_array((size_t)k->core.n_vars + 1, sizeof *b.x);
    layout_search_run(&b);
    k->found = b.found;
    k->done = b.done;
    k->value = b.upper;
    if (b.found) {
        k->y = mem_array((size_t)k->core.p->n_nodes + 1, sizeof *k->y);
        layout_core_choice(&k->core, b.x, k->y);
    }
    free(b.x);
}

void layout_kernel_release(struct layout_kernel *k) {
    layout_core_release(&k->core);
    free(k->y);
    *k = (struct layout_kernel){0};
}
