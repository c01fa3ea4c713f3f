/* exec_impl.h - inside the executor: what a rank has ready, and its files' names for each other. */
#ifndef WEFT_EXEC_IMPL_H
#define WEFT_EXEC_IMPL_H

#include "exec/exec.h"

#include <stdatomic.h>

/* What computes, and what is under way between ranks meanwhile. */
enum exec_stream {
    STREAM_compute,
    STREAM_collectives,
    STREAM_sends,
    STREAM_receives,
    STREAM_host, /* copies from and to the memory of the host */
    EXEC_STREAMS
};

/* A collective or message; where those happen on streams, `done` marks its end. */
struct exec_work {
    struct comm_work work;
    struct device_event *done;
};

/* A message of a transfer. */
struct exec_piece {
    int peer;
    int copy_rank; /* the box as a strided copy between the block and dense memory */
    int64_t size[TENSOR_MAX_RANK], block_stride[TENSOR_MAX_RANK],
        dense_stride[TENSOR_MAX_RANK];
    int64_t block_offset; /* bytes, of the box in the block */
    int64_t staging;      /* bytes into the staging, or -1: straight into the block */
    int64_t elems;
};

/* One end of a transfer, for all the instructions that send or receive it: they share its staging. */
struct exec_transfer {
    int n_pieces;
    struct exec_piece *pieces;
    struct exec_work *works; /* one per piece, for each message that may be under way */
    int64_t depth, uses;     /* messages under way at most, of the sender; so far */
};

/* A loss of the model. */
struct exec_loss {
    int targets;    /* tensor; -1 where they need no counting: all of them count */
    int32_t ignore; /* targets of this value do not count */
    int64_t terms;  /* targets of a whole step */
};

/* What is worked out once per instruction. */
struct exec_instr {
    struct device_args args;
    struct comm_group *group;
    struct box box;            /* of input */
    struct halo_piece *pieces; /* of halo_*: one per member of the group */
    /* Where the device can record: so many instructions from here on are replayed as one. */
    int region;
    /* [chunk->rhythm + 1] by exec_region */
    struct device_region **captured;
    struct exec_watched **watched; /* the same with marks (exec_watch.c); NULL: none */
    /* An instruction of the region is fresh, so the first micro-batch has a region of its own. */
    bool fresh;
};

/* One of the stages of this rank's group. */
struct exec_chunk {
    struct rank_program rp;
    const struct stage_program *sp;
    int64_t rhythm; /* micro-batches so far apart have the same slots in all pools */
    struct exec_instr *ready; /* [sp->n_instrs] */
    struct exec_work *works;  /* [sp->n_works + 1], the last for those waited for at once */
    struct exec_work *going;  /* [sp->n_works + 1]: of a shift, what goes; else none */
    struct exec_work *exchanged; /* [2 * devices of the stage]: messages of an exchange */
    struct comm_group *groups[1 << MESH_MAX_AXES]; /* by set of axes */
};

struct exec {
    const struct program *g; /* borrowed, as are comm and data */
    int rank;
    struct group_schedule schedule;
    int n_chunks;
    struct exec_chunk *chunks; /* one for each stage of the group */
    struct comm *comm;
    const struct data *data;
    struct exec_options opt;
    struct device *device;
    struct device_stream *streams[EXEC_STREAMS];
    struct device_event *computed; /* what the compute stream has come to */
    bool on_streams;               /* works go to streams; else the host waits for them */
    bool captures;                 /* captured regions are replayed */
    bool captured_all;             /* and all of them are recorded */
    struct exec_watch *watch;      /* NULL: times are not asked for, or the host has them */
    char *arena, *own_arena; /* on the device; the second where it was allocated there */
    char *host;              /* parameters go to the device, this much at a time */
    int64_t host_bytes;
    char *rounded; /* room for as many numbers of 16 bits as the host has of f32 */
    /* in the memory of the device's host; NULL where the plan needs none */
    char *host_arena;
    int64_t high_water, host_high_water; /* bytes of the arenas really touched so far */
    struct exec_transfer *sends, *recvs; /* [g->n_transfers] */
    struct comm_group *everyone;         /* for messages */
    struct scalars now;                  /* as the device has them, but for its sums */
    struct scalars *scalars;             /* in the arena */
    double *per_target;                  /* in the arena, behind them: of each loss */
    int n_losses;
    struct exec_loss *losses; /* [n_losses] */
    double *counts;           /* [n_losses + 1] targets that count in what is done now, and
                                       behind them the samples that are missing */
    double *inverse;          /* [n_losses] 1 / that, or 0 */
    int64_t step;             /* training steps done */
    int64_t missing;          /* samples that could not be read, of all steps */
    int64_t skipped;          /* of them those that were not finite */
    double loss_scale;        /* of fp16; 0 = of a plan without */
    int64_t good_steps;       /* with finite gradients, since it changed */
    int64_t sample;           /* data position: first sample of the next step */
    /* Of gradients that are not trusted (exec_suspects.c); else NULL: */
    double *suspicion;              /* [plan->devices] of each rank of the job, 0 to 1 */
    int64_t *suspected;             /* of one stage in this step, as its program says */
    int *members;                   /* of a group, ranks of the stage */
    bool tells_loss;                /* this rank has a part in the loss */
    double *sums;                   /* what the norm sums over all ranks */
    struct exec_prefetch *prefetch; /* what is read of it before it is wanted; or NULL */
    bool skipping;                  /* the step is not finite: nothing is updated */
    bool apart; /* replicas may differ: some step behind their last mean updated them */
    double seconds[OPCODE_COUNT]; /* time spent, by opcode; in watched steps alone */
};

/* exec_prepare.c: streams, groups, and what is worked out per instruction. */
int exec_prepare(struct exec *x, struct err *err);
void exec_release(struct exec *x);
/* What this rank holds of a tensor under a placement. */
struct box exec_box(const struct exec_chunk *c, const struct shape *s, struct placement p);
/* The chunk that is this stage; NULL if it is not of this rank's group. */
struct exec_chunk *exec_chunk_of(const struct exec *x, int stage);

/* exec_args.c: what the kernel of an instruction needs to know beyond shapes. */
void exec_prepare_instr(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                        struct exec_instr *r);

/* exec_init.c: a box inside the whole tensor, by whose indices random numbers are drawn. */
struct kernel_box exec_whole_box(const struct exec *x, const struct shape *s,
                                 const struct box *b);

/* exec_state.c: the box of a tensor that this rank holds, as checkpoints have it. */
struct checkpoint_box exec_stored_box(const struct exec_chunk *c, int param,
                                      struct placement place);

/* exec.c: so many bytes are to be moved; where to count those that are, or NULL if nobody wants to know. */
atomic_llong *exec_progress(const struct exec *x, int64_t bytes);

/* exec_count.c: targets that count. */
void exec_prepare_losses(struct exec *x);
/* Counts over so many batches, with all other ranks, before the first of them is worked on; tells the
 * device. */
int exec_count(struct exec *x, int64_t batches, struct err *err);

/* exec_suspects.c: which replicas are not to be trusted; nothing where the plan trusts all. */
void exec_suspects_prepare(struct exec *x);
void exec_suspects_release(struct exec *x);
int exec_suspects_begin(struct exec *x, struct err *err); /* of a step */
bool exec_suspects_are_told(const struct exec *x);
/* At its end: so many numbers are summed over all ranks, which this rank tells with its part of the
 * loss; what the sums say. Returns what makes of the sum of those losses that are finite that of all. */
int64_t exec_suspects_numbers(const struct exec *x);
int exec_suspects_tell(struct exec *x, double loss, double *out, struct err *err);
double exec_suspects_learn(struct exec *x, const double *sums);

/* exec_average.c: replicas that train apart. */
/* Is this action one of the step at hand? One that brings replicas together may not be. */
bool exec_is_taken(const struct exec *x, struct action a);
/* The step's actions are done. */
void exec_note_apart(struct exec *x);
/* Whom member `me` of a group of n meets in this step: a random perfect matching, the same wherever it is asked
 * for; itself, where n is odd and nobody is left. */
int exec_partner(uint64_t seed, int64_t step, int n, int me);

/* exec_read.c: may be called while a step runs. */
/* The type in which an input is read, no wider than it must be. */
enum dtype exec_form(const struct exec *x, enum data_split split, const struct instr *ins);
/* The box of an input in this form, of the samples from the first of its micro-batch on. */
int exec_read_box(const struct exec *x, enum data_split split, int64_t sample,
                  const struct instr *ins, const struct box *b, void *out, struct err *err);
/* Counts targets of n samples for each loss, in this rank's share of the samples. Once *stop is set, what
 * it counts is worth nothing. */
int exec_read_counts(const struct exec *x, enum data_split split, int64_t sample, int64_t n,
                     const atomic_bool *stop, double *counts, struct err *err);

/* exec_prefetch.c: data is read before the step wants it. */
/* A ring of memory and a thread, in x->prefetch; NULL where this rank reads no data. After the losses and chunks are
 * prepared. */
int exec_prefetch_create(struct exec *x, struct err *err);
void exec_prefetch_destroy(struct exec_prefetch *a, struct device *device);
/* What is taken from here on is a batch of training (batches = 1), or so many of validation. Batches of
 * training that follow each other are read ahead across this call. */
int exec_prefetch_begin(struct exec_prefetch *a, enum data_split split, int64_t sample,
                        int64_t batches, struct err *err);
/* First of all, where a loss has targets to be counted: this rank's counts. */
int exec_prefetch_counts(struct exec_prefetch *a, double *counts, struct err *err);
/* Then, in the order of the actions, each input of the micro-batch that begins with this sample: to be
 * given back when it is used up. Waits for it where it is not there yet. */
const void *exec_prefetch_take(struct exec_prefetch *a, const struct instr *ins,
                               int64_t sample, enum dtype *form, struct err *err);
/* The compute stream has been given all that reads it. */
int exec_prefetch_give(struct exec_prefetch *a, struct err *err);
/* Where data lies that was read: some of it, for captured regions that are not replayed. */
const void *exec_prefetch_ring(const struct exec_prefetch *a);

/* exec_run.c */
int exec_run(struct exec *x, struct action a, struct err *err);
/* Resolves the operands of instruction i to addresses of this micro-batch's slot, and does it. */
int exec_instr(struct exec *x, const struct exec_chunk *c, int i, int64_t micro_batch,
               struct err *err);

/* exec_watch.c: times of instructions on a device that can mark them. */
struct exec_watch *exec_watch_create(struct exec *x, struct err *err);
void exec_watch_destroy(struct exec_watch *w);
/* Beside the region that begins with `first`, one with marks. Nothing where times are not
 * asked for. */
int exec_watch_record(struct exec *x, const struct exec_chunk *c, int first,
                      int64_t micro_batch, struct err *err);
/* Around a step. */
int exec_watch_begin(struct exec *x, struct err *err);
int exec_watch_end(struct exec *x, struct err *err);
void exec_watch_forget(struct exec *x);
bool exec_watch_is_on(const struct exec *x);
/* In a watched step, before n instructions and behind them. `plain`: they are replayed, from this region or
 * from that which is returned. */
struct device_region *exec_watch_from(struct exec *x, const struct exec_chunk *c, int first,
                                      int n, struct action a, struct device_region *plain,
                                      struct err *err);
int exec_watch_to(struct exec *x, struct err *err);

/* exec_capture.c */
/* Where the region with marks is kept. */
struct exec_watched **exec_watched_of(const struct exec_chunk *c,
                                      const struct exec_instr *r, int64_t micro_batch);
/* Does the device do it alone on the compute stream, the same way each time? */
bool exec_repeats(const struct instr *ins);
/* Where the captured region that begins with `r` stands for this micro-batch. */
struct device_region **exec_region(const struct exec_chunk *c, const struct exec_instr *r,
                                   int64_t micro_batch);
/* Captures n instructions from `first` on as one region; NULL on failure. */
struct device_region *exec_capture(struct exec *x, const struct exec_chunk *c, int first,
                                   int n, int64_t micro_batch, struct err *err);
/* Captures all regions that steps replay, and loads what they launch besides; the first time it is
 * called, while nothing is under way between ranks. */
int exec_capture_all(struct exec *x, struct err *err);
/* n numbers on the host, of f32 or whole ones, no more than x->host holds, go to the device as this
 * type. */
int exec_upload(struct exec *x, void *to, enum dtype dtype, const void *from, int64_t n,
                struct err *err);
/* Gives the device the scalars of x->now. */
int exec_set_scalars(struct exec *x, struct err *err);
/* The address of a place in the arena, or in the host's; notes how far it reaches. */
void *exec_address(struct exec *x, int64_t at, int64_t bytes);

/* exec_work.c: collectives, messages and copies to the host, in order with what computes. */
struct exec_work *exec_make_works(struct exec *x, int64_t n, struct err *err);
void exec_free_works(struct exec_work *works, int64_t n);
/* The work will go behind what the compute stream was given so far. Before it is started. */
int exec_before(struct exec *x, enum exec_stream on, struct exec_work *w, struct err *err);
/* After it was started. */
int exec_after(struct exec *x, struct exec_work *w, struct err *err);
/* What the compute stream is given from here on goes behind the work. */
int exec_wait(struct exec *x, struct exec_work *w, struct err *err);
int exec_collective(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                    const struct exec_instr *r, void *in, void *out, struct err *err);
int exec_move(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
              const struct exec_instr *r, const union instr_src *in,
              const union instr_dst *out, struct err *err);
/* Waits for what an instruction with this number started. */
int exec_finish(struct exec *x, const struct exec_chunk *c, int work, struct err *err);
int exec_shift(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
               const struct exec_instr *r, void *in, void *out, struct err *err);
int exec_swap(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
              const struct exec_instr *r, void *in, void *out, struct err *err);
/* What it does alone, to be captured. */
int exec_swap_alone(struct exec *x, const struct instr *ins, void *in, void *out,
                    struct err *err);
int exec_exchange(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                  const struct exec_instr *r, char *in, char *out, struct err *err);

/* exec_transfer.c: its ends of all transfers; a send posts, a receive waits. */
int exec_prepare_transfers(struct exec *x, struct err *err);
/* Part of exec_capture_all: the copies that they launch. */
int exec_load_transfers(struct exec *x, struct err *err);
void exec_release_transfers(struct exec *x);
int exec_send(struct exec *x, int transfer, char *in, struct err *err);
int exec_recv(struct exec *x, int transfer, char *out, struct err *err);

#endif
