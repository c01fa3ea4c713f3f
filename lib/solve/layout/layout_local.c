/* layout_local.c - a choice with its cost and slacks, and descent by single moves. */
#include "solve/layout/layout_local.h"

#include <stdlib.h>
#include <string.h>

void layout_state_init(struct layout_state *s, struct layout_core *c) {
    int most = 1;
    for (int i = 0; i < c->n_vars; i++)
        most = c->var[i].k > most ? c->var[i].k : most;
    *s = (struct layout_state){.c = c, .value = LAYOUT_INF};
    s->x = mem_array((size_t)c->n_vars + 1, sizeof *s->x);
    s->sum = mem_array((size_t)most, sizeof *s->sum);
    s->order = mem_array((size_t)most, sizeof *s->order);
    s->weight = mem_array((size_t)c->n_vars + 1, sizeof *s->weight);
    layout_rows_init(&s->rows, c->cap, c->n_rows);
}

void layout_state_release(struct layout_state *s) {
    free(s->x);
    free(s->sum);
    free(s->order);
    free(s->weight);
    layout_rows_release(&s->rows);
    *s = (struct layout_state){0};
}

/* Takes what value a of i uses from the slack (sign -1) or gives it back (+1). */
static void use(struct layout_state *s, int i, int a, int sign) {
    const struct layout_var *v = &s->c->var[i];
    for (int64_t g = 0; g < v->seg.n; g++)
        layout_rows_add(&s->rows, v->seg.p[g].lo, v->seg.p[g].hi,
                        sign * v->seg.p[g].use[a]);
}

bool layout_state_set(struct layout_state *s, const int *x) {
    layout_rows_reset(&s->rows, s->c->cap);
    for (int i = 0; i < s->c->n_vars; i++) {
        s->x[i] = s->c->var[i].k ? x[i] : 0;
        if (s->c->var[i].k)
            use(s, i, x[i], -1);
    }
    s->value = layout_core_value(s->c, s->x);
    return s->value < LAYOUT_INF && layout_rows_worst(&s->rows) >= 0;
}

/* Computes into s->sum the cost of each value of variable i with all others fixed. */
static void find_costs(struct layout_state *s, int i) {
    const struct layout_core *c = s->c;
    const struct layout_var *v = &c->var[i];
    int k = v->k;
    memcpy(s->sum, v->cost, (size_t)k * sizeof *s->sum);
    for (int64_t g = 0; g < v->adj.n; g++) {
        const struct layout_edge *e = &c->edge[v->adj.p[g]];
        if (e->u != i && e->v != i)
            continue;
        int kv = c->var[e->v].k;
        bool row = e->u == i;
        const int64_t *w = row ? e->w + s->x[e->v] : e->w + (int64_t)s->x[e->u] * kv;
        int64_t step = row ? kv : 1;
        for (int a = 0; a < k; a++) {
            int64_t sum = s->sum[a] + w[a * step];
            s->sum[a] = sum >= LAYOUT_INF ? LAYOUT_INF : sum;
        }
    }
}

/* Returns whether value `to` could fit in place of `from` (-1: nothing). Segments may
 * overlap, so this is necessary and not sufficient. */
static bool may_fit(const struct layout_state *s, int i, int to, int from) {
    const struct layout_var *v = &s->c->var[i];
    for (int64_t g = 0; g < v->seg.n; g++) {
        int64_t more = v->seg.p[g].use[to] - (from < 0 ? 0 : v->seg.p[g].use[from]);
        if (more > 0 && layout_rows_least(&s->rows, v->seg.p[g].lo, v->seg.p[g].hi) < more)
            return false;
    }
    return true;
}

static bool take(struct layout_state *s, int i, int to, int from) {
    if (!may_fit(s, i, to, from))
        return false;
    if (from >= 0)
        use(s, i, from, 1);
    use(s, i, to, -1);
    if (layout_rows_worst(&s->rows) >= 0)
        return true;
    use(s, i, to, 1);
    if (from >= 0)
        use(s, i, from, -1);
    return false;
}

/* Moves variable i to value a if the rows allow it. */
static bool move_to(struct layout_state *s, int i, int a) {
    if (!take(s, i, a, s->x[i]))
        return false;
    s->x[i] = a;
    return true;
}

void layout_state_sort(struct layout_state *s, int k) {
    for (int a = 0; a < k; a++) {
        int b = a;
        for (; b > 0 && s->sum[s->order[b - 1]] > s->sum[a]; b--)
            s->order[b] = s->order[b - 1];
        s->order[b] = a;
    }
}

void layout_state_descend(struct layout_state *s) {
    struct layout_core *c = s->c;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < c->n_vars; i++) {
            if (i % 1024 == 0 && layout_time_up(s->deadline_s))
                return;
            if (c->var[i].k < 2)
                continue;
            find_costs(s, i);
            int best = s->x[i];
            int64_t now = s->sum[best];
            layout_state_sort(s, c->var[i].k);
            for (int a = 0; a < c->var[i].k && s->sum[s->order[a]] < now; a++)
                if (move_to(s, i, s->order[a])) {
                    s->value += s->sum[s->order[a]] - now;
                    moved = true;
                    break;
                }
        }
    }
}
