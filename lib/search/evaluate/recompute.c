/* Recompute: what computing ops of a stage again in its backward pass costs and saves. */
#include "search/evaluate/evaluate.h"

struct walk {
    struct evaluate *ev;
    const struct prefix *t;
    const struct search_stage *st;
    struct load *sum;
};

/* Adds what recompute changes for ops first .. end-1 of the deduplicated model. Balancing
 * asks for the same ops so often that they are looked up by the address of their layouts;
 * graph_recompute would hash every layout. Ops with an illegal layout add nothing, as in
 * the prefix sums: no candidate uses them, and they cannot be compiled. */
static void add(const struct walk *w, int level, int first, int end, int times) {
    struct evaluate *ev = w->ev;
    if (w->t->illegal[end] > w->t->illegal[first])
        return;
    uint64_t key =
        memo_mix(prefix_hash(w->t, (uint64_t)level), (uint64_t)first << 32 | (uint64_t)end);
    void **slot = memo_slot(&ev->recomputes, key);
    if (!*slot)
        *slot = (void *)graph_recompute(&ev->graph, &w->t->st, first, end,
                                        ev->space->recompute[level], w->t->layouts);
    load_add(w->sum, *slot, times);
}

static bool is_cut(const struct recompute_segment *g, const struct search_stage *st) {
    return g->first < st->first || g->end > st->end;
}

static void add_cut(const struct walk *w, int level, const struct recompute_segment *g) {
    int first = g->first > w->st->first ? g->first : w->st->first,
        end = g->end < w->st->end ? g->end : w->st->end;
    add(w, level, g->from + first - g->first, g->from + end - g->first, 1);
}

/* Adds segments k .. end-1. Of equal ones only the first is added, times their number. */
static void add_segments(const struct walk *w, int level, int k, int end) {
    const struct recompute_segment *list = w->ev->space->segments.list;
    for (; k < end && is_cut(&list[k], w->st); k++)
        add_cut(w, level, &list[k]);
    for (int first = k; k < end;) {
        const struct recompute_segment *g = &list[k];
        int last = g->last < end ? g->last : end, fellow = k - g->stride;
        last -= is_cut(&list[last - 1], w->st);
        if (k == last) {
            add_cut(w, level, g);
            k++;
        } else if (fellow >= first && fellow >= g->lead) {
            k = last;
        } else {
            int length = g->end - g->first;
            add(w, level, g->from, g->from + length, (last - 1 - k) / g->stride + 1);
            k++;
        }
    }
}

/* Ops outside of segments are recomputed where that is pinned. */
static void add_outside(const struct walk *w) {
    const struct space *sp = w->ev->space;
    const int *of = sp->blocks.x.of;
    for (int i = w->st->first, end; i < w->st->end; i = end) {
        bool any = false;
        for (end = i;
             end < w->st->end && sp->segments.of[end] < 0 && of[end] == of[i] + end - i;)
            any |= sp->recompute[0][sp->blocks.x.node_of[of[end++]]];
        if (any)
            add(w, 0, of[i], of[i] + end - i, 1);
        end += end == i;
    }
}

struct load eval_recompute(struct evaluate *ev, const struct prefix *t,
                           const struct search_stage *st) {
    struct load sum = {0};
    const struct walk w = {ev, t, st, &sum};
    const struct recompute_segments *segments = &ev->space->segments;
    int first = segments_from(segments, st->first),
        end = first + segments_in(segments, st->first, st->end),
        chosen = first + (st->recompute_level ? st->recompute_blocks : 0);
    chosen = chosen < end ? chosen : end;
    add_segments(&w, st->recompute_level, first, chosen);
    if (ev->space->pinned.recompute) {
        add_segments(&w, 0, chosen, end);
        add_outside(&w);
    }
    return sum;
}

struct fewest *eval_fewest(struct evaluate *ev, uint64_t key) {
    enum { KEPT = 1 << 17 };
    if (!ev->fewest)
        ev->fewest = mem_array(KEPT, sizeof *ev->fewest);
    return &ev->fewest[key % KEPT];
}
