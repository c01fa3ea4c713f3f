/* candidate.h - candidates: what algorithms change, score and compare.
 *
 * A candidate decides everything that a plan decides, in the search's own terms: stages are stretches of
 * the list of ops, and all instances of a repeated layer in a stage have the same layouts.
 *
 *     struct candidate c = candidate_make(sp);
 *     if (space_even(sp, 4, micro_batch, preset, &c))
 *         use(&c);
 *     candidate_release(&c);
 */
#ifndef WEFT_CANDIDATE_H
#define WEFT_CANDIDATE_H

#include "plan/plan.h"

struct space;

/* One stage of a candidate. */
struct search_stage {
    int first, end; /* ops first .. end-1 */
    int devices;
    int place;     /* of its group: those on lower ranks have a lower one (devices.h) */
    int zero;      /* 0 to space_zero_levels() - 1 */
    bool regather; /* what it gathers forward it gathers again backward; it keeps shards */
    int recompute_level;          /* which ops are recomputed (RECOMPUTE_LEVELS), */
    int recompute_blocks;         /* in so many instances of blocks from the first op on */
    const struct layout *layouts; /* by node; kept by space_layouts */
    const struct mesh *mesh;      /* its own, or NULL; set with the layouts */
};

struct candidate {
    int n_stages;
    int n_groups; /* of devices, stage k is on group k % n_groups; fewer only where interleaved */
    int64_t micro_batch;
    enum schedule schedule;
    struct search_stage *stages; /* room for space_stage_limit */
};

struct candidate candidate_make(const struct space *sp);
void candidate_release(struct candidate *c);
void candidate_copy(struct candidate *to, const struct candidate *from);

/* Equal for candidates that decide the same; of a stage, chained into h as memo_mix does. */
uint64_t candidate_hash(const struct candidate *c);
uint64_t stage_hash(const struct search_stage *st, uint64_t h);

/* A single device has nothing to shard. */
static inline int search_zero_of(const struct search_stage *st) {
    return st->devices > 1 ? st->zero : ZERO_NONE;
}

#endif
