/* Tensors that many ops read: see far.h. */
#include "search/graph/far.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 4 }; /* readers; graph.c tells no more of a kind apart */

static bool is_far(const struct edge *e) {
    return e->tensor >= 0 && e->n >= MANY;
}

bool far_any(const struct search *s) {
    for (int i = 0; i < s->graph.s.n_edges; i++)
        if (is_far(&s->graph.s.edges[i]))
            return true;
    return false;
}

void far_begin(struct far *f, struct search *s, const struct prefix *t) {
    *f = (struct far){.s = s, .t = t};
}

void far_end(struct far *f) {
    memo_release(&f->known, free);
}

static struct brief missing(struct far *f, const struct edge *e, int first, int end,
                            bool inside) {
    struct graph *g = &f->s->graph;
    struct load l = *graph_edge(g, &f->t->st, e, first, end, f->t->layouts);
    const struct load *whole = inside ? prefix_edge(f->s, f->t, e) : NULL;
    if (whole)
        load_add(&l, whole, -1);
    return prefix_brief_of(f->s, f->t, &l);
}

/* With so many of its readers, and its origin or not. */
static const struct brief *look_up(struct far *f, const struct edge *e, int first, int end,
                                   bool inside, int readers) {
    uint64_t key = memo_mix(memo_mix(3, (uint64_t)(e - f->s->graph.s.edges)),
                            (uint64_t)readers << 1 | inside);
    void **slot = memo_slot(&f->known, key);
    if (!*slot) {
        struct brief *b = mem_alloc(sizeof *b);
        *b = missing(f, e, first, end, inside);
        *slot = b;
    }
    return *slot;
}

static bool add_edge(struct far *f, const struct edge *e, int first, int end,
                     struct brief *b) {
    if (!is_far(e))
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

bool far_add(struct far *f, int first, int end, struct brief *b) {
    const struct search *s = f->s;
    const struct crossing *in = &s->crossings[first], *out = &s->crossings[end];
    bool any = false;
    for (int i = 0; i < in->n; i++)
        any |= add_edge(f, &s->graph.s.edges[in->edges[i]], first, end, b);
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &s->graph.s.edges[out->edges[i]];
        if (e->origin >= first) /* the others crossed the begin, too */
            any |= add_edge(f, e, first, end, b);
    }
    return any;
}
