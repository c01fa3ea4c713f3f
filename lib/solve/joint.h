/* joint.h - pipeline stages, data and tensor parallelism and recomputation at once.
 *
 * The problem is Piper's (Tarnawski, Narayanan, Phanishayee, NeurIPS 2021): the nodes of a
 * DAG are divided into stages, the stages follow each other (no edge goes back), every
 * stage has a tensor degree t, a data degree d that divides the samples N of a batch, and
 * per node one of the alternatives that the node has for t (such as "vanilla" and
 * "activation recomp"). With s = the sum of the data degrees of a stage and of all later
 * ones,
 *
 *   time   = sum over nodes v of  p_v / d
 *            + [ 2 sum over edges e of v that leave the stage (bytes_e + sync_e) / d
 *                + 4 (d - 1) w_v / (d N) ] / bandwidth
 *   memory = sum over nodes of  a_v * ceil(s / d) + b_v  <=  capacity
 *
 * and the greatest stage time is minimized, with sum t*d <= devices, sum d <= N.
 *
 * joint_read.c makes a struct joint_problem of the document, joint_ideals.c lists down-sets
 * (closed under successors) and their pairs, joint_knap.c chooses alternatives exactly,
 * joint_dp.c answers "is there a plan with all times <= T", joint.c searches for T, and
 * joint_check.c works the answer out again from the document alone.
 */
#ifndef WEFT_SOLVE_JOINT_H
#define WEFT_SOLVE_JOINT_H

#include "common/mem.h"
#include "solve/solve.h"

#include <stdbool.h>
#include <stdint.h>

/* One way to run a node at a tensor degree. */
struct joint_choice {
    const char *id; /* borrowed from the document */
    double p, w, a, b;
    double *fw, *bw; /* sync bytes per incoming, outgoing edge of the node */
};

struct joint_edge {
    int node; /* the other end */
    double bytes;
};

struct joint_node {
    int64_t id; /* as the document numbers it */
    int num_in, num_out;
    struct joint_edge *in, *out;
    int *first; /* choices of degree g are first[g] .. first[g+1]-1 */
    struct joint_choice *choices;
};

struct joint_problem {
    int nodes, devices, num_degrees;
    int64_t samples;
    int max_data; /* greatest data degree */
    int limit_s;  /* greatest sum of data degrees */
    double capacity, bandwidth;
    int *degrees; /* tensor degrees that some node has, rising */
    struct joint_node *node;
    struct arena arena; /* owns all of it */
};

int joint_read(struct joint_problem *p, const json_t *doc, struct err *err);
void joint_release(struct joint_problem *p);

/* ---- down-sets ---------------------------------------------------------------------- */

/* What is known of the stage between two down-sets at one tensor degree without solving it.
 */
struct joint_sums {
    int degree;            /* index into degrees */
    bool plain;            /* w does not depend on the choice: fast_* holds for every d */
    double base, w;        /* sums of the least p + edge time, and of the least w */
    double a, b;           /* sums of the least a, of the least b */
    double fast_a, fast_b; /* memory of the choices with the least base */
};

struct joint_pair {
    int to;        /* the larger down-set */
    int64_t first; /* its sums are first .. first+count-1 */
    int count;
};

struct joint_ideals {
    bool line; /* only the suffixes of one topological order, because there are too many */
    int n, words;
    uint64_t *bits; /* n x words, by rising size; 0 is empty, n-1 is everything */
    int *size;
    int64_t *start; /* pairs that begin at down-set i: start[i] .. start[i+1]-1 */
    ARR(struct joint_pair) pairs;
    ARR(struct joint_sums) sums;
};

/* All down-sets and pairs, or, where those are too many for this solver, the suffixes of
 * one topological order (line). deadline_s: now_s() at which to give up (EXIT_NO). */
int joint_ideals_make(struct joint_ideals *x, const struct joint_problem *p,
                      double deadline_s, struct err *err);
void joint_ideals_release(struct joint_ideals *x);

/* ---- the choice of alternatives -------------------------------------------------- */

/* All alternatives of the nodes of one stage at one degree; time = (base + c (d-1) w) / d.
 */
struct joint_item {
    int node, choice;
    double base, w, a, b;
};
struct joint_items {
    ARR(struct joint_item) items;
    ARR(int) group; /* first item of each node, and the end */
};
void joint_items_make(struct joint_items *it, const struct joint_problem *p,
                      const uint64_t *small, const uint64_t *large, int degree);
void joint_items_release(struct joint_items *it);

struct joint_pick {
    double time;  /* of the best choice found, INFINITY if none */
    double bound; /* no choice that fits is faster */
};

/* The fastest choice that fits with y micro-batches in flight. Stops at any choice with
 * time <= enough, or when all are proven slower than `limit`. picks (one item index per
 * node) may be NULL. */
struct joint_pick joint_knapsack(const struct joint_problem *p,
                                 const struct joint_items *it, int d, int64_t y,
                                 double enough, double limit, int *picks);

/* Seconds per byte and sample of the gradients: 4 / (N * bandwidth). */
double joint_sync_factor(const struct joint_problem *p);

/* ---- is there a plan? ------------------------------------------------------------ */

struct joint_stage {
    int small, large; /* down-sets */
    int degree, d;
    int s; /* data degrees of this stage and all later ones */
};

struct joint_plan {
    int n;
    struct joint_stage *stages; /* first stage of the pipeline first; room for nodes */
    double value;
};

struct joint_dp {
    const struct joint_problem *p;
    const struct joint_ideals *x;
    double deadline_s;
    int *divisors, num_divisors;
    uint16_t *s_min; /* [down-set][devices]: least sum of data degrees, UINT16_MAX = none */
    struct joint_back *back;
    struct joint_items items;
    double next; /* after a "no": no plan is faster than this */
    int64_t knapsacks;
};

void joint_dp_init(struct joint_dp *dp, const struct joint_problem *p,
                   const struct joint_ideals *x, double deadline_s);
void joint_dp_release(struct joint_dp *dp);

/* 1: a plan with all times <= limit (its value is worked out exactly); 0: none; -1:
 * stopped. */
int joint_dp_run(struct joint_dp *dp, double limit, struct joint_plan *plan);

/* The largest down-set that was reached, for messages. */
int joint_dp_reach(const struct joint_dp *dp);

/* Works an answer out again from the document. */
int joint_check(const json_t *doc, const json_t *answer, double *value, struct err *err);

#endif
