/* layout_dual.h - lower bounds by reweighted trees and multipliers on the memory rows.
 *
 * The memory rows enter the objective with multipliers >= 0 and become costs of values;
 * what remains is a pairwise model, bounded by sequential tree-reweighted message passing
 * (TRW-S, Kolmogorov, PAMI 2006). Messages, multipliers and bounds are integers, so every
 * bound is exact whatever the messages are; only the step length of the multipliers is
 * floating point.
 *
 *     struct layout_dual d;
 *     layout_dual_init(&d, &core);           // multipliers: those of the core
 *     layout_dual_run(&d, 100, upper, 0);    // 100 rounds
 *     use(d.bound, d.x);                  // bound; values that the messages suggest
 *     layout_dual_release(&d);
 */
#ifndef WEFT_SOLVE_LAYOUT_DUAL_H
#define WEFT_SOLVE_LAYOUT_DUAL_H

#include "solve/layout/layout_core.h"

struct layout_dual {
    struct layout_core *c;
    int n;                /* variables that are left, in the order of the sweeps */
    int *var;             /* (n) their index in the core */
    int *index;           /* (core.n_vars) their index here; -1 = gone */
    int *k;               /* (n) */
    int64_t *off;         /* (n + 1) into cost, theta, hat */
    int64_t *cost;        /* cost of values without multipliers; LAYOUT_INF = removed */
    int64_t *theta;       /* with multipliers */
    int64_t *hat;         /* theta and all messages that came in */
    int m;                /* edges that are left */
    int *edge;            /* (m) index in the core */
    int *eu, *ev;         /* (m) ends, eu < ev */
    const int64_t **w;    /* (m) row-major matrices, seen from eu (transposed copies if need
                             be) */
    int64_t **owned;      /* (m) copies to free */
    int64_t *to_u, *to_v; /* (m) offsets of the messages into msg */
    int64_t *msg;
    int64_t n_msg;
    int64_t *kept; /* (n_msg) the messages before layout_dual_scale, NULL = as they are */
    int64_t *fwd, *bwd; /* (n + 1) CSR of the edges to later and to earlier variables */
    int *fwd_e, *bwd_e;
    double *lambda;      /* (n_rows) */
    int64_t *lambda_sum; /* (n_rows + 1) prefix sums of lambda, whole numbers */
    double *grad;        /* (n_rows) averaged use less capacity */
    double *square; /* (n_rows) averaged squares of it, where the multiplier can move */
    int64_t *use;   /* (n_rows + 1) of x */
    int *x;         /* (n) */
    int64_t bound;  /* of the last sweep; LAYOUT_INF = no answer */
    int64_t best;   /* the best bound so far */
    double *best_lambda;
    double step;   /* relative step length */
    double smooth; /* share of the old direction in the next one */
    int stuck;     /* rounds without progress */
    int64_t *tmp;  /* (most values) */
};

void layout_dual_init(struct layout_dual *d, struct layout_core *c);
void layout_dual_release(struct layout_dual *d);

/* Runs up to `rounds` rounds: charge usages with the multipliers, sweep forward and back,
 * move the multipliers. Stops early once the bound reaches `upper`, at the deadline
 * (now_s; 0 = none) or when steps no longer help. Ends with a sweep at the best
 * multipliers, which it leaves in the core. Returns the best bound. */
int64_t layout_dual_run(struct layout_dual *d, int rounds, int64_t upper,
                        double deadline_s);

/* Sweeps once each way at the present multipliers and costs. Returns the bound. */
int64_t layout_dual_sweep(struct layout_dual *d);

/* Sweeps with the best multipliers times a factor. Above 1, choices leave more memory
 * free. */
void layout_dual_scale(struct layout_dual *d, double factor, int sweeps);
/* Returns to the best multipliers, with messages and bound to match. */
void layout_dual_settle(struct layout_dual *d);

/* Returns the gap between `upper` and the bound, kept within limits. Steps of the
 * multipliers are a fraction of it. */
double layout_dual_gap(const struct layout_dual *d, int64_t upper);

/* extra[off[i] + a] = by how much the bound of the last sweep rises when i takes value a.
 */
void layout_dual_extra(struct layout_dual *d, int64_t *extra);

/* Sets pairs[a * k_v + b] to what the values a and b at the ends of edge s cost above the
 * least of the edge, after the last sweep. Together with what values cost at variables
 * alone, these parts make up all that a choice costs above the bound. */
void layout_dual_pairs(struct layout_dual *d, int s, int64_t *pairs);

/* Forbids, in c, values and pairs that no answer cheaper than upper uses, and returns how
 * many. The last sweep must be current. c is the dual's core or a copy of it; in the first
 * case the dual is out of date afterwards. */
int64_t layout_dual_fix(struct layout_dual *d, struct layout_core *c, int64_t upper);

#endif
