/* plan_aceso.h - Aceso's chain of ops beside weft's graph (Liu et al., Aceso, EuroSys 2024).
 *
 * Aceso's models are chains: ops before the layers, those of each layer, those behind. A position in
 * the chain stands for some ops of weft, or for an inner part of the one before it. For each op
 * there, (tp, dp) devices share the work, tp of them neighbours; algorithm 1 splits the other dim
 * of a product than algorithm 0. */
#ifndef WEFT_PLAN_ACESO_H
#define WEFT_PLAN_ACESO_H

#include "plan/plan.h"

struct aceso_op {
    const char *name; /* Aceso's */
    /* weft's, without the layer's name; {NULL}: a part of those before */
    const char *ops[4];
    const char *split[2]; /* dim that tp splits, by algorithm; NULL: none */
    bool begins;          /* a layer: what comes before it is kept under recomputation */
};

/* A chain laid over a model. */
struct aceso_chain {
    int n;
    const struct aceso_op **ops; /* [n] */
    int *layer;                  /* [n] of the model's blocks, or -1 */
    int *of; /* [n + 1] the first of weft's ops at or behind the position */
    int *at; /* by op of weft: its position */
};

/* NULL, with an error, where Aceso does not have the model. */
struct aceso_chain *aceso_chain_create(const struct model *m, struct err *err);
void aceso_chain_destroy(struct aceso_chain *c);

/* The last position that stands for the same ops of weft as i. */
int aceso_chain_end(const struct aceso_chain *c, int i);
/* Is what position i gives computed again, with these marks of its stage's positions? Aceso drops it
 * where the op and the next are marked. */
bool aceso_drops(const struct aceso_chain *c, const bool *marks, int i, int end);

#endif
