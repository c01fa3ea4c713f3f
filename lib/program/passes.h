/* passes.h - the compiler's table of contents: what every stage goes through, in this order.
 *
 * The first passes emit instructions, the others rewrite them or place what they touch.
 * Each is a file of its own, passes/pass_NAME.c, which says how; a pass whose condition a
 * stage does not meet leaves the program as it is. The program can be printed between any
 * two of them:
 *
 *     int pass = pass_find("split");       // weft-run --explain=split
 *     struct program *g = program_compile_until(plan, (enum pass)pass, &err);
 */
#ifndef WEFT_PASSES_H
#define WEFT_PASSES_H

#include "program/program.h"

/* Name; condition on `e` (emit/emit.h), the stage under construction; what it does. */
#define PASSES(X)                                                                          \
    X(forward, true, "ops in order, the conversions between them, what later stages get")  \
    X(logits, e->plan->logits > 1,                                                         \
      "heads, losses and their gradients together, in pieces of their rows")               \
    X(backward, true, "their gradients in reverse order, and what is recomputed for them") \
    X(split, e->slots[POOL_BACKWARD_WEIGHTS],                                              \
      "gradients of weights in a segment of their own, if the schedule runs them later")   \
    X(prefetch, e->plan->overlap,                                                          \
      "gathers of parameters start a block ahead, reductions of gradients end a block "    \
      "later (ZeRO)")                                                                      \
    X(update, true,                                                                        \
      "at the step's end gradients are reduced, their norm is taken, the optimizer runs")  \
    X(offload, e->offloads, "what lives on the host is copied there and back")             \
    X(fresh, true, "the first micro-batch writes gradients where the others add to them")  \
    X(persistent, true, "memory of parameters, gradients and the optimizer's state")       \
    X(bucket, true, "reductions of gradients that lie side by side become one")            \
    X(aggregate, e->plan->aggregate != AGGREGATE_mean,                                     \
      "sums over replicas that are not trusted become exchanges and a rule")               \
    X(round, e->plan->reduce != DTYPE_f32,                                                 \
      "gradients that are summed in 16 bits are rounded before and widened behind")        \
    X(clear, true,                                                                         \
      "gradients that nothing writes first are set to zero at the step's end")             \
    X(average, e->plan->average != AVERAGE_none,                                           \
      "replicas that train apart take the mean of what they have")                         \
    X(reuse, true, "results take the place of operands that nobody reads any more")        \
    X(memory, true, "memory of activations, temporaries and what lives on the host")       \
    X(overlap, e->plan->overlap,                                                           \
      "reductions of gradients start while the last backward pass computes")

enum pass {
#define X(name, when, about) PASS_##name,
    PASSES(X)
#undef X
        PASS_COUNT
};
const char *pass_name(enum pass pass);
const char *pass_about(enum pass pass);
int pass_find(const char *name); /* -1 if unknown */

/* Like program_compile, but only with the passes up to `last`: to be printed, not to be
 * run. Before `memory` not all buffers have their place in the arena. */
struct program *program_compile_until(const struct plan *plan, enum pass last,
                                      struct err *err);

#endif
