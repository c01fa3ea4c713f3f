/* model_check.h - inside the model reader: is an op well formed? */
#ifndef WEFT_MODEL_CHECK_H
#define WEFT_MODEL_CHECK_H

#include "model/model.h"

/* Checks number, dims and kinds of an op's operands, parameters and result (ids into tensors and
 * params), and fills domain, splittable, contracted, crossed and transposed. Returns 0 or -1. */
int model_check_op(const struct model *m, const struct model_tensor *tensors,
                   const struct model_param *params, struct model_op *op, struct err *err);

#endif
