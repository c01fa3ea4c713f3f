/* layout.h - chooses one strategy per node of a graph, cheapest within a memory limit.
 *
 * minimize  sum_i cost_i[x_i] + sum_(i,j) cost_ij[x_i, x_j]
 * such that at every time t the nodes live at t use at most usage_limit:
 *           sum over i live at t of usage_i[x_i] <= usage_limit.
 *
 * This is the layout problem of auto-sharding compilers (Alpa's ILP, XLA's; the ASPLOS 2025
 * contest on intra-operator parallelism). All numbers are 64-bit integers, so sums are
 * exact; a cost of about 10^18 (LAYOUT_FORBIDDEN and above) forbids the choice. Pairs that
 * exclude each other ("alias pairs") are edges with forbidden entries.
 *
 *     struct layout_problem p;
 *     struct layout_answer a;
 *     if (layout_read(&p, &stream, &err) < 0 || layout_solve(&p, &limits, &a, &err) < 0)
 *         return -1;
 *     use(a.choice, a.value, a.bound);
 *     layout_answer_release(&a);
 *     layout_problem_release(&p);
 */
#ifndef WEFT_SOLVE_LAYOUT_H
#define WEFT_SOLVE_LAYOUT_H

#include "common/json_stream.h"
#include "solve/solve.h"

#include <stdbool.h>
#include <stdint.h>

/* Costs from here up to LAYOUT_MAX forbid; greater ones are an error. */
#define LAYOUT_FORBIDDEN INT64_C(500000000000000000)
#define LAYOUT_MAX       INT64_C(2000000000000000000)
#define LAYOUT_NO_LIMIT  INT64_MAX /* usage_limit of a problem without one */
#define LAYOUT_SUM_MAX                                                                     \
    (INT64_C(1) << 57) /* sums of costs, and of usages, stay below this */

/* The node is live at lo <= t < hi; a node may be live several times or never. */
struct layout_live {
    int32_t node;
    int64_t lo, hi;
};

struct layout_problem {
    char *name;
    int32_t n_nodes;
    int64_t *first; /* (n_nodes + 1) strategies of i are first[i]..first[i+1]-1 */
    int64_t *cost;  /* (first[n_nodes]) >= 0 */
    int64_t *usage; /* (first[n_nodes]) >= 0 */
    int64_t n_live;
    struct layout_live *live; /* (n_live) */
    int64_t n_edges;
    int32_t (*ends)[2];  /* (n_edges) the two nodes; parallel edges add up */
    int64_t *entry;      /* (n_edges) the matrix of e begins at edge_cost[entry[e]] */
    int64_t n_entries;   /* of edge_cost; edges may share a matrix */
    int64_t *edge_cost;  /* row-major, strategies of ends[e][0] x those of ends[e][1] */
    int64_t usage_limit; /* inclusive */
    double cost_unit;    /* what a cost of 1 stands for in the document */
    double usage_unit;   /* the same for usages */
    double cost_error;   /* bound on the sum of all rounding, in costs; 0 = exact */
};

/* How the bound of an answer was proven. */
#define LAYOUT_PROOFS(X)                                                                   \
    X(LAYOUT_PROOF_ELIMINATION, "elimination of all variables")                            \
    X(LAYOUT_PROOF_SEARCH, "branch and bound with reweighted tree bounds")                 \
    X(LAYOUT_PROOF_DUAL, "reweighted trees with multipliers on the memory rows")           \
    X(LAYOUT_PROOF_NONE, "costs are not negative")
enum layout_proof {
#define X(id, text) id,
    LAYOUT_PROOFS(X)
#undef X
};
const char *layout_proof_text(enum layout_proof proof);

struct layout_answer {
    int32_t *choice; /* (n_nodes) strategy of each node */
    int64_t value;   /* its cost, as the evaluator finds it */
    int64_t bound;   /* no choice within the limit is cheaper than this */
    enum layout_proof proof;
    double time_s;
    int64_t peak_usage; /* greatest usage over all times, and where */
    int64_t peak_time;
};

/* Reads a problem document: the contest's form {"problem": {...}} or what is inside it, or
 * one of Alpa's solver calls. p is filled; release it. Errors name the document and the
 * place. EXIT_NO when the deadline of the stream or an interrupt came first. */
int layout_read(struct layout_problem *p, struct json_stream *s, struct err *err);
void layout_problem_release(struct layout_problem *p);

/* Checks sizes, ids, signs and sums of a problem; layout_solve begins with it. */
int layout_validate(const struct layout_problem *p, struct err *err);

/* Solves the problem, fills *a (release it) and returns 0. EXIT_NO when no choice is
 * within the limit, all use forbidden costs, or none was found in time; EXIT_SYSTEM when
 * memory is short. */
int layout_solve(const struct layout_problem *p, const struct solve_limits *limits,
                 struct layout_answer *a, struct err *err);
void layout_answer_release(struct layout_answer *a);

/* The independent evaluator: value, peak usage and its time of a choice. EXIT_NO when it
 * breaks the limit or uses a forbidden cost (the message says where). */
int layout_evaluate(const struct layout_problem *p, const int32_t *choice, int64_t *value,
                    int64_t *peak_usage, int64_t *peak_time, struct err *err);

#endif
