/* strategies.h - all ways in which a stage may do its ops, without those that another way beats
 * whatever its neighbours are.
 *
 * A way is a layout for each op (instances of a repeat have the same), a level of ZeRO, and how many
 * blocks are recomputed how far. Way a makes way b superfluous if no time and no bytes of a are more,
 * and nothing that the neighbours see of the stage differs: the layouts of ops that give or take
 * what passes its bounds, and the work in front of and behind those. Where there are too many ways,
 * there is no list.
 *
 *     struct choices *c = strategies_make(ev, 1e6, false);
 *     const struct strategies *w = strategies_of(c, &stage, micro_batch, first_rank, false);
 *     for (int64_t i = 0; w && i < w->n; i++) ... w->p[i] ...
 *     strategies_free(c);
 */
#ifndef WEFT_CHOICES_H
#define WEFT_CHOICES_H

#include "search/evaluate/evaluate.h"

struct strategy {
    struct search_stage st;
    const struct stage_sum *sum; /* kept by the search */
    uint64_t seen;               /* what neighbours see of it */
};
struct strategies {
    int64_t n;
    struct strategy *p; /* the fastest first, by forward and backward together */
};

/* most: ways that are looked at in all. presets: only layouts of uniform presets, all
 * blocks recomputed or none. */
struct choices *strategies_make(struct evaluate *ev, double most, bool presets);
void strategies_free(struct choices *c);
/* Of a stage of which ops and devices are set; NULL where there would be too many to look at, from
 * then on. apart: weight gradients are made apart. */
const struct strategies *strategies_of(struct choices *c, const struct search_stage *st,
                                       int64_t micro_batch, int first_rank, bool apart);
/* Are there at most so many ways of all possible stages together? Groups of devices that differ
 * only in their offset within nodes count once. */
bool strategies_can_be_listed(struct evaluate *ev, double most);
/* From now on, of a stage with many ways only those are listed that take no longer than this
 * over a step by its tables (stage_tables.h). */
void strategies_limit(struct choices *c, double most_us);
/* How many ways were looked at. */
double strategies_listed(const struct choices *c);

#endif
