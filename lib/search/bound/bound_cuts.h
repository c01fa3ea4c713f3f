/* bound_cuts.h - the least costs of cutting the model's list of ops between groups
 * whose ranks are known.
 *
 * The groups of a pipeline are on neighbouring ranks, in its order. A message goes
 * from the first rank of one group to the first rank of the other (cost_transfer). All
 * devices together move each element of the tensor once, so one of them moves at least
 * an even share. Where the other group is not known, the fastest link to any possible one
 * counts, without other flows on it.
 *
 * The path is a longest chain of ops that depend on each other. A group cannot start a
 * micro-batch's ops on the path before the group in front has done its own and all ops
 * between these. */
#ifndef WEFT_BOUND_CUTS_H
#define WEFT_BOUND_CUTS_H

#include "search/bound/bound_impl.h"

struct cuts {
    const struct relaxed *r;
    int n_ops;   /* of the whole model */
    int node;    /* devices of a node if all places in all nodes are alike; otherwise 0 */
    int n_kinds; /* tensors that pass cuts, by type and size */
    struct cut_kind {
        enum dtype dtype;
        double elems;
    } * kinds;
    int *kind_of; /* [edges] -1: passes no cut, such as a parameter */
    bool *gives;  /* [edges] a gradient comes back */
    /* [ops + 1] of the path: the first op at or behind this one, the last one before it */
    int *next_on, *last_on;
    /* [ops] for an op of the path: how it depends on the one before */
    const struct edge **path_edge;
    int n_places; /* ranks that are distinguished */
    double *us; /* [kind][which][place][devices], see bound_cuts.c; -1: not computed yet */
    double *addition_us; /* [kind][size] */
};

struct cuts *cuts_make(const struct relaxed *r);
void cuts_free(struct cuts *c);

/* Walks along the tensors that a stage receives at its first cut, and those whose
 * gradients it receives at its end.
 *
 *     struct cut_walk w = {0};
 *     while (cuts_next_taken(c, first, end, &w))
 *         us += w.between ? from_far_us(w.kind) : from_neighbour_us(w.kind); */
struct cut_walk {
    int i;     /* index among the crossing's edges */
    int kind;  /* the kind of tensor */
    int other; /* the stage's op that reads it, or that made it */
    /* ops between the cut and the tensor's other end; 0: the next stage has it */
    int between;
    /* the reader is not the tensor's first: its lower bound includes adding a gradient */
    bool later;
};

/* Moves on for a stage of ops first .. end-1; false behind the last tensor. */
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

/* Microseconds per micro-batch in which a stage of ops first .. end-1 on d devices from
 * `rank` on receives tensors (take) and gradients (back). */
double cuts_take_us(struct cuts *c, int first, int end, int d, int rank);
double cuts_back_us(struct cuts *c, int first, int end, int d, int rank);
/* Microseconds in which a group of d devices from `rank` on receives a tensor of one
 * kind from as many devices from `other` on. */
double cuts_between_us(const struct cuts *c, int kind, int rank, int other, int d);
/* The part of a reader's lower bound that it has only if it is not the tensor's first
 * reader (op_bounds_addition_us). */
double cuts_addition_us(const struct cuts *c, int kind, int d);
/* Microseconds of the message to the first op of the path at or behind `first`. */
double cuts_path_us(struct cuts *c, int first, int d, int rank);

#endif
