/* layout_lns.h - parts of a problem as problems of their own, and searches of them.
 *
 * Some variables are set free, all others stay: what remains is a layout problem again,
 * with the costs of edges to the others added to the free ones and the rows holding what
 * the others leave. It is reduced and solved exactly, or until a limit on the nodes of its
 * search.
 */
#ifndef WEFT_SOLVE_LAYOUT_LNS_H
#define WEFT_SOLVE_LAYOUT_LNS_H

#include "common/rng.h"
#include "solve/layout/layout_bb.h"

/* What all parts of one core have in common. */
struct layout_whole {
    struct layout_core *c;
    struct layout_problem stub; /* stands for the problem: its nodes are the core's
                                   variables */
    const int *x;               /* (n_vars) the present choice */
    int64_t value;              /* its cost */
    int64_t *slack;             /* (n_rows) what it leaves in the rows */
    double *doubt;              /* (n_vars) sums of weights: where to look first */
};

void layout_whole_init(struct layout_whole *w, struct layout_core *c);
void layout_whole_release(struct layout_whole *w);
/* Sets the present choice, which is borrowed, and computes the slacks. */
void layout_whole_set(struct layout_whole *w, const int *x, int64_t value);

/* Makes the part of the free variables (NULL: all). Its nodes are the core's variables,
 * so that layout_core_choice gives their values. Release it with layout_core_release. */
void layout_part(struct layout_core *part, const struct layout_whole *w, const int *free,
                 int n);

/* A job: one neighbourhood, and what its search found. */
struct layout_job {
    const struct layout_whole *w;
    uint64_t seed;
    int size; /* variables to set free */
    int kind; /* which neighbourhood */
    double deadline_s;
    int *set; /* out: (n) the free variables */
    int n;
    int32_t *y;   /* out: (n) their new values, if better */
    bool better;  /* out */
    bool done;    /* out: the part was searched completely */
    int64_t work; /* out: entries of matrices times nodes of the search */
};
void layout_job_run(struct layout_job *j);
void layout_job_release(struct layout_job *j);

#endif
