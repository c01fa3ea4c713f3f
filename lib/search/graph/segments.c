/* Segments (see segments.h). */
#include "search/graph/segments.h"

#include <stdlib.h>

/* ---- in the deduplicated model ------------------------------------------------------- */

static const struct repeat *repeat_at(const struct structure *s, int op) {
    return s->repeat_of[op] < 0 ? NULL : &s->repeats[s->repeat_of[op]];
}

/* Returns the op at which the deduplicated model has ops first .. end-1 in one piece, or
 * -1. Inside a repeat the second instance stands for all, so equal ranges of different
 * instances begin at the same op. */
static int stand_in(const struct blocks *b, int first, int end) {
    const struct structure *s = &b->s;
    const struct repeat *r = repeat_at(s, first);
    if (r && r == repeat_at(s, end - 1)) {
        int k = structure_instance(s, first), over = structure_instance(s, end - 1) - k;
        int to = over && r->count < 3 ? 0 : 1;
        return over > 1 ? -1 : b->x.of[first - (k - to) * r->period];
    }
    return b->x.of[end - 1] - b->x.of[first] == end - 1 - first ? b->x.of[first] : -1;
}

/* ---- finding ---------------------------------------------------------------------------- */

static int unit_end(const struct structure *s, int op, int limit) {
    int end = structure_next_unit(s, op + 1);
    return end < limit ? end : limit;
}

/* Returns the end of the segment that begins with this op, or `first` if none does. */
static int segment_end(const struct blocks *b, int first) {
    const struct model *m = b->whole;
    int end = first + 1, block = m->ops[first].block;
    bool repeated = b->s.repeat_of[first] >= 0;
    while (end < m->n_ops && m->ops[end].block == block &&
           (block >= 0 || b->s.repeat_of[end] == b->s.repeat_of[first]))
        end++;
    if (block >= 0 && stand_in(b, first, end) >= 0)
        return end;
    return block >= 0 || repeated ? unit_end(&b->s, first, end) : first;
}

/* Returns the repeat that contains the whole segment, or NULL. */
static const struct repeat *repeat_around(const struct blocks *b,
                                          const struct recompute_segment *g) {
    const struct repeat *r = repeat_at(&b->s, g->first);
    return r == repeat_at(&b->s, g->end - 1) ? r : NULL;
}

static bool alike(const struct recompute_segment *x, const struct recompute_segment *y) {
    return x->from == y->from && x->end - x->first == y->end - y->first;
}

/* Segments one period of a repeat apart are equal. A segment at the end of the repeat may
 * be cut short, and is equal to no other. */
static void find_alike(const struct blocks *b, struct recompute_segments *s) {
    for (int k = 0, last; k < s->n; k = last) {
        const struct repeat *r = repeat_around(b, &s->list[k]);
        int stride = 1;
        for (last = k + 1; r && last < s->n && repeat_around(b, &s->list[last]) == r;)
            last++;
        while (k + stride < last && !alike(&s->list[k], &s->list[k + stride]))
            stride++;
        if (k + stride == last)
            last = k + 1; /* it begins in the middle of a unit, and is equal to no other */
        int whole = last;
        for (int i = last - 1; i - stride >= k; i--)
            if (!alike(&s->list[i], &s->list[i - stride]))
                whole = i;
        for (int i = k; i < last; i++) {
            s->list[i].stride = stride;
            s->list[i].lead = i < whole ? k : i;
            s->list[i].last = i < whole ? whole : i + 1;
        }
    }
}

/* Cuts the list of ops into segments, and counts them for look-ups. */
void segments_find(const struct blocks *b, struct recompute_segments *s) {
    int n = b->whole->n_ops;
    *s = (struct recompute_segments){.list = mem_array((size_t)n + 1, sizeof *s->list),
                                     .of = mem_array((size_t)n + 1, sizeof *s->of),
                                     .before = mem_array((size_t)n + 1, sizeof *s->before)};
    for (int i = 0; i < n;) {
        int end = segment_end(b, i), k = end > i ? s->n++ : -1;
        if (k >= 0)
            s->list[k] =
                (struct recompute_segment){i, end, stand_in(b, i, end), 1, k, k + 1};
        end = end > i ? end : i + 1;
        for (int at = i; at < end; at++)
            s->of[at] = k;
        for (int at = i + 1; at <= end; at++)
            s->before[at] = s->n;
        i = end;
    }
    find_alike(b, s);
}

void segments_release(struct recompute_segments *s) {
    free(s->list);
    free(s->of);
    free(s->before);
    *s = (struct recompute_segments){0};
}

/* ---- looking up ------------------------------------------------------------------------- */

int segments_from(const struct recompute_segments *s, int op) {
    bool inside = s->before[op] && s->list[s->before[op] - 1].end > op;
    return s->before[op] - inside;
}

int segments_in(const struct recompute_segments *s, int first, int end) {
    return first < end ? s->before[end] - segments_from(s, first) : 0;
}

bool segments_leaves(const struct blocks *b, const struct recompute_segments *s, int op) {
    const struct structure *st = &b->s;
    int end = s->of[op] < 0 ? op : s->list[s->of[op]].end;
    for (int i = st->edges_of[op]; i < st->edges_of[op + 1]; i++) {
        const struct edge *e = &st->edges[i];
        if (e->tensor >= 0 && e->n > 0 && edge_last(e) >= end)
            return true;
    }
    return false;
}

bool segments_inner(const struct blocks *b, const struct recompute_segments *s, int op) {
    if (s->of[op] < 0 || op_is(&b->whole->ops[op], KIND_LOSSES))
        return false;
    if (b->whole->ops[op].block >= 0)
        return plan_recomputes(b->whole, RECOMPUTE_all, op);
    const struct recompute_segment *g = &s->list[s->of[op]];
    const struct repeat *r = repeat_around(b, g);
    return (!r || g->end - g->first == r->period) && !segments_leaves(b, s, op);
}
