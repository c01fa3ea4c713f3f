/* params.h - inside the compiler: parameters and their gradients as a stage holds them. */
#ifndef WEFT_PARAMS_H
#define WEFT_PARAMS_H

#include "program/emit/emit.h"

/* The placement of a rank's share of what has this placement, if ZeRO's level for the
 * parameter is at least `level`; else the same placement. */
struct placement param_share(const struct emit *e, int param, struct placement place,
                             int level);
/* The axes along which replicas of the parameter train apart, and the placement of a
 * gradient that is not summed over them: Partial there. */
unsigned param_apart(const struct emit *e, int param);
struct placement param_own(const struct emit *e, int param, struct placement place);
/* A parameter under the placement that an op wants in one of its slots: as the stage holds it, or
 * gathered, once in each pass. */
int param_get(struct emit *e, int op, int slot, struct placement want);
/* Converts a gradient of a parameter to another placement, in f32. Its sum is taken in the
 * type that the plan has for it, but an all-reduce alone is left in f32 here
 * (pass_round.c). `data`: the axes along which samples are split; the sum over these is
 * guarded where the plan does not trust all of their ranks. */
int grad_convert(struct emit *e, int param, int buffer, struct placement from,
                 struct placement to, unsigned data);
/* The buffer to which an op adds its gradient of the parameter, which comes out under
 * `from`. If that is not what the stage holds, grads_reduce adds it to the share after the
 * op. The gradient of a frozen parameter goes nowhere. */
int grad_get(struct emit *e, int param, struct placement want, struct placement from);
void grads_reduce(struct emit *e);

#endif
