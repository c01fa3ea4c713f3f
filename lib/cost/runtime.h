/* runtime.h - whose code runs a plan (weft-runtime(5)).
 *
 * A program says what weft's kernels do. Other frameworks train the same plan with other ones: their
 * hosts issue every kernel, which bounds small models, some passes are not fused, attention may write
 * its scores, a recomputed block is recomputed whole. A runtime is a small table of that: per
 * instruction how many kernels its host launches, and how often more its result crosses memory.
 *
 *     struct runtime *r = runtime_read("megatron", &err);
 *     if (runtime_check(r, program, &err) < 0) ...        // an instruction that it does not know
 *     struct cost_provider *p = provider_runtime(r, times);     // takes times over
 */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include "cost/provider.h"

struct runtime_op {
    bool known, waits; /* waits: the host does, until it is done */
    double kernels;    /* that its host launches; less than one: several go together */
    double passes;     /* of its first result (of its first operand where that is sums
                       alone) over memory, beside what the instruction itself does */
};

struct runtime {
    char name[CLUSTER_MAX_NAME];
    double host_us;         /* the host's, for one kernel */
    double message_us;      /* it waits for every message between stages */
    double collective_us;   /* of a collective, beside the kernels */
    double step_us;         /* of a step, beside all instructions */
    bool unfused_attention; /* scores are written and read again */
    bool kept_masks;        /* of dropout, a byte an element; weft draws them again */
    bool whole_recompute;   /* of a block all, not only what the backward pass needs */
    int64_t fixed_bytes;    /* of a device: contexts and libraries' buffers */
    struct runtime_op ops[OPCODE_COUNT];
};

/* A shipped one by name, or a file. NULL with a message; exit status 3. free() it. */
struct runtime *runtime_read(const char *ref, struct err *err);
/* -1 with exit status 3 where the program has an instruction that the runtime does not know. */
int runtime_check(const struct runtime *r, const struct program *g, struct err *err);

/* Bytes that a rank of the stage needs beside the program's arena: what the libraries hold; scores of
 * unfused attention and masks of dropout, of all stages of its group, kept for the backward pass or,
 * where they are recomputed, of one op. Less what the arena has room for and an allocator that all chunks of
 * a group share does not need, so it may be negative. (runtime_memory.c) */
int64_t runtime_bytes(const struct runtime *r, const struct program *g, int stage);

/* What another provider says, as this runtime does it. r is borrowed, base taken over. */
struct cost_provider *provider_runtime(const struct runtime *r, struct cost_provider *base);

#endif
