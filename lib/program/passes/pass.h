/* pass.h - inside the compiler: what each pass of passes.h is, a function of the stage under
 * construction. It reads what those before it left there.
 */
#ifndef WEFT_PASS_H
#define WEFT_PASS_H

#include "program/emit/emit.h"
#include "program/passes.h"

#define X(name, when, about) void pass_##name(struct emit *e);
PASSES(X)
#undef X

#endif
