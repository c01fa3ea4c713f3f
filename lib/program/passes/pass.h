/* pass.h - inside the compiler: each pass of passes.h as a function of the stage under
 * construction, which reads what those before it left there.
 */
#ifndef WEFT_PASS_H
#define WEFT_PASS_H

#include "program/emit/emit.h"
#include "program/passes.h"

#define X(name, when, about) void pass_##name(struct emit *e);
PASSES(X)
#undef X

#endif
