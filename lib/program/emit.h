/* emit.h - inside the compiler: one stage under construction.
 *
 * Instructions are emitted in order; every value gets a buffer of its own, and only the memory
 * pass (memory.c) decides which buffers share bytes. A tensor may be available under several
 * placements at once; value_get finds or makes the one that is wanted.
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

/* The whole gradient that an op adds to, and the share that it is to be added to. */
struct whole_gradient {
    int param, whole, share; /* buffers */
    struct placement from, to;
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
    ARR(struct instr) instrs;
    ARR(struct buffer) buffers;
    ARR(struct param_instance) params;
    ARR(struct grad_instance) grads;
    ARR(struct state_instance) states;
    ARR(struct avail) pool;
    int *tables;    /* the room of these, zero included: */
    size_t room;    /* bytes of it */
    int *forward;   /* tensor -> values made in the forward pass */
    int *backward;  /* tensor -> values recomputed in the backward pass */
    int *gradient;  /* tensor -> gradient contributions */
    int *op_index;  /* op -> its index in the stage, or -1 */
    int *first_use; /* tensor -> the first op of the stage that reads it, or -1 */
    int *aux;       /* op in the stage -> buffer of what it keeps (statistics), per pass:
                       [2 * i + pass] */
    int *gathered;  /* of what is gathered for an op: by op in the stage, pass
                       and slot, or -1 */
    int *param_of;  /* param -> its first instance, or -1 */
    int *grad_of;   /* param -> its first gradient, or -1 */
    ARR(struct whole_gradient) whole_gradients; /* of the op at hand */
    int8_t *zero;    /* param -> ZeRO's level in this stage: of the first op that has it */
    int8_t *offload; /* param -> what of it lives on the host; likewise */
    int seg_first[SEG_COUNT + 1];
    int n_works;
    int n_losses;               /* of the whole model */
    struct transfer *transfers; /* the program's, already listed */
    int n_transfers;
    ARR(struct arrival) arrivals; /* those that end at this stage, in order */
    ARR(int) departures;          /* those that begin here */
};

/* ---- emit.c -------------------------------------------------------------------------- */

int emit_buffer(struct emit *e, int64_t elems, enum dtype dtype, enum memory_class mem);
/* Of a parameter as ops read it. */
enum dtype emit_param_dtype(const struct emit *e, int param);
/* For a tensor under a placement: temporary, of the tensor's dtype. */
int emit_value(struct emit *e, int tensor, struct placement p);
/* The pointer holds until the next instruction is emitted. */
struct instr *emit_instr(struct emit *e, enum opcode code);
/* The segment that an instruction stands in. */
int emit_segment(const struct emit *e, int instr);
struct extents emit_extents(const struct emit *e, const struct shape *s);
int64_t emit_elements(const struct emit *e, const struct shape *s, struct placement p);
void avail_add(struct emit *e, int *list, int tensor, struct placement place, int buffer);
int avail_find(const struct emit *e, int head, struct placement place);

/* A collective over the group along `axes`; elems are those of the larger side. */
void emit_collective(struct emit *e, enum opcode code, unsigned axes, int x, int y,
                     int64_t elems);
/* Makes of a collective what only starts it; returns its wait. */
struct instr emit_start(struct emit *e, struct instr *collective);
/* Converts a value of this shape; the result lands in `dest` (a buffer) or, if dest < 0, in a
 * new one. from == to returns the value itself (copied when dest is given). */
int emit_convert(struct emit *e, const struct shape *s, int buffer, struct placement from,
                 struct placement to, int dest);
int emit_copy(struct emit *e, int src, int dst, int64_t elems);
/* A buffer's numbers as those of another type: rounded to one of 16 bits, or widened to f32. */
void emit_cast(struct emit *e, int src, int dst, int64_t elems);
/* a + b, which are of one type, in a new buffer. */
int emit_add(struct emit *e, int a, int b, int64_t elems);

/* ---- values.c --------------------------------------------------------------------------- */

/* The layout of an op of this stage. */
const struct layout *op_layout(const struct emit *e, int op);
/* Where an operand is wanted; where a result comes out, and where its gradient is wanted. */
struct placement operand_place(const struct emit *e, int op, int k);
struct placement result_place(const struct emit *e, int op, int k);
struct placement gradient_place(const struct emit *e, int op, int k);

/* The buffer of a tensor under a placement, in the current pass: made in the forward pass and
 * kept, recomputed, converted or received. */
int value_get(struct emit *e, int tensor, struct placement want);
/* What an op keeps: as the forward pass left it, or recomputed; aux_find: -1 where it is
 * not there. */
int aux_get(struct emit *e, int op);
int aux_find(const struct emit *e, int op);
/* Takes the gradients that other stages send for a tensor of this one. */
void gradient_receive(struct emit *e, int tensor);
void gradient_add(struct emit *e, int tensor, struct placement place, int buffer);
/* Sums the contributions to a tensor's gradient under one placement. */
int gradient_combine(struct emit *e, int tensor, struct placement want);

/* ---- params.c --------------------------------------------------------------------------- */

/* The placement of a rank's share of what is placed so, where ZeRO goes so far for this parameter;
 * else the same. */
struct placement param_share(const struct emit *e, int param, struct placement place,
                             int level);
/* A parameter under the placement that an op wants in one of its slots: as the stage holds it, or
 * gathered, once in each pass. */
int param_get(struct emit *e, int op, int slot, struct placement want);
/* A gradient of a parameter under another placement, in f32; its sum is taken in the type that the plan
 * has for it. An all-reduce alone is left in f32 here (memory.c). */
int grad_convert(struct emit *e, int param, int buffer, struct placement from,
                 struct placement to);
/* What an op adds its gradient of the parameter to, which comes out under `from`; grads_reduce, behind
 * the op, adds it to the share where that is not what is held. */
int grad_get(struct emit *e, int param, struct placement want, struct placement from);
void grads_reduce(struct emit *e);

/* ---- passes.c, update.c, memory.c, transfer.c --------------------------------------------- */

void pass_forward(struct emit *e);
void pass_backward(struct emit *e);
void pass_update(struct emit *e);
/* Gives every instruction the type of its operands. */
void pass_types(struct emit *e);
/* Moves what only makes gradients of weights into a segment of its own (split.c). */
void pass_split(struct emit *e);
/* Starts gathers of parameters and ends reductions of their gradients elsewhere (ahead.c). */
void pass_ahead(struct emit *e);
/* Moves what the plan says to the memory of the host (offload.c). */
void pass_offload(struct emit *e);
/* Marks what writes gradients the first time in a step, and gradients that are cleared (fresh.c). */
void pass_fresh(struct emit *e);
/* Lays out all buffers. slots: micro-batches held at once in each pool. */
void pass_memory(struct emit *e, struct stage_program *out,
                 const int64_t slots[POOL_COUNT]);
/* Starts the reductions of gradients in a last backward of their own (overlap.c). */
void pass_overlap(struct emit *e);
/* Lists every transfer of a plan: tensors, gradients, tied parameters. Those from one stage to
 * another stand in the order in which both ends go through them. */
struct transfer_list {
    ARR(struct transfer) all;
};
void transfers_list(const struct plan *plan, struct transfer_list *out);
/* The transfer of a tensor or of a parameter (the other is -1), or of its gradient, between this stage
 * and another; -1 if there is none. */
int transfer_find(const struct emit *e, int tensor, int param, bool gradient, int from,
                  int to);
void transfer_link(struct program *g, struct transfer *t);
void transfers_depth(struct program *g);
/* Links all transfers; their staging stands behind everything else in the arenas. */
void transfers_place(struct program *g);

#endif
