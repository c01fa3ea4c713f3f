/* grid.h - uniform pipelines: what a person would try.
 *
 * All stages have as many devices, as many whole blocks, and one preset. Where a plan does not fit,
 * gradients and parameters are sharded too, and blocks recomputed: both cost time, so plans that
 * fit have no use for them.
 *
 *     struct grid g;
 *     grid_init(&g, s);
 *     g.take = take;                          // gets every plan and its score
 *     grid_walk(&g, 4, micro_batch);          // four groups of devices
 *     grid_release(&g);
 */
#ifndef WEFT_GRID_H
#define WEFT_GRID_H

#include "search/state.h"

struct grid {
    struct search *s;
    /* All schedules, the sequence split on model axes or not, any number of axes for it and for
     * experts; else what is likely to be best. */
    bool wide;
    bool data_only; /* every device splits the batch */
    void (*take)(void *arg, const struct candidate *c, struct score score); /* or NULL */
    void *arg;
    int n_blocks; /* of the space */
    const int *blocks;
    struct candidate even, next; /* under construction */
};

void grid_init(struct grid *g, struct search *s);
void grid_release(struct grid *g);
/* Scores all plans of the grid with so many groups of devices; some groups have one device more
 * where the devices do not divide. */
void grid_walk(struct grid *g, int groups, int64_t micro_batch);
/* Cuts between the blocks of the model, as many for each stage; false where nothing changes by it. */
bool grid_cut_blocks(const struct grid *g, struct candidate *c);
/* How many axes, outwards from the model's and the sequence's, can split the experts evenly at
 * most; 0 where there are no experts. */
int grid_expert_axes(const struct grid *g, int devices, struct preset preset);
/* Does the grid have plans with this micro-batch? Fewer micro-batches than groups leave more
 * than half of the devices idle, so smaller ones are better. */
bool grid_is_busy(const struct space *sp, int groups, int i_micro);

#endif
