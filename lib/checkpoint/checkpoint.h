/* checkpoint.h - checkpoints that do not depend on the plan, complete or absent.
 *
 *     DIR/step-00000100/rank-0000.safetensors   pieces of tensors, a file per writing rank
 *     DIR/step-00000100/index.json              which box of which tensor lies where
 *
 * A checkpoint is a set of global tensors: a kind (the parameter, a moment of its
 * optimizer) and a name. Each is stored as boxes that cover it exactly once, so a tensor
 * that several ranks hold (replicas, tied parameters) is written by one of them: the
 * caller says which. A reader asks for any box of any tensor; how many ranks wrote and
 * under which plan does not matter.
 *
 * Writing goes to DIR/.tmp-step-00000100, which is renamed when all of it is on the disk:
 * a process that is killed at any moment leaves the earlier checkpoints whole. This
 * library knows no MPI; the caller moves the reports and holds the two barriers:
 *
 *     if (rank == 0) lock = checkpoint_lock(dir, &err);                 // once
 *     if (rank == 0) checkpoint_begin(dir, step, &err);                 // then a barrier
 *     struct checkpoint_share share = {rank, pieces, n, {.threads = 4}};
 *     checkpoint_write(dir, step, &share, &report, &err);               // every rank
 *     ... gather the reports' texts at rank 0; on an error anywhere stop here ...
 *     if (rank == 0) checkpoint_commit(dir, &info, reports, ranks, false, keep, &err);
 *
 *     if (checkpoint_open(&ck, dir, &err) < 0 ||               // any rank, under any plan
 *         checkpoint_read(ck, CHECKPOINT_PARAM, "wte.weight", &box, out, &err) < 0) ...
 *
 * DIR must be on a file system that all ranks see. It holds the steps of one run: a run has an
 * identity, kept when it is resumed, and a lock on DIR while it writes.
 */
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H

#include "checkpoint/bulk.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CHECKPOINT_DIMS 8 /* dims of a tensor at most */

/* What is stored of a parameter: name in the enum, name in the files. */
#define CHECKPOINT_KINDS(X)                                                                \
    X(PARAM, "param")                                                                      \
    X(ADAM_M, "adam_m")                                                                    \
    X(ADAM_V, "adam_v")                                                                    \
    X(MOMENTUM, "momentum")                                                                \
    X(LION_M, "lion_m")                                                                    \
    X(MUON_M, "muon_m")

enum checkpoint_kind {
#define X(id, text) CHECKPOINT_##id,
    CHECKPOINT_KINDS(X)
#undef X
        CHECKPOINT_KIND_COUNT
};

/* A box of a global tensor: elements first[d] <= i[d] < first[d] + size[d]. */
struct checkpoint_box {
    int dims;                       /* 0..CHECKPOINT_DIMS; 0 is a scalar */
    int64_t shape[CHECKPOINT_DIMS]; /* of the whole tensor */
    int64_t first[CHECKPOINT_DIMS];
    int64_t size[CHECKPOINT_DIMS]; /* >= 1 */
};

/* One box that a rank stores. */
struct checkpoint_piece {
    enum checkpoint_kind kind;
    const char *name; /* global name: "layer.3.qkv.weight"; [A-Za-z0-9._-]+ */
    struct checkpoint_box box;
    /* The box, row-major and dense, of floats; borrowed; where the way fetches from, if it does. Numbers of
     * 16 bits are stored as the floats that they are. */
    const void *data;
    enum dtype dtype;
};

/* What a rank stores, and how it is moved: all of it by one thread out of memory where `way` is zero. */
struct checkpoint_share {
    int rank;
    const struct checkpoint_piece *pieces;
    int64_t n; /* >= 0 */
    struct bulk_way way;
};

/* What it has written. */
struct checkpoint_report {
    char *text;    /* for checkpoint_commit; free() it */
    bool finite;   /* no number is infinite or none: else call checkpoint_abandon */
    int64_t bytes; /* of its file */
};

/* How a run is trained: what a resumed one goes on with unless it is told otherwise. */
#define CHECKPOINT_WHOLES(X) X(steps) X(warmup) X(decay_steps)
#define CHECKPOINT_REALS(X)                                                                \
    X(lr)                                                                                  \
    X(min_lr) X(clip) X(weight_decay) X(beta1) X(beta2) X(momentum) X(validation)
/* Those that came later, and what checkpoints of before them were trained with. */
#define CHECKPOINT_LATER_WHOLES(X) X(decay_from, 0)
#define CHECKPOINT_LATER_REALS(X)  X(eps, 1e-8)

struct checkpoint_settings {
#define X(name) int64_t name;
    CHECKPOINT_WHOLES(X)
#undef X
#define X(name) double name;
    CHECKPOINT_REALS(X)
#undef X
#define X(name, before) int64_t name;
    CHECKPOINT_LATER_WHOLES(X)
#undef X
#define X(name, before) double name;
    CHECKPOINT_LATER_REALS(X)
#undef X
    const char *decay; /* how the learning rate falls; NULL: as a cosine */
};

/* What it is trained on. */
struct checkpoint_data {
    const char *format; /* "text" */
    int64_t items;      /* tokens or images in the source */
    uint64_t hash;      /* equal means the same training samples */
};

struct checkpoint_info {
    int64_t step;        /* training steps done */
    int64_t skipped;     /* of them those that were not finite and changed nothing */
    int64_t missing;     /* samples of them that could not be read, and did not count */
    double valid_loss;   /* of the validation that led to it; 0 = none did */
    double loss_scale;   /* of fp16: a power of two from 1; 0 = none */
    int64_t good_steps;  /* since it changed, with finite gradients */
    int64_t sample;      /* data position: index of the next training sample */
    uint64_t seed;       /* of weights, dropout and data order */
    uint64_t run;        /* identity of the run, not 0 */
    const char *model;   /* name of the model: "gpt" */
    const char *ref;     /* how plans name it: "gpt:1.3B"; NULL: it is not a shipped one */
    const char *set;     /* its overrides: "layers=4"; NULL: none */
    const char *doc;     /* of one that is not shipped its file, as JSON; or NULL */
    uint64_t model_hash; /* over all that fixes the tensors' shapes and meaning */
    const char
        *facts;    /* what the hash is over, in words: a JSON object of texts; or NULL */
    int64_t batch; /* samples of a step; 0 = not known */
    struct checkpoint_data data;
    struct checkpoint_settings settings;
};

/* ---- writing ------------------------------------------------------------------------
 * Failures to write are EXIT_SYSTEM and name the file; what was there before is
 * untouched. */

/* Makes DIR, checks that files can be made in it, and locks it against other writers until
 * checkpoint_unlock or the end of the process, however it comes: a training finds out before its
 * first step, and before it reads what another one may be about to remove. Returns the lock, or -1. */
int checkpoint_lock(const char *dir, struct err *err);
void checkpoint_unlock(int lock); /* < 0 is fine */

/* Refuses a new run (run = 0) where there are checkpoints, and one that goes on from `step` where they
 * are of another run or of later steps. Returns 0 or -1. */
int checkpoint_check_run(const char *dir, uint64_t run, int64_t step, struct err *err);

/* Rank 0, before any rank writes: makes DIR and an empty temporary for `step`, after
 * removing what killed writers left in DIR. Returns 0 or -1. */
int checkpoint_begin(const char *dir, int64_t step, struct err *err);

/* Every rank: writes and syncs DIR/.tmp-step-N/rank-R.safetensors, where it has pieces. Returns 0 or -1. */
int checkpoint_write(const char *dir, int64_t step, const struct checkpoint_share *share,
                     struct checkpoint_report *out, struct err *err);

/* Rank 0, in place of checkpoint_commit: what the ranks have written is not wanted. Returns 0 or -1. */
int checkpoint_abandon(const char *dir, int64_t step, struct err *err);

/* Rank 0: checks that the pieces of all reports cover every tensor exactly once and that
 * the files are there, writes index.json, syncs and renames: from here on the checkpoint
 * exists. A checkpoint of the same step is replaced. Then keeps the last `keep`
 * checkpoints up to this step (0 = all) and removes those before them. `apart`: every host has
 * a DIR of its own, so only files that are here are looked at. Returns 0 or -1. */
int checkpoint_commit(const char *dir, const struct checkpoint_info *info,
                      char *const *reports, int64_t n, bool apart, int64_t keep,
                      struct err *err);

/* In place of `keep`: no other step is kept, not even a later one. */
enum { CHECKPOINT_ALONE = -1 };

/* One rank of each other host whose DIR is its own, behind that: gives the files here their place, without
 * an index, and keeps as many. Returns 0 or -1. */
int checkpoint_publish(const char *dir, int64_t step, int64_t keep, struct err *err);

/* ---- reading ------------------------------------------------------------------------
 * Wrong content is EXIT_INPUT and names the file and the place. */

/* The newest checkpoint in DIR: sets *path to a fresh string DIR/step-N (free() it) and
 * returns 1; returns 0 where there is none (or no DIR), -1 on an error. Temporaries are
 * neither considered nor removed. */
int checkpoint_latest(const char *dir, char **path, struct err *err);

/* The same among the steps before this one, whose number goes to *step (NULL: nobody asks). */
int checkpoint_older(const char *dir, int64_t before, char **path, int64_t *step,
                     struct err *err);

struct checkpoint;

/* Does `path` look like what checkpoint_open opens? */
bool checkpoint_is(const char *path);

/* Opens DIR (its newest checkpoint) or one DIR/step-N: reads the index and checks that every tensor is
 * covered, and that the files can be read and have their sizes. Returns 0 or -1. */
int checkpoint_open(struct checkpoint **ck, const char *path, struct err *err);
void checkpoint_close(struct checkpoint *ck); /* NULL is fine */

/* A file of a checkpoint, as its index says. */
struct checkpoint_file {
    char name[64]; /* no path */
    int64_t bytes;
    uint64_t hash; /* XXH64 */
};

/* The files that DIR/step-N/index.json lists, whether they are there or not; free() *out. Returns how many, or -1. */
int64_t checkpoint_files(const char *path, struct checkpoint_file **out, struct err *err);

/* Step, run, data, settings, model; borrowed from ck. */
const struct checkpoint_info *checkpoint_info(const struct checkpoint *ck);

/* The opened directory DIR/step-N; borrowed from ck. */
const char *checkpoint_path(const struct checkpoint *ck);

/* Is there a tensor of this kind? */
bool checkpoint_has(const struct checkpoint *ck, enum checkpoint_kind kind);

/* Checks that the checkpoint was written by this model. Where it was not, the message names the first of
 * the model's facts (as in checkpoint_info; NULL = not known) that differs. Returns 0 or -1. */
int checkpoint_check_model(const struct checkpoint *ck, const char *model,
                           uint64_t model_hash, const char *facts, struct err *err);

/* Compares checksums of files part, part + parts, ... with the index: rank r of R calls
 * it with (r, R), and together they verify all. Reads these files whole, as the way says. Returns 0 or
 * -1. */
int checkpoint_verify(const struct checkpoint *ck, int64_t part, int64_t parts,
                      const struct bulk_way *way, struct err *err);

/* The tensors in order, from i = 0: all of tensor i, borrowed from ck, or NULL behind the last. */
const struct checkpoint_box *checkpoint_tensor(const struct checkpoint *ck, int64_t i,
                                               enum checkpoint_kind *kind,
                                               const char **name);

/* Assembles a box of a stored tensor in out (row-major, dense). box->shape must be the
 * stored shape. Threads may read at the same time. Returns 0 or -1 (no such tensor,
 * another shape, box outside, file not readable). */
int checkpoint_read(const struct checkpoint *ck, enum checkpoint_kind kind,
                    const char *name, const struct checkpoint_box *box, float *out,
                    struct err *err);

/* Text of a kind, "adam_m". */
const char *checkpoint_kind_name(enum checkpoint_kind kind);

#endif
