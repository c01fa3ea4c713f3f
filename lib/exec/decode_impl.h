/* decode_impl.h - inside the decoder: the steps that a device of the plan takes. */
#ifndef WEFT_DECODE_IMPL_H
#define WEFT_DECODE_IMPL_H

#include "exec/decode.h"
#include "exec/exec_impl.h"

enum decode_kind {
    DECODE_LAUNCH, /* the device does the instruction */
    DECODE_INPUT,  /* tokens come from the caller */
    DECODE_KEEP    /* what a device would send to the others is copied into the cache */
};

/* x, from src_offset on, goes to y, from `rank * dst_step` on: elements, strides of the three dims. */
struct decode_copy {
    int64_t size[3], src[3], dst[3], src_offset, dst_step;
};

struct decode_step {
    enum decode_kind kind;
    struct instr ins;
    struct decode_copy copy; /* of keep; and the queries of packed attention */
    bool copies;             /* `copy` is meant */
    bool at_rank; /* attention whose queries begin where the device's positions do */
    bool stepped; /* it depends on the tokens; else it is done once */
    bool needed;
};

/* A buffer of the program, or one that was added to it. */
struct decode_buffer {
    int64_t elems;
    enum dtype dtype;
    int param;       /* or -1 */
    int cache;       /* the number of its cache, or -1 */
    int64_t offset;  /* bytes, into the scratch, where it is neither */
    bool stepped;    /* by what writes it */
    int first, last; /* steps that touch it, the last -1: none */
};

/* A program with devices of so many positions each. */
struct decode_list {
    struct plan *plan;
    struct program *g;
    struct exec x; /* as much of it as exec_prepare_instr reads */
    struct exec_chunk chunk;
    int64_t positions, devices;
    int logits; /* the buffer, or -1 where nobody wants them */
    int n_caches;
    int64_t scratch; /* bytes */
    ARR(struct decode_step) steps;
    ARR(struct decode_buffer) buffers;
};

/* The dim of the sequence that is written. Returns -1 with an error where there is none. */
int decode_dim(const struct model *m, struct err *err);
/* Compiles the plan with `positions` of them on each device; where `fills`, for the caches alone.
 * Returns 0 or -1; decode_list_release either way. */
int decode_list_make(struct decode_list *l, struct model *m,
                     const struct decoder_options *o, int dim, int64_t positions,
                     bool fills, struct err *err);
void decode_list_release(struct decode_list *l);

#endif
