/* evaluate.h - what a candidate costs: a score from the strategy graph, or the
 * compiled plan simulated.
 *
 * A score is the sum of the stages and of what passes between them. It takes
 * microseconds, because stages that were met before are looked up. An evaluation
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

/* For proofs. The estimated time of a plan that may be the best exceeds its simulated
 * time by less than the first factor; the estimated bytes of any plan exceed those of
 * the compiled plan by less than the second (small models round every buffer up to 64
 * bytes, or share buffers). The first factor is measured, not proven: a gradient that
 * several ops want in other layouts is converted once, but every edge is charged the
 * conversion (tests/unit/search-bound.c). */
#define SEARCH_SLACK        1.2
#define SEARCH_MEMORY_SLACK 1.25

struct score {
    double time_us;
    int64_t overflow;     /* bytes beyond the memory on the fullest device, 0 = fits */
    int slowest, fullest; /* stages that bound time and memory */
    bool unknown;         /* the profile lacks shapes of it */
};
/* A known score is better than an unknown one; then less overflow, then less time. */
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

/* Bytes on a device by when they are held, without what waits to be sent; sums over
 * stages of one group are possible. */
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
/* At a step's end, no micro-batch is in flight. */
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
    /* Memos: prefix sums, scores of stages, micro-batches in flight, evaluations. */
    struct memo prefixes, sums, in_flight, evaluations;
    bool any_good;               /* of what was evaluated so far */
    struct memo recomputes;      /* loads of the graph (recompute.c) */
    struct fewest *fewest;       /* see eval_fewest; NULL: not asked yet */
    ARR(struct passing) passing; /* of the candidate being scored (score_impl.h) */
    int64_t prefix_bytes;
    struct filling *filling; /* see prefix_fill.c; NULL: not made yet */
    /* Scores leave this many bytes of each device free, because finalists that filled
     * the memory by estimate turned out too large when they were compiled. */
    int64_t reserve_bytes;
    bool exact; /* for proofs: scores of memory allow for SEARCH_MEMORY_SLACK */
};

void eval_begin(struct evaluate *ev, const struct space *sp, struct budget *b);
void eval_end(struct evaluate *ev);

/* ---- scores ------------------------------------------------------------------------------ */

/* Can the candidate be compiled: does it obey the pins, and does every op's layout
 * split evenly? */
bool eval_legal(struct evaluate *ev, const struct candidate *c);
/* Returns the score of a legal candidate. Algorithms call pool_score, which also
 * remembers the candidate. */
struct score eval_score(struct evaluate *ev, const struct candidate *c);
/* By how many bytes each group of devices of a legal candidate exceeds its memory (negative: is
 * below it), [groups]; only where memory is limited. */
void eval_overflows(struct evaluate *ev, const struct candidate *c, double *bytes);
/* Returns equal numbers for candidates that are compiled to the same program: layouts
 * that a stage has for ops of other stages do not matter. */
uint64_t eval_identity(const struct evaluate *ev, const struct candidate *c);

/* The bytes that stages may fill by estimate on each of so many devices, from a rank on: what is known
 * to be needed beside estimates is left out. 0 = no limit. */
int64_t eval_room(const struct evaluate *ev, int rank, int devices);
/* The same less a 64th, for who fills a single stage: what its neighbours send is not counted there. */
int64_t eval_stage_room(const struct evaluate *ev, int rank, int devices);
/* Does a candidate exceed its memory by so little that it may fit all the same, or once it is improved?
 * What tied parameters need in the update is estimated too high: a plan of t5:3B on 96 devices with
 * 0.28 GB each leaves 1 % of that free, and is estimated to need 3 % more. */
bool eval_nearly_fits(const struct evaluate *ev, const struct score *score);

struct in_flight candidate_in_flight(struct evaluate *ev, const struct candidate *c, int k);
/* Returns the stage's own part of a score, looked up or summed; valid until eval_trim. */
const struct stage_sum *eval_stage_sum(struct evaluate *ev, const struct prefix *t,
                                       const struct search_stage *st);
/* Returns what recomputing blocks of a stage costs and saves. */
struct load eval_recompute(struct evaluate *ev, const struct prefix *t,
                           const struct search_stage *st);
/* The fewest blocks that a stage has to recompute to fit, and the time that this takes a micro-batch;
 * -1: it does not fit with all of them. */
struct fewest {
    uint64_t key; /* 0: not known */
    double us;
    int blocks;
};
/* Returns the place of a key's answer, for the caller to fill where it holds another key's: only the
 * last answer of each place is kept. */
struct fewest *eval_fewest(struct evaluate *ev, uint64_t key);
/* Adds the time of receiving the tensors that pass a cut in front of an op: forward,
 * for the stage behind the cut; their gradients, for the stage in front of it. Both
 * stages have equally many devices; inter_node: they are on different nodes. */
void eval_takes(struct evaluate *ev, const struct prefix *t, int op, bool inter_node,
                double *in_us, double *out_us);

/* Sets, by group of the cluster, how long one of its devices would take for the whole
 * step if it had the memory; 0 = not known (alone.c). */
void eval_alone(struct evaluate *ev, double alone_us[CLUSTER_MAX_GROUPS]);

/* ---- evaluations ------------------------------------------------------------------------- */

/* The result of compiling and simulating a candidate; it does not depend on when that
 * is done. */
struct evaluation {
    bool good; /* it fits, and the profile has all of it */
    double time_us;
    int64_t max_bytes;
    int64_t excess; /* bytes beyond the memory, */
    int fullest;    /* on the devices of this stage */
};

/* Compiles and simulates p->plan and sets its time and memory; returns false if it
 * does not fit or the profile lacks something. */
bool eval_plan(struct evaluate *ev, struct search_plan *p);
/* Evaluates the candidate's plan with its meshes merged; also with the original meshes
 * if the merged plan is not good or, if `both`, if it is faster than best_us; and the
 * better one with overlap, if that is faster. A good plan goes to `out`; the caller
 * then owns it. */
struct evaluation eval_candidate(struct evaluate *ev, const struct candidate *c,
                                 double best_us, bool both, struct search_plan *out);
/* By how many bytes the candidate's plan exceeds the memory of a device; 0 if it fits. */
int64_t eval_excess(struct evaluate *ev, const struct candidate *c);
/* What has to be reserved for estimates to find that the candidate needs as much memory as it does when
 * it is compiled; what is reserved now where it is not legal. */
int64_t eval_reserve_of(struct evaluate *ev, const struct candidate *c);
/* Does the compiled plan fit? Nothing is simulated. */
bool eval_fits(const struct evaluate *ev, const struct candidate *c);

#endif
