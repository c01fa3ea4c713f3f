/* trial_call.h - a trial (trial.h) as functions of lib/cuda take it (cuda/cuda_impl.h), its operands where they are.
 *
 *     struct cuda_call c = trial_call(&dev, &t, &err);
 *     const struct cuda_given g = trial_given(&t);
 *     int rc = cuda_linear(&c, &g.n.linear, &g.in.linear, &g.out.linear);
 *     free(c.workspace);
 */
#ifndef WEFT_TEST_TRIAL_CALL_H
#define WEFT_TEST_TRIAL_CALL_H

#include "cuda/cuda.h"
#include "cuda/cuda_impl.h"
#include "cuda/cuda_workspace.h"
#include "trial.h"

/* With exactly the workspace that is planned, which the caller frees. The device is borrowed. */
static struct cuda_call trial_call(struct cuda_device *dev, const struct trial *t,
                                   struct err *err) {
    const int64_t bytes = cuda_workspace_instr(t->code, &t->n, t->dtype);
    return (struct cuda_call){.dev = dev,
                              .args = &t->args,
                              .workspace = trial_bytes(bytes),
                              .workspace_bytes = bytes,
                              .err = err};
}

__attribute__((unused)) static struct cuda_given trial_given(const struct trial *t) {
    struct cuda_given g = {.code = t->code, .n = t->n, .args = t->args};
    memcpy(g.in.v, t->in, sizeof g.in.v);
    memcpy(g.out.v, t->out, sizeof g.out.v);
    return g;
}

#endif
