/* relax.h - finds a pipeline by gradient descent: all decisions are relaxed to
 * probabilities, which are sharpened until they decide (the idea of pipeDejavu's
 * differentiable search).
 *
 * A row of units is cut into a given number of stages. A unit holds some classes, each so
 * many times. A class has nodes, each with several choices, and edges between two nodes. A
 * stage makes one choice for each node, the same in all of its units, and takes one option.
 * A unit costs the sum over its classes of what the nodes, the edges and the stage's option
 * cost. With B micro-batches,
 *
 *     value = sum over stages of t + (B - 1) * max over stages of t
 *     bytes of a stage = fixed + in flight * slot <= memory
 *
 * where t includes what the cuts on either side cost. Nothing is proven: there is no bound.
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

/* What the stages with the same number of devices cost. */
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
        excess; /* the missing fraction of the memory, summed over stages; 0 = fits */
};

/* Descends from every start, each with its own seed. After an eighth, a quarter and half of
 * the way, the worse half of them is dropped. Fills at most `most` answers, best first,
 * those that fit before those that do not, and returns how many. The number of threads does
 * not change the result. */
int relax_race(const struct relax_problem *const *starts, int n,
               const struct solve_limits *limits, struct relax_answer *best, int most);
void relax_answer_release(struct relax_answer *a);

#endif
