/* strategies.h - all strategies of a stage, without those that another one beats
 * whatever the neighbours are.
 *
 * A strategy is a layout for each op (instances of a repeat have the same), a level of
 * ZeRO, and how many blocks are recomputed at which level. Strategy a beats strategy b if
 * a takes no more time and no more bytes in any part, and neighbours see no difference.
 * They see the layouts of ops that send or receive, and the work that they may have to
 * wait for. If there are too many strategies, there is no list.
 *
 *     struct choices *c = strategies_make(ev, 1e6, false);
 *     const struct strategies *w = strategies_of(c, &stage, micro_batch, first_rank, false);
 *     for (int64_t i = 0; w && i < w->n; i++) ... w->p[i] ...
 *     strategies_free(c);
 */
#ifndef WEFT_STRATEGIES_H
#define WEFT_STRATEGIES_H

#include "search/evaluate/evaluate.h"

struct strategy {
    struct search_stage st;
    struct stage_sum sum; /* a copy: the list outlives what the evaluator remembers */
    uint64_t seen;        /* hash of what neighbours see of it */
};
struct strategies {
    int64_t n;
    struct strategy *p; /* the fastest first, by forward and backward time together */
};

/* most: how many strategies may be looked at altogether. presets: only uniform presets,
 * with all blocks recomputed or none. */
struct choices *strategies_make(struct evaluate *ev, double most, bool presets);
void strategies_free(struct choices *c);
/* The strategies of a stage whose ops and devices are set; NULL for every stage once too
 * many were looked at. apart: weight gradients are computed separately. */
const struct strategies *strategies_of(struct choices *c, const struct search_stage *st,
                                       int64_t micro_batch, int first_rank, bool apart);
/* Returns whether all possible stages together have at most `most` strategies. Groups of
 * devices that differ only in their offset within nodes count once. */
bool strategies_can_be_listed(struct evaluate *ev, double most);
/* From now on, lists of stages with many strategies only have those whose time over a
 * step, by the stage's tables (stage_tables.h), is at most most_us. */
void strategies_limit(struct choices *c, double most_us);
/* How many strategies were looked at. */
double strategies_listed(const struct choices *c);

#endif
