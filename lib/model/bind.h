/* bind.h - inside the model reader: an op's tensors against the descriptor of its kind. */
#ifndef WEFT_BIND_H
#define WEFT_BIND_H

#include "model/model.h"

/* A shape for each slot of a kind, in order; NULL for an optional one that is missing. */
struct slot_shapes {
    const struct shape *in[KIND_MAX_SLOTS], *param[KIND_MAX_SLOTS], *out[KIND_MAX_SLOTS];
};

/* Checks the shapes against op->kind, fills op->space and the maps (which have room for every
 * slot). Names in messages come from dims. Returns 0, or -1. */
int model_bind(const struct model_dim *dims, const struct slot_shapes *shapes,
               struct model_op *op, struct err *err);

#endif
