/* bound_cuts.h - what it takes at least to cut the model's list of ops between groups whose ranks are
 * known.
 *
 * The groups of a pipeline are on neighbouring ranks, in its order. A message goes from the
 * first rank of one group to that of the other (cost_transfer), and all devices that take part
 * together move each element of the tensor once, so one of them moves an even share or more.
 * Where it is not known which group the other one is, the best link that may be between them
 * counts, with a flow of its own.
 *
 * Some ops depend on each other from the first to the last: the path. A group takes nothing of
 * a micro-batch's path before the group in front has done its ops on the path and what is
 * between. */
#ifndef WEFT_BOUND_CUTS_H
#define WEFT_BOUND_CUTS_H

#include "search/bound/bound_impl.h"

struct cuts {
    const struct relaxed *r;
    int n_ops;   /* of the whole model */
    int node;    /* devices of one, if all places of a node are alike; else 0 */
    int n_kinds; /* tensors that pass cuts, by type and size */
    struct cut_kind {
        enum dtype dtype;
        double elems;
    } * kinds;
    int *kind_of; /* [edges] -1: it does not pass, as parameters do not */
    bool *gives;  /* [edges] a gradient comes back */
    int *next_on,
        *last_on; /* [ops + 1] of the path: the first at or behind, the last before */
    /* [ops] of an op of the path, how it depends on the one before */
    const struct edge **strategy;
    int n_places; /* ranks that are told apart */
    double *us;   /* [kind][which][place][devices], see bound_cuts.c; -1: not known yet */
    double *addition_us; /* [kind][size] */
};

struct cuts *cuts_make(const struct relaxed *r);
void cuts_free(struct cuts *c);

/* A walk along the tensors that a stage takes at its first cut, or whose gradients it takes at its
 * end; and one of them.
 *
 *     struct cut_walk w = {0};
 *     while (cuts_next_taken(c, first, end, &w))
 *         us += w.between ? from_far_us(w.kind) : from_neighbour_us(w.kind);
 */
struct cut_walk {
    int i;     /* of the crossing's edges */
    int kind;  /* of cuts */
    int other; /* the stage's op that takes it, or whose result it is */
    int between; /* ops between the cut and the tensor's other end; 0: the next stage has it */
    bool
        later; /* its floor has the addition of a gradient: its reader is not the first one */
};

/* Stages of ops first .. end-1. False behind the last. */
static inline bool cuts_next_taken(const struct cuts *c, int first, int end,
                                   struct cut_walk *w) {
    const struct space *sp = c->r->ev->space;
    const struct crossing *in = &sp->crossings[first];
    while (w->i < in->n) {
        int at = in->edges[w->i++];
        const struct edge *e = &sp->blocks.s.edges[at];
        int reader = edge_reader_from(e, first);
        w->kind = c->kind_of[at];
        if (w->kind < 0 || reader == e->n || e->readers[reader] >= end)
            continue;
        w->other = e->readers[reader];
        w->between = first - 1 - e->origin;
        w->later = reader > 0;
        return true;
    }
    return false;
}

static inline bool cuts_next_back(const struct cuts *c, int first, int end,
                                  struct cut_walk *w) {
    const struct space *sp = c->r->ev->space;
    const struct crossing *out = &sp->crossings[end];
    while (w->i < out->n) {
        int at = out->edges[w->i++];
        const struct edge *e = &sp->blocks.s.edges[at];
        w->kind = c->kind_of[at];
        if (w->kind < 0 || e->origin < first || !c->gives[at])
            continue;
        w->other = e->origin;
        w->between = e->readers[edge_reader_from(e, end)] - end;
        return true;
    }
    return false;
}

/* A stage of ops first .. end-1 on d devices from a rank on: what it takes of tensors for a micro-batch,
 * and of gradients. */
double cuts_take_us(struct cuts *c, int first, int end, int d, int rank);
double cuts_back_us(struct cuts *c, int first, int end, int d, int rank);
/* Of one kind, which a group of d devices from a rank on takes from as many from another rank on. */
double cuts_between_us(const struct cuts *c, int kind, int rank, int other, int d);
/* What lower bounds of readers but the first one have instead (op_bounds_addition_us). */
double cuts_addition_us(const struct cuts *c, int kind, int d);
/* Of the path alone, in front of the first op on it at or behind this one. */
double cuts_path_us(struct cuts *c, int first, int d, int rank);

#endif
