/* program.h - the compiled form of a plan: what every rank does.
 *
 * `model + plan -> one program per rank`. All ranks of a stage run the same instructions and
 * differ only in coordinates, so the compiler makes one stage_program per stage: three straight
 * lists of instructions (forward and backward of one micro-batch, update of one step) over
 * planned buffers; the schedule repeats them. The executor runs it, the predictor simulates it,
 * the tracer draws it, the validator replays it.
 *
 *     struct program *g = program_compile(plan, &err);
 *     struct rank_program *r = program_for_rank(g, rank);   // coordinates filled in
 *     for (int64_t i = 0; i < program_actions(g, r->stage); i++)
 *         run(program_action(g, r->stage, i));              // F0 F1 B0 F2 B1 ... U
 */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "plan/plan.h"

/* How the cost of an instruction is keyed in the profile. */
enum key_kind {
    KEY_FREE,  /* costs nothing worth measuring */
    KEY_SHAPE, /* by its exact shape */
    KEY_CURVE, /* by its number of elements, a smooth curve */
    KEY_COMM,  /* a collective: by bytes, group size and link class */
    KEY_P2P,   /* a transfer: by bytes and link class */
};

/* id, text, key, numbers of the shape (names of n[0..]); in and out operands stand in order. */
#define OPCODES(X)                                                                         \
    X(input, KEY_FREE, "elems")                 /* -> ids or pixels, read from the data */ \
    X(linear, KEY_SHAPE, "m n k wt bias")       /* x w b -> y */                           \
    X(linear_dx, KEY_SHAPE, "m n k wt")         /* dy w -> dx */                           \
    X(linear_dw, KEY_SHAPE, "m n k wt bias")    /* x dy -> dw+ db+ */                      \
    X(embedding, KEY_SHAPE, "rows vocab width") /* ids table -> y */                       \
    X(embedding_dw, KEY_SHAPE, "rows vocab width") /* ids dy -> dtable+ */                 \
    X(bias, KEY_CURVE, "elems inner")              /* x p -> y */                          \
    X(bias_dw, KEY_CURVE, "elems inner")           /* dy -> dp+ */                         \
    X(layernorm, KEY_SHAPE, "rows n")              /* x gamma beta -> y stat */            \
    X(layernorm_bwd, KEY_SHAPE, "rows n")     /* x gamma stat dy -> dx dgamma+ dbeta+ */   \
    X(layernorm_moments, KEY_SHAPE, "rows n") /* x -> part */                              \
    X(layernorm_apply, KEY_SHAPE, "rows n parts")     /* x gamma beta parts -> y stat */   \
    X(layernorm_bwd_sums, KEY_SHAPE, "rows n")        /* x gamma stat dy -> sums */        \
    X(layernorm_bwd_apply, KEY_SHAPE, "rows n total") /* x gamma stat dy sums -> dx .. */  \
    X(attention, KEY_SHAPE, "batch heads seq dim causal")     /* qkv -> o lse */           \
    X(attention_bwd, KEY_SHAPE, "batch heads seq dim causal") /* qkv o lse do -> dqkv */   \
    X(gelu, KEY_CURVE, "elems")                               /* x -> y */                 \
    X(gelu_dx, KEY_CURVE, "elems")                            /* x dy -> dx */             \
    X(relu, KEY_CURVE, "elems")                                                            \
    X(relu_dx, KEY_CURVE, "elems")                                                         \
    X(silu, KEY_CURVE, "elems")                                                            \
    X(silu_dx, KEY_CURVE, "elems")                                                         \
    X(add, KEY_CURVE, "elems")            /* a b -> y */                                   \
    X(dropout, KEY_CURVE, "elems")        /* x -> y, also for the gradient */              \
    X(cross_entropy, KEY_SHAPE, "rows n") /* logits targets -> lse, adds to the loss */    \
    X(cross_entropy_part, KEY_SHAPE, "rows n")       /* logits targets -> part */          \
    X(cross_entropy_finish, KEY_SHAPE, "rows parts") /* parts -> lse */                    \
    X(cross_entropy_dx, KEY_SHAPE, "rows n")         /* logits targets lse -> dlogits */   \
    X(copy, KEY_CURVE, "elems inner")                /* x -> y, a strided block */         \
    X(fill, KEY_CURVE, "elems")                      /* -> gradients set to zero */        \
    X(all_gather, KEY_COMM, "elems")     /* x -> y; elems = of the larger side */          \
    X(all_reduce, KEY_COMM, "elems")     /* x, in place */                                 \
    X(reduce_scatter, KEY_COMM, "elems") /* x (spoilt) -> y */                             \
    X(all_to_all, KEY_COMM, "elems")     /* x -> y */                                      \
    X(send, KEY_P2P, "elems")            /* x -> another stage */                          \
    X(recv, KEY_P2P, "elems")            /* another stage -> y */                          \
    X(sum_squares, KEY_CURVE, "elems")   /* g: adds to the gradient norm */                \
    X(norm, KEY_COMM, "elems")           /* all ranks: gradient norm and loss */           \
    X(adamw, KEY_CURVE, "elems")         /* p g m v */                                     \
    X(sgd, KEY_CURVE, "elems")           /* p g b */

enum opcode {
#define X(id, key, shape) I_##id,
    OPCODES(X)
#undef X
        OPCODE_COUNT
};
const char *opcode_name(enum opcode op);
enum key_kind opcode_key(enum opcode op);
const char *opcode_shape(enum opcode op); /* "m n k wt bias" */
int opcode_shape_rank(enum opcode op);
int opcode_find(const char *name); /* -1 if unknown */

enum segment { SEG_FORWARD, SEG_BACKWARD, SEG_UPDATE, SEG_COUNT };

/* Memory classes, in the order in which the arena holds them. */
#define MEMORY_CLASSES(X)                                                                  \
    X(parameters)                                                                          \
    X(gradients)                                                                           \
    X(optimizer)                                                                           \
    X(activations) /* kept from forward to backward, once per micro-batch in flight */     \
    X(temporaries)                                                                         \
    X(buffers) /* staging of transfers between stages */
enum memory_class {
#define X(id) MEM_##id,
    MEMORY_CLASSES(X)
#undef X
        MEM_COUNT
};
const char *memory_class_name(enum memory_class c);

struct buffer {
    int64_t elems; /* 4-byte elements */
    enum memory_class mem;
    int64_t offset;  /* bytes from the arena's beginning (of slot 0, for activations) */
    int first, last; /* instructions that write it first and touch it last */
};

enum { INSTR_MAX_IN = 5, INSTR_MAX_OUT = 3, INSTR_MAX_SHAPE = 5, COPY_MAX_RANK = 3 };

/* A strided block copy of floats; the rank at coordinate c of `axis` starts c*src_step in. */
struct copy {
    int rank;
    int64_t size[COPY_MAX_RANK], src[COPY_MAX_RANK], dst[COPY_MAX_RANK];
    int64_t src_step;
};

struct instr {
    enum opcode code;
    int in[INSTR_MAX_IN], out[INSTR_MAX_OUT]; /* buffers, -1 = none */
    int64_t n[INSTR_MAX_SHAPE];               /* shape, as opcode_shape names it */
    unsigned
        axes;   /* collectives: the group. linear: bias only where all these coordinates are
                      0. sum_squares: counts only there. cross_entropy: axes over which the loss
                      is replicated */
    int op;     /* model op, or -1 */
    int tensor; /* model tensor it is about, or -1 */
    int param;  /* parameter it is about, or -1 */
    struct placement place; /* of that tensor or parameter */
    struct copy copy;       /* of copy */
    int transfer;           /* of send and recv, or -1 */
};

/* A tensor that crosses from stage to stage; both ends are filled by their own stage. */
struct transfer {
    int tensor, param; /* one of them; the other -1 */
    bool gradient;
    int from, to; /* stages */
    struct placement from_place, to_place;
    int64_t max_send, max_recv; /* largest number of elements that a rank sends, receives */
    /* Messages that may be under way at once: a stage that feeds the d-th stage behind it runs
     * up to d micro-batches ahead of it, and would wait for ever with room for fewer. */
    int64_t depth;
    int64_t send_staging,
        recv_staging; /* elements, largest over ranks; sends: for one message */
    int64_t send_offset, recv_offset; /* bytes, of the staging in the arenas */
};

/* One message of a transfer: a box of the whole tensor from one rank to another. */
struct piece {
    int src, dst; /* ranks of the job */
    struct block box;
    int64_t elems;
};

/* A parameter as a stage holds it; a tied parameter may be held by several. */
struct param_instance {
    int param;
    struct placement place;
    int buffer;
    bool home; /* this one is updated; others get copies */
};
struct grad_instance {
    int param;
    int instance; /* of the parameter */
    struct placement place;
    int buffer;
};
struct state_instance { /* optimizer state of a home parameter */
    int param, which;   /* which: 0 first moment or momentum, 1 second moment */
    struct placement place;
    int buffer;
};

struct stage_program {
    int stage;
    const struct mesh *mesh;
    int n_instrs, seg[SEG_COUNT + 1]; /* segment s is instrs[seg[s] .. seg[s+1]-1] */
    struct instr *instrs;
    int n_buffers;
    struct buffer *buffers;
    int n_params, n_grads, n_states;
    struct param_instance *params;
    struct grad_instance *grads;
    struct state_instance *states;
    int64_t slots;            /* micro-batches in flight */
    int64_t slot_bytes;       /* of one of them */
    int64_t bytes[MEM_COUNT]; /* by class, all slots counted */
    int64_t arena_bytes;      /* their sum: what each rank of the stage allocates */
};

struct program {
    const struct plan *plan; /* borrowed */
    struct dim_sizes sizes;  /* of one micro-batch */
    int n_stages;
    struct stage_program *stages;
    int n_transfers;
    struct transfer *transfers;
    int64_t loss_terms; /* targets of a whole step: the loss is their mean */
};

/* Compiles a checked plan. NULL only for what no plan file can say (sizes that overflow). */
struct program *program_compile(const struct plan *plan, struct err *err);
void program_destroy(struct program *g);

/* Compiles one stage alone (for cost and search): transfers stay unlinked, their staging is not
 * counted. Release with stage_program_release. in_flight: micro-batches held at once. */
int stage_compile(const struct plan *plan, int stage, struct stage_program *out,
                  struct err *err);
void stage_program_release(struct stage_program *sp);

/* ---- schedule ------------------------------------------------------------------------ */

struct action {
    enum segment segment;
    int64_t micro_batch; /* -1 for the update */
};
int64_t schedule_actions(int64_t micro_batches); /* 2M + 1 */
struct action schedule_action(enum schedule schedule, int stage, int n_stages,
                              int64_t micro_batches, int64_t i);
int64_t schedule_in_flight(enum schedule schedule, int stage, int n_stages,
                           int64_t micro_batches);

/* ---- transfers ------------------------------------------------------------------------ */

/* All messages of a transfer that rank sends (as_source) or receives, in the order both ends
 * agree on; rank is a rank of the job. Appends to *pieces (free it) and returns the number. */
int transfer_pieces(const struct program *g, const struct transfer *t, int rank,
                    bool as_source, struct piece **pieces);
/* Is the piece one run of memory in the receiver's block (then it needs no staging there)? */
bool piece_is_contiguous(const struct program *g, const struct transfer *t,
                         const struct piece *p);
/* The shape of what is transferred. */
const struct shape *transfer_shape(const struct program *g, const struct transfer *t);

/* ---- one rank -------------------------------------------------------------------------- */

struct rank_program {
    const struct program *g;
    const struct stage_program *sp;
    int rank, stage;
    int coord[MESH_MAX_AXES];
};
struct rank_program program_for_rank(const struct program *g, int rank);
int program_stage_of_rank(const struct program *g, int rank);
/* Bytes from the arena's beginning of a buffer while micro-batch mb is worked on. */
int64_t buffer_offset(const struct stage_program *sp, int buffer, int64_t micro_batch);
/* True when this rank has coordinate 0 on all of these axes. */
bool rank_is_first(const struct rank_program *r, unsigned axes);

/* ---- reading and checking ----------------------------------------------------------------- */

/* The key of an instruction without its opcode: "2048,1536,384,0,1". Returns buf. */
char *instr_shape(const struct instr *i, char *buf, size_t n);

/* One instruction a line (weft-run --explain). */
void program_print(const struct program *g, int stage, FILE *f);
void instr_print(const struct program *g, const struct stage_program *sp,
                 const struct instr *i, FILE *f);

/* Replays all ranks: deadlocks, reads before writes, overlapping live buffers, messages without
 * a partner. Returns 0, or -1 with the first fault. */
int program_validate(const struct program *g, struct err *err);

#endif
