/* lower.h - lowering: one op of the model to instructions, forward and backward, for any layout.
 *
 * Every kind has a `struct lowering` in a file of its own. Sizes are local ones, and follow from
 * the layout and the op's iteration space; an op whose own maths crosses a split dim carries its
 * small collective (layer norm over hidden, cross-entropy over vocab). A lowering is a few lines:
 *
 *     static void forward(struct emit *e, int op) {
 *         int x = lower_operand(e, op, 0), y = lower_result(e, op, 0);
 *         struct instr *i = emit_instr(e, I_gelu);
 *         i->in.gelu.x = x, i->out.gelu.y = y;
 *         i->n.gelu.elems = lower_volume(e, op, &op_of(e, op)->out_map[0]);
 *     }
 */
#ifndef WEFT_LOWER_H
#define WEFT_LOWER_H

#include "program/emit/params.h"
#include "program/emit/values.h"

struct lowering {
    /* Emits the op; its results, and what it saves, are listed under the current pass. */
    void (*forward)(struct emit *e, int op);
    /* Emits its backward pass. dy: gradients of the results, under gradient_place; -1 for those
     * that nobody reads. */
    void (*backward)(struct emit *e, int op, const int *dy);
};
#define X(id, ...) extern const struct lowering lower_##id;
KINDS(X)
#undef X

/* Emit an op by the lowering of its kind (lower_kinds.c). */
void lower_forward(struct emit *e, int op);
void lower_backward(struct emit *e, int op, const int *dy);

/* ---- for lowerings ------------------------------------------------------------------------ */

const struct model_op *op_of(const struct emit *e, int op);
/* Local size of dim k of the op's space. */
int64_t lower_size(const struct emit *e, int op, int k);
/* Products of the local sizes of dims: those that a tensor of the op has; that both have;
 * that a has and b lacks; that have a role. */
int64_t lower_volume(const struct emit *e, int op, const struct axis_map *map);
int64_t lower_shared(const struct emit *e, int op, const struct axis_map *a,
                     const struct axis_map *b);
int64_t lower_without(const struct emit *e, int op, const struct axis_map *a,
                      const struct axis_map *b);
int64_t lower_role(const struct emit *e, int op, enum role role);
/* Mesh axes that split dims of a role; that split dim k of the space; that split nothing. */
unsigned lower_axes(const struct emit *e, int op, enum role role);
unsigned lower_dim_axes(const struct emit *e, int op, int k);
unsigned lower_idle_axes(const struct emit *e, int op);

/* Whether the parameter is there and trained. An instruction that only makes the gradient
 * of a frozen one is left out. */
bool lower_trains(const struct emit *e, int op, int slot);

/* Buffers: operand k as the layout wants it, a parameter (-1 where it is missing), what its
 * gradient is added to (of a frozen one zeros that nobody reads), a new one for result k (listed as
 * such). */
int lower_operand(struct emit *e, int op, int k);
int lower_param(struct emit *e, int op, int slot);
int lower_grad(struct emit *e, int op, int slot);
int lower_result(struct emit *e, int op, int k);
/* A new temporary: for statistics and sums, always f32; for values, of tensors' type. */
int lower_scratch(struct emit *e, int64_t elems);
int lower_values(struct emit *e, int64_t elems);
/* Saves a buffer for the backward pass, besides results (saved_get). */
void lower_save(struct emit *e, int op, int buffer);

/* Whether the gradient of operand k is wanted (not for data), and a new buffer for it,
 * listed under the placement in which it comes out. An op that cannot do without writes an
 * unwanted one as scratch. */
bool lower_wants_gradient(const struct emit *e, int op, int k);
int lower_gradient(struct emit *e, int op, int k);
/* Passes the gradient on to operand k unchanged: the same buffer under two names. */
void lower_pass_on(struct emit *e, int op, int k, int dy);
/* Operand 0 of an op with windows, x[batch, height, width, channels], whose dims come in
 * this order in the space (lower_windows.c). Where halo dims are split it becomes the rows
 * that this rank's windows slide over, including its neighbours' and padding. */
struct windows {
    int64_t batch, ih, iw, c, oh, ow, stride, ph,
        pw;              /* local; padding that x does not have yet */
    struct halo halo[2]; /* of height, width; parts 0: as it is */
};
struct windows lower_windows(const struct emit *e, int op, bool lowest);
/* The operand in this form. The forward pass keeps it; the backward pass takes what was
 * kept, or makes it again. */
int lower_windows_operand(struct emit *e, int op, const struct windows *w);
/* The buffer for the gradient of the operand in this form, -1 if it is not wanted; and what
 * makes the operand's own gradient from it. */
int lower_windows_gradient(struct emit *e, int op, const struct windows *w);
void lower_windows_back(struct emit *e, int op, const struct windows *w, int d);

/* Says which part of a parameter or a tensor an instruction is about. */
void lower_about_param(struct emit *e, struct instr *i, int op, int slot);
void lower_about_operand(struct emit *e, struct instr *i, int op, int k);
void lower_about_result(struct emit *e, struct instr *i, int op, int k);

#endif
