/* layout_swing.c - moves that optimize a whole tree of variables, and swings made of
 * them. */
#include "solve/layout/layout_swing.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NODES  200 /* of a tree */
#define MOST_DEGREE 100 /* of a variable that joins a tree */
#define BUMPS       5   /* rows that get a charge in one move */

/* A row that broke, and what its use costs from then on. */
struct bump {
    int row;
    double charge;
};

struct trees {
    struct layout_state s;
    struct rng r;
    int64_t *off;    /* (n_vars + 1) into charge */
    int64_t *charge; /* of what each value uses */
    double share;    /* of the charge that counts */
    int width;       /* most values of a variable */
    /* the tree, parents before children */
    int n, node[MOST_NODES], parent[MOST_NODES], edge[MOST_NODES];
    int old[MOST_NODES], best[MOST_NODES];
    int *index;     /* (n_vars) place in the tree + 1, 0 = outside */
    int64_t *table; /* (MOST_NODES, width) */
    int *arg;       /* (MOST_NODES, width) best value for each of the parent */
    struct bump bump[BUMPS];
    int n_bumps;
};

/* ---- the tree ---------------------------------------------------------------------- */

static bool incident(const struct layout_edge *e, int i) {
    return e->u == i || e->v == i;
}

/* Returns whether only one edge connects variable i with the tree. */
static bool one_edge(const struct trees *t, int i) {
    const struct layout_core *c = t->s.c;
    int n = 0;
    for (int64_t s = 0; s < c->var[i].adj.n && n < 2; s++) {
        const struct layout_edge *e = &c->edge[c->var[i].adj.p[s]];
        n += incident(e, i) && t->index[layout_other(e, i)] > 0;
    }
    return n == 1;
}

static void add_node(struct trees *t, int i, int parent, int edge) {
    t->node[t->n] = i;
    t->parent[t->n] = parent;
    t->edge[t->n] = edge;
    t->old[t->n] = t->s.x[i];
    t->index[i] = ++t->n;
}

static void grow_tree(struct trees *t, int start, int size) {
    const struct layout_core *c = t->s.c;
    t->n = 0;
    add_node(t, start, -1, -1);
    for (int at = 0; at < t->n && t->n < size; at++) {
        const struct layout_var *v = &c->var[t->node[at]];
        int64_t deg = v->adj.n, tries = deg < 40 ? deg : 40;
        int64_t first = deg ? rng_below(&t->r, deg) : 0;
        for (int64_t s = 0; s < tries && t->n < size; s++) {
            int id = v->adj.p[(first + s) % deg];
            const struct layout_edge *e = &c->edge[id];
            if (!incident(e, t->node[at]))
                continue;
            int o = layout_other(e, t->node[at]);
            if (t->index[o] == 0 && c->var[o].adj.n <= MOST_DEGREE && one_edge(t, o))
                add_node(t, o, at, id);
        }
    }
}

static void leave_tree(struct trees *t) {
    for (int q = 0; q < t->n; q++)
        t->index[t->node[q]] = 0;
}

/* ---- the best values ------------------------------------------------------------------ */

static void add_capped(int64_t *sum, const int64_t *w, int64_t step, int k) {
    for (int a = 0; a < k; a++) {
        int64_t x = sum[a] + w[a * step];
        sum[a] = x >= LAYOUT_INF ? LAYOUT_INF : x;
    }
}

static int64_t bumped(const struct trees *t, const struct layout_var *v, int a) {
    double sum = 0;
    for (int b = 0; b < t->n_bumps; b++)
        for (int64_t s = 0; s < v->seg.n; s++) {
            const struct layout_seg *g = &v->seg.p[s];
            if (g->lo <= t->bump[b].row && t->bump[b].row < g->hi)
                sum += t->bump[b].charge * (double)g->use[a];
        }
    return sum > (double)(LAYOUT_INF / 1024) ? LAYOUT_INF / 1024 : (int64_t)sum;
}

static int64_t charge_of(const struct trees *t, int i, int a) {
    return (int64_t)(t->share * (double)t->charge[t->off[i] + a]);
}

/* Computes the costs of node q's values with everything outside the tree as it is. */
static void alone(const struct trees *t, int q, int64_t *out) {
    const struct layout_core *c = t->s.c;
    int i = t->node[q];
    const struct layout_var *v = &c->var[i];
    memcpy(out, v->cost, (size_t)v->k * sizeof *out);
    for (int64_t s = 0; s < v->adj.n; s++) {
        const struct layout_edge *e = &c->edge[v->adj.p[s]];
        if (!incident(e, i) || t->index[layout_other(e, i)] > 0)
            continue;
        int kv = c->var[e->v].k;
        if (e->u == i)
            add_capped(out, e->w + t->s.x[e->v], kv, v->k);
        else
            add_capped(out, e->w + (int64_t)t->s.x[e->u] * kv, 1, v->k);
    }
    for (int a = 0; a < v->k; a++)
        if (out[a] < LAYOUT_INF)
            out[a] += charge_of(t, i, a) + (t->n_bumps ? bumped(t, v, a) : 0);
}

/* Adds to each value of the parent what the best values of node q and below cost with
 * it. */
static void pass_up(struct trees *t, int q) {
    const struct layout_core *c = t->s.c;
    const struct layout_edge *e = &c->edge[t->edge[q]];
    int k = c->var[t->node[q]].k, kp = c->var[t->node[t->parent[q]]].k;
    const int64_t *mine = t->table + (int64_t)q * t->width;
    int64_t *up = t->table + (int64_t)t->parent[q] * t->width;
    int *arg = t->arg + (int64_t)q * t->width;
    bool row = e->u == t->node[q];
    int64_t step = row ? kp : 1, base = row ? 1 : k;
    for (int b = 0; b < kp; b++) {
        int64_t least = LAYOUT_INF;
        arg[b] = 0;
        for (int a = 0; a < k; a++) {
            int64_t x = mine[a] + e->w[a * step + b * base];
            if (x < least) {
                least = x;
                arg[b] = a;
            }
        }
        up[b] = up[b] + least >= LAYOUT_INF ? LAYOUT_INF : up[b] + least;
    }
}

static int64_t edge_cost(const struct trees *t, int q, const int *x) {
    const struct layout_core *c = t->s.c;
    const struct layout_edge *e = &c->edge[t->edge[q]];
    bool row = e->u == t->node[q];
    int mine = x[q], other = x[t->parent[q]];
    return e->w[(int64_t)(row ? mine : other) * c->var[e->v].k + (row ? other : mine)];
}

/* Sets t->best. Returns by how much the tree gets cheaper, charges and bumps included. */
static int64_t best_values(struct trees *t) {
    int64_t before = 0;
    for (int q = 0; q < t->n; q++) {
        int64_t *out = t->table + (int64_t)q * t->width;
        alone(t, q, out);
        before += out[t->old[q]] + (q ? edge_cost(t, q, t->old) : 0);
    }
    for (int q = t->n - 1; q > 0; q--)
        pass_up(t, q);
    int k = t->s.c->var[t->node[0]].k;
    t->best[0] = t->old[0];
    for (int a = 0; a < k; a++)
        if (t->table[a] < t->table[t->best[0]])
            t->best[0] = a;
    for (int q = 1; q < t->n; q++)
        t->best[q] = t->arg[(int64_t)q * t->width + t->best[t->parent[q]]];
    return before - t->table[t->best[0]];
}

/* ---- the move ---------------------------------------------------------------------- */

static void move_uses(struct trees *t, const int *from, const int *to) {
    for (int q = 0; q < t->n; q++) {
        const struct layout_var *v = &t->s.c->var[t->node[q]];
        for (int64_t s = 0; from[q] != to[q] && s < v->seg.n; s++)
            layout_rows_add(&t->s.rows, v->seg.p[s].lo, v->seg.p[s].hi,
                            v->seg.p[s].use[from[q]] - v->seg.p[s].use[to[q]]);
    }
}

/* Computes by how much the charges and bumps of the tree's values fall. */
static void charge_change(const struct trees *t, int64_t *charges, int64_t *bumps) {
    *charges = *bumps = 0;
    for (int q = 0; q < t->n; q++) {
        const struct layout_var *v = &t->s.c->var[t->node[q]];
        if (t->old[q] == t->best[q])
            continue;
        *charges +=
            charge_of(t, t->node[q], t->old[q]) - charge_of(t, t->node[q], t->best[q]);
        if (t->n_bumps)
            *bumps += bumped(t, v, t->old[q]) - bumped(t, v, t->best[q]);
    }
}

/* Makes one move on the tree. Returns whether it gained anything. */
static bool move_tree(struct trees *t) {
    for (t->n_bumps = 0;; t->n_bumps++) {
        int64_t charges, bumps, gain = best_values(t);
        charge_change(t, &charges, &bumps);
        gain -= bumps;
        if (gain <= 0)
            return false;
        move_uses(t, t->old, t->best);
        int64_t worst = layout_rows_worst(&t->s.rows);
        if (worst >= 0) {
            for (int q = 0; q < t->n; q++)
                t->s.x[t->node[q]] = t->best[q];
            t->s.value -= gain - charges;
            return true;
        }
        int row = layout_rows_worst_row(&t->s.rows);
        move_uses(t, t->best, t->old);
        if (t->n_bumps == BUMPS)
            return false;
        t->bump[t->n_bumps] = (struct bump){row, 1.2 * (double)gain / (double)-worst};
    }
}

/* Makes about as many moves as reach every variable once or twice. */
static void sweep(struct trees *t, double share, double deadline_s) {
    const struct layout_core *c = t->s.c;
    t->share = share;
    for (int64_t done = 0; done < 2 * (int64_t)c->n_vars; done += 5 + t->n) {
        int start = (int)rng_below(&t->r, c->n_vars);
        int size = 4 << rng_below(&t->r, 6);
        t->n = 0;
        if (c->var[start].k < 2)
            continue;
        if (layout_time_up(deadline_s))
            return;
        grow_tree(t, start, size);
        move_tree(t);
        leave_tree(t);
    }
}

/* ---- swings ------------------------------------------------------------------------ */

static void set_charges(struct trees *t) {
    const struct layout_core *c = t->s.c;
    double *sum = mem_array((size_t)c->n_rows + 1, sizeof *sum);
    for (int r = 0; r < c->n_rows; r++)
        sum[r + 1] = sum[r] + c->lambda[r];
    for (int i = 0; i < c->n_vars; i++)
        for (int64_t s = 0; c->var[i].k && s < c->var[i].seg.n; s++) {
            const struct layout_seg *g = &c->var[i].seg.p[s];
            for (int a = 0; a < c->var[i].k; a++)
                t->charge[t->off[i] + a] +=
                    (int64_t)((sum[g->hi] - sum[g->lo]) * (double)g->use[a]);
        }
    free(sum);
}

static void trees_init(struct trees *t, struct layout_core *c, uint64_t seed) {
    *t = (struct trees){.r = {seed, 0}, .width = 1};
    layout_state_init(&t->s, c);
    t->off = mem_array((size_t)c->n_vars + 1, sizeof *t->off);
    for (int i = 0; i < c->n_vars; i++) {
        t->off[i + 1] = t->off[i] + c->var[i].k;
        t->width = c->var[i].k > t->width ? c->var[i].k : t->width;
    }
    t->charge = mem_array((size_t)t->off[c->n_vars] + 1, sizeof *t->charge);
    t->index = mem_array((size_t)c->n_vars + 1, sizeof *t->index);
    t->table = mem_array(MOST_NODES * (size_t)t->width, sizeof *t->table);
    t->arg = mem_array(MOST_NODES * (size_t)t->width, sizeof *t->arg);
    set_charges(t);
}

static void trees_release(struct trees *t) {
    layout_state_release(&t->s);
    free(t->off);
    free(t->charge);
    free(t->index);
    free(t->table);
    free(t->arg);
}

/* Moves from saving memory to spending it, until spending gains little more. */
static void swing(struct trees *t, double share, double deadline_s) {
    while (share > 0.02) {
        sweep(t, share, deadline_s);
        share /= 2;
    }
    for (int n = 0; n < 8 && !layout_time_up(deadline_s); n++) {
        int64_t before = t->s.value;
        sweep(t, 0, deadline_s);
        if ((double)(before - t->s.value) < 1e-5 * (double)before)
            break;
    }
}

void layout_swing_run(struct layout_swing *w) {
    struct trees t;
    size_t bytes = (size_t)w->core->n_vars * sizeof *w->x;
    trees_init(&t, w->core, w->seed);
    layout_state_set(&t.s, w->from);
    w->x = mem_array((size_t)w->core->n_vars + 1, sizeof *w->x);
    memcpy(w->x, w->from, bytes);
    w->value = t.s.value;
    w->end = mem_array((size_t)w->core->n_vars + 1, sizeof *w->end);
    memcpy(w->end, w->from, bytes);
    for (int n = 0; n < w->swings && !layout_time_up(w->deadline_s); n++) {
        double share = rng_real(&t.r);
        swing(&t, n == 0 && w->seed % 2 == 0 ? 0 : share * share, w->deadline_s);
        memcpy(w->end, t.s.x, bytes);
        if (t.s.value < w->value) {
            w->value = t.s.value;
            memcpy(w->x, t.s.x, bytes);
        } else {
            layout_state_set(&t.s, w->x);
        }
    }
    trees_release(&t);
}
