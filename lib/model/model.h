/* model.h - a model: a DAG of ops over named dims, read from a weft-model(5) file.
 *
 * The graph is forward only; the backward pass is derived by the compiler (program/). Sizes
 * are those of the whole model; the size of the dim `batch` is bound by the plan. Repeated
 * blocks are expanded, and every op knows its block and its place in the file, so that what
 * holds for one layer is worked out once.
 *
 *     struct model *m = model_load("gpt:1.3B", "layers=4,hidden=1024", &err);
 *     for (int i = 0; i < m->n_ops; i++)
 *         puts(m->ops[i].name);                  // wte, wpe, layer.0.ln1, ...
 *     model_destroy(m);
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "common/err.h"
#include "common/json.h"
#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_MAX_DIMS = 32, /* names that tensors use; a dimset is one word */
    MODEL_MAX_RANK = 6,
    MODEL_MAX_OPERANDS = 2,
    MODEL_MAX_PARAMS = 2, /* of one op: weight, bias */
};

typedef uint32_t dimset; /* bit d = dim d */

/* name in files, inputs, parameters (least), linear in its operand */
#define MODEL_OP_KINDS(X)                                                                  \
    X(embedding, "embedding")                                                              \
    X(bias, "bias")                                                                        \
    X(einsum, "einsum")                                                                    \
    X(layernorm, "layernorm")                                                              \
    X(attention, "attention")                                                              \
    X(gelu, "gelu")                                                                        \
    X(relu, "relu")                                                                        \
    X(silu, "silu")                                                                        \
    X(add, "add")                                                                          \
    X(dropout, "dropout")                                                                  \
    X(cross_entropy, "cross-entropy")

enum op_kind {
#define X(id, name) OP_##id,
    MODEL_OP_KINDS(X)
#undef X
        OP_KIND_COUNT
};
const char *op_kind_name(enum op_kind kind);

/* What a data input holds. */
enum data_source { DATA_TOKEN, DATA_NEXT_TOKEN, DATA_IMAGE, DATA_LABEL };

/* An ordered list of dims: the shape of a tensor. */
struct shape {
    int rank;
    int dim[MODEL_MAX_RANK]; /* dim ids, outermost first */
};

struct model_dim {
    const char *name;
    int64_t size; /* of the whole model; 0 for batch */
};

struct model_tensor {
    const char *name;
    struct shape shape;
    int producer;            /* op, or -1 for a data input */
    enum data_source source; /* where producer < 0 */
};

enum param_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL };

struct model_param {
    const char *name; /* layer.3.qkv.weight; tied uses share the first one's */
    struct shape shape;
    enum param_init init;
    double std; /* of INIT_NORMAL */
    bool decay; /* weight decay applies (tensors of rank 2 and more) */
    int first_op;
};

struct model_op {
    enum op_kind kind;
    const char *name; /* layer.3.qkv */
    int block;        /* instance of the repeated block that it stands in, or -1 */
    int place;        /* its number in the file: equal for the same op of all instances */
    int n_in, in[MODEL_MAX_OPERANDS];     /* tensors */
    int n_param, param[MODEL_MAX_PARAMS]; /* parameters: weight, bias */
    int out;                              /* tensor */
    dimset domain;                        /* the iteration domain */
    dimset splittable;                    /* dims that a layout may split */
    dimset contracted;                    /* einsum: dims summed over */
    dimset crossed;  /* split by a collective inside: layer norm over hidden, cross-entropy
                       over vocab */
    bool transposed; /* einsum: the weight is [N.., K..] */
    bool causal;     /* attention */
    double rate;     /* dropout */
    double eps;      /* layer norm */
};

struct model {
    struct arena arena;
    const char *name;   /* gpt */
    const char *preset; /* 1.3B, or "" */
    const char *ref;    /* how a plan names it: "gpt:1.3B"; NULL when it must be embedded */
    const char *set;    /* the overrides, canonical: "hidden=1024,layers=4"; "" if none */
    json_t *doc;        /* the document it was read from */
    int n_dims;
    struct model_dim dims[MODEL_MAX_DIMS];
    int batch; /* id of dim batch */
    int n_tensors;
    struct model_tensor *tensors;
    int n_params;
    struct model_param *params;
    int n_ops;
    struct model_op *ops; /* in an order in which every op follows its operands */
    int n_places;         /* distinct ops of the file */
    int loss;             /* the op that is the loss */
    uint64_t hash;        /* of every op, shape and size: equal means the same model */
};

/* Loads "NAME[:PRESET]" from the shipped models, or a file when `ref` holds a '/' or ends in
 * .json (FILE.json:PRESET too). `set` overrides sizes and rates: "layers=4,hidden=1024", or
 * NULL. NULL on failure. */
struct model *model_load(const char *ref, const char *set, struct err *err);

/* The same from a document (borrowed; the model keeps a reference of its own). */
struct model *model_from_json(json_t *doc, const char *preset, const char *set,
                              struct err *err);
void model_destroy(struct model *m);

/* Dim of this name, or -1. */
int model_dim_find(const struct model *m, const char *name);

dimset shape_dims(const struct shape *s);

/* Elements of a tensor with `batch` samples. */
int64_t model_elements(const struct model *m, const struct shape *s, int64_t batch);

/* Parameters of the model, and floating point operations of one forward pass over `batch`
 * samples in matrix products and attention (2 per multiply-add). */
int64_t model_param_count(const struct model *m);
double model_forward_flops(const struct model *m, int64_t batch);
double model_op_flops(const struct model *m, const struct model_op *op, int64_t batch);

/* The folder of shipped files (models, clusters): beside the program, or as installed. */
int share_path(const char *folder, const char *file, char *buf, size_t n, struct err *err);

#endif
