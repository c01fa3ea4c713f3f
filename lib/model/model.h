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
#include "model/kind.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TENSOR_MAX_RANK = 8,
    OP_MAX_SPACE = 16, /* dims of an op's iteration space */
};

/* What a data input holds: name, of whole numbers, dims behind batch. Hashes of models hold the numbers: new
 * ones come last. */
#define DATA_SOURCES(X)                                                                    \
    X(TOKEN, "token", true, 1)                                                             \
    X(NEXT_TOKEN, "next-token", true, 1)                                                   \
    X(INPUT, "input", true, 1)                                                             \
    X(INPUT_LENGTH, "input-length", true, 0)                                               \
    X(TARGET, "target", true, 1)                                                           \
    X(SHIFTED_TARGET, "shifted-target", true, 1)                                           \
    X(IMAGE, "image", false, ANY_DIMS)                                                     \
    X(LABEL, "label", true, 0)                                                             \
    X(DOCUMENT_START, "document-start", true, 1)                                           \
    X(DOCUMENT_POSITION, "document-position", true, 1)
enum data_source {
#define X(id, name, integer, dims) DATA_##id,
    DATA_SOURCES(X)
#undef X
        DATA_SOURCE_COUNT
};

/* An ordered list of dims: the shape of a tensor. */
struct shape {
    int rank;
    int dim[TENSOR_MAX_RANK]; /* dim ids, outermost first */
};

/* The same in numbers. */
struct extents {
    int rank;
    int64_t size[TENSOR_MAX_RANK];
};

/* How sequences of tokens become inputs and targets. */
struct model_data {
    int64_t pad, start, eos; /* token ids; eos may be -1, for none */
    int64_t sentinel;   /* the same, of the first span; -1 = the last of the vocabulary */
    double noise, span; /* of plain text: share of tokens left out; mean length of a span */
};

struct model_dim {
    const char *name;
    int64_t size; /* of the whole model; 0 for batch */
};

struct model_tensor {
    const char *name;
    struct shape shape;
    int producer; /* op, or -1 for a data input */
    bool integer;
    bool wide;               /* always f32, whatever the type of a plan's tensors */
    bool gradient;           /* something that is trained is upstream: it has a gradient */
    enum data_source source; /* where producer < 0 */
    int32_t end;    /* of documents' starts and positions: the token that ends a document */
    int64_t length; /* of documents' starts: positions from one to the next; 0: unknown */
};

enum param_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM };

/* How a weight lies as matrices (model_matrix.c): its axes from `rows` on, up to `between`, are the rows of
 * one, those from `columns` on its columns; the others count matrices. */
struct model_matrices {
    int8_t rows, between, columns;
};

struct model_param {
    const char *name; /* layer.3.qkv.weight; tied uses share the first one's */
    struct shape shape;
    enum param_init init;
    double std;   /* of INIT_NORMAL and INIT_UNIFORM */
    bool decay;   /* weight decay applies (drawn ones of rank 2 and more) */
    bool running; /* a running statistic of first_op: no optimizer, no norm, no count */
    bool tied;    /* other ops than first_op use it, too */
    bool frozen;  /* not trained: no gradient, no state, no update */
    bool matrix;  /* it is made of matrices, which some optimizers step as a whole: */
    struct model_matrices matrices;
    int first_op;
};

/* The dims that an op loops over. */
struct op_space {
    int n;
    int dim[OP_MAX_SPACE]; /* model dim: the name under which a layout splits it */
    /* Its second name (of the operand's dim, where the op renames it; of grouped heads), or -1. */
    int alias[OP_MAX_SPACE];
    enum role role[OP_MAX_SPACE];
    int64_t window[OP_MAX_SPACE]; /* of a halo dim: taps of the window, else 0 */
};

/* Which axis of a tensor each dim of an op's space is; -1 = the tensor lacks it. Of at most one
 * dim it may have one element for each group of several, as keys have of the queries' heads. */
struct axis_map {
    int8_t axis[OP_MAX_SPACE];
    int8_t grouped; /* that dim of the space, or -1 */
    int64_t groups; /* how many elements of it the whole tensor has */
};

struct model_op {
    enum kind_id kind;
    const char *name; /* layer.3.qkv */
    int block;        /* the innermost block instance that it stands in, or -1 */
    int file_op;      /* its number in the file: equal for the same op of all instances */
    int n_in, *in;    /* tensors */
    int n_param, *param; /* by slot of the kind; -1 = an optional one that is missing */
    int n_out, *out;     /* tensors */
    struct op_space space;
    struct axis_map *in_map, *param_map, *out_map;
    double attr[ATTR_COUNT];
    /* Rotary with lists: how much slower each pair turns, by that of the two which holds for the
     * sequence; or NULL. */
    const double *slower;
};

/* One instance of a repeated block; blocks nest. */
struct model_block {
    const char *name;     /* "enc.3" */
    int index;            /* 3 */
    int repeat;           /* which repeat of the file, in order of appearance */
    int first_op, end_op; /* its ops first_op .. end_op - 1, those of inner blocks too */
    int parent;           /* the instance around it, or -1 */
};

struct model {
    struct arena arena;
    const char *name;   /* gpt */
    const char *preset; /* 1.3B, or "" */
    const char *ref;    /* how a plan names it: "gpt:1.3B"; NULL when it must be embedded */
    const char *set;    /* the overrides, canonical: "hidden=1024,layers=4"; "" if none */
    json_t *doc;        /* the document it was read from */
    int batch;          /* id of dim batch */
    struct model_data data;
    int n_dims, n_tensors, n_params, n_ops, n_blocks;
    struct model_dim *dims;
    struct model_tensor *tensors;
    struct model_param *params;
    struct model_op *ops; /* in an order in which every op follows its operands */
    struct model_block *blocks;
    int n_file_ops; /* distinct ops of the file */
    int n_repeats;  /* repeats of the file */
    uint64_t hash;  /* of all that decides what is computed: equal means the same model */
};

/* Loads "NAME[:PRESET]" from the shipped models, or a file when `ref` holds a '/' or ends in
 * .json (FILE.json:PRESET too). `set` overrides sizes and rates: "layers=4,hidden=1024", or
 * NULL. NULL on failure. */
struct model *model_load(const char *ref, const char *set, struct err *err);

/* The document of such a model, with the preset as its default. New reference, NULL on failure. */
json_t *model_document(const char *ref, struct err *err);

/* The same from a document (borrowed; the model keeps a reference of its own). */
struct model *model_from_json(json_t *doc, const char *preset, const char *set,
                              struct err *err);
void model_destroy(struct model *m);

/* What decides the model's numbers, in words, as the text of a JSON object: "the size of hidden": "64",
 * "rate of layer.0.drop": "0.1". For messages that say how two models differ. Fresh; free() it. */
char *model_facts(const struct model *m);

/* The file of a model that is not a shipped one, as the text of a JSON object whose default is the preset
 * that was chosen; with m->set it is the same model again. NULL for a shipped one. Fresh; free() it. */
char *model_file_text(const struct model *m);

/* Puts overrides into the sizes and rates of a document that they fit. */
int model_settle(json_t *doc, const char *set, struct err *err);

/* Dim of this name, or -1. */
int model_dim_find(const struct model *m, const char *name);
/* The same; where there is none, the message lists those that there are. */
int model_dim_named(const struct model *m, const char *name, struct err *err);
/* Size of a dim with `batch` samples. */
static inline int64_t model_dim_size(const struct model *m, int dim, int64_t batch) {
    return dim == m->batch ? batch : m->dims[dim].size;
}
static inline struct extents model_extents(const struct model *m, const struct shape *s,
                                           int64_t batch) {
    struct extents x = {s->rank, {0}};
    for (int i = 0; i < s->rank; i++)
        x.size[i] = model_dim_size(m, s->dim[i], batch);
    return x;
}
/* Elements. */
static inline int64_t extents_count(const struct extents *x) {
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++)
        n *= x->size[i];
    return n;
}

/* outer x inner matrices of rows x columns, of which the elements stand as [outer][rows][inner][columns]. */
struct matrix_sizes {
    int64_t outer, rows, inner, columns;
};
/* Those of a parameter that is a matrix, or of the part of it that has these sizes. */
struct matrix_sizes model_matrix_sizes(const struct model_param *p,
                                       const struct extents *x);

/* Index of a dim in an op's space, by either name, or -1. Of two dims of one name it is the one that
 * a layout splits. */
int op_space_find(const struct op_space *s, int dim);
bool op_is(const struct model_op *op, enum kind_flag flag);
/* Has the op a backward pass? Where something is trained in it or in front of it. */
bool model_has_backward(const struct model *m, int op);
/* The tensor of the targets that this op is the mean loss of, or -1 where it is none of targets. */
int op_targets(const struct model_op *op);
/* Token ids and labels are below this: the least size of logits; INT64_MAX where there are none. */
int64_t model_classes(const struct model *m);
/* How many losses of targets there are, and the index of one among them, in the order of the ops. */
int model_losses(const struct model *m);
int model_loss_index(const struct model *m, int op);

/* Elements of all parameters, or of those that are trained; running statistics are none. */
double model_count_parameters(const struct model *m, bool trained);

/* Floating point operations of one forward pass over `batch` samples in matrix products and
 * attention (2 per multiply-add). */
double model_forward_flops(const struct model *m, int64_t batch);
/* The same of a whole step: each product once more for every factor that has a gradient. */
double model_step_flops(const struct model *m, int64_t batch);
/* The mean length of the documents that an attention keeps inside; 0: unknown, or all is one. */
int64_t model_document_length(const struct model *m, const struct model_op *op);
double model_op_flops(const struct model *m, const struct model_op *op, int64_t batch);

/* The folder of shipped files (models, clusters): beside the program, or as installed. */
int share_path(const char *folder, const char *file, char *buf, size_t n, struct err *err);
/* Puts the names of what is shipped in a folder behind a list (err_list). */
void share_list(const char *folder, char *list, size_t size);

#endif
