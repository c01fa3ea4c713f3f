/* exec.h - the executor: runs one rank's program, step by step.
 *
 * After exec_create everything is allocated and resolved: pointers, groups, message lists. A
 * step interprets the actions of the schedule over the arena and allocates nothing.
 *
 *     struct exec *x = exec_create(program, comm, data, &options, &err);
 *     exec_init(x, &err);                        // or exec_load(x, checkpoint, &err)
 *     while (exec_steps(x) < steps)
 *         exec_step(x, &metrics, &err);
 *     exec_save(x, &(struct exec_folder){"ckpt", .keep = 3}, &info, &err);
 */
#ifndef WEFT_EXEC_H
#define WEFT_EXEC_H

#include "checkpoint/checkpoint.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "model/weights.h"
#include "program/program.h"
#include "program/scalars.h"

/* How far exec_init, exec_load, exec_load_weights or exec_save have come; another thread may look. */
struct exec_progress {
    atomic_llong done,
        total; /* bytes of this rank; total is set first, and done starts from 0 */
};

/* Instructions that a device did between two marks. */
struct exec_span {
    const struct instr *instr; /* the first; n - 1 that follow it were launched with it */
    int n;
    struct action action;
    int64_t step;          /* counted from 1 */
    double start_s, end_s; /* as now_s() */
    bool captured;         /* in a region that was replayed as a whole; */
    bool divided; /* whose time is known, and is divided as in another micro-batch */
};

/* How the learning rate falls behind the warm-up. */
#define EXEC_DECAYS(X)                                                                     \
    X(cosine)   /* half a wave, down to min_lr at decay_steps */                           \
    X(linear)   /* in a straight line */                                                   \
    X(constant) /* not at all */                                                           \
    X(wsd) /* warm-up, stable, decay (Hu et al., MiniCPM, 2024): not before decay_from,    \
              then in a straight line */
enum exec_decay {
#define X(name) EXEC_DECAY_##name,
    EXEC_DECAYS(X)
#undef X
        EXEC_DECAY_COUNT
};
const char *exec_decay_name(enum exec_decay d);
int exec_decay_find(const char *name); /* -1 if unknown */

struct exec_options {
    uint64_t seed;         /* of weights, dropout and data order */
    double lr, min_lr;     /* peak and final learning rate */
    int64_t warmup;        /* steps of linear warm-up */
    enum exec_decay decay; /* behind it, */
    int64_t decay_from;    /* for wsd from this step on, */
    int64_t decay_steps;   /* until this one; 0 = constant after the warm-up */
    double clip;           /* largest gradient norm; 0 = no clipping */
    double weight_decay, beta1, beta2, eps; /* AdamW */
    double momentum;                        /* SGD */
    const struct device_backend *device;    /* what this rank computes on; NULL = the CPU */
    int threads;                            /* of this rank */
    /* borrowed, from comm_alloc, for devices in host memory; NULL = allocate */
    float *arena;
    int64_t arena_bytes;
    /* Called after every instruction when not NULL (tracing), each complete before the next is
     * begun. Times are now_s() seconds. */
    void (*on_instr)(void *ctx, const struct instr *i, struct action a, double start_s,
                     double end_s);
    /* On a device that does things later than it is asked to these are called instead: instructions are
     * as fast as ever, and their times come at the end of a step, of some steps (exec_watch.c).
     * `times`: they are wanted for exec_seconds, without calls. */
    void (*on_span)(void *ctx, const struct exec_span *s);
    bool times;
    void *on_instr_ctx;
    struct exec_progress *progress; /* borrowed; or NULL */
};
struct exec_options exec_defaults(void);

/* What data the inputs of a model ask for; the sources, the seed and the share of the validation are
 * left as they are. Returns 0, or -1 where no data can give them all. */
int exec_data_spec(const struct model *m, struct data_spec *spec, struct err *err);

struct exec_metrics {
    double loss, grad_norm, lr;
    double more[METRIC_COUNT];
    /* [plan->devices], borrowed until the next step: in how much of what a rank gave to guarded sums it was
     * unlike the others, a running mean; NULL where the plan trusts all */
    const double *suspicion;
    int64_t targets;     /* of the first loss, those that counted */
    int64_t missing;     /* samples of the step that could not be read (data.h), */
    int64_t all_missing; /* and of all steps until now */
    double loss_scale;   /* of fp16; else 0 */
    bool skipped;        /* loss or norm is not finite: nothing was updated */
};

struct exec;

/* NULL on failure. The job must have exactly plan->devices ranks. data may be NULL for programs
 * that are only inspected. */
struct exec *exec_create(const struct program *g, struct comm *comm,
                         const struct data *data, const struct exec_options *opt,
                         struct err *err);
void exec_destroy(struct exec *x);

/* Initial parameters, a function of the seed and the global index alone. */
int exec_init(struct exec *x, struct err *err);

/* One training step. All ranks get the metrics. */
int exec_step(struct exec *x, struct exec_metrics *out, struct err *err);

/* Where the plan has replicas train apart: all of them take the mean of what they have, so that there is one
 * model. Called by all ranks, before somebody looks at it; exec_save does it by itself. Nothing where they
 * are alike already. The training goes on from the mean. */
int exec_average(struct exec *x, struct err *err);

/* Waits for all that is under way, messages and copies to the host's memory, so that the job may end or
 * somebody may read that. (The compute stream waits for every copy that a segment starts, in that
 * segment.) */
int exec_drain(struct exec *x, struct err *err);

/* Mean loss over `batches` batches of the validation split, from number `first` on, each replica with the
 * parameters that it has. After each batch
 * `between` is asked whether to go on: 0; < 0 is an error, > 0 stops, on all ranks alike. Returns 0,
 * -1, or what stopped it. */
int exec_validate(struct exec *x, int64_t first, int64_t batches,
                  int (*between)(void *ctx, struct err *err), void *ctx, double *loss,
                  struct err *err);

/* Targets of the first loss that counted in what was validated last. */
int64_t exec_targets(const struct exec *x);

/* Where a checkpoint goes. */
struct exec_folder {
    const char *dir;
    int64_t keep; /* so many of the newest; 0 = all */
    /* Every host has one of its own, and in it the files of its ranks; else all ranks see the same. */
    bool apart;
    bool first; /* apart: of this host's ranks, this one makes it */
};

/* Checkpoints (checkpoint/checkpoint.h); called by all ranks. Of `about` run, data and settings
 * count; the executor knows the rest. Values that are not finite are never
 * saved: exec_save returns 1 where there are any, and has written nothing. exec_load takes one of this
 * model (checkpoint_check_model). */
int exec_save(struct exec *x, const struct exec_folder *to,
              const struct checkpoint_info *about, struct err *err);
int exec_load(struct exec *x, const struct checkpoint *ck, struct err *err);

/* What a parameter's state of the optimizer, STATE_FIRST..., is called in a checkpoint. */
enum checkpoint_kind exec_state_kind(enum optimizer o, const struct model_param *p,
                                     int which);

/* Parameters out of files of another program, after exec_init; called by all ranks. */
int exec_load_weights(struct exec *x, const struct weight_file *f, struct err *err);

/* All ranks learn whether any failed (rc < 0), and get the message of the lowest that did, which
 * is named where it is not rank 0. err must not be NULL. Returns 0 when none failed. */
int exec_agree(struct comm *comm, int rc, struct err *err);

/* Steps of training that are done, those of the checkpoint included. */
int64_t exec_steps(const struct exec *x);
/* Where they are in the data: the first sample of the next step. */
int64_t exec_sample(const struct exec *x);
/* Bytes that this rank allocates for the program. */
int64_t exec_arena_bytes(const struct exec *x);
/* Time spent so far by opcode, in s, but for what was replayed; and from 0 again. */
const double *exec_seconds(const struct exec *x);
/* Of how many of the steps those are, where only some are watched: 1, or less. */
double exec_seconds_share(const struct exec *x);
void exec_forget_seconds(struct exec *x);

#endif
