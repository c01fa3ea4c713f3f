/* emit.h - inside the compiler: one stage under construction.
 *
 * Passes (passes/passes.h) emit instructions in order and rewrite them. Every value gets a buffer of
 * its own; only the last passes decide which buffers share bytes.
 */
#ifndef WEFT_EMIT_H
#define WEFT_EMIT_H

#include "plan/convert.h"
#include "program/program.h"

/* A value: a buffer that holds a tensor under a placement. */
struct avail {
    struct placement place;
    int buffer, next; /* next in the tensor's list, -1 = end */
};

/* The whole gradient that an op adds to, and the share to which it is added afterwards. */
struct whole_gradient {
    int param, whole, share; /* buffers */
    struct placement from, to;
    unsigned data; /* as in struct grad_instance */
};

/* The instructions that write a buffer first and touch it last; first: -1 where none does. */
struct life {
    int first, last;
};

/* A message that comes in. */
struct arrival {
    int transfer;
    bool taken;
};

struct emit {
    const struct plan *plan;
    const struct model *m;
    const struct stage *st;
    const struct mesh *mesh;
    int stage;
    enum segment seg;
    int op, param; /* on whose behalf instructions are emitted now, or -1 */
    bool trains;   /* these are for gradients although they stand in a forward pass */
    ARR(struct instr) instrs;
    ARR(struct buffer) buffers;
    ARR(struct param_instance) params;
    ARR(struct grad_instance) grads;
    ARR(struct state_instance) states;
    ARR(struct avail) avails;
    /* By buffer, from pass_reuse on, as long as the instructions stay where they are. */
    ARR(struct life) lives;
    int *tables; /* memory of all tables from here to offload */
    size_t tables_bytes;
    int *forward;  /* tensor -> values made in the forward pass */
    int *backward; /* tensor -> values recomputed in the backward pass */
    int *gradient; /* tensor -> gradient contributions */
    int *op_index; /* op -> its index in the stage, or -1 */
    int *early; /* op in the stage -> 1 if its backward pass stands in the forward pass */
    int *first_use; /* tensor -> the first op of the stage that reads it, or -1 */
    int *
        saved; /* op in the stage -> buffer of what it saves beside its results (statistics),
                       per pass: [2 * i + pass] */
    /* [op in the stage][pass][slot] -> buffer of a gathered parameter, or -1 */
    int *gathered;
    int *param_of;                              /* param -> its first instance, or -1 */
    int *grad_of;                               /* param -> its first gradient, or -1 */
    ARR(struct whole_gradient) whole_gradients; /* of the op at hand */
    /* param -> axes along which replicas train apart, if all its ops here agree; else 0 */
    int *apart;
    int8_t *zero;    /* param -> ZeRO's level in this stage: of the first op that has it */
    int8_t *offload; /* param -> what of it lives on the host, by the same op */
    /* First instruction of every segment; of those to come, the end of the list. */
    int seg_first[SEG_COUNT + 1];
    int n_works;
    bool offloads;              /* something of the stage lives on the host */
    int n_losses;               /* of the whole model */
    struct transfer *transfers; /* the program's, already listed */
    int n_transfers;
    ARR(struct arrival) arrivals; /* those that end at this stage, in order */
    ARR(int) departures;          /* those that begin here */
    int64_t
        slots[POOL_COUNT]; /* the most micro-batches that the schedule has in each pool */
    struct stage_program *out; /* the result; passes write its memory plan */
    /* Emits an op's forward pass. It is a pointer since recomputed values call it from
     * below the lowerings (lower/lower.h). */
    void (*lower)(struct emit *e, int op);
};

/* ---- emit.c -------------------------------------------------------------------------- */

int emit_buffer(struct emit *e, int64_t elems, enum dtype dtype, enum memory_class mem);
/* The type of a parameter as ops read it. */
enum dtype emit_param_dtype(const struct emit *e, int param);
/* A temporary for a tensor under a placement, of the tensor's dtype. */
int emit_value(struct emit *e, int tensor, struct placement p);
/* The pointer holds until the next instruction is emitted. */
struct instr *emit_instr(struct emit *e, enum opcode code);
/* The segment that an instruction stands in. */
int emit_segment(const struct emit *e, int instr);
/* Ends the segment after the last instruction; all later ones are empty. */
void emit_end_segment(struct emit *e, enum segment segment);
struct extents emit_extents(const struct emit *e, const struct shape *s);
int64_t emit_elements(const struct emit *e, const struct shape *s, struct placement p);
void avail_add(struct emit *e, int *list, int tensor, struct placement place, int buffer);
int avail_find(const struct emit *e, int head, struct placement place);

/* A collective over the group along `axes`; elems are those of the larger side. */
void emit_collective(struct emit *e, enum opcode code, unsigned axes, int x, int y,
                     int64_t elems);
/* Turns a collective into one that is only started; returns its wait. */
struct instr emit_start(struct emit *e, struct instr *collective);
/* Converts a value of this shape; the result lands in `dest` (a buffer) or, if dest < 0, in a
 * new one. from == to returns the value itself (copied when dest is given). */
int emit_convert(struct emit *e, const struct shape *s, int buffer, struct placement from,
                 struct placement to, int dest);
int emit_copy(struct emit *e, int src, int dst, int64_t elems);
/* Converts a buffer's numbers to dst's type: rounds them to 16 bits, or widens them to
 * f32. */
void emit_cast(struct emit *e, int src, int dst, int64_t elems);
/* a + b, which are of one type, in a new buffer. */
int emit_add(struct emit *e, int a, int b, int64_t elems);

#endif
