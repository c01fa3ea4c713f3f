/* Tensors that many ops read (see long_lived.h). */
#include "search/evaluate/long_lived.h"

#include <stdlib.h>
#include <string.h>

void long_lived_begin(struct long_lived *f, struct evaluate *ev, const struct prefix *t) {
    *f = (struct long_lived){.ev = ev, .t = t};
}

void long_lived_end(struct long_lived *f) {
    memo_release(&f->known, free);
}

static struct brief missing(struct long_lived *f, const struct edge *e, int first, int end,
                            bool inside) {
    struct graph *g = &f->ev->graph;
    struct load l = *graph_edge(g, &f->t->st, e, first, end, f->t->layouts);
    const struct load *whole = inside ? prefix_edge(f->ev, f->t, e) : NULL;
    if (whole)
        load_add(&l, whole, -1);
    return prefix_brief_of(f->ev->space, f->t, &l);
}

/* Looks up the correction for a number of readers, with or without the origin. */
static const struct brief *look_up(struct long_lived *f, const struct edge *e, int first,
                                   int end, bool inside, int readers) {
    uint64_t key = memo_mix(memo_mix(3, (uint64_t)(e - f->ev->space->blocks.s.edges)),
                            (uint64_t)readers << 1 | inside);
    void **slot = memo_slot(&f->known, key);
    if (!*slot) {
        struct brief *b = mem_alloc(sizeof *b);
        *b = missing(f, e, first, end, inside);
        *slot = b;
    }
    return *slot;
}

/* Adds the correction for one edge; returns false if the prefix sums have it right. */
static bool add_edge(struct long_lived *f, const struct edge *e, int first, int end,
                     struct brief *b) {
    if (!edge_is_long_lived(e))
        return false;
    bool inside = e->origin >= first;
    int readers = edge_reader_from(e, end) - (inside ? 0 : edge_reader_from(e, first));
    const struct brief *more = look_up(f, e, first, end, inside, readers);
    b->time_us += more->time_us;
    b->forward_us += more->forward_us;
    b->backward_us += more->backward_us;
    b->fixed += more->fixed;
    b->across += more->across;
    for (int p = 0; p < POOL_COUNT; p++)
        b->slot[p] += more->slot[p];
    return true;
}

bool long_lived_add(struct long_lived *f, int first, int end, struct brief *b) {
    const struct space *sp = f->ev->space;
    const struct crossing *in = &sp->crossings[first], *out = &sp->crossings[end];
    bool any = false;
    for (int i = 0; i < in->n; i++)
        any |= add_edge(f, &sp->blocks.s.edges[in->edges[i]], first, end, b);
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &sp->blocks.s.edges[out->edges[i]];
        if (e->origin >= first) /* the others cross the beginning too: added above */
            any |= add_edge(f, e, first, end, b);
    }
    return any;
}
