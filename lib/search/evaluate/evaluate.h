/* evaluate.h - what a candidate costs: a score from the strategy graph, or the compiled plan simulated.
 *
 * A score is the sum of the stages and of what crosses their bounds; it takes microseconds, since stages
 * that were met before are looked up. An evaluation compiles the whole plan and simulates it: it is
 * exact in memory, and the last word on time. The evaluator owns whatever was worked out on the
 * way.
 *
 *     struct evaluate ev;
 *     eval_begin(&ev, &space, &budget);
 *     struct score score = eval_score(&ev, &candidate);
 *     eval_end(&ev);
 */
#ifndef WEFT_EVALUATE_H
#define WEFT_EVALUATE_H

#include "search/budget/budget.h"
#include "search/evaluate/prefix.h"

/* For proofs. The estimated time of a plan that may be the best is above its simulated time by
 * less than the first factor; the estimated bytes of any plan are above those of the compiled
 * one by less than the second (buffers of toys are rounded up to 64 bytes each, or share them).
 * The first is measured, not proven: a gradient that several ops want in other layouts is
 * converted once, but every edge counts the conversion (tests/unit/search-bound.c). */
#define SEARCH_SLACK        1.2
#define SEARCH_MEMORY_SLACK 1.25

struct score {
    double time_us;
    int64_t overflow;     /* bytes beyond the memory on the fullest device, 0 = fits */
    int slowest, fullest; /* stages that bound time and memory */
    bool unknown;         /* the profile lacks shapes of it */
};
/* Known; fits better; or is faster. */
bool score_better(const struct score *a, const struct score *b);

/* The part of a stage's score that does not depend on its neighbours. */
struct stage_sum {
    double forward_us, backward_us, weights_us, reduce_us, update_us;
    double fixed, slot[POOL_COUNT], temp, update_temp; /* bytes */
    bool missing;
};

/* Micro-batches that a stage holds at once, by pool. */
struct in_flight {
    int64_t n[POOL_COUNT];
};

static inline double held_bytes(const double slot[POOL_COUNT], const struct in_flight *f) {
    double bytes = 0;
    for (int p = 0; p < POOL_COUNT; p++)
        bytes += slot[p] * (double)f->n[p];
    return bytes;
}

/* Bytes on a device by when they are held, without what waits to be sent; of stages of one group
 * together. */
struct stage_bytes {
    double kept, temp, update;
};
static inline void stage_bytes_add(struct stage_bytes *to, const struct stage_sum *sum,
                                   const struct in_flight *f) {
    to->kept += sum->fixed + held_bytes(sum->slot, f);
    to->update += sum->update_temp;
    to->temp = to->temp > sum->temp ? to->temp : sum->temp;
}
static inline double stage_bytes_sum(const struct stage_bytes *b) {
    return b->kept + (b->temp > b->update ? b->temp : b->update);
}

struct filling; /* prefix_fill.c */

struct evaluate {
    const struct space *space; /* borrowed, like the budget */
    struct budget *budget;
    struct cost cost;
    struct graph graph; /* strategies' costs, compiled when first asked for */
    /* What was worked out: prefix sums, stages' scores, micro-batches in flight, evaluations. */
    struct memo prefixes, sums, in_flight, evaluations;
    struct memo recomputes;      /* the graph's loads (recompute.c) */
    ARR(struct passing) passing; /* of the candidate that is being scored (score_impl.h) */
    int64_t prefix_bytes;
    struct filling *filling; /* prefix_fill.c's, or NULL */
    /* Scores leave so many bytes of each device free, since finalists that were full to the brim
     * turned out too large when they were compiled. */
    int64_t reserve_bytes;
    bool exact; /* scores of memory allow for SEARCH_MEMORY_SLACK, for proofs */
};

void eval_begin(struct evaluate *ev, const struct space *sp, struct budget *b);
void eval_end(struct evaluate *ev);

/* ---- scores ------------------------------------------------------------------------------ */

/* Can the candidate be compiled: does it obey the pins, and does every op's layout split evenly? */
bool eval_legal(struct evaluate *ev, const struct candidate *c);
/* The score of a legal candidate; the pool remembers it (pool_score). */
struct score eval_score(struct evaluate *ev, const struct candidate *c);
/* Equal for candidates that are compiled to the same program: layouts of ops in other stages do
 * not matter. */
uint64_t eval_identity(const struct evaluate *ev, const struct candidate *c);

struct in_flight candidate_in_flight(struct evaluate *ev, const struct candidate *c, int k);
/* The stage's own part of a score, looked up or summed. */
const struct stage_sum *eval_stage_sum(struct evaluate *ev, const struct prefix *t,
                                       const struct search_stage *st);
/* What recomputing instances of blocks in a stage costs and saves. */
struct load eval_recompute(struct evaluate *ev, const struct prefix *t,
                           const struct search_stage *st);
/* Adds what it costs to take the tensors that pass a cut in front of an op: going forward, for
 * the stage after the cut; their gradients, for the stage before it. Both stages have as many
 * devices; inter_node: they are on different nodes. */
void eval_takes(struct evaluate *ev, const struct prefix *t, int op, bool inter_node,
                double *in_us, double *out_us);

/* ---- evaluations ------------------------------------------------------------------------- */

/* What came of compiling and simulating a candidate: the same whenever it is done. */
struct evaluation {
    bool good; /* it fits, and the profile has all of it */
    double time_us;
    int64_t max_bytes;
    int64_t excess; /* bytes beyond the memory, */
    int fullest;    /* on the devices of this stage */
};

/* Compiles and simulates p->plan: false where it does not fit, or the profile lacks something;
 * else its time and memory are set. */
bool eval_plan(struct evaluate *ev, struct search_plan *p);
/* The candidate's plan with its meshes merged; as they are, too, where that is not good or, if `both`,
 * where it is faster than best_us; with overlap, if that is faster. What is good goes to `out`, whose
 * plan the caller owns then. */
struct evaluation eval_candidate(struct evaluate *ev, const struct candidate *c,
                                 double best_us, bool both, struct search_plan *out);
/* By how many bytes the candidate's plan exceeds the memory of a device; 0: it fits. */
int64_t eval_excess(struct evaluate *ev, const struct candidate *c);
/* Does the compiled plan fit? Nothing is simulated. */
bool eval_fits(const struct evaluate *ev, const struct candidate *c);

#endif
