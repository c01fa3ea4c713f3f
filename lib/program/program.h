/* program.h - the compiled form of a plan: what every rank does.
 *
 * `model + plan -> one program per rank`. All ranks of a stage run the same instructions and
 * differ only in coordinates, so the compiler makes one stage_program per stage: three straight
 * lists of instructions (forward and backward of one micro-batch, update of one step) over
 * planned buffers; the schedule repeats them. The executor runs it, the predictor simulates it,
 * the tracer draws it, the validator replays it.
 *
 *     struct program *g = program_compile(plan, &err);
 *     struct rank_program r = program_for_rank(g, rank);    // coordinates filled in
 *     int64_t m = plan->batch / plan->micro_batch;
 *     for (int64_t i = 0; i < schedule_actions(m); i++)     // F0 F1 B0 F2 B1 ... U
 *         run(&r, schedule_action(plan->schedule, r.stage, g->n_stages, m, i));
 */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "common/dtype.h"
#include "plan/plan.h"
#include "program/instr.h"

/* What the schedule calls. The last backward of a step is one of its own where gradients are
 * reduced while it computes; else it is the backward. */
#define SEGMENTS(X)                                                                        \
    X(FORWARD, "forward", 'F')                                                             \
    X(BACKWARD, "backward", 'B')                                                           \
    X(LAST_BACKWARD, "last backward", 'L')                                                 \
    X(UPDATE, "update", 'U')
enum segment {
#define X(id, name, letter) SEG_##id,
    SEGMENTS(X)
#undef X
        SEG_COUNT
};
const char *segment_name(enum segment s);
char segment_letter(enum segment s);

/* Memory classes, in the order in which the arena holds them. */
#define MEMORY_CLASSES(X)                                                                  \
    X(parameters)                                                                          \
    X(gradients)                                                                           \
    X(optimizer)                                                                           \
    X(activations) /* kept from forward to backward, once per micro-batch in flight */     \
    X(temporaries)                                                                         \
    X(buffers) /* staging of transfers between stages; the scalars */
enum memory_class {
#define X(id) MEM_##id,
    MEMORY_CLASSES(X)
#undef X
        MEM_COUNT
};
const char *memory_class_name(enum memory_class c);

struct buffer {
    int64_t elems;
    enum dtype dtype;
    enum memory_class mem;
    int64_t offset;  /* bytes from the arena's beginning (of slot 0, for activations) */
    int first, last; /* instructions that write it first and touch it last */
};

/* What of the arena that many bytes take: every buffer begins at a multiple of 64 bytes, a cache
 * line and what vector instructions like. */
int64_t memory_aligned(int64_t bytes);
int64_t buffer_bytes(const struct buffer *b); /* what it takes */

/* A tensor that crosses from stage to stage; both ends are filled by their own stage. */
struct transfer {
    int tensor, param; /* one of them; the other -1 */
    bool gradient;
    int from, to;        /* stages */
    int reader, operand; /* of a tensor: its first reader in the stage that needs it */
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
    struct box box;
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
    int n_instrs, seg[SEG_COUNT + 1]; /* by program_segment */
    int n_works;                      /* collectives under way that have a number */
    struct instr *instrs;
    int n_buffers;
    struct buffer *buffers;
    int n_params, n_grads, n_states;
    struct param_instance *params;
    struct grad_instance *grads;
    struct state_instance *states;
    int64_t scalars; /* bytes from the arena's beginning of its struct scalars */
    int64_t
        per_target; /* the same of a double for each loss of the model: 1 / the targets of
                                 the whole step that count, or 0 where none does */
    int64_t slots;  /* micro-batches in flight */
    int64_t slot_bytes;       /* of one of them */
    int64_t bytes[MEM_COUNT]; /* by class, all slots counted */
    int64_t arena_bytes;      /* their sum: what each rank of the stage allocates */
};

struct program {
    const struct plan *plan; /* borrowed */
    int n_stages;
    struct stage_program *stages;
    int n_transfers;
    struct transfer *transfers;
};

/* Compiles a checked plan. NULL only for what no plan file can say (sizes that overflow). */
struct program *program_compile(const struct plan *plan, struct err *err);
void program_destroy(struct program *g);

/* What a step is asked for beside its loss: a mean over all ops of a kind, and over all that each
 * of them counts. */
#define METRICS(X)                                                                         \
    X(balance, OP_balance)   /* experts x sum of load x probability: 1 = all alike */      \
    X(router_z, OP_router_z) /* square of a router's log-sum-exp */                        \
    X(dropped, OP_dispatch)  /* choices of experts that found no slot */
enum metric {
#define X(id, kind) METRIC_##id,
    METRICS(X)
#undef X
        METRIC_COUNT
};
const char *metric_name(enum metric i);
/* Ops of its kind: the model has it if there are any. */
int metric_ops(const struct model *m, enum metric i);

/* What changes from step to step or from micro-batch to micro-batch, in a block of the arena: so
 * that instructions are the same each time that they run, and can be recorded and replayed. */
struct scalars {
    double loss_sum,
        norm_squared; /* of this rank: losses (means) and sum_squares add to them */
    double metrics[METRIC_COUNT]; /* of this rank, added to likewise */
    float lr, grad_scale;
    int64_t step;         /* of the training, from 0 */
    int64_t updates;      /* of the parameters, with this step's */
    int64_t first_sample; /* of the micro-batch, counted in the step's batch */
    uint64_t seed;
    int64_t evaluating; /* 1: no dropout */
};

/* The instructions of a segment. */
struct span {
    int first, end;
};
struct span program_segment(const struct stage_program *sp, enum segment s);

/* Compiles one stage alone (for cost and search): transfers stay unlinked, their staging is not
 * counted. Release with stage_program_release. in_flight: micro-batches held at once. */
int stage_compile(const struct plan *plan, int stage, struct stage_program *out,
                  struct err *err);
void stage_program_release(struct stage_program *sp);

/* ---- schedule ------------------------------------------------------------------------ */

struct action {
    enum segment segment;
    int64_t index; /* of the micro-batch, which has samples of its own; -1 for the update */
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
/* Is the piece one run of memory in the receiver's box (then it needs no staging there)? */
bool piece_is_contiguous(const struct program *g, const struct transfer *t,
                         const struct piece *p);
/* The shape of what is transferred, and its sizes in one micro-batch. */
const struct shape *transfer_shape(const struct program *g, const struct transfer *t);
struct extents transfer_extents(const struct program *g, const struct transfer *t);

/* ---- one rank -------------------------------------------------------------------------- */

struct rank_program {
    const struct program *g;
    const struct stage_program *sp;
    int rank, stage;
    int coord[MESH_MAX_AXES];
};
struct rank_program program_for_rank(const struct program *g, int rank);
int program_stage_of_rank(const struct program *g, int rank);
/* Targets of a whole step that this loss is the mean of, if all of them count. */
int64_t program_loss_terms(const struct program *g, int op);
/* Bytes from the arena's beginning of a buffer while this micro-batch is worked on. */
int64_t buffer_offset(const struct stage_program *sp, int buffer, int64_t index);
/* True when this rank has coordinate 0 on all of these axes. */
bool rank_is_first(const struct rank_program *r, unsigned axes);

/* ---- reading and checking ----------------------------------------------------------------- */

/* One instruction a line, behind what the stage takes of memory (weft-run --explain). threads: that
 * a rank computes with; its workspace grows with them. */
void program_print(const struct program *g, int stage, int threads, FILE *f);

/* Replays all ranks: deadlocks, reads before writes, overlapping live buffers, messages without
 * a partner. Returns 0, or -1 with the first fault. */
int program_validate(const struct program *g, struct err *err);

#endif
