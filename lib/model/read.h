/* read.h - inside the model reader: what is known while a file is read.
 *
 * Sizes are resolved first; a name means its binding in the block instance around it, else the
 * size of the file. */
#ifndef WEFT_MODEL_READ_H
#define WEFT_MODEL_READ_H

#include "model/bind.h"

/* The names that one block instance binds. */
struct scope {
    const json_t *names; /* name -> value in this instance */
    const struct scope *outer;
};

enum { MAX_LOOKUPS = 32 };

struct reader {
    struct model *m;
    json_t *sizes, *rates; /* with the overrides applied */
    const json_t *dims;    /* dims apart from sizes: name -> expression, or NULL */
    const char *lookups[MAX_LOOKUPS]; /* sizes that are being evaluated, to find cycles */
    int n_lookups;
    ARR(struct model_dim) dim_list;
    ARR(struct model_tensor) tensors;
    ARR(struct model_param) params;
    ARR(struct model_op) ops;
    ARR(struct model_block) blocks;
    json_t *dim_of, *tensor_of, *param_of, *op_of; /* name -> number */
    const struct scope *scope;
    int block, file_op, n_repeats;
    const char *prefix; /* "layer.3." */
};

/* ---- model_sizes.c ------------------------------------------------------------------------ */

/* Evaluates a number, an expression or a name. */
int read_int(struct reader *r, const json_t *v, const char *key, int64_t *out,
             struct err *err);
/* A number or the name of a rate. */
int read_real(struct reader *r, const json_t *v, const char *key, double *out,
              struct err *err);
/* Numbers, or the name of a rate that has several; how many, -1 on failure. They are the model's. */
int read_list(struct reader *r, const json_t *v, const char *key, const double **out,
              struct err *err);
/* The dim of this name, made at its first use. -1 on failure. */
int read_dim(struct reader *r, const char *name, struct err *err);
/* Applies a preset (NULL or "" = the default one) and "layers=4,hidden=1024". */
int read_preset(struct reader *r, const json_t *doc, const char *preset, struct err *err);
int read_set(struct reader *r, const char *set, struct err *err);

/* ---- model_data.c -------------------------------------------------------------------------- */

/* Section "data" (NULL = missing). */
int read_data(struct reader *r, const json_t *v, struct err *err);
/* Section "inputs". */
int read_inputs(struct reader *r, const json_t *inputs, struct err *err);
/* Are tokens that end documents in the vocabulary, now that the graph is read? */
int read_check_ends(const struct model *m, struct err *err);

/* ---- model_op.c --------------------------------------------------------------------------- */

/* "dims" of a tensor or parameter: each name once. */
int read_shape(struct reader *r, const json_t *dims, struct shape *out, struct err *err);
/* From now on the tensor has this name. */
void read_name_tensor(struct reader *r, const char *name, int tensor);
/* The number behind a name in one of the reader's tables; -1 where there is none. */
int read_find(const json_t *table, const char *name);
/* Patterns (weft-plan(5)) must be able to say every name of an op or a block. */
int read_check_name(const char *name, struct err *err);
/* One op of the list; its results become tensors. */
int read_op(struct reader *r, const json_t *v, struct err *err);

/* ---- model_frozen.c ----------------------------------------------------------------------- */

/* Section "frozen" (NULL = missing) of a model whose graph is read: marks parameters, and the tensors that
 * have gradients. */
int read_frozen(struct model *m, const json_t *list, struct err *err);

/* ---- model_routing.c ---------------------------------------------------------------------- */

/* Checks an op that routes or moves tokens to experts; the others pass. */
int read_routing(const struct reader *r, struct model_op *op,
                 const struct slot_shapes *shapes, struct err *err);

/* ---- model_matrix.c ----------------------------------------------------------------------- */

/* Finds out which parameters of a model whose graph is read are matrices. */
void model_find_matrices(struct model *m);

/* ---- model_hash.c --------------------------------------------------------------------------- */

uint64_t model_hash(const struct model *m);

#endif
