/* aceso_stage.h - the best stages: of ops first .. end - 1 on so many devices, the layouts and marks for
 * recomputation with which they are fastest and fit.
 *
 * Both functions here walk over the chain once, from `first` on, and answer for every end on the way.
 * A walk is in a state: the layout of its last op, and whether that is marked.
 *
 * - aceso_stage_bound puts multipliers on memory (Lagrangian relaxation, Held and Karp 1971): what is held
 *   beyond the limit is paid for, and the cheapest strategy to each state is all that is remembered. No
 *   stage is faster than the best of some multipliers says.
 * - aceso_stage_solve remembers all strategies to a state that no other beats in time and every kind of
 *   memory: the exact stages. Where they are too many, those are left that save most for their
 *   time, and the answer says so.
 */
#ifndef WEFT_ACESO_STAGE_H
#define WEFT_ACESO_STAGE_H

#include "aceso/aceso_cost.h"

enum aceso_recompute { ACESO_recompute_any, ACESO_recompute_none, ACESO_recompute_all };

/* What holds for all stages of a search. */
struct aceso_limits {
    double mib; /* memory of a device; INFINITY: any */
    int tp;     /* of every op; 0: any */
    enum aceso_recompute recompute;
};

enum { ACESO_MOST_LAYOUTS = ACESO_MOST_TP * ACESO_ALGORITHMS, ACESO_MULTIPLIERS = 16 };

/* Stages of one number of devices at one micro-batch: what ops take in each layout. */
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
        *out_us[2]; /* [rows] the least message, inside a node and between two */
    double multipliers[ACESO_MULTIPLIERS]; /* us per MiB of activations */
};

struct aceso_stages *aceso_stages_create(const struct aceso_model *m,
                                         const struct aceso_limits *limits, int devices,
                                         int64_t micro_batch);
void aceso_stages_destroy(struct aceso_stages *st);

/* The cells of op i of the chain, by layout. */
const struct aceso_cell *const *aceso_cells(const struct aceso_stages *st, int i);
/* May op i be marked, or not be; may it be marked together with the one behind it? */
bool aceso_may_mark(const struct aceso_stages *st, int i, int mark);
bool aceso_may_recompute(const struct aceso_stages *st, int i);

/* Which stages are asked for: they begin with `first`, end before or with `most`, and take at most so
 * long. */
struct aceso_ask {
    int first, least, most; /* ops; the ends that are asked for */
    int behind;             /* stages behind them */
    double most_us;
    int most_strategies; /* to an op in one state, for aceso_stage_solve */
};

/* us[end - first]: what no such stage is faster than, messages apart; INFINITY from where they all
 * take longer than they may. [most - first + 1] */
void aceso_stage_bound(const struct aceso_stages *st, const struct aceso_ask *ask,
                       double *us);

/* What it takes at least to go on from an op to the end of a stage, by multipliers on memory. */
struct aceso_rest;
struct aceso_rest *aceso_rest_create(const struct aceso_stages *st,
                                     const struct aceso_ask *ask, int end);
void aceso_rest_destroy(struct aceso_rest *r);
/* The least time of a stage that has this behind it: op i in a layout, marked or not, after us, when
 * `mib` are held, apart from that op's activations, and so many are reserved. */
double aceso_rest_us(const struct aceso_rest *r, int i, int layout, int mark, double us,
                     double mib, double reserved);

/* The strategies of the ops up to one: what they cost, and of which shorter one they are. */
struct aceso_strategy {
    double us;
    double least_us; /* of a stage that goes on from it */
    double mib;      /* state, and what is held for all micro-batches in flight */
    double run,
        peak; /* activations of the run of marked ops so crosses, and of the largest */
    double weights, forward,
        backward; /* forward, backward: reserved by all ops but the last */
    int before;   /* the one that this one goes on from; -1: none */
    int op;
    short first_layout, layout, mark; /* of the stage's first op, and of this */
};

/* The fastest stages that fit, messages included: us[crosses][end - first] of the one that ends at the edge
 * of a node (crosses) or inside of one, or INFINITY; best[crosses][end - first]: how, in `all`. */
struct aceso_solved {
    double *us[2];
    int *best[2];
    ARR(struct aceso_strategy) all;
    int64_t thinned; /* strategies that were left out though none beats them */
};
/* crosses_in: the stage begins at the edge of a node. */
void aceso_stage_solve(const struct aceso_stages *st, const struct aceso_ask *ask,
                       bool crosses_in, struct aceso_solved *out);
/* Puts the layouts and marks of the stage with so many ops, which was found, into a configuration. */
void aceso_stage_trace(const struct aceso_stages *st, const struct aceso_solved *s,
                       bool crosses, int n, struct aceso_config *c);
void aceso_solved_release(struct aceso_solved *s);

#endif
