/* expr.h - integer arithmetic over named sizes: "4*hidden", "hidden/heads", "ceil(width, 2)".
 *
 * "/" must divide exactly; floor(a, b) and ceil(a, b) divide and round, min and max take two or
 * more. Overflow, unknown names and cycles are errors. A size may itself be an expression over
 * other sizes.
 */
#ifndef WEFT_EXPR_H
#define WEFT_EXPR_H

#include "common/err.h"

#include <stdint.h>

/* Looks a name up; sets *out and returns 0, or -1 with err set. */
typedef int expr_lookup(void *ctx, const char *name, int64_t *out, struct err *err);

/* Evaluates text. Returns 0 or -1. */
int expr_eval(const char *text, expr_lookup *lookup, void *ctx, int64_t *out,
              struct err *err);

#endif
