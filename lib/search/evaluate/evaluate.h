/* evaluate.h - what a candidate costs: a score from the strategy graph, or an
 * evaluation of its plan.
 *
 * A score is the sum of the stages and of what passes between them. It takes
 * microseconds, because stages that were scored before are looked up. An evaluation
 * compiles the whole plan and simulates it: its memory is exact, and it has the last
 * word on time. The evaluator owns everything that was computed on the way.
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

/* Factors for proofs. The estimated time of a plan that may be the best is less than
 * SEARCH_SLACK times its simulated time. The estimated bytes of any plan are less than
 * SEARCH_MEMORY_SLACK times those of the compiled plan (small models round every buffer
 * up to 64 bytes, or share buffers). SEARCH_SLACK is measured, not proven: a gradient that
 * several ops want in other layouts is converted once, but every edge is charged for the
 * conversion (tests/unit/search-bound.c). */
#define SEARCH_SLACK        1.2
#define SEARCH_MEMORY_SLACK 1.25

struct score {
    double time_us;
    int64_t overflow;     /* bytes beyond the memory on the fullest device, 0 = fits */
    int slowest, fullest; /* stages that bound time and memory */
    bool unknown;         /* the profile lacks shapes that it needs */
};
/* Returns whether a is better: known before unknown, then less overflow, less time. */
bool score_better(const struct score *a, const struct score *b);

/* The part of a stage's score that does not depend on its neighbours. */
struct stage_sum {
    double forward_us, backward_us, weights_us, reduce_us, update_us;
    double fixed, slot[POOL_COUNT], temp, update_temp; /* bytes */
    uint64_t groups;                                   /* see struct load */
    bool missing;
};

/* The number of micro-batches whose bytes a stage holds at once, by pool. */
struct in_flight {
    int64_t n[POOL_COUNT];
};

static inline double held_bytes(const double slot[POOL_COUNT], const struct in_flight *f) {
    double bytes = 0;
    for (int p = 0; p < POOL_COUNT; p++)
        bytes += slot[p] * (double)f->n[p];
    return bytes;
}

/* Bytes on a device by when they are held, without staging for messages. Those of
 * several stages on one group add up by stage_bytes_add. */
struct stage_bytes {
    double fixed, held, temp, update;
};
static inline void stage_bytes_add(struct stage_bytes *to, const struct stage_sum *sum,
                                   const struct in_flight *f) {
    to->fixed += sum->fixed;
    to->held += held_bytes(sum->slot, f);
    to->update += sum->update_temp;
    to->temp = to->temp > sum->temp ? to->temp : sum->temp;
}
/* No micro-batch is in flight during the update, so only the larger of both counts. */
static inline double stage_bytes_sum(const struct stage_bytes *b) {
    const double most = b->held + b->temp;
    return b->fixed + (most > b->update ? most : b->update);
}

struct filling; /* see prefix_fill.c */

struct evaluate {
    const struct space *space; /* borrowed, like the budget */
    struct budget *budget;
    struct cost cost;
    struct graph graph; /* costs of strategies, compiled when they are first asked for */
    /* Memos: prefix sums, sums of stages, micro-batches in flight, evaluations. */
    struct memo prefixes, sums, in_flight, evaluations;
    bool any_good;               /* some plan evaluated so far is good */
    struct memo recomputes;      /* loads that the graph owns (recompute.c) */
    struct fewest *fewest;       /* see eval_fewest; NULL: not asked yet */
    ARR(struct passing) passing; /* of the candidate being scored (score_impl.h) */
    int64_t prefix_bytes;
    struct filling *filling; /* see prefix_fill.c; NULL: not made yet */
    /* Scores leave this many bytes of each device free, because finalists that filled
     * the memory by estimate turned out too large when they were compiled. */
    int64_t reserve_bytes;
    bool exact; /* for proofs: scores allow SEARCH_MEMORY_SLACK times the memory */
};

void eval_begin(struct evaluate *ev, const struct space *sp, struct budget *b);
void eval_end(struct evaluate *ev);

/* ---- scores ------------------------------------------------------------------------------ */

/* Returns whether the candidate can be compiled: it obeys the pins, and every op's layout
 * splits evenly. */
bool eval_legal(struct evaluate *ev, const struct candidate *c);
/* Returns the score of a legal candidate. Algorithms call pool_score, which also
 * remembers the candidate. */
struct score eval_score(struct evaluate *ev, const struct candidate *c);
/* Sets bytes[g] to the bytes by which group g of a legal candidate exceeds its memory,
 * negative where it stays below. Only for limited memory. */
void eval_overflows(struct evaluate *ev, const struct candidate *c, double *bytes);
/* Returns equal numbers for candidates that are compiled to the same program: layouts
 * that a stage has for ops of other stages do not matter. */
uint64_t eval_identity(const struct evaluate *ev, const struct candidate *c);

/* Returns the bytes that stages may fill by estimate on each of these devices, from a rank
 * on, without what is known to be needed beside estimates. 0 = no limit. */
int64_t eval_room(const struct evaluate *ev, int rank, int devices);
/* The same less a 64th, for algorithms that fill a single stage: they do not count what
 * its neighbours send. */
int64_t eval_stage_room(const struct evaluate *ev, int rank, int devices);
/* Returns whether a candidate exceeds its memory by so little that it may fit all the same,
 * or once it is improved. Estimates of what tied parameters need in the update are too
 * high: a plan of t5:3B on 96 devices with 0.28 GB each leaves 1 % of that free, and is
 * estimated to need 3 % more. */
bool eval_nearly_fits(const struct evaluate *ev, const struct score *score);

struct in_flight candidate_in_flight(struct evaluate *ev, const struct candidate *c, int k);
/* Returns the stage's own part of a score, looked up or summed; valid until eval_trim. */
const struct stage_sum *eval_stage_sum(struct evaluate *ev, const struct prefix *t,
                                       const struct search_stage *st);
/* Returns what recomputing blocks of a stage costs and saves. */
struct load eval_recompute(struct evaluate *ev, const struct prefix *t,
                           const struct search_stage *st);
/* The fewest blocks that a stage has to recompute to fit, and the time that this adds to a
 * micro-batch. */
struct fewest {
    uint64_t key; /* 0: not known */
    double us;
    int blocks; /* -1: it does not fit even with all of them */
};
/* Returns the place of a key's answer. If the place has another key, the caller overwrites
 * it: each place keeps only its last answer. */
struct fewest *eval_fewest(struct evaluate *ev, uint64_t key);
/* Adds the times of receiving what passes a cut in front of an op: in_us of the tensors,
 * for the stage behind the cut; out_us of their gradients, for the stage in front of it.
 * Both stages have equally many devices; inter_node: they are on different nodes. */
void eval_takes(struct evaluate *ev, const struct prefix *t, int op, bool inter_node,
                double *in_us, double *out_us);

/* Sets, by group of the cluster, how long one of its devices would take for the whole
 * step if it had the memory; 0 = not known (alone.c). */
void eval_alone(struct evaluate *ev, double alone_us[CLUSTER_MAX_GROUPS]);

/* ---- evaluations ------------------------------------------------------------------------- */

/* The result of compiling and simulating a candidate. It depends on the candidate alone,
 * so it is remembered. */
struct evaluation {
    bool good; /* it fits, and the profile has all of it */
    double time_us;
    int64_t max_bytes;
    int64_t excess; /* bytes beyond the memory of the fullest stage's devices */
    int fullest;    /* stage that is nearest to its limit, or furthest beyond */
};

/* Merges neighbouring mesh axes on which all ops of a stage do the same; false if
 * there are none (merge.c). */
bool search_merge_meshes(struct plan *plan);
/* Compiles and simulates p->plan and sets its time and memory; returns false if it
 * does not fit or the profile lacks something. */
bool eval_plan(struct evaluate *ev, struct search_plan *p);
/* Evaluates the candidate's plan with its meshes merged. Tries the original meshes too if
 * that plan is not good or, with `both`, if it is faster than best_us; then tries overlap
 * on the better one. A good plan goes to `out`, and the caller owns it. */
struct evaluation eval_candidate(struct evaluate *ev, const struct candidate *c,
                                 double best_us, bool both, struct search_plan *out);
/* Returns by how many bytes the plan exceeds the memory of a device; 0 if it fits. */
int64_t eval_excess(struct evaluate *ev, const struct candidate *c);
/* Returns the least reserve_bytes with which scores find as much overflow as the compiled
 * plan has; the present reserve_bytes if the candidate is not legal. */
int64_t eval_reserve_of(struct evaluate *ev, const struct candidate *c);
/* Returns whether the compiled plan fits, without simulating it. */
bool eval_fits(const struct evaluate *ev, const struct candidate *c);

#endif
