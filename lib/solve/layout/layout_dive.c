/* layout_dive.c - builds a choice variable by variable, looking one step ahead.
 *
 * Each variable takes its cheapest value, counting its usage at the multipliers, the edges
 * to what is decided and the messages of what is not. A value is refused if it would leave
 * a neighbour without any value, or the rows without room for the least that the rest must
 * use. A variable for which all values are refused gains weight, and the next attempt
 * decides heavy variables first.
 */
#include "solve/layout/layout_local.h"

#include <stdlib.h>
#include <string.h>

struct dive {
    struct layout_state *s;
    struct layout_dual *d;
    bool *mask;           /* by value: still possible */
    bool *narrow;         /* (most values) work space */
    bool *decided;        /* by variable */
    int *order;           /* variables in the order in which they are decided */
    ARR(int) trail;       /* variables that were narrowed ... */
    ARR(bool) trail_mask; /* ... and the masks they had */
};

static void reserve(struct dive *v, int i, const bool *before, const bool *after) {
    const struct layout_var *var = &v->d->c->var[v->d->var[i]];
    int k = v->d->k[i];
    for (int64_t g = 0; g < var->seg.n; g++) {
        const int64_t *use = var->seg.p[g].use;
        int64_t old = LAYOUT_INF, new = LAYOUT_INF;
        for (int a = 0; a < k; a++) {
            if (before && before[a] && use[a] < old)
                old = use[a];
            if (after[a] && use[a] < new)
                new = use[a];
        }
        layout_rows_add(&v->s->rows, var->seg.p[g].lo, var->seg.p[g].hi,
                        (before ? old : 0) - new);
    }
}

/* Narrows i to the values in v->narrow. */
static void set_mask(struct dive *v, int i) {
    bool *mask = v->mask + v->d->off[i];
    int k = v->d->k[i];
    arr_push(&v->trail, i);
    for (int a = 0; a < k; a++)
        arr_push(&v->trail_mask, mask[a]);
    reserve(v, i, mask, v->narrow);
    memcpy(mask, v->narrow, (size_t)k * sizeof *mask);
}

static void undo(struct dive *v) {
    while (v->trail.n > 0) {
        int i = arr_last(&v->trail), k = v->d->k[i];
        const bool *old = v->trail_mask.p + v->trail_mask.n - k;
        reserve(v, i, v->mask + v->d->off[i], old);
        memcpy(v->mask + v->d->off[i], old, (size_t)k * sizeof *old);
        v->trail_mask.n -= k;
        v->trail.n--;
    }
}

/* Restricts the other end of edge e to the partners of value a of i. Returns false if
 * none is left. */
static bool look_ahead(struct dive *v, int e, int i, int a) {
    const struct layout_dual *d = v->d;
    bool row = d->eu[e] == i;
    int j = row ? d->ev[e] : d->eu[e], kj = d->k[j];
    if (v->decided[j])
        return true;
    const bool *mask = v->mask + d->off[j];
    const int64_t *w = row ? d->w[e] + (int64_t)a * kj : d->w[e] + a;
    int64_t step = row ? 1 : d->k[i];
    bool any = false, less = false;
    for (int b = 0; b < kj; b++) {
        v->narrow[b] = mask[b] && w[b * step] < LAYOUT_INF;
        any |= v->narrow[b];
        less |= v->narrow[b] != mask[b];
    }
    if (any && less)
        set_mask(v, j);
    return any;
}

static bool try_value(struct dive *v, int i, int a) {
    const struct layout_dual *d = v->d;
    v->trail.n = v->trail_mask.n = 0;
    memset(v->narrow, 0, (size_t)d->k[i] * sizeof *v->narrow);
    v->narrow[a] = true;
    set_mask(v, i);
    bool good = layout_rows_worst(&v->s->rows) >= 0;
    for (int64_t g = d->fwd[i]; good && g < d->fwd[i + 1]; g++)
        good = look_ahead(v, d->fwd_e[g], i, a);
    for (int64_t g = d->bwd[i]; good && g < d->bwd[i + 1]; g++)
        good = look_ahead(v, d->bwd_e[g], i, a);
    if (good && layout_rows_worst(&v->s->rows) >= 0)
        return true;
    undo(v);
    return false;
}

static void add_column(int64_t *sum, const int64_t *w, int64_t step, int k) {
    for (int a = 0; a < k; a++)
        sum[a] = w[a * step] >= LAYOUT_INF ? LAYOUT_INF : sum[a] + w[a * step];
}

static void guided_costs(struct dive *v, int i) {
    const struct layout_dual *d = v->d;
    struct layout_state *s = v->s;
    int k = d->k[i];
    memcpy(s->sum, d->theta + d->off[i], (size_t)k * sizeof *s->sum);
    for (int64_t g = d->fwd[i]; g < d->fwd[i + 1]; g++) {
        int e = d->fwd_e[g], j = d->ev[e];
        if (v->decided[j])
            add_column(s->sum, d->w[e] + s->x[d->var[j]], d->k[j], k);
        else
            add_column(s->sum, d->msg + d->to_u[e], 1, k);
    }
    for (int64_t g = d->bwd[i]; g < d->bwd[i + 1]; g++) {
        int e = d->bwd_e[g], j = d->eu[e];
        if (v->decided[j])
            add_column(s->sum, d->w[e] + (int64_t)s->x[d->var[j]] * k, 1, k);
        else
            add_column(s->sum, d->msg + d->to_v[e], 1, k);
    }
    for (int a = 0; a < k; a++)
        if (!v->mask[d->off[i] + a])
            s->sum[a] = LAYOUT_INF;
}

static bool decide(struct dive *v, int i) {
    struct layout_state *s = v->s;
    guided_costs(v, i);
    layout_state_sort(s, v->d->k[i]);
    for (int o = 0; o < v->d->k[i]; o++) {
        int a = s->order[o];
        if (!v->mask[v->d->off[i] + a])
            continue;
        if (try_value(v, i, a)) {
            s->x[v->d->var[i]] = a;
            v->decided[i] = true;
            return true;
        }
    }
    s->weight[v->d->var[i]]++;
    return false;
}

/* Orders heavy variables first, and all others as in the sweeps. */
static void set_order(struct dive *v) {
    int n = 0, most = 0;
    for (int i = 0; i < v->d->n; i++)
        most = v->s->weight[v->d->var[i]] > most ? v->s->weight[v->d->var[i]] : most;
    for (int w = most; w >= 0; w--)
        for (int i = 0; i < v->d->n; i++)
            if (v->s->weight[v->d->var[i]] == w)
                v->order[n++] = i;
}

static bool attempt(struct dive *v) {
    const struct layout_dual *d = v->d;
    layout_rows_reset(&v->s->rows, d->c->cap);
    memset(v->decided, 0, (size_t)d->n + 1);
    for (int i = 0; i < d->n; i++) {
        bool *mask = v->mask + d->off[i];
        for (int a = 0; a < d->k[i]; a++)
            mask[a] = d->cost[d->off[i] + a] < LAYOUT_INF;
        reserve(v, i, NULL, mask);
    }
    set_order(v);
    for (int o = 0; o < d->n; o++)
        if ((o % 1024 == 1023 && layout_time_up(v->s->deadline_s)) ||
            !decide(v, v->order[o]))
            return false;
    v->s->value = layout_core_value(v->s->c, v->s->x);
    return v->s->value < LAYOUT_INF;
}

bool layout_state_decode(struct layout_state *s, struct layout_dual *d, int tries) {
    struct dive v = {.s = s, .d = d};
    int most = 1;
    for (int i = 0; i < d->n; i++)
        most = d->k[i] > most ? d->k[i] : most;
    v.mask = mem_array((size_t)d->off[d->n] + 1, sizeof *v.mask);
    v.narrow = mem_array((size_t)most, sizeof *v.narrow);
    v.decided = mem_array((size_t)d->n + 1, sizeof *v.decided);
    v.order = mem_array((size_t)d->n + 1, sizeof *v.order);
    bool good = false;
    while (!good && tries-- > 0 && !layout_time_up(s->deadline_s))
        good = attempt(&v);
    free(v.mask);
    free(v.narrow);
    free(v.decided);
    free(v.order);
    arr_release(&v.trail);
    arr_release(&v.trail_mask);
    return good;
}
