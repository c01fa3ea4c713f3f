/* instr.h - one instruction: opcode, shape, operands; all generated from instr.def.
 *
 * Shape numbers and operands have names, so that no code counts positions: the numbers of a
 * linear are i->n.linear.m, its weight i->in.linear.w. Code that treats all opcodes alike walks
 * the same values as i->n.v[0..], i->in.v[0..], i->out.v[0..] with instr_info.
 *
 *     struct instr i = instr_init(I_linear);
 *     i.n.linear = (struct linear_n){.m = 128, .n = 512, .k = 256, .bias = 1};
 *     const struct instr_info *info = instr_info(i.code);
 *     for (int k = 0; k < info->n_in; k++)
 *         printf("%s %d\n", info->in[k].name, i.in.v[k]);
 */
#ifndef WEFT_INSTR_H
#define WEFT_INSTR_H

#include "common/dtype.h"
#include "plan/placement.h"

#include <stdbool.h>
#include <stdint.h>

enum opcode {
#define OPCODE(id, key, about) I_##id,
#include "program/instr.def"
    OPCODE_COUNT
};

enum { INSTR_MAX_IN = 9, INSTR_MAX_OUT = 4, INSTR_MAX_SHAPE = 17, COPY_MAX_RANK = 3 };
enum { INSTR_MAX_BUFFERS = INSTR_MAX_IN + INSTR_MAX_OUT };

/* For every opcode X: struct X_n, the numbers of its shape; X_in and X_out, its operands as buffers
 * (-1 = absent); X_src and X_dst, the same as addresses, for kernels. `none` keeps the structs of
 * opcodes without any from being empty. */
#define OPCODE(id, key, about) struct id##_n {
#define N(name)                int64_t name;
#define END(id)                                                                            \
    int64_t none;                                                                          \
    }                                                                                      \
    ;
#include "program/instr.def"
#define OPCODE(id, key, about) struct id##_in {
#define IN(name, elems, flags) int name;
#define END(id)                                                                            \
    int none;                                                                              \
    }                                                                                      \
    ;
#include "program/instr.def"
#define OPCODE(id, key, about)  struct id##_out {
#define OUT(name, elems, flags) int name;
#define END(id)                                                                            \
    int none;                                                                              \
    }                                                                                      \
    ;
#include "program/instr.def"
#define OPCODE(id, key, about) struct id##_src {
#define IN(name, elems, flags) void *name;
#define END(id)                                                                            \
    void *none;                                                                            \
    }                                                                                      \
    ;
#include "program/instr.def"
#define OPCODE(id, key, about)  struct id##_dst {
#define OUT(name, elems, flags) void *name;
#define END(id)                                                                            \
    void *none;                                                                            \
    }                                                                                      \
    ;
#include "program/instr.def"

union instr_n {
    int64_t v[INSTR_MAX_SHAPE + 1];
#define OPCODE(id, key, about) struct id##_n id;
#include "program/instr.def"
};
union instr_in {
    int v[INSTR_MAX_IN + 1];
#define OPCODE(id, key, about) struct id##_in id;
#include "program/instr.def"
};
union instr_out {
    int v[INSTR_MAX_OUT + 1];
#define OPCODE(id, key, about) struct id##_out id;
#include "program/instr.def"
};
union instr_src {
    void *v[INSTR_MAX_IN + 1];
#define OPCODE(id, key, about) struct id##_src id;
#include "program/instr.def"
};
union instr_dst {
    void *v[INSTR_MAX_OUT + 1];
#define OPCODE(id, key, about) struct id##_dst id;
#include "program/instr.def"
};

/* Steps of an orthogonalize, x = a x + b (x x^T) x + c (x x^T)^2 x, and a, b and c. */
enum { NEWTON_SCHULZ_STEPS = 5 };
#define NEWTON_SCHULZ                                                                      \
    { 3.4445f, -4.7750f, 2.0315f }

/* A strided copy of a box; the rank at coordinate c of the axes starts c * src_step in. */
struct copy {
    int rank;
    int64_t size[COPY_MAX_RANK], src[COPY_MAX_RANK], dst[COPY_MAX_RANK];
    int64_t src_step;
};

/* Strides of the matrices of a matmul, in elements: over the outer and the inner count,
 * from row to row and from column to column. One of the last two is 1. */
struct matrix {
    int64_t outer, inner, row, column;
};
struct matrices {
    struct matrix a, b, y;
};
/* The strides of a matmul whose operands and result are dense, row by row. */
struct matrices matrices_dense(const struct matmul_n *n);

/* A dim in even blocks, over which windows slide. The rank with block i needs `window` rows
 * from i * step - lead on (halo.h). */
struct halo {
    int64_t rows, window, step, lead; /* rows: of a block */
    int parts;                        /* blocks */
    int64_t each; /* elements of one row: all that the other dims hold */
    bool back;    /* from windows back to the blocks that their rows are of */
    bool lowest;  /* padding is below all numbers, not zero */
};

struct instr {
    enum opcode code;
    /* of operands that are neither F32 nor whole numbers; of what is moved */
    enum dtype dtype;
    union instr_n n;
    union instr_in in;
    union instr_out out;
    /* collectives: the group. linear: the axes that split k. sum_squares, cross_entropy:
     * axes over which the value is replicated, so that only one rank counts it. copy: where
     * the box begins. attention: those along which its keys go round */
    unsigned axes;
    int op;                 /* model op, or -1 */
    int tensor;             /* model tensor it is about, or -1 */
    int param;              /* parameter it is about, or -1 */
    struct placement place; /* of that tensor or parameter */
    union {
        struct copy copy;         /* of copy */
        struct matrices matrices; /* of matmul, matmul_dw */
        struct halo halo;         /* of halo_*, exchange */
        /* of median, trimmed, fair: where its suspicions are counted, in 64-bit numbers
         * from stage_program.suspects on */
        int64_t slot;
        /* of attention*: its keys are those of the rank this many before it on the axes */
        int step;
    };
    int transfer; /* of send and recv, or -1 */
    /* in the first micro-batch of a step its gradients are written, not added to (pass_fresh.c) */
    bool fresh;
    /* it is for gradients though it stands in a forward pass; evaluating leaves it out */
    bool trains;
    /* Of what reads gradients: how many replicas have one of their own (plan->average). Of
     * a scale that is about no op: what it divides by. Else 0. */
    int replicas;
    /* it sums over replicas of which the plan does not trust all (pass_aggregate.c) */
    bool guarded;
    int work; /* of a collective that is only started, and of its wait: their number; or -1 */
};

/* An instruction with no operands that is about nothing. */
struct instr instr_init(enum opcode code);

/* ---- what is known of an opcode ----------------------------------------------------------- */

enum key_kind { KEY_FREE, KEY_SHAPE, KEY_CURVE, KEY_PARTS, KEY_COMM, KEY_P2P };
enum operand_flag {
    OPERAND_OVER = 1,
    OPERAND_ADD = 2,
    OPERAND_OLD = 4,
    OPERAND_IDS = 8,
    OPERAND_SLOTS = 16,
    OPERAND_F32 = 32,
    OPERAND_HOST = 64,
    OPERAND_FRESH = 128,
    OPERAND_COUNTS = 256,
    OPERAND_STARTS = 512
};

struct operand_info {
    const char *name;
    unsigned flags;
};
struct instr_info {
    const char *name, *about;
    enum key_kind key;
    int n_shape, n_in, n_out;
    int n_options; /* how many of the last numbers of its shape are options */
    const char *shape[INSTR_MAX_SHAPE + 1];
    struct operand_info in[INSTR_MAX_IN + 1], out[INSTR_MAX_OUT + 1];
};
const struct instr_info *instr_info(enum opcode code);

/* Lists the buffers that an instruction touches, operands before results, each once. Returns how
 * many:
 *
 *     int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
 *     for (int k = 0; k < n; k++) ... b[k] ...
 */
static inline int instr_buffers(const struct instr *i, int out[INSTR_MAX_BUFFERS]) {
    const struct instr_info *info = instr_info(i->code);
    int n = 0;
    for (int k = 0; k < info->n_in + info->n_out; k++) {
        int b = k < info->n_in ? i->in.v[k] : i->out.v[k - info->n_in];
        bool listed = b < 0;
        for (int j = 0; j < n && !listed; j++)
            listed = out[j] == b;
        if (!listed)
            out[n++] = b;
    }
    return n;
}

/* Whether an operand has the instruction's type, and the type of its elements in an
 * instruction of this type. */
bool operand_typed(const struct operand_info *o);
enum dtype operand_dtype(const struct operand_info *o, enum dtype dtype);
const char *opcode_name(enum opcode code);
enum key_kind opcode_key(enum opcode code);
int opcode_find(const char *name);           /* -1 if unknown */
bool opcode_computes(enum opcode code);      /* takes time on a device */
bool opcode_is_collective(enum opcode code); /* over a group of the stage's mesh */
bool opcode_moves(enum opcode code);         /* moves numbers of any type as they are */
bool opcode_is_move(enum opcode code);       /* copies between a device and its host */

/* What an instruction of this shape reads, writes and computes. */
struct instr_work {
    int64_t in[INSTR_MAX_IN + 1], out[INSTR_MAX_OUT + 1]; /* elements; 0 = absent */
    int64_t below[INSTR_MAX_IN + 1];                      /* of IDS and SLOTS operands */
    int64_t each[INSTR_MAX_IN + 1]; /* of STARTS: places from one to the next; 0: unknown */
    double flops;
    double typed, fixed; /* elements that cross memory: of its type, of four bytes */
};
void instr_work(enum opcode code, const union instr_n *n, struct instr_work *out);
/* Bytes that cross memory in an instruction of this type. */
double instr_bytes(const struct instr_work *w, enum dtype dtype);

/* ---- keys: what a time is measured and remembered for ------------------------------------- */

/* An opcode, its type and the numbers of its shape, with 0 for those that it lacks. Whole
 * numbers count as f32, since they are moved as fast. */
struct instr_key {
    enum opcode code;
    enum dtype dtype;
    union instr_n n;
};
struct instr_key instr_key(enum opcode code, enum dtype dtype, const union instr_n *n);
bool instr_key_equal(const struct instr_key *a, const struct instr_key *b);
uint64_t instr_key_hash(const struct instr_key *k);
/* By opcode, then type, then number by number: -1, 0 or 1. */
int instr_key_compare(const struct instr_key *a, const struct instr_key *b);
/* What an instruction of KEY_PARTS is made of: other instructions, each so many times.
 * Returns how many parts there are. */
enum { INSTR_MAX_PARTS = 6 };
struct instr_part {
    struct instr_key key;
    double times;
};
int instr_parts(const struct instr_key *k, struct instr_part out[INSTR_MAX_PARTS]);
/* "linear.bf16"; "linear" where it is f32. Returns buf. */
char *instr_name_format(enum opcode code, enum dtype dtype, char *buf, size_t size);
/* How many of the numbers files hold: up to the last that is not an option or not 0. */
int instr_shape_written(enum opcode code, const union instr_n *n);
/* The numbers as profiles hold them: "2048,1536,384,0,1". Returns buf. */
char *instr_shape_format(enum opcode code, const union instr_n *n, char *buf, size_t size);

#endif
