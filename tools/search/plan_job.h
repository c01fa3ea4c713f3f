/* plan_job.h - a plan in the few words that other trainers have: one set of degrees for all of it, or for
 * each layer.
 *
 * Whether the words say all of a plan is not guessed: the plan that they describe is made again, and
 * compared op by op with the one that there is. The first difference is the message.
 *
 *     struct plan_job job;
 *     if (plan_job_of(&job, plan, "Megatron-LM", &err) == 0) ... job.tp, job.blocks[stage] ...
 *     plan_job_release(&job);
 */
#ifndef WEFT_PLAN_JOB_H
#define WEFT_PLAN_JOB_H

#include "plan_tool.h"

struct plan_job {
    const struct plan *plan;    /* borrowed */
    int64_t dp, ep, cp, tp, pp; /* dp: replicas, over ep of which experts are spread */
    int chunks;                 /* stages of each of the pp device groups */
    bool sp, ring;
    int zero;
    enum recompute recompute;
    bool offload; /* of the optimizer's state */
    int *blocks;  /* [pp * chunks] whole blocks of each stage */
    bool
        even; /* all stages have as many, the first and the last what is around the blocks */
};

/* What cannot be said in these words is refused by op or stage; `target` is named in the message. */
int plan_job_of(struct plan_job *job, const struct plan *p, const char *target,
                struct err *err);
void plan_job_release(struct plan_job *job);

/* The same for a trainer that has degrees for each layer: [blocks of the model + 1], those of block b, outer
 * ones alone, and behind them those of what is around the blocks. Their `blocks` are one array, released
 * with the first; the caller frees the rest. NULL on failure. */
struct plan_job *plan_job_layers(const struct plan *p, const char *target, struct err *err);

/* Samples that a replica takes at once. */
int64_t plan_job_samples(const struct plan_job *job);

/* Size of a dim of the model, or 0 where there is none of this name. */
int64_t plan_model_size(const struct model *m, const char *dim);

#endif
