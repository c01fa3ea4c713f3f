/* hlo.h - a module of XLA, as it is serialized: computations of instructions.
 *
 * Read are the fields of HloModuleProto that say what is computed (openxla/xla,
 * xla/service/hlo.proto and xla/xla_data.proto); all others mean nothing. An instruction stands
 * behind its operands, and a computation behind those that it calls: a module that says otherwise
 * is refused, so nothing in it is circular.
 *
 *     struct hlo h;
 *     if (hlo_parse(&h, bytes, size, &err) < 0) ...
 *     puts(h.computations[h.entry].instructions[0].opcode);        // parameter
 *     hlo_close(&h);
 */
#ifndef WEFT_HLO_H
#define WEFT_HLO_H

#include "common/wire.h"

enum {
    HLO_MAX_RANK = 8,
    HLO_MAX_INSTRUCTIONS = 1 << 20,
    HLO_TUPLE = 13, /* of enum PrimitiveType */
};

/* Numbers of the file, on the arena. */
struct hlo_list {
    int n;
    int64_t *p;
};

struct hlo_shape {
    int type; /* enum PrimitiveType */
    int rank;
    int64_t size[HLO_MAX_RANK];
    int n_parts; /* of a tuple */
};

enum hlo_dims { DOT_LHS_SUMS, DOT_RHS_SUMS, DOT_LHS_BATCH, DOT_RHS_BATCH, DOT_LISTS };
enum {
    GATHER_OFFSET,
    GATHER_COLLAPSED,
    GATHER_MAP,
    GATHER_VECTOR, /* one number */
    GATHER_BATCH,
    GATHER_IDS_BATCH,
    GATHER_LISTS
};

struct hlo_instruction {
    const char *name, *opcode;
    const char *op_name;   /* where it comes from: "jit(f)/while/body/mul"; "" */
    const char *direction; /* of a comparison: "LT" */
    const char *custom;    /* of a custom call: its target */
    struct hlo_shape shape;
    int64_t id, number, index; /* number of a parameter; index into a tuple */
    struct hlo_list operands;  /* places in the computation, once read */
    struct hlo_list called;    /* computations, once read */
    struct hlo_list dimensions, slice_sizes, gather_sizes;
    struct hlo_list slices; /* start, limit, stride of each dimension */
    struct hlo_list dot[DOT_LISTS], gather[GATHER_LISTS];
    struct wire literal; /* at is NULL: none */
};

struct hlo_computation {
    const char *name;
    int64_t id, root_id;
    int root, n; /* instructions */
    struct hlo_instruction *instructions;
};

struct hlo {
    struct arena arena;
    const char *name;
    int entry, n; /* computations */
    struct hlo_computation *computations;
};

/* Reads a module, or the first field of what holds one (HloProto). Messages name the computation and
 * the instruction. Close it in any case. The bytes are borrowed. */
int hlo_parse(struct hlo *h, const void *bytes, int64_t size, struct err *err);
void hlo_close(struct hlo *h);

int64_t hlo_elements(const struct hlo_shape *s);
/* The numbers of a constant, on the arena: as many as its shape has. NULL where they are of a type that
 * is not read, or of another count. */
const double *hlo_literal(struct hlo *h, const struct hlo_instruction *x);

#endif
