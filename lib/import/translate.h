/* translate.h - inside the importer: an HLO module as nodes of ATen, which are followed as those of
 * torch.export are (follow.h).
 *
 * Calls are written out, and loops too, once for each turn: their counters are known numbers. What a
 * loop takes of a stack of parameters is a parameter of its own, named after its turn, so that layers
 * of a scan are blocks as those of a list are. A tensor that is stretched keeps size 1 there, as PyTorch
 * lets it, until something needs all of it.
 *
 *     struct exported p = {0};
 *     if (translate_hlo(&p, bytes, size, &err) < 0) ...
 *     exported_close(&p);
 */
#ifndef WEFT_TRANSLATE_H
#define WEFT_TRANSLATE_H

#include "common/hashtable.h"
#include "import/exported.h"
#include "import/hlo.h"

/* Messages name the instruction. Close the program in any case; it borrows nothing. */
int translate_hlo(struct exported *p, const void *bytes, int64_t size, struct err *err);
/* The same of a model of ONNX (translate_onnx.h). Numbers that lie in files beside it are read in `folder`; NULL:
 * there is none. Its parameters are written to the file `weights`, as safetensors; NULL: they are not. */
int translate_onnx(struct exported *p, const void *bytes, int64_t size, const char *folder,
                   const char *weights, struct err *err);

enum { TRANSLATE_MOST_ARGS = 16 };

/* ---- between its files ------------------------------------------------------------------------------- */

/* What an instruction gives. */
struct made {
    const struct hlo_shape *shape;
    bool known; /* all elements are this number */
    double number;
    int value;     /* else: of the program; of size 1 where it is stretched. -1: a tuple */
    bool constant; /* follows from no data and no parameter */
    bool weight;   /* a view of a parameter */
    bool scores;   /* follows from a product of two tensors, and no other product */
    const struct made *rows; /* with zeros behind each of its numbers: places in a table */
    int n;                   /* of a tuple */
    const struct made *part;
};

struct translate {
    struct hlo h;
    struct exported *p;
    ARR(struct exported_node) nodes;
    ARR(int) constants;     /* nodes that follow from no data and no parameter: each once */
    struct hashtable known; /* of them */
    json_t *parts;          /* path of a parameter that is a part of a stack -> value */
    const struct hlo_instruction *at;
    int64_t turn, work; /* of the loop around, -1; instructions that were looked at */
    const char *stack;  /* what the parameters of the loop are called; NULL */
    int depth;
    bool failed; /* the message says where */
};

/* ---- translate_node.c -------------------------------------------------------------------------------- */

/* Is an element of this PrimitiveType a whole number or a truth value? */
bool translate_is_integer(int type);
/* A value that is made by the next node, or by none; without a path it is called after itself. */
int translate_value(struct translate *t, enum exported_role role, const char *path,
                    int rank, const int64_t *size, int type);
/* Arguments of a node. They are written down one after the other; lists and texts are borrowed until the node is
 * there. Each function returns the arguments. */
struct translate_args {
    int n;
    struct exported_arg arg[TRANSLATE_MOST_ARGS];
};
struct translate_args *translate_tensor(struct translate_args *args, const char *name,
                                        int value);
struct translate_args *translate_tensors(struct translate_args *args, const char *name,
                                         const int *values, int n);
struct translate_args *translate_text(struct translate_args *args, const char *name,
                                      const char *text);
struct translate_args *translate_int(struct translate_args *args, const char *name,
                                     int64_t v);
struct translate_args *translate_ints(struct translate_args *args, const char *name,
                                      const int64_t *v, int n);
struct translate_args *translate_number(struct translate_args *args, const char *name,
                                        double v);
/* The value; -1 where the program has become too long. */
int translate_node(struct translate *t, const char *target,
                   const struct translate_args *args, int rank, const int64_t *size,
                   int type, bool constant);
int translate_view(struct translate *t, const struct made *x, int value, int rank,
                   const int64_t *size);
int translate_permute(struct translate *t, const struct made *x, int value,
                      const int64_t *order);
/* All elements of what is stretched or known. */
int translate_full(struct translate *t, const struct made *x);
/* A part of a stack of parameters, as a parameter of its own: or -1 where it is none. */
int translate_part(struct translate *t, const struct made *x, int64_t index);

/* ---- translate_op.c, translate_dot.c ----------------------------------------------------------------- */

/* The program gets the nodes; what served to make them is released. */
void translate_end(struct translate *t);

/* What an instruction without computations of its own makes. False: not known. */
bool translate_op(struct translate *t, const struct hlo_instruction *x,
                  const struct made *const *in, struct made *out);
bool translate_dot(struct translate *t, const struct hlo_instruction *x,
                   const struct made *const *in, struct made *out);
bool translate_gather(struct translate *t, const struct hlo_instruction *x,
                      const struct made *const *in, struct made *out);

#endif
