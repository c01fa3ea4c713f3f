/* plan_tool.h - the parts of weft-plan: what people say of a plan, as a document and back. */
#ifndef WEFT_PLAN_TOOL_H
#define WEFT_PLAN_TOOL_H

#include "words.h"

/* What the command line says; 0 or NULL: nothing. */
struct plan_words {
    const char *model;
    char *set;
    int64_t batch, micro_batch;
    int64_t dp, cp, ep, tp, pp; /* degrees */
    int64_t chunks;             /* stages of each of the pp device groups */
    bool sp, ring, overlap;
    int64_t logits; /* in so many pieces; 0: not said */
    int64_t zero;
    const char *recompute, *offload, *schedule, *optimizer, *dtype, *reduce, *cluster;
    const char *aggregate;
    int64_t faulty;            /* replicas that may be bad */
    const char *average;       /* how replicas that train apart come together, */
    int64_t average_every;     /* after so many steps, */
    const char *average_axes;  /* along these axes of the mesh: "a,b" */
    const char *mesh, *layout; /* Mesh-TensorFlow's */
    const int *blocks; /* of each stage, where they are not shared out evenly; or NULL */
    bool quiet;        /* nothing is noted */
};

/* ---- plan_make.c --------------------------------------------------------------------------- */

/* The document of the plan that the words describe, checked; new reference. NULL on failure. */
json_t *plan_make(const struct plan_words *w, struct err *err);
/* The same for a model that is there; its name and set in the words are not read. */
json_t *plan_make_for(const struct plan_words *w, struct model *m, struct err *err);

/* ---- plan_aceso.c, plan_aceso_out.c -------------------------------------------------------- */

/* Aceso's document as a plan's, and the reverse; new references. NULL on failure. */
json_t *plan_from_aceso(const json_t *config, struct err *err);
json_t *plan_to_aceso(const struct plan *p, struct err *err);

/* ---- plan_job.c, plan_megatron.c, plan_others.c, plan_galvatron.c ------------------------------ */

/* The plan as what another trainer reads, as text; free() it. NULL on failure: what that trainer cannot
 * say is refused by op or stage. */
char *plan_to_megatron(const struct plan *p, struct err *err);
char *plan_to_torchtitan(const struct plan *p, struct err *err);
char *plan_to_deepspeed(const struct plan *p, struct err *err);
char *plan_to_accelerate(const struct plan *p, struct err *err);
char *plan_to_nnscaler(const struct plan *p, struct err *err);
char *plan_to_galvatron(const struct plan *p, struct err *err);

/* ---- plan_megatron_in.c ------------------------------------------------------------------------ */

/* The plan of a launch line of Megatron-LM, or of a shell script that holds one: the model is made of
 * its flags. New reference, NULL on failure. */
json_t *plan_from_megatron(const char *text, struct err *err);

/* ---- plan_others_in.c -------------------------------------------------------------------------- */

/* The plan of torchtitan's TOML (as of before 2026-02-23) and of DeepSpeed's JSON. Neither says what the
 * model is: `given` does, and how many replicas there are where the file leaves that to the launcher; of
 * DeepSpeed's also what is recomputed. New reference, NULL on failure. */
json_t *plan_from_torchtitan(const char *text, const struct plan_words *given,
                             struct err *err);
json_t *plan_from_deepspeed(const char *text, const struct plan_words *given,
                            struct err *err);

#endif
