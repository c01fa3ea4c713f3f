/* runtime.h - the framework whose code runs a plan (weft-runtime(5)).
 *
 * A program says what weft's kernels do. Other frameworks train the same plan with other
 * kernels: their hosts issue every one, which bounds small models, some passes are not
 * fused, attention may write its scores, and a recomputed block is recomputed whole. A
 * runtime is a small table of that: for each instruction how many kernels the host
 * launches, and how many more times its result crosses memory.
 *
 *     struct runtime *r = runtime_read("megatron", &err);
 *     if (runtime_check(r, program, &err) < 0) ...        // an instruction that it does not know
 *     struct cost_provider *p = provider_runtime(r, times);     // takes times over
 */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include "cost/provider.h"

struct runtime_op {
    bool known, waits; /* waits: the host waits until it is done */
    double kernels; /* that the host launches; below one, several instructions share one */
    /* further passes over memory of its first result, or operand where that is only sums */
    double passes;
};

struct runtime {
    char name[CLUSTER_MAX_NAME];
    double host_us;    /* of the host, for one kernel */
    double message_us; /* added to every message between stages, which the host waits for */
    double collective_us;   /* added to every collective, beside its kernels */
    double step_us;         /* added to a step, beside its instructions */
    bool unfused_attention; /* scores are written and read again */
    /* masks of dropout are kept, a byte an element; weft draws them again */
    bool kept_masks;
    /* all of a block is recomputed, not only what the backward pass needs */
    bool whole_recompute;
    int64_t fixed_bytes; /* on a device: contexts and libraries' buffers */
    struct runtime_op ops[OPCODE_COUNT];
};

/* A shipped one by name, or a file. NULL with a message; exit status 3. free() it. */
struct runtime *runtime_read(const char *ref, struct err *err);
/* -1 with exit status 3 where the program has an instruction that the runtime does not know. */
int runtime_check(const struct runtime *r, const struct program *g, struct err *err);

/* Bytes that a rank of the stage needs beside the program's arena: what libraries hold, and
 * scores of unfused attention and masks of dropout, kept for the backward pass in all
 * stages of its group or, for recomputed ops, held by one at a time. What the arena has
 * room for, but an allocator that all chunks of a group share does not need, is subtracted,
 * so it may be negative. (runtime_memory.c) */
int64_t runtime_bytes(const struct runtime *r, const struct program *g, int stage);

/* Times of another provider as this runtime takes them. r is borrowed, base taken over. */
struct cost_provider *provider_runtime(const struct runtime *r, struct cost_provider *base);

#endif
