/* relax.h - a pipeline by gradient descent: all that is to be decided is relaxed to probabilities,
 * which are sharpened until they decide (the idea of pipeDejavu's differentiable search).
 *
 * A row of units is cut into a given number of stages. A unit holds so many of some classes; a class
 * has nodes, of which each has choices, and edges, which join two nodes. A stage makes one choice for
 * each node, whatever units it has, and takes one option. What a unit costs is the sum over its
 * classes of nodes, edges, and what the stage's option adds. With B micro-batches,
 *
 *     value = sum over stages of t + (B - 1) * max over stages of t
 *     bytes of a stage = fixed + in flight * slot <= memory
 *
 * where t takes what the cuts on either side cost as well. It proves nothing: there is no bound.
 *
 *     const struct relax_problem *starts[16];      // one for each start; may be the same
 *     struct relax_answer best[2];
 *     int n = relax_race(starts, 16, &limits, best, 2);
 *     for (int i = 0; i < n; i++)
 *         relax_answer_release(&best[i]);
 */
#ifndef WEFT_SOLVE_RELAX_H
#define WEFT_SOLVE_RELAX_H

#include "solve/solve.h"

struct relax_count {
    int class;
    double times;
};

struct relax_edge {
    int class, a, b;    /* nodes; in every unit of the class */
    const double *time; /* choices of a x choices of b, row by row */
};

/* What stages of one sort cost: those with the same number of devices. */
struct relax_costs {
    const int *first;                  /* [nodes + 1] choices of a node; at least one */
    const double *time, *fixed, *slot; /* [choices] */
    int n_edges;
    const struct relax_edge *edges;
    int n_options; /* at least one */
    /* [options x classes] added by a class; [options] by the stage, once */
    const double *more_time, *more_fixed, *more_slot, *once_time, *once_bytes;
};

struct relax_problem {
    int n_units, n_classes, n_nodes, n_stages; /* at most as many stages as units */
    const int *counts_of;                      /* [units + 1] into counts */
    const struct relax_count *counts;          /* a class once in a unit */
    const int *nodes_of, *nodes;            /* [classes + 1] into nodes; nodes of a class */
    const struct relax_costs *const *costs; /* [stages] */
    double micro_batches;                   /* >= 1 */
    const double *cut_in, *cut_out;         /* [units + 1] of a cut in front of a unit, to
                                                   the stage behind it and in front of it */
    double memory;                          /* of a stage; INFINITY = no limit */
    const double *in_flight;                /* [stages] */
};

struct relax_answer {
    const struct relax_problem *problem;
    int *first;           /* [stages + 1] units */
    int *option, *choice; /* [stages]; [stages x nodes] */
    double value,
        excess; /* the fraction of the memory that is missing, of all stages; 0 = fits */
};

/* Descends from every start, start i on starts[i] with a seed of its own; after each eighth, quarter and
 * half of the way the worse half of them ends. Fills the best answers, at most `most`, best first, those
 * that fit before those that do not, and returns how many. The same for any number of threads. */
int relax_race(const struct relax_problem *const *starts, int n,
               const struct solve_limits *limits, struct relax_answer *best, int most);
void relax_answer_release(struct relax_answer *a);

#endif
