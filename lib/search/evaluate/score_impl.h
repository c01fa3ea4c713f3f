/* score_impl.h - what score.c, messages.c and room.c share about the candidate that is
 * being scored. */
#ifndef WEFT_SCORE_IMPL_H
#define WEFT_SCORE_IMPL_H

#include "cost/estimate.h"
#include "search/evaluate/evaluate.h"

/* The candidate, and what is known about its stages so far. */
struct work {
    const struct candidate *c;
    int n;
    int *rank; /* [stages] first ranks */
    const struct prefix **prefixes;
    struct estimate_stage *times;
    double *staging;  /* [stages] bytes */
    double *messages; /* [stages] partners of a device, by direction and tensor */
    const struct stage_sum **sums;
    /* [stages + 1] index in ev->passing of the first tensor that the stage receives */
    int *first_passing;
    bool missing;
};

/* A tensor that one stage sends to a later one, and its gradient back. */
struct passing {
    int from, to;
    /* ops: the one that makes the tensor, and the first that reads it in the receiving
     * stage */
    int origin, reader;
    double forward_us, back_us; /* of receiving the tensor, and the gradient */
};

/* Adds messages between the stages of a candidate to their times and their staging
 * bytes; the stages themselves are already summed. */
void eval_add_messages(struct evaluate *ev, struct work *w);

/* Bytes on a device of stage k for communicators, except the whole job's (room.c). */
double work_communicators(const struct evaluate *ev, const struct work *w, int k);

#endif
