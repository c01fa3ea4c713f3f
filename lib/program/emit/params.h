/* params.h - inside the compiler: parameters and their gradients as a stage holds them. */
#ifndef WEFT_PARAMS_H
#define WEFT_PARAMS_H

#include "program/emit/emit.h"

/* The placement of a rank's share of what is placed so, where ZeRO goes so far for this parameter;
 * else the same. */
struct placement param_share(const struct emit *e, int param, struct placement place,
                             int level);
/* The axes along which replicas of the parameter train apart, and the placement of a gradient that they do
 * not sum: Partial there. */
unsigned param_apart(const struct emit *e, int param);
struct placement param_own(const struct emit *e, int param, struct placement place);
/* A parameter under the placement that an op wants in one of its slots: as the stage holds it, or
 * gathered, once in each pass. */
int param_get(struct emit *e, int op, int slot, struct placement want);
/* A gradient of a parameter under another placement, in f32; its sum is taken in the type that the plan
 * has for it. An all-reduce alone is left in f32 here (pass_round.c). `data`: the axes along which samples
 * are split; the sum over these is guarded, where the plan does not trust all of their ranks. */
int grad_convert(struct emit *e, int param, int buffer, struct placement from,
                 struct placement to, unsigned data);
/* What an op adds its gradient of the parameter to, which comes out under `from`; grads_reduce, behind
 * the op, adds it to the share where that is not what is held. Of a frozen one the sum goes nowhere. */
int grad_get(struct emit *e, int param, struct placement want, struct placement from);
void grads_reduce(struct emit *e);

#endif
