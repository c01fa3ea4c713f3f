/* aceso_impl.h - what the files of Aceso's source share. */
#ifndef WEFT_ACESO_IMPL_H
#define WEFT_ACESO_IMPL_H

#include "search/graph/memo.h"
#include "search/source/aceso.h"

enum {
    ACESO_MOST_MBS = 16,
    ACESO_MOST_TP = 8, /* powers of two */
    ACESO_ALGORITHMS = 2,
    ACESO_MOST_BANDS = 32,
};

/* A row of an op table. Times in us of a micro-batch on a replica; sizes in MiB. */
struct aceso_cell {
    bool known;
    double forward, backward, input, output, weights, activations;
    double reserved_forward, reserved_backward;
    double kept; /* activations as they are counted, see aceso_row */
};

/* How a tensor lies on the devices of a stage: replicated by tp (R), or split tp times beside dp. */
#define ACESO_SPECS(X)                                                                     \
    X(any)      /* nothing is asked or said */                                             \
    X(sequence) /* R = tp, dims 1, dp, 1 */                                                \
    X(hidden)   /* R = 1, dims 1, dp, tp */                                                \
    X(heads)    /* R = 1, dims dp, tp, 1 */                                                \
    X(batch)    /* R = tp, dims dp, 1, 1 */
enum aceso_spec {
#define X(id) SPEC_##id,
    ACESO_SPECS(X)
#undef X
};

/* An op of the tables: a name, and what follows from it. */
struct aceso_row {
    char *name;
    bool algorithms; /* it has two */
    bool breaks;     /* what comes before it is kept */
    bool kept;       /* it is never computed again */
    double counts;   /* how often its activations count: 0, 1 or 1.5 */
    enum aceso_spec in[ACESO_ALGORITHMS], out[ACESO_ALGORITHMS];
    struct aceso_cell cells[ACESO_MOST_MBS][ACESO_MOST_TP][ACESO_ALGORITHMS];
};

#define ACESO_COLLECTIVES(X) X(all_gather) X(all_reduce) X(reduce_scatter) X(all_to_all)
enum aceso_collective {
#define X(id) ACESO_##id,
    ACESO_COLLECTIVES(X)
#undef X
        ACESO_COLLECTIVE_COUNT,
    ACESO_split, /* free */
    ACESO_nothing
};

struct aceso_time {
    int64_t mib;
    double ms;
};
struct aceso_times {
    ARR(struct aceso_time) all; /* by size */
};

struct aceso_band {
    int n;
    double gb[ACESO_MOST_BANDS]; /* per second, for 1, 2, 4 ... MiB */
};

struct aceso_tables {
    int n_rows;
    struct aceso_row *rows;
    int n_mbs, n_tp; /* tp: 1, 2, 4 ... */
    int64_t mbs[ACESO_MOST_MBS];
    struct aceso_times collectives[ACESO_COLLECTIVE_COUNT][ACESO_MOST_TP];
    struct aceso_band inside, between; /* nodes */
};

/* Reads FOLDER/NAME_mbs*_tp*_algo*.csv and what belongs to them. collectives: whether there are any. */
int aceso_read(const char *dir, const char *name, bool collectives,
               struct aceso_tables *out, struct err *err);
void aceso_tables_release(struct aceso_tables *t);

enum aceso_family { ACESO_gpt, ACESO_t5, ACESO_resnet };

struct aceso {
    struct source source; /* first: a source is one of these */
    enum aceso_family family;
    char size[32]; /* "1_3B" */
    int n_layers;
    struct aceso_tables tables;
    int n_ops, *row_of; /* [n_ops] */
    double state;       /* bytes of state per byte of weights */
    bool converts;      /* layouts may differ inside a stage */
    double *work_us;
    int dims[3];
    struct model model;
    struct memo prepared, options;
    int64_t n_options;
};

/* The functions that say what stages and ops cost (aceso_cost.c). */
void aceso_put_costs(struct aceso *a);

/* Names of the three dims of tensor parallelism: of algorithm 0 and 1 of an op that has both, and of an
 * op that has one. */
enum { DIM_batch, DIM_tp, DIM_other, DIM_core, DIM_passing, DIM_first_op };

/* The chain as a model (aceso_chain.c). -1 where the tables do not hold the family's ops. */
int aceso_make_chain(struct aceso *a, struct err *err);
void aceso_free_chain(struct aceso *a);

/* A layout of an op in Aceso's terms; false where it cannot be expressed or was not measured. */
struct aceso_said {
    int tp, dp, algorithm;
};
bool aceso_say_op(const struct aceso *a, int op, int64_t micro_batch,
                  const struct mesh *mesh, const struct layout *l, struct aceso_said *out);

/* ---- what is computed again (aceso_again.c) --------------------------------------------- */

/* A stretch of ops that repeats so many times; only its first op may be a break. */
struct aceso_piece {
    int first, n; /* ops */
    int times;
    bool may_begin;                        /* the first op may be marked */
    const struct aceso_cell *const *cells; /* [n] */
    uint64_t key;                          /* of all that its options depend on */
    /* Found: the first `copies` have these marks, bit i = op i; the others those. */
    int copies;
    uint64_t marks, other_marks;
};
struct aceso_recompute {
    double us, saved, peak; /* found; peak is not below what the formulas have */
};
enum { ACESO_MOST_PIECE = 60 };

/* Chooses what to mark, so that in_flight * saved - peak is at least `need` and the time is least.
 * False where it cannot be: then it is what saves the most. */
bool aceso_choose_recompute(struct aceso *a, struct aceso_piece *pieces, int n,
                            double in_flight, double need, struct aceso_recompute *out);
void aceso_forget_options(struct aceso *a);

#endif
