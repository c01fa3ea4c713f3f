/* aceso_model.h - Aceso's models: chains of ops, each of which stands in the tables by its name.
 *
 * GPT and T5 have the ops of one layer in the tables, and any number of layers; Wide-ResNet has all of
 * its ops. What the formulas need to know of an op follows from its name (model_ops_info.py of
 * the artifact).
 *
 *     struct aceso_model *m = aceso_model_open(dir, "gpt:1.3B", NULL, &err);
 *     aceso_model_close(m);
 */
#ifndef WEFT_ACESO_MODEL_H
#define WEFT_ACESO_MODEL_H

#include "aceso/aceso_tables.h"

enum aceso_family { ACESO_gpt, ACESO_t5, ACESO_resnet };

/* How an op's input or result lies on the devices of a stage, which are dp times tp. Dims of a
 * tensor are three; R is how many devices hold each part. */
enum aceso_spec {
    SPEC_any,      /* the tables say nothing of it */
    SPEC_sequence, /* R = tp, dims 1, dp, 1 */
    SPEC_hidden,   /* R = 1, dims 1, dp, tp */
    SPEC_heads,    /* R = 1, dims dp, tp, 1 */
    SPEC_batch     /* R = tp, dims dp, 1, 1 */
};

/* An op of the tables. Op i of the chain is number op_of[i] here. */
struct aceso_op {
    const char *name;
    bool two_algorithms;
    bool begins_layer;
    bool breaks;    /* a run of recomputed ops ends in front of it */
    bool stays;     /* its result is never computed again */
    bool corrected; /* its activations are counted otherwise than once */
    double counts;  /* how often its activations count: 0, 1.5 or once */
    enum aceso_spec in[ACESO_ALGORITHMS], out[ACESO_ALGORITHMS];
};

struct aceso_model {
    enum aceso_family family;
    char size[32]; /* "1_3B" */
    int n_layers;
    struct aceso_tables tables;
    struct aceso_op *ops; /* [tables.n_rows] */
    int n, *op_of;        /* the chain */
    /* Kinds of neighbours: op i and the one before it are as ops pair_op[pair_of[i]] and before. */
    int n_pairs, *pair_of, *pair_op;
    double state;  /* bytes of weights, gradients and optimizer per byte of weights */
    bool converts; /* layouts may differ inside a stage */
};

/* The model such as gpt:1.3B, t5:770M or wide-resnet:1B (resnet:1B), with as many layers as `set` says
 * ("layers=48"; NULL: as it has). NULL, with an error, where the folder lacks it or a file is wrong. */
struct aceso_model *aceso_model_open(const char *dir, const char *model, const char *set,
                                     struct err *err);
void aceso_model_close(struct aceso_model *m); /* may be NULL */

#endif
