/* choices.h - all ways in which a stage may do its ops, without those that another way beats
 * whatever its neighbours are.
 *
 * A way is a layout for each op (instances of a run have the same), a level of ZeRO, and how many
 * blocks are recomputed how far. Way a makes way b superfluous if no time and no bytes of a are more,
 * and nothing that the neighbours see of the stage differs: the layouts of ops that give or take
 * what passes its bounds, and the work in front of and behind those. Where there are too many ways,
 * there is no list.
 *
 *     struct choices *c = choices_make(s, 1e6, false);
 *     const struct ways *w = choices_of(c, &stage, micro_batch, first_rank, false);
 *     for (int64_t i = 0; w && i < w->n; i++) ... w->p[i] ...
 *     choices_free(c);
 */
#ifndef WEFT_CHOICES_H
#define WEFT_CHOICES_H

#include "search/search_impl.h"

struct way {
    struct search_stage st;
    const struct stage_sum *sum; /* kept by the search */
    uint64_t seen;               /* what neighbours see of it */
};
struct ways {
    int64_t n;
    struct way *p; /* the fastest first, by forward and backward together */
};

/* most: ways that are looked at in all. styles: only layouts of uniform styles, all
 * blocks recomputed or none. */
struct choices *choices_make(struct search *s, double most, bool styles);
void choices_free(struct choices *c);
/* Of a stage of which ops and devices are set; NULL where there would be too many to look at, from
 * then on. apart: weight gradients are made apart. */
const struct ways *choices_of(struct choices *c, const struct search_stage *st,
                              int64_t micro_batch, int first_rank, bool apart);
/* Are there at most so many ways of all possible stages together? Groups of devices that differ
 * only in their offset within nodes count once. */
bool choices_can_be_listed(struct search *s, double most);
/* From now on, of a stage with many ways only those are listed that take no longer than this
 * over a step by its tables (stage_tables.h). */
void choices_limit(struct choices *c, double most_us);
/* How many ways were looked at. */
double choices_listed(const struct choices *c);

#endif
