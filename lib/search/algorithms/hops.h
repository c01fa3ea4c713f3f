/* hops.h - what the files of hops share: options, primitives, starts. */
#ifndef WEFT_HOPS_H
#define WEFT_HOPS_H

#include "search/state.h"

enum { WIDTH = 4 }; /* plans followed at each hop */

/* The best options of the plan that is being expanded, best first. */
struct options {
    int n;
    struct option p[WIDTH];
};

struct hops {
    struct search *s;
    struct options *levels;               /* [max_hops + 1] by the number of hops left */
    struct options *options;              /* of the current level */
    struct candidate next, balanced_next; /* scratch */
    struct score limit;                   /* only better plans are of interest */
    struct memo seen;                     /* hashes of visited plans */
    int64_t scored_before;                /* budget.work when the phase began */
    double gained; /* the largest factor by which a candidate of the phase got faster */
    int64_t most;  /* the value of budget.work at which to give up */
    struct rng rng;
    int max_hops;
    /* The current primitive moves ops itself, so its plans are not balanced. */
    bool balanced;
};

/* For qsort: better options first. */
int option_by_score(const void *a, const void *b);

/* Offers every plan that may relieve the stage which exceeds memory or is slowest
 * (hops_moves.c). fine: layouts of single ops too. */
void hops_expand(struct hops *hp, const struct candidate *c, const struct score *score,
                 bool fine);

/* Scores a few dozen pipelines, one of which is usually good (hops_first.c). */
void hops_first(struct search *s);

/* Returns balanced pipelines to start from, best first (hops_starts.c). The first call
 * scores them; later calls copy them. The caller frees the array and its candidates. */
struct option *hops_starts(struct search *s, int64_t *n);

/* Scores *o, then improves it as long as a better plan is at most `hops` primitives
 * away. fine: layouts of single ops too. */
void hops_polish(struct search *s, struct option *o, int hops, bool fine);

#endif
