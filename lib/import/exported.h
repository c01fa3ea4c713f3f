/* exported.h - a program of torch.export, as its archive has it: values in the order of their making.
 *
 * Read are the graph (schema major 8), what its inputs are, and which tensors of the weights are
 * one. Every value has one maker, which stands before what reads it: an archive that says otherwise
 * is refused, so no graph has cycles. Members that are not known mean nothing; no weight is read
 * but small buffers, whose numbers decide what is computed, and nothing is executed.
 *
 *     struct exported p;
 *     if (exported_open(&p, "model.pt2", &err) < 0) ...
 *     for (int i = 0; i < p.n_nodes; i++)
 *         puts(p.nodes[i].target);                        // aten.linear.default
 *     exported_close(&p);
 */
#ifndef WEFT_EXPORTED_H
#define WEFT_EXPORTED_H

#include "common/json.h"
#include "import/archive.h"

enum {
    EXPORTED_MAX_RANK = 8,
    EXPORTED_MAX_NODES = 1 << 20,
};

enum exported_role {
    EXPORTED_RESULT, /* of a node */
    EXPORTED_INPUT,
    EXPORTED_PARAMETER,
    EXPORTED_BUFFER, /* or another constant tensor */
};

struct exported_value {
    const char *name;
    enum exported_role role;
    int node; /* that made it, or -1 */
    const char
        *path;    /* of a parameter or buffer: "model.norm.weight"; of an input: its name */
    bool tensor;  /* has a shape */
    bool integer; /* of whole numbers or truth values */
    bool truth;   /* of truth values */
    bool complex; /* of complex numbers */
    int rank;
    int64_t size[EXPORTED_MAX_RANK];
    int tie;               /* of a parameter: the first one with the same storage, or -1 */
    const double *numbers; /* of a buffer: all elements, or NULL: they are in the archive */
};

enum exported_kind {
    EXPORTED_NONE,
    EXPORTED_TENSOR,
    EXPORTED_TENSORS,
    EXPORTED_INT, /* or a truth value */
    EXPORTED_INTS,
    EXPORTED_NUMBER,
    EXPORTED_TEXT,
    EXPORTED_OTHER, /* which no op of weft reads */
};

struct exported_arg {
    const char *name;
    enum exported_kind kind;
    int n; /* of a list */
    union {
        int value;         /* TENSOR */
        const int *values; /* TENSORS; -1 stands for none */
        int64_t whole;
        const int64_t *ints; /* sizes that were dynamic are those of the example */
        double number;
        const char *text;
    };
};

struct exported_node {
    const char *target;       /* "aten.linear.default" */
    const char *path;         /* of the module that it stands in: "layers.0.mlp"; "" */
    const char *said, *place; /* for people, where they are not target and path; or NULL */
    int n_args;
    const struct exported_arg *args;
    int n_out, *out; /* values */
};

struct exported {
    struct archive archive;
    struct arena arena;
    const char *about;       /* where it comes from, for people; NULL: of torch.export */
    json_t *notes;           /* array of strings, for people; NULL */
    json_t *root, *value_of; /* the document; name -> value */
    ARR(struct exported_value) values;
    ARR(int) outputs; /* values, of those outputs that are a user's */
    int n_nodes;
    struct exported_node *nodes;
};

/* Opens and reads; messages begin with what is wrong inside the file. Close it in any case. */
int exported_open(struct exported *p, const char *path, struct err *err);
/* The same of an archive in memory, borrowed, or of the JSON of a program alone. */
int exported_parse(struct exported *p, const void *bytes, int64_t size, struct err *err);
void exported_close(struct exported *p);

/* ---- exported_arg.c --------------------------------------------------------------------------------- */

/* The argument of this name; NULL where it is missing or none. */
const struct exported_arg *exported_arg(const struct exported_node *n, const char *name);
/* A tensor among the arguments: the value, or -1 where it is missing or no tensor. */
int exported_tensor(const struct exported_node *n, const char *name);
/* The values of an argument that is a list of tensors; -1 stands for none. Returns how many, at most
 * `most`, and -1 where it is no such list. */
int exported_tensors(const struct exported_node *n, const char *name, int *out, int most);
/* Whole numbers of a list, likewise. */
int exported_ints(const struct exported_node *n, const char *name, int64_t *out, int most);
/* A number or truth value; what is missing has the default. */
double exported_number(const struct exported_node *n, const char *name, double missing);
int64_t exported_int(const struct exported_node *n, const char *name, int64_t missing);
/* The axis that it names, of so many, those below zero from the end; -1: there is no such axis. */
int exported_axis(const struct exported_node *n, const char *name, int rank, int missing);
/* A text; NULL where it is missing. */
const char *exported_text(const struct exported_node *n, const char *name);
/* The tensors of an argument, one or a list, in the caller's *one or the argument's own; how many. */
int exported_values(const struct exported_arg *arg, const int **values);

/* ---- exported.c ------------------------------------------------------------------------------------- */

/* The bytes of a buffer, row by row, as doubles: those that lie in the archive without pickle. `out`
 * takes all elements; of complex ones the real part of each, then the other. */
int exported_buffer(const struct exported *p, int value, double *out, struct err *err);

#endif
