/* score_impl.h - what score.c and messages.c share of a candidate that is being scored. */
#ifndef WEFT_SCORE_IMPL_H
#define WEFT_SCORE_IMPL_H

#include "cost/estimate.h"
#include "search/evaluate/evaluate.h"

/* What is known of its stages so far. */
struct work {
    const struct candidate *c;
    int n;
    int *rank; /* first rank of each stage */
    const struct prefix **prefixes;
    struct estimate_stage *times;
    double *staging; /* bytes */
    const struct stage_sum **sums;
    int *first_passing; /* [+ 1] of each stage, among what it takes going forward */
    bool missing;
};

/* A tensor that passes from one stage to a later one, and its gradient back. */
struct passing {
    int from, to;
    int origin, reader;         /* ops: the tensor's, and the first that reads it there */
    double forward_us, back_us; /* what taking it costs the receiver, either way */
};

/* Adds what passes between the stages of a candidate to their times and their staging; the
 * stages are summed up already. */
void eval_add_messages(struct evaluate *ev, struct work *w);

#endif
