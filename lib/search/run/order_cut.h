/* order_cut.h - a model as a small graph that is cut into pipelines: units, their
 * costs, and what passes between them.
 *
 * A unit is an instance of a block or a single op; in long chains of equal blocks,
 * several are one unit. Its load is its time on one device. A stage of a pipeline
 * takes the sum of its units and, as in lib/solve/partition/partition.h, a message for
 * each tensor that enters or leaves it.
 *
 *     struct cut_graph g;
 *     double us = 0;
 *     if (cut_graph_make(ev, false, &g))
 *         us = cut_list_us(&g, stages, order);           // of the list's best ranges
 *     cut_graph_release(&g);
 */
#ifndef WEFT_ORDER_CUT_H
#define WEFT_ORDER_CUT_H

#include "search/state.h"

struct cut_tensor {
    int origin;          /* a unit */
    int n, first_reader; /* units other than its origin that read it, ascending */
    double bytes;        /* of a micro-batch; 0: a parameter that ties its users together */
};

struct cut_graph {
    int n;      /* number of units */
    int *first; /* [n + 1] unit u has the ops first[u] .. first[u + 1] - 1 */
    /* [n] time of a micro-batch; bytes of the step; bytes of each micro-batch in flight */
    double *work_us, *fixed, *slot;
    int n_tensors;
    struct cut_tensor *tensors; /* by origin */
    int *of; /* [n + 1] the tensors of unit u are of[u] .. of[u + 1] - 1 */
    int *readers;
    /* unit u reads the tensors reads[reads_of[u]] .. reads[reads_of[u + 1] - 1] */
    int *reads, *reads_of;
    double *send_us; /* [n_tensors] of the message, with the current number of stages */
    double memory;   /* of a stage, or INFINITY */
    int64_t micro_batches;
};

/* ops: whether each op is a unit of its own. Returns false if there are too many units. */
bool cut_graph_make(struct evaluate *ev, bool ops, struct cut_graph *g);
void cut_graph_release(struct cut_graph *g);
/* Returns whether the units have only one order. */
bool cut_graph_is_chain(const struct cut_graph *g);
/* Sets what depends on the number of stages, all of which have equally many devices. */
void cut_graph_stages(struct evaluate *ev, struct cut_graph *g, int stages);

/* The time of the longest stage of the best pipeline with at most this many stages, each
 * of which is a range of this list of units; INFINITY if none fits the memory. */
double cut_list_us(const struct cut_graph *g, int stages, const int *list);
/* Finds the time of the longest stage and the stage of each unit if stages may be any
 * convex sets of units (lib/solve/partition/partition.h). Returns false if none fit. */
bool cut_graph_solve(const struct cut_graph *g, int stages, double *us, int *stage_of);

#endif
