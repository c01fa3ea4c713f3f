/* aceso_stage.h - finds the best stages: for ops first .. end - 1 on so many devices, the
 * layouts and recomputation marks that fit and are fastest.
 *
 * Both functions below walk the chain once, from `first` on, and answer for every end on
 * the way. The state of a walk is the layout of its last op and whether that op is marked.
 *
 * - aceso_stage_bound puts multipliers on memory (Lagrangian relaxation, Held and Karp
 *   1971): memory beyond the limit is paid for, and only the cheapest strategy to each
 *   state is kept. The best result of several multipliers is a lower bound on the stage.
 * - aceso_stage_solve keeps all strategies to a state that no other beats in time and every
 *   kind of memory, which makes it exact. Where there are too many, it keeps the most
 *   promising ones, and the answer says so.
 */
#ifndef WEFT_ACESO_STAGE_H
#define WEFT_ACESO_STAGE_H

#include "aceso/aceso_cost.h"

enum aceso_recompute { ACESO_recompute_any, ACESO_recompute_none, ACESO_recompute_all };

/* Constraints on all stages of a search. */
struct aceso_limits {
    double mib; /* memory of a device; INFINITY: any */
    int tp;     /* of every op; 0: any */
    enum aceso_recompute recompute;
};

enum { ACESO_MOST_LAYOUTS = ACESO_MOST_TP * ACESO_ALGORITHMS, ACESO_MULTIPLIERS = 16 };

/* What ops take in each layout, for the stages on one number of devices and one micro-batch
 * size. */
struct aceso_stages {
    const struct aceso_model *m;
    const struct aceso_limits *limits;
    int devices;
    int64_t micro_batch;
    int n; /* layouts; 0: there can be no such stage */
    struct aceso_layout layout[ACESO_MOST_LAYOUTS];
    const struct aceso_cell *
        *cell;          /* [rows][n]; NULL: not measured, or never better than another */
    double *convert_us; /* [pairs][n][n] from, to */
    double *in_us[2],
        *out_us[2]; /* [rows] the least message, within a node and between two */
    double multipliers[ACESO_MULTIPLIERS]; /* us per MiB of activations */
};

struct aceso_stages *aceso_stages_create(const struct aceso_model *m,
                                         const struct aceso_limits *limits, int devices,
                                         int64_t micro_batch);
void aceso_stages_destroy(struct aceso_stages *st);

/* Returns the cells of op i of the chain, by layout. */
const struct aceso_cell *const *aceso_cells(const struct aceso_stages *st, int i);
/* Return whether op i may be marked, or unmarked with mark 0, and whether it may be marked
 * together with the op behind it. */
bool aceso_may_mark(const struct aceso_stages *st, int i, int mark);
bool aceso_may_recompute(const struct aceso_stages *st, int i);

/* The stages that are asked for: they begin with op `first`, end with op most - 1 at the
 * latest, and take at most most_us. */
struct aceso_ask {
    int first, least, most; /* first op; first and last end that is asked for */
    int behind;             /* stages behind them */
    double most_us;
    int most_strategies; /* per op and state, for aceso_stage_solve */
};

/* Sets us[end - first], up to end `most`, to a lower bound on such stages without messages,
 * or to INFINITY where all of them take longer than most_us. */
void aceso_stage_bound(const struct aceso_stages *st, const struct aceso_ask *ask,
                       double *us);

/* Lower bounds on the rest of a stage behind an op, by multipliers on memory. */
struct aceso_rest;
struct aceso_rest *aceso_rest_create(const struct aceso_stages *st,
                                     const struct aceso_ask *ask, int end);
void aceso_rest_destroy(struct aceso_rest *r);
/* Returns a lower bound on the time of a stage that has come to op i, in a layout and
 * marked or not, after `us`. It holds `mib` by then, without that op's activations, and
 * reserves `reserved`. */
double aceso_rest_us(const struct aceso_rest *r, int i, int layout, int mark, double us,
                     double mib, double reserved);

/* A strategy for the ops up to one: what it costs, and which shorter strategy it
 * extends. */
struct aceso_strategy {
    double us;
    double least_us; /* least of a stage that goes on from it */
    double mib;      /* state, and what is held for all micro-batches in flight */
    double run,
        peak; /* activations of the present run of marked ops, and of the largest one */
    double weights, forward,
        backward; /* forward, backward: reserved by all ops but the last */
    int before;   /* the one that it extends; -1: none */
    int op;
    short first_layout, layout, mark; /* of the stage's first op, and of this one */
};

/* The fastest stages that fit, messages included: us[crosses][end - first] is their time,
 * or INFINITY, and best[crosses][end - first] their last strategy in `all`. `crosses` tells
 * whether their output goes to another node. */
struct aceso_solved {
    double *us[2];
    int *best[2];
    ARR(struct aceso_strategy) all;
    int64_t thinned; /* how often strategies that none beats were left out */
};
/* Finds the fastest stages. crosses_in: their input comes from another node. */
void aceso_stage_solve(const struct aceso_stages *st, const struct aceso_ask *ask,
                       bool crosses_in, struct aceso_solved *out);
/* Writes the layouts and marks of the stage of n ops that was found into a
 * configuration. */
void aceso_stage_trace(const struct aceso_stages *st, const struct aceso_solved *s,
                       bool crosses, int n, struct aceso_config *c);
void aceso_solved_release(struct aceso_solved *s);

#endif
