/* plan_tool.h - the parts of weft-plan: what people say of a plan, as a document and back. */
#ifndef WEFT_PLAN_TOOL_H
#define WEFT_PLAN_TOOL_H

#include "plan/plan.h"

/* What the command line says; 0 or NULL: nothing. */
struct plan_words {
    const char *model, *set;
    int64_t batch, micro_batch;
    int64_t dp, cp, ep, tp, pp; /* degrees */
    int64_t chunks;             /* stages of each of the pp device groups */
    bool sp, ring, overlap;
    int64_t zero;
    const char *recompute, *offload, *schedule, *optimizer, *dtype, *reduce, *cluster;
    const char *mesh, *layout; /* Mesh-TensorFlow's */
};

/* ---- plan_dims.c --------------------------------------------------------------------------- */

/* Which dims of a model the words of parallelism mean, found in its graph. */
struct plan_dims {
    int n_inner, n_sequence, n_experts;
    int *inner; /* tp: of parameters, and not of what passes between blocks */
    int *
        sequence; /* sp, cp: of the data and of what passes between blocks, but for batch */
    int *experts; /* ep: counts products of a weight off */
};
void plan_dims_find(const struct model *m, struct plan_dims *d);
void plan_dims_release(struct plan_dims *d);
bool plan_dims_has(const int *dims, int n, int dim);

/* Does the op multiply its operand with a weight, summing over a dim of both? */
bool plan_is_product(const struct model_op *op);

/* The outermost block instance that an op stands in, or -1. */
int plan_outer_block(const struct model *m, int op);

/* ---- plan_make.c --------------------------------------------------------------------------- */

/* The document of the plan that the words describe, checked; new reference. NULL on failure. */
json_t *plan_make(const struct plan_words *w, struct err *err);

/* ---- plan_show.c --------------------------------------------------------------------------- */

/* The plan as a table, in these words. */
int plan_show(struct plan *p, FILE *f, struct err *err);

/* ---- plan_aceso.c, plan_aceso_out.c -------------------------------------------------------- */

/* Aceso's document as a plan's, and the reverse; new references. NULL on failure. */
json_t *plan_from_aceso(const json_t *config, struct err *err);
json_t *plan_to_aceso(const struct plan *p, struct err *err);

#endif
