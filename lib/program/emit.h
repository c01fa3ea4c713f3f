/* emit.h - inside the compiler: one stage under construction.
 *
 * Instructions are emitted in order; every value gets a buffer of its own, and only the memory
 * pass (memory.c) decides which buffers share bytes. A tensor may be available under several
 * placements at once; value_get finds or makes the one that is wanted.
 */
#ifndef WEFT_EMIT_H
#define WEFT_EMIT_H

#include "program/program.h"

/* A value: a buffer that holds a tensor under a placement. */
struct avail {
    struct placement place;
    int buffer, next; /* next in the tensor's list, -1 = end */
};

struct emit {
    const struct plan *plan;
    const struct model *m;
    const struct stage *st;
    const struct mesh *mesh;
    struct dim_sizes sizes;
    int stage;
    enum segment seg;
    int op, param; /* on whose behalf instructions are emitted now, or -1 */
    ARR(struct instr) instrs;
    ARR(struct buffer) buffers;
    ARR(struct param_instance) params;
    ARR(struct grad_instance) grads;
    ARR(struct state_instance) states;
    ARR(struct avail) pool;
    int *forward;  /* tensor -> values made in the forward pass */
    int *backward; /* tensor -> values made again in the backward pass */
    int *gradient; /* tensor -> gradient contributions */
    int *op_index; /* op -> its place in the stage, or -1 */
    int *
        aux; /* op in the stage -> buffer of what it keeps (statistics), per pass: [2 * i + pass] */
    int *param_of; /* param -> its first instance, or -1 */
    int *grad_of;  /* param -> its first gradient, or -1 */
    bool *tied;    /* param -> used by more than one op */
    int seg_first[SEG_COUNT + 1];
    /* The program's transfers, already listed; NULL when a stage is compiled alone. */
    struct transfer *transfers;
    int n_transfers;
};

/* ---- emit.c -------------------------------------------------------------------------- */

int emit_buffer(struct emit *e, int64_t elems, enum memory_class mem);
struct instr *emit_instr(struct emit *e, enum opcode code);
int64_t emit_elements(const struct emit *e, const struct shape *s, struct placement p);
void avail_add(struct emit *e, int *list, int tensor, struct placement place, int buffer);
int avail_find(const struct emit *e, int head, struct placement place);

/* Converts a value of this shape; the result lands in `dest` (a buffer) or, if dest < 0, in a
 * new one. from == to returns the value itself (copied when dest is given). */
int emit_convert(struct emit *e, const struct shape *s, int buffer, struct placement from,
                 struct placement to, int dest);
int emit_copy(struct emit *e, int src, int dst, int64_t elems);
/* a + b in a new buffer. */
int emit_add(struct emit *e, int a, int b, int64_t elems);

/* ---- lower.c --------------------------------------------------------------------------- */

/* The layout of an op of this stage. */
const struct layout *op_layout(const struct emit *e, int op);
/* Emits the forward of an op; its result and what it keeps are listed under the current pass. */
void lower_forward(struct emit *e, int op);
/* Emits the backward of an op given the gradient of its result (-1 for the loss). */
void lower_backward(struct emit *e, int op, int dy);
/* The instance of a parameter under this placement, made if it is new; and its gradient. */
int param_get(struct emit *e, int param, struct placement place);
int grad_get(struct emit *e, int param, int instance, struct placement place);

/* ---- passes.c --------------------------------------------------------------------------- */

/* The buffer of a tensor under a placement, in the current pass: made in the forward pass and
 * kept, made again, converted or received. */
int value_get(struct emit *e, int tensor, struct placement want);
int aux_get(struct emit *e, int op);
void gradient_add(struct emit *e, int tensor, struct placement place, int buffer);
/* Sums the contributions to a tensor's gradient under one placement. */
int gradient_combine(struct emit *e, int tensor, struct placement want);
void pass_forward(struct emit *e);
void pass_backward(struct emit *e);

/* ---- update.c, memory.c, transfer.c ------------------------------------------------------ */

void pass_update(struct emit *e);
void pass_memory(struct emit *e, struct stage_program *out, int64_t in_flight);
/* Lists every transfer of a plan: tensors, gradients, tied parameters. */
void transfers_list(const struct plan *plan, struct transfer **out, int *n);
void transfer_link(struct program *g, struct transfer *t);
/* Links all transfers; their staging stands behind everything else in the arenas. */
void transfers_place(struct program *g);

#endif
