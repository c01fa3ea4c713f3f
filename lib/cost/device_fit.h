/* device_fit.h - a device model out of a profile.
 *
 * Every instruction that has rows gets a curve of its own. The fit begins with the curve of
 * a given model: another device's, or a plain one.
 *
 *     struct device_fit fit;
 *     device_fit_init(&fit, times);                       // sorts the rows by instruction
 *     device_fit_op(&fit, model, I_linear, DTYPE_bf16, &model->ops[I_linear][DTYPE_bf16]);
 *     device_fit_release(&fit);
 */
#ifndef WEFT_DEVICE_FIT_H
#define WEFT_DEVICE_FIT_H

#include "common/mem.h"
#include "cost/curve_fit.h"
#include "cost/device_model.h"
#include "cost/profile.h"

struct device_rows {
    ARR(struct curve_row) list;
};

struct device_fit {
    struct device_rows *ops; /* [OPCODE_COUNT * CLUSTER_DTYPES] */
};

/* The rows are copied. */
void device_fit_init(struct device_fit *f, const struct profile_times *times);
void device_fit_release(struct device_fit *f);
const struct device_rows *device_fit_rows(const struct device_fit *f, enum opcode code,
                                          enum dtype dtype);

/* Fits the curve of one instruction to its rows, beginning with that of the model; false where there
 * are none, or the chip does not compute in this type. */
bool device_fit_op(const struct device_fit *f, const struct device_model *m,
                   enum opcode code, enum dtype dtype, struct device_curve *out);
/* Fits the forms, each from all rows of its instructions, and then every instruction. */
void device_fit_all(const struct device_fit *f, struct device_model *m);

#endif
