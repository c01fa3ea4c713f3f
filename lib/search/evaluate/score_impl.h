/* score_impl.h - what score.c and messages.c share of a candidate that is being
 * scored. */
#ifndef WEFT_SCORE_IMPL_H
#define WEFT_SCORE_IMPL_H

#include "cost/estimate.h"
#include "search/evaluate/evaluate.h"

/* What is known about its stages so far. */
struct work {
    const struct candidate *c;
    int n;
    int *rank; /* [stages] first ranks */
    const struct prefix **prefixes;
    struct estimate_stage *times;
    double *staging;  /* [stages] bytes */
    double *messages; /* [stages] partners of a device, each direction and tensor apart */
    const struct stage_sum **sums;
    /* [stages + 1] index of the first tensor that the stage receives going forward */
    int *first_passing;
    bool missing;
};

/* A tensor that one stage sends to a later one, and its gradient back. */
struct passing {
    int from, to;
    /* ops: the one that makes the tensor, and the first that reads it in the receiving
     * stage */
    int origin, reader;
    double forward_us, back_us; /* time of the receiver, forward and back */
};

/* Adds messages between the stages of a candidate to their times and their staging
 * bytes; the stages themselves are already summed. */
void eval_add_messages(struct evaluate *ev, struct work *w);

/* Bytes on a device of stage k for communicators, the whole job's apart (room.c). */
double work_communicators(const struct evaluate *ev, const struct work *w, int k);

#endif
