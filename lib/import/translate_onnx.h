/* translate_onnx.h - inside the importer: a model of ONNX as nodes of ATen, between the files that make it so.
 *
 * Shapes follow from the ops, since exporters write them or do not; what decides them, such as the sizes of a
 * Reshape, is computed at once (fold.h). What is a parameter and what a table or mask is seen by who reads it:
 * a file says neither. */
#ifndef WEFT_TRANSLATE_ONNX_H
#define WEFT_TRANSLATE_ONNX_H

#include "import/fold.h"
#include "import/onnx.h"
#include "import/translate.h"

/* A tensor of the file that is the same for all samples, and that of one of them. */
struct onnx_repeat {
    int all, one;
};

/* A parameter, and where its numbers are: the first of this tensor. */
struct onnx_source {
    int value;
    const struct onnx_tensor *tensor;
    bool read; /* by a node */
};

struct onnx_reading {
    struct translate t;
    struct hlo_instruction at; /* the node, for messages */
    struct onnx g;
    struct fold fold;
    const char *scope;  /* of the node */
    const char *folder; /* of the model's file, or NULL */
    json_t *of;         /* name -> value, or an array of values for a list of tensors */
    json_t *weights;    /* names of tensors that are parameters */
    json_t *tables;     /* of those that are read by the numbers of their rows */
    json_t *used; /* of those of one axis that were read, and of what was made of them */
    ARR(struct onnx_source) sources;
    ARR(struct onnx_repeat) repeats;
    struct err *err; /* of a tensor whose numbers cannot be read */
    bool failed;
    bool lacks; /* a file beside the model's: said once */
};

/* The value of an input; -1: it is none. */
int onnx_in(struct onnx_reading *r, const struct onnx_node *n, int i);
const struct exported_value *onnx_value(const struct onnx_reading *r, int value);
/* Of enum PrimitiveType; of a TensorProto.DataType. */
int onnx_type_of(int type);
int onnx_type(const struct onnx_reading *r, int value);
/* Whole numbers that are known; how many, or -1. */
int onnx_known(struct onnx_reading *r, int value, int64_t *out, int most);
/* translate_onnx_tensor.c: names of parameters and tables; the value of a tensor of the file, or -1. */
void onnx_find_weights(struct onnx_reading *r);
int onnx_tensor_value(struct onnx_reading *r, const struct onnx_tensor *t);
/* translate_onnx_weights.c: the parameters that were read, as safetensors. Returns 0 or -1. */
int onnx_write_weights(const struct onnx_reading *r, const char *path, struct err *err);
/* That of one sample in place of a tensor that is the same for all. */
int onnx_thin(const struct onnx_reading *r, int value);
/* A node of ATen. */
int onnx_emit(struct onnx_reading *r, const char *target, const struct translate_args *args,
              int rank, const int64_t *size, int type);
/* Numbers that the program has; they are copied. */
int onnx_constant(struct onnx_reading *r, int rank, const int64_t *size, int type,
                  const double *numbers);
/* The same elements under other sizes. */
int onnx_view(struct onnx_reading *r, int x, int rank, const int64_t *size);
/* translate_onnx_view.c: an argument, where there is such a value; an axis that counts from the end where it is below
 * zero, -1 outside; axes of an input or, in older files, of an attribute, how many or -1; axes in another order. */
struct translate_args *onnx_with(struct translate_args *args, const char *name, int value);
int onnx_axis(int64_t d, int rank);
int onnx_axes(struct onnx_reading *r, const struct onnx_node *n, int input, int64_t *out);
int onnx_permute(struct onnx_reading *r, int x, const int64_t *order);
/* Is the node a view, a part, or looked up? Its value, as of onnx_op. */
bool onnx_view_op(struct onnx_reading *r, const struct onnx_node *n, int *value,
                  json_t **list);
/* translate_onnx_op.c: the value that a node makes, -1 where it is not known. What makes several sets *list to an
 * array of them. */
int onnx_op(struct onnx_reading *r, const struct onnx_node *n, json_t **list);

#endif
