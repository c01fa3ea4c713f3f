/* layout_lns.h - parts of a problem as problems of their own, and search by them.
 *
 * Some variables are set free, all others stay: what remains is a layout problem again,
 * with the costs of edges to the others added to the free ones and the rows holding what
 * the others leave. It is reduced and solved exactly, or until a limit on the nodes of its
 * search.
 */
#ifndef WEFT_SOLVE_LAYOUT_LNS_H
#define WEFT_SOLVE_LAYOUT_LNS_H

#include "common/rng.h"
#include "solve/layout_bb.h"

/* What all parts of one core have in common. */
struct lay_whole {
    struct lay_core *c;
    struct layout_problem stub; /* stands for the problem: its nodes are the core's
                                   variables */
    const int *x;               /* (n_vars) the present choice */
    int64_t value;              /* its cost */
    int64_t *slack;             /* (n_rows) what it leaves in the rows */
    double *doubt;              /* (n_vars) sums of weights: where to look first */
};

void lay_whole_init(struct lay_whole *w, struct lay_core *c);
void lay_whole_release(struct lay_whole *w);
/* Sets the present choice (borrowed) and works out the slacks. */
void lay_whole_set(struct lay_whole *w, const int *x, int64_t value);

/* The part made of the free variables (NULL: all). Its nodes are the core's variables, so
 * that lay_core_choice gives their values. Release it with lay_core_release. */
void lay_part(struct lay_core *part, const struct lay_whole *w, const int *free, int n);

/* One job: a neighbourhood, and what came of it. */
struct lay_job {
    const struct lay_whole *w;
    uint64_t seed;
    int size; /* variables to set free */
    int kind; /* which neighbourhood */
    double deadline_s;
    int *set; /* out: (n) the free variables */
    int n;
    int32_t *y;   /* out: (n_vars) their new values, if better */
    bool better;  /* out */
    bool done;    /* out: the part was searched completely */
    int64_t work; /* out: entries of matrices times nodes of the search */
};
void lay_job_run(struct lay_job *j);
void lay_job_release(struct lay_job *j);

#endif
