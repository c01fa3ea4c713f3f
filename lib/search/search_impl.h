/* search_impl.h - the state behind search.h. */
#ifndef WEFT_SEARCH_IMPL_H
#define WEFT_SEARCH_IMPL_H

#include "search/search.h"

/* What one op of the file costs in a stage with a certain table of layouts: its own
 * work, the conversions that it asks for, and its share of the memory. */
struct place_cost {
    double forward_us, backward_us, reduce_us, update_us;
    int64_t slot_bytes;  /* kept per micro-batch in flight */
    int64_t fixed_bytes; /* parameters, gradients, optimizer state */
    int64_t temp_bytes;  /* temporaries while it runs: the largest counts */
    /* Temporaries of its update: those that live across the norm add up over the ops, and
     * to them comes the largest of the others. */
    int64_t update_kept_bytes, update_temp_bytes;
    /* Of slot_bytes, what only ops behind it read in the backward pass: it is kept by the
     * stage that has the reader. Readers are told by their distance in the list of ops. */
    int64_t passed_bytes;
    int first_reader, last_reader;
    int64_t result_bytes; /* of its result as it goes to another stage */
    int64_t tied_bytes;   /* of a copy whose parameter has its home in another stage */
    /* Taking, from the same node and from another: a copy's gradient (home) or the new
     * value (copy); the op's result (or its gradient) from another stage. */
    double tied_us[2], take_us[2];
    double pack_us;    /* packing the result for another stage */
    bool unknown;      /* the profile lacks something that its own work needs */
    bool unknown_take; /* that taking, packing or tying needs */
};

/* All places under one table: layouts, recompute, ZeRO, devices, micro-batch. */
struct table {
    uint64_t key; /* 0 = free */
    double norm_us;
    struct place_cost place[SEARCH_MAX_PLACES];
};

struct kept {
    struct candidate c;
    struct score score;
    uint64_t hash;
};

struct search {
    struct search_problem p;
    struct cost cost;
    int inner[SEARCH_MAX_INNER], n_inner;
    int sequence;                  /* dim, or -1 */
    int block_len, first_block_op; /* ops of a block; 0 and -1 without blocks */
    struct table **tables;         /* hash table */
    int64_t n_tables, cap_tables;
    struct model *small; /* the model with few blocks: one of them stands for all */
    int small_block;     /* which */
    struct tie {
        int home, copy; /* places */
    } ties[SEARCH_MAX_PLACES];
    int n_ties;
    struct crossing {
        int n, producer[4]; /* ops whose results pass the cut in front of an op */
    } * crossings;          /* [n_ops + 1] */
    struct kept *kept;      /* the best so far, best first */
    int n_kept, max_kept;
    struct kept nearest; /* the best that does not fit */
    bool has_nearest;
    /* Finalists that turned out too large when they were compiled: by how much at least,
     * where. Then the search is repeated with this much less memory. */
    int64_t reserve_bytes, refused_bytes;
    int refused_stage;
    struct cost_key missing; /* the first key that the profile lacks */
    int64_t n_missing;
    int64_t scored, compiled, unknown;
    double start_s, space;
    bool complete;
};

int search_survey(struct search *s, struct err *err);
void search_forget(struct search *s); /* releases what the survey and the scores made */
/* Costs of all places for a stage with these settings, `again`: with its recompute. */
const struct table *search_table(struct search *s, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool again);
/* True if the profile lacked something since this was last asked. */
bool search_lacks(struct search *s);
struct plan *search_plan_of(struct search *s, const struct candidate *c);
uint64_t candidate_hash(const struct candidate *c);
uint64_t search_layout_hash(const struct search_stage *st, uint64_t h);
uint64_t search_mix(uint64_t h, uint64_t v);

#endif
