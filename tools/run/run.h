/* run.h - the parts of weft-run: options, what the ranks agree on, and the training loop. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include "common/json.h"
#include "common/opt.h"
#include "cost/profile.h"
#include "cuda/cuda.h"
#include "exec/exec.h"
#include "keep/beat.h"
#include "nccl/nccl.h"

struct run_options {
    const char *data, *valid_data;
    struct opt_seed seed; /* else that of the checkpoint, else 1 */
    /* < 0 or NAN: not given, until run_settle */
    struct checkpoint_settings set;
    int64_t valid_every, valid_batches;
    const char *save, *resume, *init, *adapter;
    bool keep_best;          /* in save/best; by the loss of validations */
    const char *tensorboard; /* NULL, or a folder for events */
    const char
        *memory; /* NULL, or a folder in the host's memory for checkpoints between those; */
    const char *memory_here; /* the same, with the number of this host in it */
    bool apart, first_here;  /* every host has its own; this is its first rank */
    int64_t memory_every;    /* these and save_every: < 0 = as is measured to be best */
    double failure_every_s;  /* mean time between failures, for that */
    const char *save_text, *memory_text; /* --save-every and --memory-every as given */
    bool auto_resume, other_data;
    bool eval; /* nothing is trained: the loss over the validation data alone, */
    bool each; /* and of each batch of it */
    int64_t save_every, keep;
    const char *non_finite; /* "skip" or "stop" */
    bool balanced;          /* batches, by label */
    int64_t bad_samples;    /* that may be missing in the whole run */
    const char *metrics;    /* NULL, or a file for what goes to standard output */
    const char *ledger; /* NULL, or a file for the numbers of the samples of each step */
    int64_t max_skips;  /* steps in a row; 0 = no limit */
    int64_t threads;    /* 0 = a fair share */
    double timeout_s;   /* of every wait for another rank; 0 = no limit */
    const char *trace;
    const char *device;       /* "cpu" or "cuda"; NULL = what the plan is for */
    const char *profile;      /* NULL, or where algorithms of products are known */
    bool deterministic, tf32; /* of GPUs */
    bool timing;
    const char *dry_run; /* NULL; "" = a text for people, or "json" */
    struct beat *beat;   /* for a supervisor; or NULL */
    const char
        *explain; /* NULL; "" = the program, else the pass behind which it is printed */
};

/* ---- run_agree.c: called by all ranks ------------------------------------------------------ */

/* Reads the plan and its model on rank 0 ("-" = stdin) and passes both on: no other rank opens
 * a file. NULL on failure. */
struct plan *run_shared_plan(struct comm *comm, const char *path, struct err *err);

/* Compares the options of all ranks with those of rank 0: all but `threads` and the names of data
 * files, and the version. Returns 0 or -1 with the first difference. */
int run_agree_options(struct comm *comm, const struct opt *options, struct err *err);

/* The same for what the ranks opened: model, data, checkpoint and weights (NULL = none). */
int run_agree_inputs(struct comm *comm, const struct model *m, const struct data *data,
                     const struct checkpoint *ck, const struct weight_file *init,
                     const struct weight_file *adapter, struct err *err);

/* ---- run_workspace.c ----------------------------------------------------------------------- */

/* Bytes that each rank of a stage takes beside its arena at most, on these nodes. */
int64_t run_workspace(const struct program *g, int stage, const struct cluster *c,
                      int threads);

/* ---- run_resume.c: called by all ranks ----------------------------------------------------- */

enum { RUN_DISK, RUN_MEMORY, RUN_FOLDERS };

/* How far back in each folder the search for a whole checkpoint has come. */
struct run_search {
    int64_t before[RUN_FOLDERS]; /* steps from this one on are not considered */
    int folder;                  /* of that which is opened, */
    int64_t step;                /* and its step; both of rank 0 alone */
};

/* Opens what --auto-resume goes on from: the newest whole checkpoint. *ck is NULL where there is none.
 * Rank 0 says what it passes over. Returns 0 or -1. */
int run_open_newest(struct comm *comm, const struct run_options *o, struct run_search *s,
                    struct checkpoint **ck, struct err *err);
/* The next older one in its place, where that cannot be read. Returns 1, 0 if there is none, or -1. */
int run_open_older(struct comm *comm, const struct run_options *o, struct run_search *s,
                   struct checkpoint **ck, struct err *err);
/* Says which steps in the folder of --resume are unfinished. */
void run_note_unfinished(const struct run_options *o);

/* ---- run_settings.c ------------------------------------------------------------------------ */

/* Is the checkpoint of model m and of this optimizer, and of the seed that is given, if one is? Returns 0 or
 * -1. */
int run_check_resume(const struct run_options *o, const struct model *m,
                     enum optimizer optimizer, const struct checkpoint *ck,
                     struct err *err);

/* Gives what the command line leaves open its value: that of the checkpoint (NULL = none), or the
 * usual one. `speaks`: says on stderr what the command line changes. */
void run_settle(struct run_options *o, const struct checkpoint_info *ck,
                enum optimizer optimizer, bool speaks);

/* Says on stderr that a step of this plan takes another number of samples than before, if it does. */
void run_note_batch(const struct checkpoint_info *ck, int64_t batch);

/* Is this the data that the checkpoint was trained on? Returns 0 or -1. */
int run_check_data(const struct run_options *o, const struct checkpoint *ck,
                   const struct data *data, bool speaks, struct err *err);

/* ---- run_inputs.c -------------------------------------------------------------------------- */

/* The checkpoint with the smallest validation loss. */
struct run_best {
    char *dir;   /* DIR/best, or NULL */
    double loss; /* its; INFINITY where there is none yet */
};

/* What a training needs besides the plan. */
struct run_inputs {
    struct checkpoint *ck;    /* to go on from, or NULL */
    struct run_search search; /* that found it */
    char *facts;              /* of the model */
    struct weights *weights;
    struct weight_file *init; /* to begin with, or NULL */
    /* The same of adapters. */
    struct weights *adapter_weights;
    struct weight_file *adapter;
    struct data *data;
    struct checkpoint_info about; /* what the executor does not know of a checkpoint */
    int64_t valid_batches; /* of a validation: that there are, at most those wanted */
    struct run_best best;
    struct run_events *events; /* of rank 0, or NULL */
    int lock[RUN_FOLDERS];     /* on the folders of --save and --memory; -1 = none here */
};

/* Of this rank: those wanted, or a fair share of its node's cores. */
int run_threads(struct comm *comm, int64_t wanted);
/* Opens and checks all of it, memory and outputs too, and settles the options; called by all ranks.
 * Returns 0 or -1; run_close_inputs either way. */
int run_open_inputs(struct run_inputs *in, struct comm *comm, const struct program *g,
                    struct run_options *o, struct err *err);
void run_close_inputs(struct run_inputs *in);

/* ---- run_best.c ---------------------------------------------------------------------------- */

/* What this run has in DIR/best, DIR being locked; called by all ranks. free() its dir, also after a failure.
 * Returns 0 or -1. */
int run_open_best(struct run_best *b, struct comm *comm, const char *dir, uint64_t run,
                  bool resumes, struct err *err);

/* ---- run_events.c --------------------------------------------------------------------------- */

struct run_events;

/* A new file of events for TensorBoard in this folder, which is made if it is missing; the run goes on from
 * `step`. NULL on failure. */
struct run_events *run_events_open(const char *dir, int64_t step, struct err *err);
void run_events_close(struct run_events *e); /* NULL is fine */
/* Every number of a line of metrics as a scalar of its name, at the line's step. Returns 0 or -1. */
int run_events_add(struct run_events *e, const json_t *line, struct err *err);

/* ---- run_lines.c --------------------------------------------------------------------------- */

/* Both return 0 or -1. After a signal a line that nobody reads any more is dropped. */
int run_print_line(const json_t *line, struct err *err);
/* A whole line at the end of the file that an option names. */
int run_append_line(const char *option, const char *path, const json_t *line,
                    struct err *err);

/* ---- run_samples.c ------------------------------------------------------------------------- */

/* The samples of a step that is done. */
struct run_seen {
    int64_t step, first, count;
    int64_t missing, all_missing; /* that could not be read: of them, and of all steps */
};

/* Are there no more than --bad-samples allows? All ranks give the same answer; one that speaks names those of
 * this step. Returns 0, or -1 (EXIT_INPUT). */
int run_check_missing(const struct run_options *o, const struct run_seen *s,
                      const struct data *data, bool speaks, struct err *err);
/* Appends the step to the ledger, a line of JSON. Returns 0 or -1. */
int run_write_ledger(const char *path, const struct run_seen *s, int ranks,
                     const struct data *data, struct err *err);

/* ---- run_device.c ------------------------------------------------------------------------- */

/* Does this rank compute on a GPU: since --device says so, or since the plan is for one? */
bool run_on_gpu(const struct run_options *o, const struct plan *p, int rank);
/* Is there one, then? Returns 0 or -1. */
int run_check_device(const struct run_options *o, const struct plan *p, int rank,
                     struct err *err);
/* The backend for it; borrows the program, the choices and the report. */
struct cuda_backend run_cuda(const struct run_options *o, const struct program *g, int rank,
                             struct cuda_choices *choices, struct cuda_report *report);
/* What is between ranks goes as their devices want it; by all ranks, before the executor is made, until whose end
 * the report is borrowed. */
int run_join(struct comm *comm, const struct run_options *o, const struct plan *p,
             struct nccl_report *report, struct err *err);
/* Says on stderr that convolutions go without cuDNN, where a rank wants it and lacks it; by all ranks, once
 * the executor is made. */
int run_report_convolutions(struct comm *comm, const struct cuda_report *r,
                            struct err *err);
/* ---- run_memory.c ------------------------------------------------------------------------- */

/* Is there room on this rank's GPU for arena and workspace, of all ranks that share it? Says on stderr what is
 * planned, what is reserved, and where that together may be too much. After run_join. Returns 0 or -1. */
int run_check_memory(struct comm *comm, const struct run_options *o,
                     const struct program *g, const struct nccl_report *nccl,
                     struct err *err);
/* Says on stderr what the ranks take of their GPUs, and how many communicators of NCCL they have made; called by
 * all ranks, with NULL in place of r by those that have no GPU. */
int run_report_memory(struct comm *comm, const struct cuda_report *r,
                      const struct nccl_report *nccl, struct err *err);

/* ---- run_choices.c ----------------------------------------------------------------------- */

/* The algorithms that the profile knows, which rank 0 alone reads; called by all ranks, and empty where there
 * is no --profile. arr_release() it, also after a failure. */
int run_share_algorithms(struct comm *comm, const char *path,
                         struct profile_algorithms *out, struct err *err);
/* Of them those of this rank's GPU; borrows them. */
int run_choices(struct comm *comm, struct profile_algorithms *known,
                struct cuda_choices *out, struct err *err);
/* Says on stderr what became of them; called by all ranks. */
int run_report_choices(struct comm *comm, const char *path, const struct cuda_choices *c,
                       struct err *err);

/* ---- run_metrics.c ------------------------------------------------------------------------- */

/* Says on stderr what is about to be trained, and how. */
void run_say_what(const struct plan *p, const struct data *data, bool gpus);
/* Of a step of a plan that took so long: the share of the peak of its devices that the model's products come
 * to, the backward pass counted twice and nothing that is computed again; NAN where no peak is known. */
double run_share_of_peak(const struct plan *p, double seconds);
/* Epochs of the training data that so many samples are. */
double run_epochs(const struct data *data, int64_t samples);
/* On stderr: time by instruction over all ranks, and the share outside matrix products, which convolutions are;
 * called by all ranks. */
int run_print_timing(struct comm *comm, const struct exec *x, struct err *err);

/* ---- run_train.c --------------------------------------------------------------------------- */

/* Trains; called by all ranks. Settles the options. Metrics on rank 0's stdout. */
int run_train(struct comm *comm, const struct program *g, struct run_options *o,
              struct err *err);

#endif
