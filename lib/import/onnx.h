/* onnx.h - a model of ONNX, as it is serialized: nodes of one graph, and tensors that have names.
 *
 * Read are the fields of ModelProto that say what is computed (onnx/onnx, onnx/onnx.proto); all others mean
 * nothing. A node stands behind those that make what it reads. Large tensors may lie in other files beside
 * the model's: they are read only where somebody asks for their numbers.
 *
 *     struct onnx x = {0};
 *     if (onnx_parse(&x, bytes, size, &err) < 0) ...
 *     puts(x.nodes.p[0].op);                                  // Gather
 *     onnx_close(&x);
 */
#ifndef WEFT_ONNX_H
#define WEFT_ONNX_H

#include "common/wire.h"

enum { ONNX_MAX_RANK = 8, ONNX_MAX_NODES = 1 << 18 };

/* TensorProto.DataType, as far as it is asked for. */
enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9 };

struct onnx_shape {
    const char *name;
    int type;
    int rank; /* -1: not said */
    int64_t size[ONNX_MAX_RANK];
    const char *dynamic; /* the name of the first size that is none; NULL */
};

struct onnx_tensor {
    struct onnx_shape shape;
    struct wire raw, message; /* bytes of the numbers, or the message with lists of them */
    const char *file;         /* where they lie instead; NULL */
    int64_t offset;
};

struct onnx_attr {
    const char *name, *text; /* text: NULL where it is none */
    float real;
    int64_t whole;
    const struct onnx_tensor *tensor;
    ARR(int64_t) wholes;
};

struct onnx_node {
    const char *op, *domain, *name;
    const char *scope; /* the modules around it: "layers.0.attn"; "" */
    ARR(const char *) in;
    ARR(const char *) out; /* "": none */
    ARR(struct onnx_attr) attrs;
};

struct onnx {
    struct arena arena;
    int64_t version; /* of the ops of ONNX itself */
    int functions;
    ARR(struct onnx_node) nodes;
    ARR(struct onnx_tensor) tensors;
    ARR(struct onnx_shape) inputs; /* of the graph, and what else has a shape */
    ARR(struct onnx_shape) shapes;
    ARR(const char *) outputs;
};

/* Reads a model. Close it in any case. The bytes are borrowed. */
int onnx_parse(struct onnx *x, const void *bytes, int64_t size, struct err *err);
void onnx_close(struct onnx *x);

/* Elements of a shape that is known. */
int64_t onnx_elements(const struct onnx_shape *s);
/* All numbers of a tensor; those of another file are read in this folder (NULL: there is none), and of no
 * other. `out` takes all elements. */
int onnx_numbers(const struct onnx_tensor *t, const char *folder, double *out,
                 struct err *err);
/* So many of them, from one of them on. */
int onnx_part(const struct onnx_tensor *t, const char *folder, int64_t first, int64_t n,
              double *out, struct err *err);
/* An attribute; NULL where the node has none of the name. */
const struct onnx_attr *onnx_attr(const struct onnx_node *n, const char *name);
int64_t onnx_int(const struct onnx_node *n, const char *name, int64_t missing);
double onnx_real(const struct onnx_node *n, const char *name, double missing);

#endif
