/* plan_impl.h - inside the reader of plans: what partial plans (pin_plan.c) are read with too. */
#ifndef WEFT_PLAN_IMPL_H
#define WEFT_PLAN_IMPL_H

#include "plan/plan.h"

/* The keys of the document. */
#define PLAN_KEYS                                                                          \
    "$schema format model set batch micro_batch schedule optimizer dtype reduce overlap "  \
    "stages pin cluster provenance"
/* What only whole plans have besides: no pin is about it. */
#define PLAN_WHOLE_KEYS                                                                    \
    PLAN_KEYS " aggregate faulty average average_every average_axes logits"

/* "model" and "set" of a plan; the caller owns the model. NULL on failure. */
struct model *plan_read_model(const json_t *doc, struct err *err);

/* "schedule" and "optimizer"; a missing key leaves *out alone. */
int plan_read_schedule(const json_t *doc, int64_t *out, struct err *err);
int plan_read_optimizer(const json_t *doc, int64_t *out, struct err *err);
/* "dtype" and "reduce", likewise. */
int plan_read_dtype(const json_t *doc, const char *key, int64_t *out, struct err *err);

/* "offload": a list of words; *out, a set of them, stays as it is where there is none. */
int plan_read_offload(const json_t *v, int *out, struct err *err);

/* Marks which of these ops a pattern or a list of them covers (ops NULL: the first n of the
 * model). Each has to cover one: what does not is misspelt. `whole`: of what the ops are all. */
int plan_cover(const struct model *m, const int *ops, int n, const json_t *v,
               const char *key, const char *whole, bool *covered, struct err *err);

/* Gives stage s the ops that its patterns cover; -1 in stage_of: not given yet. */
int plan_claim_ops(struct plan *p, int s, const json_t *ops, struct err *err);

/* Reads what stage s, whose ops are known, is to be. */
int plan_read_stage(struct plan *p, int s, const json_t *v, struct err *err);

/* Room for so many ops, nothing of which is split. */
void plan_stage_room(struct plan *p, struct stage *st, int n_ops);

#endif
