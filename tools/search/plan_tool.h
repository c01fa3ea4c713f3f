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
    int64_t zero;
    const char *recompute, *offload, *schedule, *optimizer, *dtype, *reduce, *cluster;
    const char *mesh, *layout; /* Mesh-TensorFlow's */
};

/* ---- plan_make.c --------------------------------------------------------------------------- */

/* The document of the plan that the words describe, checked; new reference. NULL on failure. */
json_t *plan_make(const struct plan_words *w, struct err *err);

/* ---- plan_aceso.c, plan_aceso_out.c -------------------------------------------------------- */

/* Aceso's document as a plan's, and the reverse; new references. NULL on failure. */
json_t *plan_from_aceso(const json_t *config, struct err *err);
json_t *plan_to_aceso(const struct plan *p, struct err *err);

#endif
