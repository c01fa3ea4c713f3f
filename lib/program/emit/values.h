/* values.h - inside the compiler: which tensor is where, in which buffer, under which placement.
 *
 * A tensor may be there under several placements at once; value_get finds or makes the one that is
 * wanted, and so inserts the conversions between ops, the messages that come in, and what is
 * recomputed.
 */
#ifndef WEFT_VALUES_H
#define WEFT_VALUES_H

#include "program/emit/emit.h"

/* The layout of an op of this stage. */
const struct layout *op_layout(const struct emit *e, int op);
/* Placements of an operand as wanted, a result as it comes out, its gradient as wanted. */
struct placement operand_place(const struct emit *e, int op, int k);
struct placement result_place(const struct emit *e, int op, int k);
struct placement gradient_place(const struct emit *e, int op, int k);

/* The buffer of a tensor under a placement, in the current pass: made in the forward pass and
 * kept, recomputed, converted or received. */
int value_get(struct emit *e, int tensor, struct placement want);
/* The buffer of what an op saves beside its results, from the forward pass or recomputed.
 * saved_find does not recompute: -1 where it is not there. */
int saved_get(struct emit *e, int op);
int saved_find(const struct emit *e, int op);
/* Takes the gradients that other stages send for a tensor of this one. */
void gradient_receive(struct emit *e, int tensor);
void gradient_add(struct emit *e, int tensor, struct placement place, int buffer);
/* Adds up the contributions that came under equal placements. */
void gradient_gather(struct emit *e, int tensor);
/* Sums the contributions to a tensor's gradient under one placement. */
int gradient_combine(struct emit *e, int tensor, struct placement want);

#endif
