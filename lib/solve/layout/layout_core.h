/* layout_core.h - the layout problem inside the solver: variables, edges, memory rows.
 *
 * A variable stands for one or more nodes whose strategies go together; value a of it picks
 * one strategy for each of them. Rows are the inclusion-maximal sets of nodes that are live
 * together, in the order of time, so that what a node uses touches a range of rows. What
 * all values use alike is taken off the capacity of the rows beforehand.
 *
 *     struct layout_core c;
 *     if (layout_core_build(&c, problem, &err) < 0) return -1;
 *     if (layout_core_shrink(&c, &err) < 0) ...      // EXIT_NO: proven to have no answer
 *     layout_core_scale(&c);
 *     layout_core_choice(&c, x, choice);             // values of variables -> strategies
 *     layout_core_release(&c);
 */
#ifndef WEFT_SOLVE_LAYOUT_CORE_H
#define WEFT_SOLVE_LAYOUT_CORE_H

#include "common/mem.h"
#include "common/progress.h"
#include "solve/layout/layout.h"

/* The cost of forbidden entries; a sum of three of them does not overflow. */
#define LAYOUT_INF (INT64_C(1) << 60)

struct layout_seg {
    int32_t lo, hi; /* rows lo..hi-1 */
    int64_t *use;   /* (k) */
};

struct layout_pick {
    int32_t node;      /* of the problem */
    int32_t *strategy; /* (k) */
};

struct layout_var {
    int k;         /* number of values; 0 = the variable is gone */
    int64_t *cost; /* (k) LAYOUT_INF = value removed, until compacted */
    ARR(int) adj;  /* edges; dead ones are dropped lazily */
    ARR(struct layout_seg) seg;
    ARR(struct layout_pick) pick;
};

/* Edges share a matrix, which counts its users, until one of them changes it. */
struct layout_edge {
    int u, v;   /* variables; u = -1: gone */
    int64_t *w; /* (k_u, k_v) of layout_matrix_new */
};
int64_t *layout_matrix_new(size_t n); /* zeroed */
int64_t *layout_matrix_share(int64_t *w);
void layout_matrix_drop(int64_t *w); /* NULL: nothing */
/* Returns a matrix that the caller may change: w if it has no other user, otherwise a
 * copy of its n entries. */
int64_t *layout_matrix_own(int64_t *w, size_t n);

struct layout_core {
    const struct layout_problem *p;
    int n_vars;
    struct layout_var *var;
    int n_edges;
    struct layout_edge *edge;
    int n_rows;
    int64_t *cap;      /* (n_rows) what is left of the limit */
    int64_t *row_time; /* (n_rows) a time of the problem at which the row stands */
    double *lambda;    /* (n_rows) multipliers found so far */
    int64_t base;      /* cost that every answer has */
    int shift;         /* all costs in here are those of the problem times 2^shift */
    int64_t effort;    /* most operations for the dominance test of one variable */
    int32_t *fixed;    /* (n_nodes) strategy of nodes whose variable is gone */
    double deadline_s; /* now_s() at which reductions stop where they are; 0 = never */
};

int layout_core_build(struct layout_core *c, const struct layout_problem *p,
                      struct err *err);
void layout_core_release(struct layout_core *c);

/* Fails with EXIT_NO: every choice uses more than the limit at this row. */
int layout_core_no_room(const struct layout_core *c, int row, struct err *err);

#define LAYOUT_INTERRUPTED "interrupted before there was an answer"

/* Shrinks the problem without losing all optima, as far as the deadline allows. Every value
 * keeps a partner across each edge. EXIT_NO when the problem has no answer, or when
 * interrupted. */
int layout_core_reduce(struct layout_core *c, struct err *err);

/* Alternates between dropping rows that cannot bind, or that another row implies, and
 * layout_core_reduce, until nothing changes. EXIT_NO when the problem has no answer. */
int layout_core_shrink(struct layout_core *c, struct err *err);

/* Returns the scaled cost of x over all variables, or LAYOUT_INF if it uses a forbidden
 * entry. */
int64_t layout_core_value(const struct layout_core *c, const int *x);

/* Multiplies all costs by the largest power of two that leaves sums below LAYOUT_INF.
 * Call it only once. */
void layout_core_scale(struct layout_core *c);

/* Derives the strategies of all nodes from the values of the variables. */
void layout_core_choice(const struct layout_core *c, const int *x, int32_t *choice);

/* Returns whether the deadline (now_s(); 0 = none) or an interrupt has come. */
static inline bool layout_time_up(double deadline_s) {
    return interrupted() || (deadline_s > 0 && now_s() > deadline_s);
}

/* Returns the other end of edge e. */
static inline int layout_other(const struct layout_edge *e, int i) {
    return e->u == i ? e->v : e->u;
}

#endif
