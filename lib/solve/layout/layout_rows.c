/* layout_rows.c - fewer memory rows, and a tree of their slacks.
 *
 * After reductions most rows say the same: a row goes when it cannot bind at all, or when
 * the next one that is left has all of its users and no more room. Rows are in the order of
 * time and users are intervals, so only neighbours need to be compared.
 */
#include "solve/layout/layout_rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- least slack over ranges of rows ------------------------------------------------- */

void layout_rows_init(struct layout_rows *t, const int64_t *cap, int n) {
    t->n = n;
    t->size = 1;
    while (t->size < n)
        t->size *= 2;
    t->least = mem_array((size_t)t->size * 2, sizeof *t->least);
    t->add = mem_array((size_t)t->size * 2, sizeof *t->add);
    layout_rows_reset(t, cap);
}

void layout_rows_reset(struct layout_rows *t, const int64_t *cap) {
    for (int r = 0; r < t->size; r++)
        t->least[t->size + r] = r < t->n ? cap[r] : LAYOUT_INF;
    for (int s = t->size - 1; s > 0; s--) {
        int64_t a = t->least[2 * s], b = t->least[2 * s + 1];
        t->least[s] = a < b ? a : b;
    }
    memset(t->add, 0, (size_t)t->size * 2 * sizeof *t->add);
}

void layout_rows_release(struct layout_rows *t) {
    free(t->least);
    free(t->add);
    *t = (struct layout_rows){0};
}

static inline void put(struct layout_rows *t, int s, int64_t x) {
    t->least[s] += x;
    t->add[s] += x;
}

static inline void pull_up(struct layout_rows *t, int s) {
    for (s /= 2; s > 0; s /= 2) {
        int64_t a = t->least[2 * s], b = t->least[2 * s + 1];
        t->least[s] = (a < b ? a : b) + t->add[s];
    }
}

void layout_rows_add(struct layout_rows *t, int lo, int hi, int64_t x) {
    if (lo >= hi || x == 0)
        return;
    int l = lo + t->size, r = hi - 1 + t->size, first = l, last = r;
    for (r++; l < r; l /= 2, r /= 2) {
        if (l & 1)
            put(t, l++, x);
        if (r & 1)
            put(t, --r, x);
    }
    pull_up(t, first);
    pull_up(t, last);
}

int64_t layout_rows_least(const struct layout_rows *t, int lo, int hi) {
    if (lo >= hi)
        return LAYOUT_INF;
    /* Additions above a node are not in its `least`: carry them up both flanks. */
    int l = lo + t->size, r = hi - 1 + t->size;
    int64_t left = t->least[l], right = t->least[r];
    while (l / 2 != r / 2) {
        if (!(l & 1) && t->least[l + 1] < left)
            left = t->least[l + 1];
        if ((r & 1) && t->least[r - 1] < right)
            right = t->least[r - 1];
        l /= 2;
        r /= 2;
        left += t->add[l];
        right += t->add[r];
    }
    int64_t least = left < right ? left : right;
    for (l /= 2; l > 0; l /= 2)
        least += t->add[l];
    return least;
}

int64_t layout_rows_worst(const struct layout_rows *t) {
    return t->n ? t->least[1] : 0;
}

int layout_rows_worst_row(const struct layout_rows *t) {
    int s = 1;
    while (s < t->size)
        s = t->least[2 * s] <= t->least[2 * s + 1] ? 2 * s : 2 * s + 1;
    return s - t->size;
}

/* ---- fewer rows ------------------------------------------------------------------ */

/* Returns the most that can be used in each row. */
static int64_t *most_use(const struct layout_core *c) {
    int64_t *use = mem_array((size_t)c->n_rows + 1, sizeof *use);
    for (int i = 0; i < c->n_vars; i++)
        for (int64_t s = 0; c->var[i].k && s < c->var[i].seg.n; s++) {
            const struct layout_seg *g = &c->var[i].seg.p[s];
            int64_t most = 0;
            for (int a = 0; a < c->var[i].k; a++)
                most = g->use[a] > most ? g->use[a] : most;
            use[g->lo] += most;
            use[g->hi] -= most;
        }
    for (int r = 0; r < c->n_rows; r++)
        use[r + 1] += use[r];
    return use;
}

/* keep[r] = the row that stands for row r, -1 if it cannot bind. */
static int *keepers(const struct layout_core *c) {
    int n = c->n_rows;
    int64_t *use = most_use(c);
    int *keep = mem_array((size_t)n + 1, sizeof *keep);
    bool *begins = mem_array((size_t)n + 1, sizeof *begins);
    bool *ends = mem_array((size_t)n + 1, sizeof *ends);
    for (int i = 0; i < c->n_vars; i++)
        for (int64_t s = 0; c->var[i].k && s < c->var[i].seg.n; s++) {
            begins[c->var[i].seg.p[s].lo] = true;
            ends[c->var[i].seg.p[s].hi] = true;
        }
    int last = -1; /* last row kept, and what changed since then */
    bool came = false, went = false;
    for (int r = 0; r < n; r++) {
        came |= begins[r];
        went |= ends[r];
        keep[r] = r;
        if (use[r] <= c->cap[r]) {
            keep[r] = -1;
            continue;
        }
        if (last >= 0 && !came && c->cap[r] >= c->cap[last]) {
            keep[r] = last;
            continue;
        }
        if (last >= 0 && !went && c->cap[last] >= c->cap[r])
            keep[last] = r;
        last = r;
        came = went = false;
    }
    free(use);
    free(begins);
    free(ends);
    for (int r = n - 1; r >= 0; r--) /* chains lead to later rows, or one step back */
        if (keep[r] > r)
            keep[r] = keep[keep[r]];
    for (int r = 0; r < n; r++)
        if (keep[r] >= 0 && keep[r] < r)
            keep[r] = keep[keep[r]];
    return keep;
}

static void remap_segs(struct layout_core *c, const int *before) {
    for (int i = 0; i < c->n_vars; i++) {
        struct layout_var *v = &c->var[i];
        int64_t n = 0;
        for (int64_t s = 0; s < v->seg.n; s++) {
            struct layout_seg g = v->seg.p[s];
            g.lo = before[g.lo];
            g.hi = before[g.hi];
            if (g.lo >= g.hi || !v->k) {
                free(g.use);
                continue;
            }
            int64_t q = n > 32 ? n - 32 : 0; /* same rows as one shortly before: add up */
            while (q < n && (v->seg.p[q].lo != g.lo || v->seg.p[q].hi != g.hi))
                q++;
            if (q == n) {
                v->seg.p[n++] = g;
                continue;
            }
            for (int a = 0; a < v->k; a++)
                v->seg.p[q].use[a] += g.use[a];
            free(g.use);
        }
        v->seg.n = n;
    }
}

static int64_t too_large(struct layout_core *c) {
    struct layout_rows t;
    int64_t n = 0;
    layout_rows_init(&t, c->cap, c->n_rows);
    for (int i = 0; i < c->n_vars; i++)
        for (int64_t s = 0; c->var[i].k && s < c->var[i].seg.n; s++) {
            const struct layout_seg *g = &c->var[i].seg.p[s];
            int64_t room = layout_rows_least(&t, g->lo, g->hi);
            for (int a = 0; a < c->var[i].k; a++)
                if (g->use[a] > room && c->var[i].cost[a] < LAYOUT_INF) {
                    c->var[i].cost[a] = LAYOUT_INF;
                    n++;
                }
        }
    layout_rows_release(&t);
    return n;
}

/* Drops rows that cannot bind or that another row implies, and values that are too large
 * for a row by themselves (their cost becomes LAYOUT_INF: reduce again). Multipliers of
 * dropped rows move to the row that implies them. Returns how many values were removed. */
static int64_t drop_rows(struct layout_core *c) {
    if (c->n_rows == 0)
        return 0;
    int *keep = keepers(c), kept = 0;
    int *before = mem_array((size_t)c->n_rows + 1, sizeof *before); /* kept rows before r */
    for (int r = 0; r < c->n_rows; r++) {
        before[r] = kept;
        kept += keep[r] == r;
    }
    before[c->n_rows] = kept;
    double *lambda = mem_array((size_t)kept + 1, sizeof *lambda);
    for (int r = 0; r < c->n_rows; r++)
        if (keep[r] >= 0)
            lambda[before[keep[r]]] += c->lambda[r];
    for (int r = 0; r < c->n_rows; r++)
        if (keep[r] == r) {
            c->cap[before[r]] = c->cap[r];
            c->row_time[before[r]] = c->row_time[r];
        }
    c->n_rows = kept;
    free(c->lambda);
    c->lambda = lambda;
    remap_segs(c, before);
    free(before);
    free(keep);
    return too_large(c);
}

int layout_core_shrink(struct layout_core *c, struct err *err) {
    do {
        if (layout_core_reduce(c, err) < 0)
            return -1;
    } while (drop_rows(c) > 0);
    return 0;
}
