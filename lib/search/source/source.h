/* source.h - a second source of the strategy graph: costs that others measured, summed by their
 * formulas, in place of the compiler's and lib/cost's.
 *
 * Algorithms move candidates over a model of ops with iteration spaces, and ask what these cost
 * (space.h). A source brings a chain of ops and answers for it; everything else (structure,
 * cuts, presets, moves, starts) stays the same. A step is (N - 1) times the slowest stage plus
 * all stages once, for N micro-batches: 1F1B with a flush.
 *
 *     struct source *src = aceso_open(dir, "gpt:1.3B", NULL, &err);
 *     struct search_problem p = {.model = src->model, .source = src, ...};
 *     search_run(&p, search_hops, &r, &err);
 *     src->close(src);
 */
#ifndef WEFT_SOURCE_H
#define WEFT_SOURCE_H

#include "search/state.h"

/* A stage that is asked about. */
struct source_ask {
    const struct blocks *graph; /* which ops are one node, and which instances repeat */
    int first, end;             /* ops first .. end - 1 of the chain */
    int devices, first_rank;
    int devices_per_node;
    int behind; /* stages behind it */
    int64_t micro_batch;
    int64_t memory_bytes;         /* of a device; 0 = no limit */
    const struct mesh *mesh;      /* its own, or NULL: the usual one */
    const struct layout *layouts; /* by node; the same pointer is the same layouts */
};

struct source_cost {
    double us; /* of one micro-batch, forward and backward; in it: */
    double recompute_us, convert_us,
        message_us; /* computing again, conversions, messages from and to other stages */
    double bytes;   /* on a device */
};

/* Decisions that are pinned, to price them; all others are free. */
struct source_pin {
    int stages; /* 0 = any number */
    int tp;     /* of every op; 0 = any */
    enum {
        SOURCE_AGAIN_fits, /* as much is computed again as it takes to fit */
        SOURCE_AGAIN_none,
        SOURCE_AGAIN_most /* what saves the most bytes */
    } recompute;
};

/* One op of a stage, under a layout. */
struct source_op {
    double us, bytes; /* what it adds */
    double fixed_bytes,
        kept_bytes; /* of bytes: whatever is in flight, and of each micro-batch */
    /* Beside them a stage reserves at least the sum of the first, and the most of the second with the
     * most of the third among all ops but its last. */
    double reserved_bytes, forward_bytes, backward_bytes;
    double recompute_us; /* forward once more */
    /* not kept where this op and the next are computed again */
    double recompute_bytes;
};

struct source {
    const char *name;      /* as --cost has it */
    struct model *model;   /* op i + 1 reads what op i makes */
    int n_inner;           /* dims that are no batch, */
    const int *inner;      /* as space_inner_dims counts them */
    const double *work_us; /* [n_ops] what cuts even stages */
    const int64_t *micro;  /* micro-batches that were measured, ascending */
    int n_micro;
    struct source_pin pin; /* of the searches that begin from now on */

    /* Called when a search begins: pointers of earlier searches are invalid from now on. */
    void (*forget)(struct source *src);
    /* False where such a stage is impossible. The source chooses what is computed again, so
     * that the stage fits if it can; again: NULL, or [end - first], which ops those are. */
    bool (*stage)(struct source *src, const struct source_ask *ask, struct source_cost *out,
                  bool *recompute);
    /* One op in a stage, of which only devices, stages behind, micro-batch and mesh count. */
    bool (*op)(struct source *src, const struct source_ask *ask, int op,
               const struct layout *l, struct source_op *out);
    /* What it takes to convert the result of op - 1 to the layout that the op wants; INFINITY:
     * it is impossible. */
    double (*between)(struct source *src, const struct source_ask *ask, int op,
                      const struct layout *before, const struct layout *l);
    /* Messages at a cut in front of an op and behind it, whatever its layout: at least so long. */
    void (*ends)(struct source *src, const struct source_ask *ask, int op, double *in_us,
                 double *out_us);
    void (*close)(struct source *src);
};

/* ---- candidates of a source (source*.c) ---------------------------------- */

/* The functions of these names in space.h, for searches with a source. */
bool source_legal(struct evaluate *ev, const struct candidate *c);
struct score source_score(struct evaluate *ev, const struct candidate *c);
bool source_balance(struct evaluate *ev, struct candidate *c);
bool source_relayout(struct search *s, struct candidate *c, int k);
bool source_slice(struct pool *pool, int64_t micro_batch, struct candidate *out);
/* A time in us that no plan of the space beats. */
double source_bound(struct pool *pool);
/* The candidate as a plan over the source's model, with what is computed again, and the bytes on its
 * fullest device. Its provenance has of each stage under "stages" what the source says: us, again_us,
 * convert_us, message_us and bytes. */
struct plan *source_plan(const struct space *sp, const struct candidate *c,
                         int64_t *max_bytes);

struct source_ask source_ask_of(const struct space *sp, const struct candidate *c, int k,
                                int first_rank);
/* The source's answer, asked for once and kept. */
bool source_stage(struct evaluate *ev, const struct source_ask *ask,
                  struct source_cost *out);
/* The layouts that an op may have, at most so many: batch on the outer axes of the mesh, one other dim
 * on the inner ones. */
int source_layouts(const struct model_op *op, const struct mesh *mesh, int batch,
                   struct layout *out, int most);

/* The cheapest ways through a chain without repeats (source_trellis.c): of ops first .. end - 1 of what is
 * asked about, whose layouts, if there are any, others keep. */
struct trellis;
struct trellis *trellis_make(const struct space *sp, const struct source_ask *ask);
void trellis_free(struct trellis *t);
/* From op `first` on to every one before `end`, at a price of bytes; returns the cost of the last. */
double trellis_walk(struct trellis *t, int first, int end, double us_per_byte);
/* The layouts of the cheapest way from `first`, where the last walk began, to op end - 1; NULL
 * where there is none, or where it takes so long. */
const struct layout *trellis_trace(struct trellis *t, int first, int end, double most_us);

#endif
