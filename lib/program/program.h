/* program.h - the compiled form of a plan: what every rank does.
 *
 * `model + plan -> one program per rank`. All ranks of a stage run the same instructions and
 * differ only in coordinates, so the compiler makes one stage_program per stage: straight lists
 * of instructions, its segments, over planned buffers. The schedule of a device group says which
 * segment of which of its stages comes next, for which micro-batch. The executor runs it, the
 * predictor simulates it, the tracer draws it, the validator replays it.
 *
 *     struct program *g = program_compile(plan, &err);
 *     int group = program_group_of_rank(g, rank);
 *     struct group_schedule s = schedule_of_group(plan, group, plan_micro_batches(plan));
 *     for (int64_t i = 0; i < schedule_actions(&s); i++) {  // F0 F1 B0 F2 B1 ... R N U
 *         struct action a = schedule_action(&s, i);
 *         run(program_for_rank(g, a.stage, rank), a);       // coordinates filled in
 *     }
 */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include "common/dtype.h"
#include "plan/plan.h"
#include "program/instr.h"

/* What the schedule calls. Where it runs the gradients of weights later than those of
 * inputs, the backward segment has only what others wait for (pass_split.c). The last
 * backward segments of a step are of their own where gradients are reduced while they
 * compute; elsewhere the ordinary ones run in their place. */
#define SEGMENTS(X)                                                                        \
    X(FORWARD, "forward", 'F')                                                             \
    X(BACKWARD, "backward", 'B')                                                           \
    X(LAST_BACKWARD, "last backward", 'L')                                                 \
    X(WEIGHTS, "weight gradients", 'W')                                                    \
    X(LAST_WEIGHTS, "last weight gradients", 'V')                                          \
    X(REDUCE, "reduce", 'R') /* gradients summed over the ranks, and their squares */      \
    X(NORM, "norm", 'N')     /* once for all stages of a group */                          \
    X(UPDATE, "update", 'U')                                                               \
    X(PAIR, "pair", 'P')       /* replicas that train apart take the mean of each pair, */ \
    X(AVERAGE, "average", 'A') /* or of all; only in some steps */
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
    X(activations) /* kept from segment to segment, once per micro-batch in flight */      \
    X(temporaries)                                                                         \
    X(buffers) /* staging of transfers between stages; the scalars */
enum memory_class {
#define X(id) MEM_##id,
    MEMORY_CLASSES(X)
#undef X
        MEM_COUNT
};
const char *memory_class_name(enum memory_class c);

/* Pools of activations, by the segments between which they are kept. Each has as many slots
 * as the schedule has micro-batches between the two at most. */
enum slot_pool {
    POOL_FORWARD_BACKWARD,
    POOL_FORWARD_WEIGHTS,
    POOL_BACKWARD_WEIGHTS,
    POOL_COUNT
};
struct pool_slots {
    int64_t n, bytes;   /* micro-batches held at once; bytes of one */
    int64_t host_bytes; /* bytes of one on the host */
};

/* Where offsets of buffers on the host begin: no arena is that large. */
#define HOST_ARENA ((int64_t)1 << 60)

struct buffer {
    int64_t elems;
    enum dtype dtype : 8;
    enum memory_class mem : 8;
    /* of activations: their pool; of temporaries: 1 from the reduce segment on */
    unsigned part : 8;
    bool host; /* in the memory of the device's host */
    /* 1 + the buffer that it is a part of, from element `first` on (pass_logits.c); 0: of none */
    int part_of;
    int64_t first;
    /* in bytes from the arena's beginning (in slot 0, for activations); on hosts from
     * HOST_ARENA on */
    int64_t offset;
};

/* The buffer that has the bytes of this one: the one that it is a part of, or itself. */
static inline int buffer_whole(const struct buffer *buffers, int buffer) {
    return buffer >= 0 && buffers[buffer].part_of ? buffers[buffer].part_of - 1 : buffer;
}

/* How much of the arena that many bytes take: buffers begin at multiples of 64 bytes. */
int64_t memory_aligned(int64_t bytes);
int64_t buffer_bytes(const struct buffer *b); /* what it takes */

/* A tensor that crosses from stage to stage; both ends are filled by their own stage. */
struct transfer {
    int tensor, param; /* one of them; the other -1 */
    bool gradient;
    enum dtype dtype;
    int from, to;        /* stages */
    int reader, operand; /* of a tensor: its first reader in the stage that needs it */
    struct placement from_place, to_place;
    int64_t max_send, max_recv; /* largest number of elements that a rank sends, receives */
    int64_t max_own; /* and takes from its own staging, where it has both stages */
    /* Messages that may be under way at once. A stage that feeds the d-th stage behind it
     * runs some micro-batches ahead of it, and would wait for ever with fewer. Between
     * chunks there are as many as the schedule makes first and takes later. */
    int64_t depth;
    /* elements, largest over ranks; send_staging is for one message */
    int64_t send_staging, recv_staging;
    int64_t send_offset, recv_offset; /* bytes, of the staging in the arenas */
};

/* One message of a transfer: a box of the whole tensor from one rank to another. If both
 * are the same rank, it is copied. */
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
    unsigned
        data; /* of the axes that it is a sum over: those along which samples are split */
    int buffer;
    bool
        cleared; /* at the end of the update; else the first micro-batch writes it (pass_fresh.c) */
};
/* Where ops read 16 bits, the optimizer updates f32 copies of parameters, their masters. */
enum { STATE_FIRST, STATE_SECOND, STATE_MASTER };
struct state_instance { /* optimizer state of a home parameter */
    int param, which;   /* first moment or momentum, second moment, master */
    struct placement place;
    int buffer;
};

struct stage_program {
    int stage;
    const struct mesh *mesh;
    int n_instrs, seg[SEG_COUNT + 1]; /* see program_segment */
    int n_works; /* collectives and copies that are only started, each with a number */
    struct instr *instrs;
    int n_buffers;
    struct buffer *buffers;
    int n_params, n_grads, n_states;
    struct param_instance *params;
    struct grad_instance *grads;
    struct state_instance *states;
    int64_t scalars; /* where in the arena its struct scalars is, in bytes */
    /* Likewise a double for each loss of the model: 1 / the targets of the whole step that
     * count, or 0 where none does. */
    int64_t per_target;
    /* Behind them 64-bit integers for each group of axes along which replicas are not
     * trusted: how many numbers each member is suspected of in this step, and out of how
     * many (pass_aggregate.c). */
    int64_t suspects, n_suspects;
    struct pool_slots slots[POOL_COUNT];
    int64_t in_flight;        /* micro-batches held at once: the most of the pools */
    int64_t own[MEM_COUNT];   /* bytes that this stage needs by class, all slots counted */
    int64_t temporaries[2];   /* of own, by buffer.part */
    int64_t bytes[MEM_COUNT]; /* by class, with the other stages of its group */
    int64_t arena_bytes;      /* their sum: what each rank of the stage allocates */
    /* Bytes in the memory of the device's host, beside the arena: of this stage, and with
     * the other stages of its group. */
    int64_t own_host, host_bytes;
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
void stage_program_release(struct stage_program *sp); /* what one stage of it has */

/* The instructions of a segment. */
struct span {
    int first, end;
};
struct span program_segment(const struct stage_program *sp, enum segment s);

/* Memory in which stages are compiled one after the other: searches compile windows of a
 * few ops by the tens of thousands. Zero-initialized is empty. */
struct compile_scratch {
    struct compiler *compiler;
};
void compile_scratch_release(struct compile_scratch *scratch);

/* Compiles one stage of a checked plan alone (for cost and search), as if one micro-batch
 * were held at once. Its backward pass is one segment or, if `apart` is set, has the
 * gradients of weights in one of their own. Transfers stay unlinked, and their staging is
 * not counted. What `out` points to is in the scratch until the next stage is compiled. */
void stage_compile(struct compile_scratch *scratch, const struct plan *plan, int stage,
                   bool apart, struct stage_program *out);

/* ---- schedule ------------------------------------------------------------------------ */

struct action {
    enum segment segment;
    int stage;
    /* of the micro-batch; -1 at a step's end */
    int64_t index;
};

/* The order of a group's actions, as a few numbers from which the i-th action follows, so
 * that millions of micro-batches cost no memory.
 *
 * Forwards go through the chunks in rounds: a round's micro-batches go through the first
 * chunk, then through the next. Backwards go through rounds of the same sizes, from the
 * last chunk to the first; weight gradients follow in their order. `ahead` forwards run
 * first, then backward, weight gradient and forward take turns as long as there are any. */
struct group_schedule {
    const int *chunks; /* borrowed: its stages, ascending */
    int n_chunks;
    int64_t micro_batches;
    /* micro-batches in a round; how many of the first rounds have one more */
    int64_t round, larger;
    int64_t ahead; /* forwards before the first backward, all chunks counted */
    int64_t delay; /* backwards before a weight gradient's turn; -1: backward makes both */
    /* what follows a chunk's update in some steps: SEG_PAIR, SEG_AVERAGE; SEG_COUNT:
     * none */
    enum segment together;
};
/* The schedule of a group in a pipeline of n_stages on n_groups. */
struct group_schedule schedule_make(enum schedule schedule, int n_stages, int n_groups,
                                    const int *chunks, int n_chunks, int64_t micro_batches);
struct group_schedule schedule_of_group(const struct plan *p, int group,
                                        int64_t micro_batches);
int64_t schedule_actions(const struct group_schedule *s);
struct action schedule_action(const struct group_schedule *s, int64_t i);

/* Messages that may be under way between two stages of a chain, `apart` stages apart, each
 * on a group of its own. With fewer, groups would wait for each other for ever. */
int64_t schedule_depth(enum schedule schedule, int64_t apart, int64_t micro_batches);

/* The share of the steps that run a segment which no micro-batch goes through: those that
 * bring replicas together run only in some. */
double schedule_share(const struct plan *p, enum segment segment);

/* A number of micro-batches, at most the plan's, that go through all that many go through,
 * so that long schedules can be looked at in part. */
int64_t schedule_enough(const struct plan *p);
/* The most micro-batches that a stage holds at once, by pool: from the beginning of the
 * pool's first segment to the end of its second. */
void schedule_slots(const struct plan *p, int stage, int64_t slots[POOL_COUNT]);
/* The same without a plan. Stage k of n_stages is on group k % n_groups, and n_groups
 * divides the micro-batches where groups have several stages. */
void schedule_pools(enum schedule schedule, int stage, int n_stages, int n_groups,
                    int64_t micro_batches, int64_t slots[POOL_COUNT]);

/* ---- transfers ------------------------------------------------------------------------ */

/* Finds all messages of a transfer that the rank (of the job) sends (as_source) or
 * receives, in the order that both ends agree on. Sets *pieces (free it); returns their
 * number. */
int transfer_pieces(const struct program *g, const struct transfer *t, int rank,
                    bool as_source, struct piece **pieces);
/* Whether the piece is one run of memory in the receiver's box, and needs no staging
 * there. */
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
/* The stage is one of the rank's group. */
struct rank_program program_for_rank(const struct program *g, int stage, int rank);
int program_group_of_rank(const struct program *g, int rank);
/* How many targets of a whole step this loss is the mean of, if all of them count. */
int64_t program_loss_terms(const struct program *g, int op);
/* Where in the arena a buffer is while this micro-batch is worked on, in bytes. */
int64_t buffer_offset(const struct stage_program *sp, int buffer, int64_t index);
/* True when this rank has coordinate 0 on all of these axes. */
bool rank_is_first(const struct rank_program *r, unsigned axes);

/* ---- checking ----------------------------------------------------------------- */

/* Replays all ranks: deadlocks, reads before writes, overlapping live buffers, messages without
 * a partner. Returns 0, or -1 with the first fault. */
int program_validate(const struct program *g, struct err *err);

#endif
