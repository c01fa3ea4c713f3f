/* source_bound.h - what a chain of a source's ops takes at least on a row of stages, by Lagrange
 * multipliers.
 *
 * Stages that share the devices in one way are a row. For a row and a micro-batch, N micro-batches take
 * (N - 1) times the slowest stage plus all stages once. The slowest takes at least the mean of all
 * under any weights, and bytes beyond the memory may have any price; then every op pays for itself, and
 * a dynamic program over the chain finds the least that cuts, layouts and recomputation together
 * can take. Weights and prices are moved where the stages of its answer are too long or too full
 * (subgradients; Held and Karp 1971, with the step of Polyak 1969). What it finds holds for any.
 */
#ifndef WEFT_SOURCE_BOUND_H
#define WEFT_SOURCE_BOUND_H

#include "search/state.h"

/* What ops take on stages of some size, for one micro-batch: asked once. */
struct source_floors;
struct source_floors *source_floors_make(const struct space *sp, int64_t micro_batch);
void source_floors_free(struct source_floors *f);
/* Can a stage have so many devices? */
bool source_floors_have(const struct source_floors *f, int devices);
/* What an op takes there at least, whatever its layout; us as in struct source_op. */
struct source_least {
    double us, reserved_bytes, forward_bytes, backward_bytes;
};
struct source_least source_floors_least(const struct source_floors *f, int devices, int op);

/* Stages of one row. */
struct source_stage_price {
    int devices, behind;
    double weight;      /* of its time in the mean; all of a row are 1 together, or less */
    double us_per_byte; /* beyond the memory */
    double fixed_us;    /* for being there */
    /* reserved, whatever is in it, in place of what its ops reserve; 0: not */
    double own_bytes;
    int least, most; /* the ops that it may begin with, */
    int end;         /* and where it ends at the latest */
    /* Found: what it takes on the cheapest way, 0 where it is not on it. */
    double us, bytes;
};

/* The least of all ways through the chain whose stages are of these, one for each number of
 * stages behind, from any of them on (whole: from the first one on); INFINITY where there is
 * none. Steps are added to *steps. */
double source_floors_walk(struct source_floors *f, struct source_stage_price *stages, int n,
                          bool whole, int64_t *steps);

#endif
