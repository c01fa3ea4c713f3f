/* layout_bb.c - depth-first branch and bound.
 *
 * At each node, removed values spread along the edges and the rows (propagation), the dual
 * takes a few more rounds from where it stands, values whose bound is too high are removed,
 * and a choice is built along the messages. Branching takes the variable about which edges
 * and rows disagree most: first with its best value, then without that value. A trail
 * restores removed values. Messages are not restored, because any messages give true
 * bounds.
 */
#include "solve/layout/layout_bb.h"

#include "solve/layout/layout_local.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct trail_item {
    int64_t at;   /* offset in the dual's cost */
    int64_t cost; /* that it had */
};

struct bb {
    struct layout_search *s;
    struct layout_dual d;
    struct layout_state state;
    ARR(struct trail_item) trail;
    int64_t unit;   /* costs are multiples of this */
    int64_t open;   /* least bound of nodes that were left unsearched */
    int64_t *extra; /* by value: rise of the bound */
    int64_t *least; /* by value: scratch of spread_edge */
    struct layout_rows rows;
    bool stop;
};

static bool alive(const struct bb *b, int i, int a) {
    return b->d.cost[b->d.off[i] + a] < LAYOUT_INF;
}

static void kill(struct bb *b, int i, int a) {
    int64_t at = b->d.off[i] + a;
    arr_push(&b->trail, (struct trail_item){at, b->d.cost[at]});
    b->d.cost[at] = LAYOUT_INF;
}

static void undo(struct bb *b, int64_t mark) {
    while (b->trail.n > mark) {
        struct trail_item t = arr_last(&b->trail);
        b->d.cost[t.at] = t.cost;
        b->trail.n--;
    }
}

static int count_alive(const struct bb *b, int i) {
    int n = 0;
    for (int a = 0; a < b->d.k[i]; a++)
        n += alive(b, i, a);
    return n;
}

/* Removes values without a partner across edge s. Returns -1 when a variable has no value
 * left. */
static int spread_edge(struct bb *b, int s, bool *changed) {
    int u = b->d.eu[s], v = b->d.ev[s], ku = b->d.k[u], kv = b->d.k[v], left = 0;
    const int64_t *w = b->d.w[s];
    bool *seen = (bool *)b->least; /* scratch of at least kv bytes */
    memset(seen, 0, (size_t)kv);
    for (int a = 0; a < ku; a++, w += kv) {
        if (!alive(b, u, a))
            continue;
        bool any = false;
        for (int c = 0; c < kv; c++)
            if (w[c] < LAYOUT_INF && alive(b, v, c))
                any = seen[c] = true;
        if (!any) {
            kill(b, u, a);
            *changed = true;
        }
        left += any;
    }
    int right = 0;
    for (int c = 0; c < kv; c++) {
        if (!alive(b, v, c))
            continue;
        if (!seen[c]) {
            kill(b, v, c);
            *changed = true;
        }
        right += seen[c];
    }
    return left && right ? 0 : -1;
}

static int64_t least_use(const struct bb *b, int i, const struct layout_seg *g) {
    int64_t least = LAYOUT_INF;
    for (int a = 0; a < b->d.k[i]; a++)
        if (alive(b, i, a) && g->use[a] < least)
            least = g->use[a];
    return least;
}

/* Removes values that use more of a row than is left when every other variable uses its
 * least. */
static int spread_rows(struct bb *b, bool *changed) {
    layout_rows_reset(&b->rows, b->d.c->cap);
    for (int i = 0; i < b->d.n; i++) {
        const struct layout_var *v = &b->d.c->var[b->d.var[i]];
        for (int64_t s = 0; s < v->seg.n; s++)
            layout_rows_add(&b->rows, v->seg.p[s].lo, v->seg.p[s].hi,
                            -least_use(b, i, &v->seg.p[s]));
    }
    if (layout_rows_worst(&b->rows) < 0)
        return -1;
    for (int i = 0; i < b->d.n; i++) {
        const struct layout_var *v = &b->d.c->var[b->d.var[i]];
        for (int64_t s = 0; s < v->seg.n; s++) {
            const struct layout_seg *g = &v->seg.p[s];
            int64_t room = layout_rows_least(&b->rows, g->lo, g->hi) + least_use(b, i, g);
            for (int a = 0; a < b->d.k[i]; a++)
                if (alive(b, i, a) && g->use[a] > room) {
                    kill(b, i, a);
                    *changed = true;
                }
        }
        if (count_alive(b, i) == 0)
            return -1;
    }
    return 0;
}

static int propagate(struct bb *b) {
    for (bool changed = true; changed;) {
        changed = false;
        for (int s = 0; s < b->d.m; s++)
            if (spread_edge(b, s, &changed) < 0)
                return -1;
        if (b->d.c->n_rows && spread_rows(b, &changed) < 0)
            return -1;
    }
    return 0;
}

/* Makes the state's choice the best one if it is cheaper. */
static void offer(struct bb *b) {
    if (b->state.value >= b->s->upper)
        return;
    b->s->upper = b->state.value;
    memcpy(b->s->x, b->state.x, (size_t)b->s->core->n_vars * sizeof *b->s->x);
    b->s->found = true;
}

static void build(struct bb *b) {
    if (!layout_state_decode(&b->state, &b->d, b->s->nodes == 1 ? 20 : 1))
        return;
    offer(b);
    layout_state_descend(&b->state);
    offer(b);
}

/* Removes values whose bound reaches the upper bound. */
static bool fix(struct bb *b) {
    int64_t room = b->s->upper - b->unit - b->d.bound;
    bool any = false;
    layout_dual_extra(&b->d, b->extra);
    for (int i = 0; i < b->d.n; i++)
        for (int a = 0; a < b->d.k[i]; a++)
            if (alive(b, i, a) && b->extra[b->d.off[i] + a] > room) {
                kill(b, i, a);
                any = true;
            }
    return any;
}

/* Returns how much edge s costs above its least at the present values of both ends. */
static int64_t disagreement(const struct bb *b, int s) {
    const struct layout_dual *d = &b->d;
    int u = d->eu[s], v = d->ev[s], kv = d->k[v];
    const int64_t *mu = d->msg + d->to_u[s], *mv = d->msg + d->to_v[s];
    int64_t least = LAYOUT_INF;
    const int64_t *w = d->w[s];
    for (int a = 0; a < d->k[u]; a++, w += kv)
        for (int c = 0; alive(b, u, a) && c < kv; c++)
            if (alive(b, v, c) && w[c] - mu[a] - mv[c] < least)
                least = w[c] - mu[a] - mv[c];
    int64_t x =
        d->w[s][(int64_t)d->x[u] * kv + d->x[v]] - mu[d->x[u]] - mv[d->x[v]] - least;
    return x > LAYOUT_INF / 1024 ? LAYOUT_INF / 1024 : x;
}

/* Returns by how much the charge for memory differs among the values of i that cost
 * about the same. */
static int64_t memory_doubt(const struct bb *b, int i) {
    const struct layout_dual *d = &b->d;
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    for (int a = 0; a < d->k[i]; a++) {
        if (!alive(b, i, a))
            continue;
        int64_t charge = d->theta[d->off[i] + a] - d->cost[d->off[i] + a];
        lo = charge < lo ? charge : lo;
        hi = charge > hi ? charge : hi;
    }
    int64_t x = hi - lo;
    return x > LAYOUT_INF / 1024 ? LAYOUT_INF / 1024 : x;
}

/* Returns the variable to branch on, or -1 when all are decided. */
static int doubtful(struct bb *b) {
    int best = -1;
    double most = -1;
    double *score = mem_array((size_t)b->d.n + 1, sizeof *score);
    for (int s = 0; s < b->d.m; s++) {
        double x = (double)disagreement(b, s);
        score[b->d.eu[s]] += x;
        score[b->d.ev[s]] += x;
    }
    for (int i = 0; i < b->d.n; i++) {
        int n = count_alive(b, i);
        if (n < 2)
            continue;
        score[i] += 10 * (double)memory_doubt(b, i);
        score[i] +=
            1e-3 * (double)(b->d.fwd[i + 1] - b->d.fwd[i] + b->d.bwd[i + 1] - b->d.bwd[i]);
        if (score[i] > most) {
            most = score[i];
            best = i;
        }
    }
    free(score);
    return best;
}

static bool out_of_budget(struct bb *b) {
    const struct layout_search *s = b->s;
    b->stop |= (s->max_nodes && s->nodes >= s->max_nodes) || layout_time_up(s->deadline_s);
    return b->stop;
}

/* Bounds the node. Returns -1 when it holds nothing cheaper than the upper bound. */
static int bound_node(struct bb *b, int rounds, int64_t *bound) {
    for (int round = 0; round < 3; round++) {
        if (propagate(b) < 0)
            return -1;
        b->d.best = INT64_MIN;
        b->d.stuck = 0;
        b->d.step = b->s->nodes == 1 && round == 0 ? 1 : 0.2;
        layout_dual_run(&b->d, rounds, b->s->upper, b->s->deadline_s);
        *bound = b->d.best > *bound ? b->d.best : *bound;
        if (*bound > b->s->upper - b->unit)
            return -1;
        build(b);
        if (*bound > b->s->upper - b->unit)
            return -1;
        if (!fix(b))
            return 0;
    }
    return propagate(b);
}

static bool good_enough(const struct bb *b, int64_t bound) {
    return (double)b->s->upper - (double)bound <= b->s->gap * fabs((double)b->s->upper);
}

/* Searches everything that is alive; bound is true for all of it. */
static void search(struct bb *b, int64_t bound) {
    int64_t mark = b->trail.n;
    for (;;) {
        if (out_of_budget(b)) {
            b->open = bound < b->open ? bound : b->open;
            break;
        }
        b->s->nodes++;
        int rounds = b->s->nodes == 1 ? (b->s->root_rounds ? b->s->root_rounds : 400) : 8;
        if (bound_node(b, rounds, &bound) < 0)
            break;
        if (good_enough(b, bound)) {
            b->open = bound < b->open ? bound : b->open;
            break;
        }
        int i = doubtful(b);
        if (i < 0)
            break; /* one choice left, and build() has seen it */
        int a = b->d.x[i];
        while (!alive(b, i, a)) /* removed after the last sweep */
            a = (a + 1) % b->d.k[i];
        int64_t before = b->trail.n;
        for (int c = 0; c < b->d.k[i]; c++)
            if (c != a && alive(b, i, c))
                kill(b, i, c);
        search(b, bound);
        undo(b, before);
        kill(b, i, a);
    }
    undo(b, mark);
}

void layout_search_run(struct layout_search *s) {
    struct bb b = {.s = s, .unit = INT64_C(1) << s->core->shift, .open = LAYOUT_INF};
    s->nodes = 0;
    s->found = false;
    layout_dual_init(&b.d, s->core);
    b.d.smooth = 0.7;
    layout_state_init(&b.state, s->core);
    b.state.deadline_s = s->deadline_s;
    layout_rows_init(&b.rows, s->core->cap, s->core->n_rows);
    size_t values = (size_t)b.d.off[b.d.n] + 1;
    b.extra = mem_array(values, sizeof *b.extra);
    b.least = mem_array(values, sizeof *b.least);
    search(&b, INT64_MIN / 4);
    s->done = !b.stop;
    s->bound = b.open < s->upper ? b.open : s->upper;
    free(b.extra);
    free(b.least);
    arr_release(&b.trail);
    layout_rows_release(&b.rows);
    layout_state_release(&b.state);
    layout_dual_release(&b.d);
}
