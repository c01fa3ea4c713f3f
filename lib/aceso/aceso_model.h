/* aceso_model.h - Aceso's models: chains of ops that the tables list by name.
 *
 * For GPT and T5 the tables hold the ops of one layer, for any number of layers. For
 * Wide-ResNet they hold all ops. What the formulas need to know of an op follows from its
 * name (model_ops_info.py of the artifact).
 *
 *     struct aceso_model *m = aceso_model_open(dir, "gpt:1.3B", NULL, &err);
 *     aceso_model_close(m);
 */
#ifndef WEFT_ACESO_MODEL_H
#define WEFT_ACESO_MODEL_H

#include "aceso/aceso_tables.h"

enum aceso_family { ACESO_gpt, ACESO_t5, ACESO_resnet };

/* How an op's input or result is split over the dp times tp devices of a stage. A tensor
 * has three dims, and R devices hold each part of it. */
enum aceso_spec {
    SPEC_any,      /* the tables say nothing of it */
    SPEC_sequence, /* R = tp, dims 1, dp, 1 */
    SPEC_hidden,   /* R = 1, dims 1, dp, tp */
    SPEC_heads,    /* R = 1, dims dp, tp, 1 */
    SPEC_batch     /* R = tp, dims dp, 1, 1 */
};

/* An op of the tables. Op i of the chain is ops[op_of[i]]. */
struct aceso_op {
    const char *name;
    bool two_algorithms;
    bool begins_layer;
    bool breaks;    /* a run of recomputed ops ends in front of it */
    bool stays;     /* its result is never computed again */
    bool corrected; /* its activations do not count exactly once */
    double counts;  /* how often its activations count: 0, 1 or 1.5 times */
    enum aceso_spec in[ACESO_ALGORITHMS], out[ACESO_ALGORITHMS];
};

struct aceso_model {
    enum aceso_family family;
    char size[32]; /* "1_3B" */
    int n_layers;
    struct aceso_tables tables;
    struct aceso_op *ops; /* [tables.n_rows] */
    int n, *op_of;        /* the chain */
    /* Kinds of neighbours: op i and the op before it are like op pair_op[pair_of[i]] and
     * the op before that. */
    int n_pairs, *pair_of, *pair_op;
    double state;  /* bytes of weights, gradients and optimizer per byte of weights */
    bool converts; /* layouts may differ inside a stage */
};

/* Opens a model such as gpt:1.3B, t5:770M or wide-resnet:1B (or resnet:1B). `set` may give
 * its number of layers ("layers=48"; NULL: the usual one). Returns NULL with an error if
 * the folder lacks the model or a file is wrong. */
struct aceso_model *aceso_model_open(const char *dir, const char *model, const char *set,
                                     struct err *err);
void aceso_model_close(struct aceso_model *m); /* may be NULL */

#endif
