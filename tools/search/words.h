/* words.h - a plan in the words of those who train with Megatron: dp, tp, pp, cp, ep, ZeRO.
 *
 *     char line[WORDS_LINE];
 *     words_line(plan, line, sizeof line);      // "pp 2, dp 4, tp 2, zero 1, ..."
 */
#ifndef WEFT_WORDS_H
#define WEFT_WORDS_H

#include "plan/plan.h"

#include <stdio.h>

/* ---- words_dims.c --------------------------------------------------------------------------- */

/* Which dims of a model the words of parallelism mean, found in its graph. */
struct plan_dims {
    int n_inner, n_sequence, n_experts;
    int *inner;    /* tp: of parameters, and not of what passes between blocks */
    int *sequence; /* sp, cp: of the data and of what passes between blocks, not batch */
    int *experts;  /* ep: counts products of a weight off */
};
void plan_dims_find(const struct model *m, struct plan_dims *d);
void plan_dims_release(struct plan_dims *d);
bool plan_dims_has(const int *dims, int n, int dim);

/* Does the op multiply its operand with a weight, summing over a dim of both? */
bool plan_is_product(const struct model_op *op);

/* The outermost block instance that an op stands in, or -1. */
int plan_outer_block(const struct model *m, int op);

/* ---- words_show.c -------------------------------------------------------------------------- */

/* The plan as a table, a line for each stage, with the memory that it takes. */
int plan_show(struct plan *p, FILE *f, struct err *err);

/* The highest degree of tensor parallelism of any stage. */
int64_t words_tensor(const struct plan *p, const struct plan_dims *d);

/* The plan in one line; of degrees that differ between stages the least and the most. */
enum { WORDS_LINE = 160 };
const char *words_line(const struct plan *p, char *buf, size_t n);

#endif
