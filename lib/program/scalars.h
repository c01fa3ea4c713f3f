/* scalars.h - what changes from step to step or from micro-batch to micro-batch, in a block
 * of the arena, so that instructions are the same each time that they run and can be
 * captured once and replayed.
 *
 * The compiler places the block (pass_memory.c), the executor fills it, kernels read it:
 *
 *     struct scalars *s = (void *)block; // at sp->scalars in the arena
 *     s->loss_sum = 0;
 */
#ifndef WEFT_SCALARS_H
#define WEFT_SCALARS_H

#include "model/model.h"

/* Metrics of a step beside its loss: each is a mean over all ops of a kind, and over all
 * that each of them counts. */
#define METRICS(X)                                                                         \
    X(balance, OP_balance)   /* experts x sum of load x probability: 1 = all alike */      \
    X(router_z, OP_router_z) /* square of a router's log-sum-exp */                        \
    X(dropped, OP_dispatch)  /* choices of experts that found no slot */
enum metric {
#define X(id, kind) METRIC_##id,
    METRICS(X)
#undef X
        METRIC_COUNT
};
const char *metric_name(enum metric i);
/* The number of ops of its kind. A model has the metric if there are any. */
int metric_ops(const struct model *m, enum metric i);

struct scalars {
    double loss_sum,
        norm_squared; /* of this rank: losses (means) and sum_squares add to them */
    double metrics[METRIC_COUNT]; /* of this rank; ops of their kinds add to them */
    float lr, grad_scale;
    float loss_scale;     /* of the losses' gradients, so that none is too small for f16 */
    int64_t step;         /* of the training, from 0 */
    int64_t updates;      /* of the parameters, this step's included */
    int64_t first_sample; /* of the micro-batch, counted in the step's batch */
    uint64_t seed;
    int64_t evaluating; /* 1: no dropout */
};

#endif
