/* candidate.h - candidates: what algorithms change, score and compare.
 *
 * A candidate decides everything that a plan decides, in the terms of the search:
 * stages are ranges of the list of ops, and all instances of a repeated layer in a
 * stage have the same layouts.
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
    int place; /* of its group: groups on lower ranks have a lower one (devices.h) */
    int zero;  /* 0 to space_zero_levels() - 1 */
    /* what is gathered in the forward pass is gathered again in the backward pass;
     * only shards are kept */
    bool regather;
    int recompute_level;  /* which ops of a block are recomputed (RECOMPUTE_LEVELS) */
    int recompute_blocks; /* in how many instances of blocks, from the first op on */
    const struct layout *layouts; /* [nodes], interned by space_layouts */
    const struct mesh *mesh;      /* its own, or NULL; set together with the layouts */
};

struct candidate {
    int n_stages;
    /* Groups of devices; stage k is on group k % n_groups. There are fewer groups than
     * stages only in interleaved schedules. */
    int n_groups;
    int64_t micro_batch;
    enum schedule schedule;
    struct search_stage *stages; /* room for space_stage_limit */
};

struct candidate candidate_make(const struct space *sp);
void candidate_release(struct candidate *c);
void candidate_copy(struct candidate *to, const struct candidate *from);

/* Hashes everything that the candidate, or one stage, decides. stage_hash chains into h
 * like memo_mix. */
uint64_t candidate_hash(const struct candidate *c);
uint64_t stage_hash(const struct search_stage *st, uint64_t h);

/* The level of ZeRO that takes effect: a single device has nothing to shard. */
static inline int search_zero_of(const struct search_stage *st) {
    return st->devices > 1 ? st->zero : ZERO_NONE;
}

#endif
