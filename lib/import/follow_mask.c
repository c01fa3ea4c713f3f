/* The constants of scores: masks, and what ALiBi adds. */
#include "import/follow.h"

#include <math.h>
#include <string.h>

enum { ROWS_MOST = 256, LEADS_MOST = 8 };

const struct followed *follow_mask(struct follow *t, const struct followed *scores,
                                   const struct followed *constant, int how) {
    struct followed *y =
        (struct followed *)follow_reaxed(t, scores, scores->rank, scores->axis);
    if (constant->value < 0) /* a number, which a softmax does not see */
        return how == MASK_ADDED ? scores : follow_refuse(t, "scores with two masks");
    if (scores->table >= 0) {
        if (scores->form != FORM_SCORES || scores->added >= 0 ||
            (how != MASK_ADDED && scores->mask != MASK_ADDED))
            return follow_refuse(t, "scores with two masks");
        y->added = how == MASK_ADDED ? constant->value : scores->table;
        if (how == MASK_ADDED)
            return y;
    }
    y->table = constant->value;
    y->mask = how == MASK_SEEN ? MASK_SEEN : how == MASK_UNSEEN ? MASK_UNSEEN : MASK_ADDED;
    return y;
}

/* An element of a constant [.., queries, keys], of the sample and head of this number. */
static double entry(struct follow *t, int table, int64_t lead, int64_t i, int64_t j) {
    const struct exported_value *v = &t->p->values.p[table];
    int64_t at[EXPORTED_MAX_RANK];
    for (int k = v->rank; k-- > 0;) {
        int64_t want = k == v->rank - 1 ? j : k == v->rank - 2 ? i : lead % v->size[k];
        if (k < v->rank - 2)
            lead /= v->size[k];
        at[k] = v->size[k] == 1 ? 0 : want;
    }
    return fold_at(&t->fold, table, at);
}

/* What is added to the score that query i has for key j: minus infinity where that is not seen. */
static double added(struct follow *t, const struct followed *s, int64_t lead, int64_t i,
                    int64_t j) {
    double x = entry(t, s->table, lead, i, j);
    if (s->mask != MASK_ADDED)
        x = (x != 0) == (s->mask == MASK_SEEN) ? 0 : -INFINITY;
    if (s->added >= 0)
        x += entry(t, s->added, lead, i, j);
    return x <= -1e4 ? -INFINITY : x;
}

/* What constants are compared with. */
struct looked_for {
    bool causal;
    int64_t window;
    struct alibi slope; /* of all heads */
};

/* Any number may be added to all that a query sees: a softmax does not see it. With slopes, sums of f32 numbers are
 * compared. */
static bool row_is(struct follow *t, const struct followed *s, const struct looked_for *m,
                   int64_t lead, int64_t i, int64_t keys) {
    const struct alibi_head h = alibi_head(&m->slope, lead % m->slope.heads, 1);
    const double own = h.slope != 0 ? added(t, s, lead, i, i < keys ? i : keys - 1) : 0;
    for (int64_t j = 0; j < keys; j++) {
        const double x = added(t, s, lead, i, j);
        const double by = h.slope != 0 ? (double)alibi_between(&h, j, i) : 0;
        const bool seen = !m->causal || (j <= i && j > i - m->window);
        if (isnan(x) || seen != (x > -INFINITY) ||
            (seen && fabs(x - own - by) > 1e-6 * (fabs(x) + fabs(own) + fabs(by))))
            return false;
    }
    return true;
}

static int64_t leads_of(const struct follow *t, int table) {
    const struct exported_value *v = &t->p->values.p[table];
    int64_t n = 1;
    for (int k = 0; k < v->rank - 2; k++)
        n *= v->size[k];
    return n;
}

/* All rows of small masks, some of large ones; every sample and head up to 8 of them, and every head that has a
 * slope. */
static bool mask_is(struct follow *t, const struct followed *s, const struct looked_for *m,
                    int64_t queries, int64_t keys) {
    int64_t leads = leads_of(t, s->table), step = 1 + queries / ROWS_MOST;
    if (s->added >= 0 && leads_of(t, s->added) > leads)
        leads = leads_of(t, s->added);
    const int64_t most =
        m->slope.by != 0 && m->slope.heads > LEADS_MOST ? m->slope.heads : LEADS_MOST;
    for (int64_t lead = 0; lead < leads && lead < most; lead++)
        for (int64_t i = 0; i < queries;
             i += i + step < queries || i == queries - 1 ? step : queries - 1 - i)
            if (!row_is(t, s, m, lead, i, keys))
                return false;
    return true;
}

/* By what the slopes of all heads are multiplied, if it is by one number; 0: there are none. */
static float find_slope(struct follow *t, const struct followed *s, int64_t queries,
                        int64_t keys, struct alibi usual) {
    if (queries < 2 || keys < 2)
        return 0;
    const struct alibi_head h = alibi_head(&usual, 0, 1);
    const double slope =
        (added(t, s, 0, 1, 1) - added(t, s, 0, 1, 0)) / (double)alibi_between(&h, 1, 0);
    const double near = round(slope);
    return !isfinite(slope)                              ? 0
           : near != 0 && fabs(slope / near - 1) <= 1e-5 ? (float)near
                                                         : (float)slope;
}

/* Causal, with a window or without, or all. */
static int look_for(struct follow *t, const struct followed *s, int64_t queries,
                    int64_t keys, struct alibi slope, int64_t *window) {
    struct looked_for m = {.window = keys, .slope = slope};
    if (mask_is(t, s, &m, queries, keys))
        return 0;
    m.causal = true;
    if (mask_is(t, s, &m, queries, keys))
        return 1;
    m.window = 0;
    for (int64_t j = 0; j < keys; j++)
        m.window += added(t, s, 0, queries - 1, j) > -INFINITY;
    *window = m.window;
    return m.window && mask_is(t, s, &m, queries, keys) ? 1 : -1;
}

static int look_at(struct follow *t, const struct followed *s, int64_t queries,
                   int64_t keys, int64_t heads, int64_t *window, struct alibi *slope) {
    const int tables[] = {s->table, s->added};
    for (int i = 0; i < 2; i++) {
        const struct exported_value *v = tables[i] < 0 ? NULL : &t->p->values.p[tables[i]];
        for (int k = 0; v && k < v->rank; k++)
            if (v->size[k] < 1)
                return -1;
    }
    int is = -1;
    for (int rounded = 0; rounded < 2 && is < 0; rounded++) {
        *slope = (struct alibi){1, 0, (int32_t)heads, rounded};
        slope->by = find_slope(t, s, queries, keys, *slope);
        if (slope->by != 0 || !rounded)
            is = look_for(t, s, queries, keys, *slope, window);
    }
    return is;
}

int follow_masked(struct follow *t, const struct followed *s, int64_t heads,
                  int64_t *window, struct alibi *slope) {
    const int64_t queries = axes_size(&t->axes, &s->axis[s->rank - 2]),
                  keys = axes_size(&t->axes, &s->axis[s->rank - 1]);
    *window = 0;
    *slope = (struct alibi){0};
    if (s->table < 0)
        return 0;
    if (!fold_is(&t->fold, s->table) || (s->added >= 0 && !fold_is(&t->fold, s->added)) ||
        heads < 1 || heads > INT32_MAX)
        return -1;
    /* Layers have one mask in common, which is large: it is looked at once. */
    if (t->masked.table != s->table || t->masked.mask != (int)s->mask ||
        t->masked.added != s->added || t->masked.heads != heads ||
        t->masked.queries != queries || t->masked.keys != keys) {
        t->masked.window = 0;
        t->masked.causal =
            look_at(t, s, queries, keys, heads, &t->masked.window, &t->masked.slope);
        t->masked.table = s->table;
        t->masked.mask = (int)s->mask;
        t->masked.added = s->added;
        t->masked.heads = heads;
        t->masked.queries = queries;
        t->masked.keys = keys;
    }
    *window = t->masked.window;
    *slope = t->masked.slope;
    return t->masked.causal;
}
