/* Cuts of the list of ops (see bound_cuts.h). */
#include "search/bound/bound_cuts.h"

#include <math.h>
#include <stdlib.h>

/* The four kinds of messages that a group receives: a tensor (TAKE) or a gradient (BACK),
 * from the neighbouring group (NEAR) or from any one on that side (FAR). */
enum which { TAKE_FAR, TAKE_NEAR, BACK_FAR, BACK_NEAR, WHICH_COUNT };

/* ---- messages ---------------------------------------------------------------------------- */

/* The time of a message to n devices, each of which takes one of `shards` parts. */
static double message_us(const struct cuts *c, int64_t sender, int64_t receiver, int n,
                         const struct cut_kind *k, int shards) {
    struct cost *cost = &c->r->ev->cost;
    int64_t bytes = (int64_t)ceil(k->elems / shards) * dtype_size(k->dtype);
    double us = cost_message_us(cost, sender, receiver, n, bytes);
    us = cost->n_missing ? 0 : us;
    cost_forget(cost);
    return us;
}

/* The most shards into which a tensor may be split on d devices. */
static int shards_of(const struct cuts *c, int d) {
    return c->r->sizes[c->r->size_of[d]];
}

/* About how many of n receivers share a link if the first one is on this rank. */
static int64_t flows_of(const struct cuts *c, int64_t rank, int64_t n) {
    struct cluster_unit u;
    if (!cluster_unit(&c->r->ev->space->p.cluster, rank, 0, &u) || rank + n <= u.end)
        return n;
    return u.end - rank;
}

/* The time of a message to d devices from `rank` on from n devices from `other` on. The end
 * that moves more bytes sets it, so the lesser time of both ends is a lower bound. */
static double exact_us(const struct cuts *c, const struct cut_kind *k, int64_t rank, int d,
                       int64_t other, int n) {
    int mine = shards_of(c, d), theirs = shards_of(c, n);
    double there = message_us(c, other, rank, d, k, mine);
    return fmin(there, message_us(c, rank, other, n, k, theirs < mine ? theirs : mine));
}

/* The least time from a neighbouring group. Of several groups that begin on the same node,
 * only those that load a shared link less than the ones before are tried. */
static double near_us(const struct cuts *c, const struct cut_kind *k, int64_t rank, int d,
                      bool back) {
    const struct relaxed *r = c->r;
    const struct cluster *cluster = &r->ev->space->p.cluster;
    int64_t most = back ? r->ev->space->p.devices - rank - d : rank, node = -1;
    double best = INFINITY, least = INFINITY;
    int mine = shards_of(c, d);
    for (int n = 1; n <= most; n++) {
        int64_t other = back ? rank + d : rank - n;
        int shards = shards_of(c, n) < mine ? shards_of(c, n) : mine;
        double share = (double)flows_of(c, other, n) / shards;
        if (c->node && cluster_node_of(cluster, other) == node && share >= least)
            continue;
        node = cluster_node_of(cluster, other);
        least = share;
        best = fmin(best, exact_us(c, k, rank, d, other, n));
    }
    return isfinite(best) ? best : 0;
}

/* The least time from any group in front or behind. With a profile it is 0, because a
 * profile may have a link for every distance, which would be too many to ask for. */
static double far_us(const struct cuts *c, const struct cut_kind *k, int64_t rank, int d,
                     bool back) {
    const struct space *sp = c->r->ev->space;
    int64_t other = back ? rank + d : rank - 1;
    double best = INFINITY;
    struct cluster_unit u;
    if (sp->p.profile)
        return 0;
    for (int level = 0; other >= 0 && other < sp->p.devices; level++) {
        best = fmin(best, message_us(c, other, rank, 1, k, shards_of(c, d)));
        if (!cluster_unit(&sp->p.cluster, rank, level, &u))
            break;
        other = back ? (u.end > rank + d ? u.end : rank + d) : u.first - 1;
    }
    return isfinite(best) ? best : 0;
}

/* Returns the rank that stands for this one. If all nodes are alike, only the place in the
 * node counts, and whether it is the first node. The first such place has the most groups
 * behind it and the last one the most in front, so their costs are no higher. */
static int alias_of(const struct cuts *c, int rank, bool back) {
    if (!c->node || rank < c->node)
        return rank;
    int last = (c->r->ev->space->p.devices - 1) / c->node * c->node + rank % c->node;
    last -= last >= c->r->ev->space->p.devices ? c->node : 0;
    return back ? rank % c->node : last;
}

static double us_at(struct cuts *c, int kind, enum which which, int d, int rank) {
    bool back = which == BACK_FAR || which == BACK_NEAR;
    int at = alias_of(c, rank, back);
    int row = c->node && at >= c->node ? c->node + at % c->node : at;
    int64_t line = ((int64_t)kind * WHICH_COUNT + (int)which) * c->n_places + row;
    double *us = &c->us[line * (c->r->ev->space->p.devices + 1) + d];
    if (*us < 0) {
        const struct cut_kind *k = &c->kinds[kind];
        bool near = which == TAKE_NEAR || which == BACK_NEAR;
        *us = (near ? near_us : far_us)(c, k, at, d, back);
    }
    return *us;
}

/* ---- stages ------------------------------------------------------------------------------ */

/* The lower bound of a reader that is not the tensor's first includes the addition of
 * a gradient. In a stage of its own it receives a message instead, so the addition is
 * subtracted. */
double cuts_take_us(struct cuts *c, int first, int end, int d, int rank) {
    struct cut_walk w = {0};
    double us = 0;
    while (cuts_next_taken(c, first, end, &w)) {
        double counted = w.later ? cuts_addition_us(c, w.kind, d) : 0;
        us +=
            fmax(us_at(c, w.kind, w.between ? TAKE_FAR : TAKE_NEAR, d, rank) - counted, 0);
    }
    return us;
}

double cuts_back_us(struct cuts *c, int first, int end, int d, int rank) {
    struct cut_walk w = {0};
    double us = 0;
    while (cuts_next_back(c, first, end, &w))
        us += us_at(c, w.kind, w.between ? BACK_FAR : BACK_NEAR, d, rank);
    return us;
}

double cuts_between_us(const struct cuts *c, int kind, int rank, int other, int d) {
    return exact_us(c, &c->kinds[kind], rank, d, other, d);
}

double cuts_addition_us(const struct cuts *c, int kind, int d) {
    return c->addition_us[kind * c->r->n_sizes + c->r->size_of[d]];
}

double cuts_path_us(struct cuts *c, int first, int d, int rank) {
    int on = c->next_on[first];
    const struct edge *e = on < c->n_ops ? c->path_edge[on] : NULL;
    int kind = e ? c->kind_of[e - c->r->ev->space->blocks.s.edges] : -1;
    bool near = e && e->origin == first - 1;
    return kind < 0 ? 0 : us_at(c, kind, near ? TAKE_NEAR : TAKE_FAR, d, rank);
}

/* ---- what passes --------------------------------------------------------------------------- */

static int kind_at(struct cuts *c, enum dtype dtype, double elems) {
    int k = 0;
    while (k < c->n_kinds && (c->kinds[k].dtype != dtype || c->kinds[k].elems != elems))
        k++;
    if (k == c->n_kinds)
        c->kinds[c->n_kinds++] = (struct cut_kind){dtype, elems};
    return k;
}

/* Gives tensors of equal type and size one number. Parameters and tensors that nobody
 * reads pass no cut. */
static void find_kinds(struct cuts *c) {
    const struct graph *g = &c->r->ev->graph;
    const struct model *m = g->b->x.model;
    c->kinds = mem_array((size_t)g->b->xs.n_edges + 1, sizeof *c->kinds);
    c->kind_of = mem_array((size_t)g->b->s.n_edges + 1, sizeof *c->kind_of);
    c->gives = mem_array((size_t)g->b->s.n_edges + 1, sizeof *c->gives);
    for (int i = 0; i < g->b->s.n_edges; i++) {
        int tensor = blocks_small_edge(g->b, &g->b->s.edges[i])->tensor;
        c->kind_of[i] = -1;
        if (tensor < 0 || !g->b->s.edges[i].n)
            continue;
        struct extents x = model_extents(m, &m->tensors[tensor].shape, c->r->micro_batch);
        c->kind_of[i] =
            kind_at(c, plan_tensor_dtype(&g->plan, tensor), (double)extents_count(&x));
        c->gives[i] = m->tensors[tensor].gradient;
    }
}

/* Times of additions are computed here, those of messages when they are first asked for. */
static void find_costs(struct cuts *c) {
    const struct relaxed *r = c->r;
    c->n_places = c->node && 2 * c->node < r->ev->space->p.devices
                      ? 2 * c->node
                      : r->ev->space->p.devices;
    int64_t n =
        (int64_t)c->n_kinds * WHICH_COUNT * c->n_places * (r->ev->space->p.devices + 1);
    c->us = mem_array((size_t)n + 1, sizeof *c->us);
    for (int64_t i = 0; i < n; i++)
        c->us[i] = -1;
    c->addition_us =
        mem_array((size_t)(c->n_kinds * r->n_sizes) + 1, sizeof *c->addition_us);
    for (int k = 0; k < c->n_kinds; k++)
        for (int d = 0; d < r->n_sizes; d++)
            c->addition_us[k * r->n_sizes + d] =
                op_bounds_addition_us(r->classes->of[0].op_bounds, r->sizes[d],
                                      c->kinds[k].dtype, c->kinds[k].elems);
}

/* ---- the path ------------------------------------------------------------------------------ */

/* Finds the longest path, so that most cuts lie between neighbours on it. */
static void find_path(struct cuts *c) {
    const struct structure *st = &c->r->ev->space->blocks.s;
    int n = c->n_ops, last = 0, on = n;
    int *length = mem_array((size_t)n, sizeof *length);
    c->path_edge = mem_array((size_t)n + 1, sizeof *c->path_edge);
    c->next_on = mem_array((size_t)n + 1, sizeof *c->next_on);
    c->last_on = mem_array((size_t)n + 1, sizeof *c->last_on);
    /* Edges are sorted by origin, so the length of an origin is final. */
    for (int e = 0; e < st->n_edges; e++) {
        const struct edge *edge = &st->edges[e];
        for (int i = 0; i < edge->n && edge->tensor >= 0; i++)
            if (length[edge->readers[i]] <= length[edge->origin]) {
                length[edge->readers[i]] = length[edge->origin] + 1;
                c->path_edge[edge->readers[i]] = edge;
            }
    }
    for (int i = 0; i < n; i++)
        last = length[i] > length[last] ? i : last;
    for (int i = n; i >= 0; i--) {
        bool member = i == last;
        on = member ? i : on;
        last = member && c->path_edge[i] ? c->path_edge[i]->origin : last;
        c->next_on[i] = on;
    }
    c->last_on[0] = -1;
    for (int i = 0; i < n; i++)
        c->last_on[i + 1] = c->next_on[i] == i ? i : c->last_on[i];
    free(length);
}

/* Returns the devices in a node if all nodes are alike, with one kind of link inside
 * and one between; else 0. */
static int like_nodes(const struct space *sp) {
    const struct cluster *c = &sp->p.cluster;
    bool like = c->n_groups == 1 && c->n_links <= 1 && c->groups[0].n_links <= 1;
    return like && !sp->p.profile ? (int)c->groups[0].devices : 0;
}

struct cuts *cuts_make(const struct relaxed *r) {
    struct cuts *c = mem_alloc(sizeof *c);
    *c = (struct cuts){
        .r = r, .n_ops = r->ev->space->blocks.s.n_ops, .node = like_nodes(r->ev->space)};
    find_kinds(c);
    find_costs(c);
    find_path(c);
    return c;
}

void cuts_free(struct cuts *c) {
    free(c->kinds);
    free(c->kind_of);
    free(c->gives);
    free(c->us);
    free(c->addition_us);
    free(c->path_edge);
    free(c->next_on);
    free(c->last_on);
    free(c);
}
