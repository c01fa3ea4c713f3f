/* layout_tree.c - the leaves of the tree, and by which variable a leaf is divided. */
#include "solve/layout/layout_tree.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN 30 /* sweeps at a leaf before it is divided ... */
#define NEXT  20 /* ... and at each of the new ones */

struct grower {
    struct layout_tree *t;
    struct layout_dual *d;
    const int *x;
    int64_t upper, unit;
    int64_t *cost;  /* (off[n]) of the dual, without decisions */
    int64_t *msg;   /* (n_msg) of the dual as it came */
    int64_t *here;  /* (n_msg) of the leaf that is divided */
    int64_t *extra; /* (off[n]) */
    int64_t *pairs; /* of one edge */
    int sweeps;
    double deadline_s;
};

static bool closed(const struct grower *g, int64_t bound) {
    return bound > g->upper - g->unit;
}

/* Returns the open leaf with the least bound, or -1 if there is none. */
static int least_leaf(const struct grower *g) {
    int best = -1;
    for (int64_t q = 0; q < g->t->leaf.n; q++) {
        const struct layout_leaf *l = &g->t->leaf.p[q];
        if (!l->divided && !closed(g, l->bound) &&
            (best < 0 || l->bound < g->t->leaf.p[best].bound))
            best = (int)q;
    }
    return best;
}

static void decide(struct grower *g, int var, int value) {
    int64_t *cost = g->d->cost + g->d->off[var];
    for (int a = 0; a < g->d->k[var]; a++)
        if (a != value)
            cost[a] = LAYOUT_INF;
}

/* Applies the decisions of the leaf, and no others, to the messages given. */
static void stand_at(struct grower *g, int leaf, const int64_t *msg) {
    struct layout_dual *d = g->d;
    memcpy(d->cost, g->cost, (size_t)d->off[d->n] * sizeof *d->cost);
    memcpy(d->msg, msg, (size_t)d->n_msg * sizeof *d->msg);
    for (; leaf >= 0; leaf = g->t->leaf.p[leaf].parent)
        if (g->t->leaf.p[leaf].var >= 0)
            decide(g, g->t->leaf.p[leaf].var, g->t->leaf.p[leaf].value);
}

/* Returns the best bound of some sweeps; ends early once it closes the leaf. */
static int64_t sweep_here(struct grower *g, int sweeps) {
    int64_t best = INT64_MIN;
    for (; sweeps > 0 && !layout_time_up(g->deadline_s); sweeps--, g->sweeps--) {
        int64_t bound = layout_dual_sweep(g->d);
        best = bound > best ? bound : best;
        if (closed(g, best))
            break;
    }
    return best;
}

/* ---- where to divide --------------------------------------------------------------------- */

/* Returns how many values of variable i cost less than this above the bound. */
static int values_below(const struct grower *g, int i, int64_t excess) {
    int n = 0;
    for (int a = 0; a < g->d->k[i]; a++)
        n += g->extra[g->d->off[i] + a] < excess;
    return n;
}

/* Returns what the choice costs at edge s above the edge's least. */
static int64_t excess_of(struct grower *g, int s) {
    struct layout_dual *d = g->d;
    int u = d->eu[s], v = d->ev[s];
    if (g->x[u] < 0 || g->x[v] < 0)
        return 0;
    layout_dual_pairs(d, s, g->pairs);
    int64_t x = g->pairs[(int64_t)g->x[u] * d->k[v] + g->x[v]];
    return x < LAYOUT_INF ? x : 0;
}

/* Returns the variable by which to divide: of the edge at which the choice costs most above
 * its least, the end with fewer values. -1 if nothing is left to decide. */
static int doubtful(struct grower *g) {
    struct layout_dual *d = g->d;
    int64_t most = 0;
    int best = -1;
    layout_dual_extra(d, g->extra);
    for (int s = 0; s < d->m; s++) {
        int64_t x = excess_of(g, s);
        if (x <= most)
            continue;
        int nu = values_below(g, d->eu[s], x), nv = values_below(g, d->ev[s], x);
        if (nu < 2 && nv < 2) /* all but one are expensive: as good as decided */
            continue;
        most = x;
        best = nv < 2 || (nu >= 2 && nu <= nv) ? d->eu[s] : d->ev[s];
    }
    return best;
}

/* ---- growing ----------------------------------------------------------------------------- */

/* Adds a leaf for each value of variable i. Those whose bound is high enough without a
 * sweep are not swept. */
static void divide(struct grower *g, int leaf, int i) {
    struct layout_dual *d = g->d;
    int64_t bound = d->bound, floor = g->t->leaf.p[leaf].bound;
    int64_t spread = g->upper - floor;
    memcpy(g->here, d->msg, (size_t)d->n_msg * sizeof *g->here);
    g->t->leaf.p[leaf].divided = true;
    for (int a = 0; a < d->k[i]; a++) {
        int64_t extra = g->extra[d->off[i] + a];
        if (extra >= LAYOUT_INF)
            continue;
        struct layout_leaf l = {leaf, i, a, false, bound + extra};
        l.bound = l.bound > floor ? l.bound : floor;
        if (l.bound - floor < spread / 2) {
            stand_at(g, leaf, g->here);
            decide(g, i, a);
            int64_t swept = sweep_here(g, NEXT);
            l.bound = swept > l.bound ? swept : l.bound;
        }
        arr_push(&g->t->leaf, l);
    }
}

/* Divides the leaf with the least bound. Returns false when there is none or nothing is
 * left to decide. */
static bool step(struct grower *g) {
    int leaf = least_leaf(g);
    if (leaf < 0)
        return false;
    stand_at(g, leaf, g->msg);
    int64_t bound = sweep_here(g, g->t->leaf.p[leaf].var < 0 ? 1 : AGAIN);
    struct layout_leaf *l = &g->t->leaf.p[leaf];
    l->bound = bound > l->bound ? bound : l->bound;
    if (least_leaf(g) != leaf || layout_time_up(g->deadline_s))
        return true;
    int i = doubtful(g);
    if (i < 0)
        return false;
    divide(g, leaf, i);
    return true;
}

static void grower_init(struct grower *g) {
    struct layout_dual *d = g->d;
    size_t values = (size_t)d->off[d->n], pairs = 1;
    g->cost = mem_array(values + 1, sizeof *g->cost);
    g->extra = mem_array(values + 1, sizeof *g->extra);
    g->msg = mem_array((size_t)d->n_msg + 1, sizeof *g->msg);
    g->here = mem_array((size_t)d->n_msg + 1, sizeof *g->here);
    memcpy(g->cost, d->cost, values * sizeof *g->cost);
    memcpy(g->msg, d->msg, (size_t)d->n_msg * sizeof *g->msg);
    for (int s = 0; s < d->m; s++) {
        size_t n = (size_t)d->k[d->eu[s]] * (size_t)d->k[d->ev[s]];
        pairs = n > pairs ? n : pairs;
    }
    g->pairs = mem_array(pairs, sizeof *g->pairs);
}

static void grower_release(struct grower *g) {
    stand_at(g, -1, g->msg);
    layout_dual_sweep(g->d);
    free(g->cost);
    free(g->msg);
    free(g->here);
    free(g->extra);
    free(g->pairs);
}

int64_t layout_tree_grow(struct layout_tree *t, struct layout_dual *d, const int *x,
                         int64_t upper, int sweeps, double deadline_s) {
    struct grower g = {.t = t,
                       .d = d,
                       .x = x,
                       .upper = upper,
                       .unit = INT64_C(1) << d->c->shift,
                       .sweeps = sweeps,
                       .deadline_s = deadline_s};
    if (t->leaf.n == 0)
        arr_push(&t->leaf, (struct layout_leaf){-1, -1, 0, false, d->bound});
    grower_init(&g);
    while (g.sweeps > 0 && !layout_time_up(deadline_s) && step(&g))
        ;
    int leaf = least_leaf(&g);
    int64_t bound = leaf < 0 ? upper : t->leaf.p[leaf].bound;
    grower_release(&g);
    return bound;
}

void layout_tree_release(struct layout_tree *t) {
    arr_release(&t->leaf);
}
