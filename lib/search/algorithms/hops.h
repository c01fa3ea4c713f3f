/* hops.h - what the files of hops share: options, primitives, starts. */
#ifndef WEFT_HOPS_H
#define WEFT_HOPS_H

#include "search/state.h"

enum { WIDTH = 4 }; /* plans followed at each hop */

struct option {
    struct candidate c;
    struct score score;
};

/* The best options of the plan under work, best first. */
struct options {
    int n;
    struct option p[WIDTH];
};

struct hops {
    struct search *s;
    struct options *levels;               /* [max_hops + 1], by hops left */
    struct options *options;              /* of the current level */
    struct candidate next, balanced_next; /* under construction */
    struct score limit;                   /* a plan must be better than this */
    struct memo seen;                     /* visited plans */
    int64_t scored_before;                /* stages, when the phase began */
    int64_t most;                         /* stages that may have been scored */
    struct rng rng;
    int max_hops;
    bool balanced; /* the current primitive moves ops itself */
};

/* Better first. */
int option_by_score(const void *a, const void *b);

/* Offers everything that may relieve the stage that bounds memory or time (hops_moves.c).
 * fine: layouts op by op as well. */
void hops_expand(struct hops *hp, const struct candidate *c, const struct score *score,
                 bool fine);

/* Scores a few dozen pipelines, among them mostly a good one (hops_first.c). */
void hops_first(struct search *s);

/* Balanced pipelines to begin with, best first (hops_starts.c); the caller frees them and their
 * candidates. They are scored at the first call. */
struct option *hops_starts(struct search *s, int64_t *n);

/* Scores *o, then improves it as long as a better plan is at most `hops` primitives away. fine:
 * layouts op by op as well. */
void hops_polish(struct search *s, struct option *o, int hops, bool fine);

#endif
