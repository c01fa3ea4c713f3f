/* stages_dp.h - the passes over (layer, devices left) that the stages solver is made of.
 *
 * A table has a row per layer and a column per number of devices left: G[l][d] is about
 * layers l.. on the last d devices (suffix) or layers ..l-1 on the others (prefix).
 *
 *     struct stages_dp dp;
 *     stages_dp_init(&dp, p, deadline);
 *     stages_dp_build(&dp, INFINITY, &err);            // all candidate stages, as triples
 *     stages_dp_suffix(&dp, T, STAGES_DP_SUM, dp.suffix);     // least sum with every m <= T, any memory
 *     stages_dp_trace(&dp, T, dp.suffix, &plan);       // the plan behind suffix[0][D]
 *     stages_dp_labels(&dp, T, q, g, cap, &plan);      // the same with memory, exactly
 */
#ifndef WEFT_SOLVE_STAGES_DP_H
#define WEFT_SOLVE_STAGES_DP_H

#include "common/mem.h"
#include "solve/stages/stages.h"

/* One candidate stage: layers l..k (l is known from where it stands) with a choice. */
struct stages_triple {
    double time;
    uint16_t k, choice, succ;
};

enum stages_dp_kind { STAGES_DP_SUM, STAGES_DP_MAX };

struct stages_dp {
    const struct stages_problem *p;
    double deadline_s;
    int64_t *start; /* triples of layer l are start[l] .. start[l+1]-1 */
    ARR(struct stages_triple) triples;
    double *suffix, *prefix; /* (layers + 1) x (devices + 1) */
    int64_t width;           /* devices + 1 */
    int64_t passes;          /* how many were made */
};

void stages_dp_init(struct stages_dp *dp, const struct stages_problem *p,
                    double deadline_s);
void stages_dp_release(struct stages_dp *dp);

/* Returns whether time is up or an interrupt came. All passes return false then. */
bool stages_dp_stopped(const struct stages_dp *dp);

/* Lists every stage of at most `limit` that is worth having: of two configurations on the
 * same devices, one that is no faster and fits no more successors is dropped. Returns false
 * with an error when there are too many. A list that stages_dp_stopped() cut short is
 * useless. */
bool stages_dp_build(struct stages_dp *dp, double limit, struct err *err);

/* Compute the least sum (STAGES_DP_SUM) or the least greatest time (STAGES_DP_MAX) over
 * stages of at most `limit`. Memory is relaxed: a stage that fits with one successor, or
 * none if it is the last, may have any number. */
bool stages_dp_suffix(struct stages_dp *dp, double limit, enum stages_dp_kind kind,
                      double *g);
bool stages_dp_prefix(struct stages_dp *dp, double limit, double *q);

/* Drops triples through which no plan beats `best`, judged by sums `suffix` and `prefix`
 * (both with limit INFINITY) and by (B-1) * max(time, lo). */
bool stages_dp_filter(struct stages_dp *dp, double lo, double best);

/* Traces the plan behind g[0][devices], which must be finite. */
void stages_dp_trace(const struct stages_dp *dp, double limit, const double *g,
                     struct stages_plan *plan);

/* Returns whether all stages of the plan fit into memory with their successors, and the
 * plan has at most max_stages. */
bool stages_dp_fits(const struct stages_dp *dp, const struct stages_plan *plan);

/* Finds the least sum below `cap` that fits into memory. Returns 1 with the plan, 0 when
 * there is none, -1 when stopped. q, g: sums of prefixes and suffixes with the same limit,
 * by which labels are dropped. */
int stages_dp_labels(struct stages_dp *dp, double limit, const double *q, const double *g,
                     double cap, struct stages_plan *plan);

/* Finds a first incumbent: stages on submeshes of one size, as even as possible. Leaves
 * *best alone when it finds nothing better; ends when stages_dp_stopped(). */
void stages_even(const struct stages_dp *dp, struct stages_plan *best);

void stages_plan_init(struct stages_plan *plan, const struct stages_problem *p);
void stages_plan_copy(struct stages_plan *to, const struct stages_plan *from);
void stages_plan_finish(struct stages_plan *plan, const struct stages_problem *p);

#endif
