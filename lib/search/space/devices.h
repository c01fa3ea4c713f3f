/* devices.h - which devices a stage is on, and how much memory they have.
 *
 * The groups of a candidate divide the devices into ranges of neighbouring ranks.
 * Usually they are in the order of the pipeline. Where devices or links differ, the
 * order is a choice: a group with a lower `place` (candidate.h) is on lower ranks, and
 * groups with equal places are in the order of the pipeline. So places that are all 0
 * mean the usual order, and code that splits or merges stages need not know of them.
 *
 *     if (space_has_places(sp))
 *         candidate_swap(&c, 0, 1);
 *     int64_t most = search_memory(&sp->p, candidate_rank(&c, 0), c.stages[0].devices);
 */
#ifndef WEFT_DEVICES_H
#define WEFT_DEVICES_H

#include "search/space/space.h"

/* The bytes of each device of a stage of a checked plan; 0: no limit. */
int64_t space_stage_memory(const struct space *sp, const struct plan *plan, int k);
/* The bytes that stage k of a program lacks on its devices, including what its ranks take
 * beside the arena. If it is below 0, that many are left. */
int64_t space_stage_lacks(const struct space *sp, const struct program *g, int k);

/* The first rank of each stage, [n_stages], or of one stage. */
void candidate_ranks(const struct candidate *c, int *rank);
int candidate_rank(const struct candidate *c, int k);
/* [n_groups] the groups, sorted by their ranks. */
void candidate_order(const struct candidate *c, int *order);
/* Puts the groups on ranks in this order; if it is the order of the pipeline, all
 * places become 0. */
void candidate_place(struct candidate *c, const int *order);
/* Exchanges the places of two groups. */
void candidate_swap(struct candidate *c, int a, int b);

/* Deals the groups to the nodes in turn, so that neighbours in the pipeline are on
 * different nodes; false if the groups do not fill the nodes that way. */
bool candidate_deal(const struct space *sp, struct candidate *c);

/* Returns whether a search that may leave devices idle tries plans on the first n of them: a
 * divisor of their number, or all of the first kinds. */
bool devices_may_be(const struct search_problem *p, int n);

/* A range of used devices that are equal. */
struct device_class {
    int first, end; /* ranks */
};
/* Fills at most CLUSTER_MAX_GROUPS classes, in the order of ranks; returns how many
 * there are. */
int space_device_classes(const struct space *sp, struct device_class *out);

/* Returns equal numbers for places of the candidate's groups that have the same costs:
 * equal nodes may be exchanged. */
uint64_t space_place_hash(const struct space *sp, const struct candidate *c);

/* The memory that a plan lacks on the devices of one stage. */
struct shortage {
    int64_t bytes, limit;
    int stage, first, end; /* ops first .. end-1 */
};

/* Describes what the candidate lacks: this many bytes on the devices of this stage. */
struct shortage space_shortage(const struct space *sp, const struct candidate *c, int stage,
                               int64_t bytes);

#endif
