/* grid.h - uniform pipelines: what a person would try.
 *
 * All stages have the same number of devices and of whole blocks, and the same preset.
 * Sharding gradients and parameters and recomputing blocks cost time, so they are tried
 * only where the plan does not fit without them.
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
    /* Tries all schedules, model axes that do or do not split the sequence, and any
     * number of axes for the sequence and for experts; otherwise only the choices that
     * are usually best. */
    bool wide;
    bool data_only; /* Every device splits the batch and nothing else. */
    void (*take)(void *arg, const struct candidate *c, struct score score); /* or NULL */
    void *arg;
    int n_blocks; /* of the space */
    const int *blocks;
    struct candidate even, next; /* scratch */
};

void grid_init(struct grid *g, struct search *s);
void grid_release(struct grid *g);
/* Scores all plans of the grid with this number of groups. Where the groups do not
 * divide the devices, some groups have one device more. */
void grid_walk(struct grid *g, int groups, int64_t micro_batch);
/* Cuts the candidate between blocks of the model, as evenly as possible; returns false if
 * that changes nothing. */
bool grid_cut_blocks(const struct grid *g, struct candidate *c);
/* Returns the largest number of axes, counted outwards from those of the model and the
 * sequence, that can split the experts evenly; 0 if there are no experts. */
int grid_expert_axes(const struct grid *g, int devices, struct preset preset);
/* Returns whether the grid tries this micro-batch. With fewer micro-batches than groups,
 * devices would be idle at least half of the time, so smaller ones are better. */
bool grid_is_busy(const struct space *sp, int groups, int i_micro);

#endif
