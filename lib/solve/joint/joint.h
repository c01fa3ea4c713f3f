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
 * joint_doc.c packs a document, joint_read.c makes a struct joint_problem of it,
 * joint_sets.c lists down-sets (closed under successors), joint_table.c adds up what their
 * nodes need, joint_dp.c answers "is there a plan with all times <= T" over these sets,
 * joint_items.c and joint_knap.c choose alternatives exactly, joint_bound.c bounds how many
 * devices some nodes need, joint.c searches for T, and joint_check.c computes the answer
 * again from the document alone.
 */
#ifndef WEFT_SOLVE_JOINT_H
#define WEFT_SOLVE_JOINT_H

#include "common/mem.h"
#include "solve/joint/joint_doc.h"

#include <stdbool.h>
#include <stdint.h>

/* An alternative of a node at a tensor degree. */
struct joint_choice {
    const char *id; /* borrowed from the document (joint_doc.h) */
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
    double deadline_s; /* now_s() at which to stop; INFINITY = never */
    int *degrees;      /* tensor degrees that some node has, rising */
    struct joint_node *node;
    struct arena arena; /* owns all of it */
};

/* Makes a problem of the document, whose names of alternatives it borrows. Messages begin
 * with the place. */
int joint_read(struct joint_problem *p, const struct joint_doc *doc, struct err *err);
void joint_release(struct joint_problem *p);

/* Returns whether the deadline has passed or an interrupt came. */
bool joint_stopped(const struct joint_problem *p);

/* Returns 4 / (N * bandwidth), the factor of (d - 1) w / d in the time of a node. */
double joint_sync_factor(const struct joint_problem *p);

/* ---- down-sets ---------------------------------------------------------------------- */

/* Sets of nodes that are closed under successors: the possible unions of last stages. The
 * empty set and the set of all nodes are always among them. */
struct joint_sets {
    int n, words;
    uint64_t *bits; /* n x words */
};

static inline bool joint_has(const uint64_t *set, int v) {
    return set[v >> 6] >> (v & 63) & 1;
}

/* Lists all sets that a plan may need. Returns 0, or 1 and no set when they are more
 * than `most` or time is up. */
int joint_sets_all(struct joint_sets *x, const struct joint_problem *p, int64_t most);

/* Lists the suffixes of one topological order, which are always few. */
void joint_sets_line(struct joint_sets *x, const struct joint_problem *p);
void joint_sets_release(struct joint_sets *x);

/* ---- bounds from what is additive over nodes --------------------------------------- */

/* A stage of time T on n = t*d devices does at most n (T + mu capacity) of
 *   q_v = min over degrees t and alternatives of  t (p + mu (a + b))
 * so no plan with all times <= T has sum of q > devices (T + mu capacity). */
struct joint_measure {
    double time, memory; /* weights of time and memory in q: 1, mu or 0, 1 */
    double *q;           /* per node */
    double total;
};

enum { JOINT_MEASURES = 3 }; /* the best mu; time alone; memory alone */

struct joint_bound {
    struct joint_measure m[JOINT_MEASURES];
    double value; /* no plan is faster; INFINITY: none fits into memory */
};
void joint_bound_init(struct joint_bound *b, const struct joint_problem *p);
void joint_bound_release(struct joint_bound *b);
/* ---- tables over down-sets ---------------------------------------------------------- */

/* The sets in the order of the search. */
struct joint_table {
    const struct joint_problem *p;
    const struct joint_bound *bound;
    int n, words;
    uint64_t *bits;               /* n x words: the sets, by rising m[0] and size */
    double *used[JOINT_MEASURES]; /* [set]: sum of q */
};

/* Takes the sets over: x is empty afterwards. Returns 0, or -1 when stopped. Release the
 * table in both cases. */
int joint_table_init(struct joint_table *t, const struct joint_problem *p,
                     const struct joint_bound *bound, struct joint_sets *x);
void joint_table_release(struct joint_table *t);

/* ---- the choice of alternatives -------------------------------------------------- */

/* The alternatives of the nodes of one stage at one degree; time = (base + c (d-1) w) / d,
 * with c = joint_sync_factor(). */
struct joint_item {
    int node, choice;
    double base, w, a, b;
};
struct joint_items {
    ARR(struct joint_item) items;
    ARR(int) group; /* first item of each node, and the end */
    double lambda;  /* multiplier of memory that was right for the last stage */
};
void joint_items_make(struct joint_items *it, const struct joint_problem *p,
                      const uint64_t *small, const uint64_t *large, int degree);
void joint_items_release(struct joint_items *it);

/* What is known of a stage without choosing. */
struct joint_sums {
    bool plain;            /* w does not depend on the choice: fast_* holds for every d */
    double base, w;        /* sums of the least p + edge time, and of the least w */
    double a, b;           /* sums of the least a, of the least b */
    double fast_a, fast_b; /* memory of the choices with the least base */
};

/* Adds up what is known without choosing. Returns false when some node cannot run at
 * this degree. */
bool joint_items_sum(const struct joint_items *it, struct joint_sums *s);

struct joint_pick {
    double time;  /* of the best choice found, INFINITY if none */
    double bound; /* no choice that fits is faster */
};

/* Finds the fastest choice that fits with y micro-batches in flight. Stops at any choice
 * with time <= enough, or when all are proven slower than `limit`. picks (one item index
 * per node) may be NULL. */
struct joint_pick joint_knapsack(const struct joint_problem *p,
                                 const struct joint_items *it, int d, int64_t y,
                                 double enough, double limit, int *picks);

/* Returns whether a choice within `limit` fits. If not, *open falls to the proven bound on
 * the stage's time. */
bool joint_fits(const struct joint_problem *p, struct joint_items *it, int d, int64_t y,
                double limit, double *open);

/* ---- the dynamic program --------------------------------------------------------- */

struct joint_stage {
    int degree, d;
    int s; /* data degrees of this stage and all later ones */
};

/* Stage i of n, in the order of the pipeline, is set i without set i+1; set n is empty. */
struct joint_plan {
    int n, words;
    struct joint_stage *stages;
    uint64_t *sets;
    double value;
};
void joint_plan_init(struct joint_plan *plan, const struct joint_problem *p);
void joint_plan_copy(struct joint_plan *to, const struct joint_plan *from);
void joint_plan_release(struct joint_plan *plan);

struct joint_dp {
    const struct joint_problem *p;
    const struct joint_table *t;
    bool prune;  /* drop what leaves too few devices; off to see how far they reach */
    double open; /* after a no: least bound of the stages that were not decided */
    int64_t pairs, evaluated, knapsacks;
    int *divisors, num_divisors; /* of the samples: the data degrees */
    int *first_d;                /* [degree][n]: index of the first d with t d >= n */
    struct joint_labels *labels; /* per set */
    struct arena arena;          /* holds them */
    int *need;                   /* per set: least devices for the nodes outside */
    struct joint_items items;
};

void joint_dp_init(struct joint_dp *dp, const struct joint_problem *p,
                   const struct joint_table *t);
void joint_dp_release(struct joint_dp *dp);

/* Returns 1 with a plan whose times are all <= limit (its value is exact), 0 when these
 * sets have none, -1 when stopped. */
int joint_dp_run(struct joint_dp *dp, double limit, struct joint_plan *plan);

/* Returns the largest down-set that was reached, for messages. */
const uint64_t *joint_dp_reach(const struct joint_dp *dp);

/* Computes the value of an answer again from the document alone. EXIT_NO when it does
 * not keep to the document. */
int joint_check(const struct joint_doc *doc, const json_t *answer, double *value,
                struct err *err);

#endif
