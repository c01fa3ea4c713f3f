/* search.h - choosing a plan: one space, one objective, several algorithms.
 *
 * A candidate gives each stage a run of ops, a number of devices and, per op of the file
 * (so for all layers of the stage alike), a layout, whether it is made again in the
 * backward pass, and ZeRO; and all stages a micro-batch and a schedule. Its score is the
 * estimated time of a step, or by how much the fullest device misses the memory.
 * Finalists are compiled as a whole and simulated: the simulator has the last word.
 *
 *     struct search_problem p = {.model = m, .provider = p, .cluster = c, .devices = 8, ...};
 *     struct search_result r;
 *     if (search_run(&p, search_hops, &r, &err) < 0) ...     // EXIT_NO: nothing fits
 *     plan_write(r.plans[0], "-", &err);
 *     search_result_release(&r);
 */
#ifndef WEFT_SEARCH_H
#define WEFT_SEARCH_H

#include "cost/estimate.h"
#include "cost/simulate.h"

enum { SEARCH_MAX_STAGES = 64, SEARCH_MAX_PLACES = 64, SEARCH_MAX_MICRO = 32, SEARCH_MAX_INNER = 32 };

struct search_problem {
    struct model *model;                  /* borrowed */
    const struct cost_provider *provider; /* borrowed */
    struct cluster cluster;
    int devices;          /* used, all of them */
    int64_t memory_bytes; /* of one device; 0 = no limit */
    int64_t batch;
    int64_t micro[SEARCH_MAX_MICRO]; /* micro-batches to consider, ascending */
    int n_micro;
    enum optimizer optimizer;
    int max_stages;       /* 0 = as many as devices */
    int top;              /* plans wanted */
    int max_hops;         /* hops: how many steps may first make it worse */
    double time_budget_s; /* 0 = until it has converged */
    uint64_t seed;
};

/* One stage of a candidate. The mesh has one axis per prime factor of the devices, so
 * that any split of the devices among dims is a layout. */
struct search_stage {
    int first, end; /* ops first .. end-1 */
    int devices;
    int recompute_blocks; /* it holds in this many blocks from the first op on */
    uint64_t recompute;   /* places */
    int zero;
    struct layout layout[SEARCH_MAX_PLACES];
};

struct candidate {
    int n_stages;
    int64_t micro_batch;
    enum schedule schedule;
    struct search_stage stages[SEARCH_MAX_STAGES];
};

struct score {
    double time_us;
    int64_t overflow;     /* bytes beyond the memory on the fullest device, 0 = fits */
    int slowest, fullest; /* stages that bound time and memory */
    bool unknown;         /* the profile lacks shapes of it */
};
/* Fits better, or is faster. */
bool score_better(const struct score *a, const struct score *b);

struct search_plan {
    struct plan *plan; /* owned */
    double time_us;    /* simulated */
    int64_t max_bytes; /* largest arena */
};

struct search_result {
    int n;
    struct search_plan *plans; /* best first */
    int64_t scored;            /* candidates scored */
    int64_t compiled;          /* stages compiled for it */
    double seconds;
    bool complete; /* the algorithm ended by itself */
    /* What the best candidate lacks where none fits. */
    int64_t overflow;
    int overflow_stage;
    double space; /* exhaustive: number of candidates */
};

struct search; /* the state that the algorithms share: incumbents, caches */
typedef int search_algorithm(struct search *s, struct err *err);
search_algorithm search_hops, search_exhaustive;

/* Runs an algorithm and judges its best candidates. EXIT_NO when no plan fits the memory
 * (the message says by how much the best misses and in which stage) or the profile knows
 * none. */
int search_run(const struct search_problem *p, search_algorithm *algorithm,
               struct search_result *out, struct err *err);
void search_result_release(struct search_result *r);

/* ---- for the algorithms -------------------------------------------------------------- */

const struct search_problem *search_problem_of(const struct search *s);
/* Time is up, or the user interrupted. */
bool search_stopped(struct search *s);
/* Scores a candidate and remembers it if it is one of the best; cached by stage. */
struct score search_score(struct search *s, const struct candidate *c);
/* Best so far; NULL before the first. */
const struct candidate *search_best(const struct search *s, struct score *score);
void search_mark_complete(struct search *s, double space);

/* ---- styles: families of layouts ----------------------------------------------------- */

/* How a stage is laid out: of its mesh axes the inner `model_axes` split inner dims
 * (heads, ffn, vocab: those that no tensor between blocks has), the outer ones the
 * batch. */
struct style {
    int model_axes;
    unsigned inner; /* which of the model's inner dims may be split, bit i = inner dim i */
    bool sequence;  /* ops without an inner dim split the sequence there, else nothing */
};
int search_inner_dims(const struct search *s, int dims[SEARCH_MAX_INNER]);
bool search_has_sequence(const struct search *s);
int search_mesh_axes(int devices); /* prime factors */
void search_mesh(int devices, struct mesh *mesh);
void search_apply_style(struct search *s, struct search_stage *st, int64_t micro_batch,
                        struct style style);
/* Recompute: 0 none, 1 what is cheap to make again, 2 all but what leaves the block. */
enum { RECOMPUTE_LEVELS = 3 };
uint64_t search_recompute_places(const struct search *s, int level);
/* Blocks (repeated layers) that a stage touches. */
int search_stage_blocks(const struct search *s, const struct search_stage *st);
/* Can a stage have this many devices? */
bool search_devices_allowed(int devices);
/* A candidate with n stages: ops and devices as even as possible. */
bool search_even(struct search *s, int n_stages, int64_t micro_batch, struct style style,
                 struct candidate *out);
/* Cuts the ops anew so that the slowest stage is as fast as it can be within the memory,
 * with as few blocks made again as will do; devices and layouts stay. False when nothing
 * fits. */
bool search_balance(struct search *s, struct candidate *c);
/* Checks layouts (even shards) of a candidate; false if it is not legal. */
bool search_legal(struct search *s, const struct candidate *c);

#endif
