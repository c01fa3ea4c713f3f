/* plan.h - a plan: everything that is decided about training one model on many devices.
 *
 * A plan file (weft-plan(5)) has per stage a default layout and exceptions; in memory every op
 * has its layout. A plan that plan_read or plan_check accepted is legal: the compiler cannot
 * fail on it.
 *
 *     struct plan *p = plan_read("plan.json", &err);
 *     for (int s = 0; s < p->n_stages; s++) ... p->stages[s].mesh ...
 *     json_t *doc = plan_to_json(p);
 *     plan_destroy(p);
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include "common/dtype.h"
#include "plan/cluster.h"
#include "plan/placement.h"
#include "plan/schedules.h"

/* Name, and tensors of state that are kept per parameter. Muon (Jordan et al., Muon: an optimizer for hidden
 * layers in neural networks, 2024) is for matrices: all other parameters step by adamw, with the same
 * learning rate (Liu et al., Muon is scalable for LLM training, 2025). */
#define OPTIMIZERS(X) X(adamw, 2) X(sgd, 1) X(lion, 1) X(muon, 1)
enum optimizer {
#define X(name, states) OPTIMIZER_##name,
    OPTIMIZERS(X)
#undef X
        OPTIMIZER_COUNT
};
#define OPTIMIZER_NAMES "adamw, sgd, lion or muon"
const char *optimizer_name(enum optimizer o);
int optimizer_find(const char *name);
int optimizer_states(enum optimizer o);
/* By which one a parameter steps where the plan has this one. */
enum optimizer optimizer_of(enum optimizer o, const struct model_param *p);

/* What is taken for the sum of the gradients of data-parallel replicas: their sum, or what up to
 * plan->faulty of them cannot spoil (doc/comm.md). */
#define AGGREGATES(X) X(mean) X(median) X(trimmed) X(fair)
enum aggregate {
#define X(name) AGGREGATE_##name,
    AGGREGATES(X)
#undef X
        AGGREGATE_COUNT
};
#define AGGREGATE_NAMES "mean, median, trimmed or fair"
enum { AGGREGATE_MOST = 1024 }; /* replicas, where it is not the mean */
const char *aggregate_name(enum aggregate a);
int aggregate_find(const char *name); /* -1 if unknown */

/* Data-parallel replicas may train apart, each with its own gradients, and only now and then take the mean of
 * what they have: all of them of all (local steps: McMahan et al. 2017, Stich, Local SGD converges fast
 * and communicates little, 2019), or each with one other, drawn anew each time (gossip: Boyd et al.,
 * Randomized gossip algorithms, 2006). none: they sum their gradients at every step. */
#define AVERAGES(X) X(none) X(all) X(pairs)
enum average {
#define X(name) AVERAGE_##name,
    AVERAGES(X)
#undef X
        AVERAGE_COUNT
};
#define AVERAGE_NAMES "none, all or pairs"
const char *average_name(enum average a);
int average_find(const char *name); /* -1 if unknown */

/* What tensors and parameters are kept in: "fp32", "bf16", "fp16" (DTYPE_f32, bf16, f16). */
#define PLAN_DTYPES "fp32, bf16 or fp16"
const char *plan_dtype_name(enum dtype dtype);
int plan_dtype_find(const char *name); /* -1 if unknown */

/* What a stage recomputes, where a word says it. */
enum recompute { RECOMPUTE_none, RECOMPUTE_selective, RECOMPUTE_all, RECOMPUTE_COUNT };
int recompute_find(const char *name); /* -1 if unknown */
/* Is the op recomputed? selective: of kinds that keep much for their work; all: of
 * every op in a block but the last, whose result is what the next block begins with. The loss,
 * which is counted once, never. */
bool plan_recomputes(const struct model *m, enum recompute word, int op);

/* Levels of ZeRO (Rajbhandari et al. 2020). */
enum { ZERO_NONE, ZERO_OPTIMIZER, ZERO_GRADIENTS, ZERO_PARAMETERS };

/* What of an op lives in the memory of the device's host: its parameters, the state of their
 * optimizer, what its forward pass keeps for the backward. Bits. */
#define OFFLOADS(X) X(optimizer, 1) X(parameters, 2) X(activations, 4)
enum {
#define X(name, bit) OFFLOAD_##name = bit,
    OFFLOADS(X)
#undef X
        OFFLOAD_SETS = 8
};

struct stage {
    struct mesh mesh;
    int group;      /* of devices; stages of one group are its chunks */
    int first_rank; /* ranks of the job: first_rank .. + mesh_devices - 1, mesh order */
    int n_ops;
    int *ops;               /* op ids, ascending */
    struct layout *layouts; /* [n_ops] */
    bool *recompute;        /* [n_ops]: the result is not kept for the backward pass */
    /* [n_ops] what is sharded where a parameter of the op is replicated: 1 the optimizer's state,
     * 2 gradients too, 3 parameters too, ZERO_NONE nothing */
    int8_t *zero;
    int8_t *offload; /* [n_ops] sets of OFFLOADS */
    bool regather;   /* what is gathered forward is gathered again backward, not kept */
    /* axes of the mesh on which replicas sum their gradients at every step, though plan->average
     * has others train apart */
    unsigned together;
};

struct pins;

struct plan {
    struct arena arena;
    struct model *model; /* owned when owns_model, as pins are */
    bool owns_model;
    int64_t batch;          /* samples per step */
    int64_t micro_batch;    /* samples per micro-batch, over the whole mesh of a stage */
    enum schedule schedule; /* the order of actions on every group (program/program.h) */
    enum optimizer optimizer;
    enum dtype dtype; /* of tensors, and of parameters as ops read them */
    /* of gradients of parameters while replicas sum them; f32, bf16 or dtype */
    enum dtype reduce;
    enum aggregate aggregate; /* of gradients of data-parallel replicas, */
    int faulty;               /* so many of which may be anything; 0 under the mean */
    enum average average;     /* how replicas that train apart come together, */
    int64_t average_every;    /* after so many steps, at least 1 */
    bool overlap; /* gradients are reduced, and parameters gathered, while others compute */
    int64_t
        logits; /* in so many pieces of its rows is each loss worked out; 1, or 0: as a whole */
    int n_stages;
    struct stage *stages;          /* producers before consumers */
    int *stage_of;                 /* op -> stage */
    int n_groups;                  /* of devices: as many as stages where none is shared */
    int *chunks;                   /* [n_stages] stages by group, ascending in each */
    int *first_chunk;              /* [n_groups + 1] where each group's begin in chunks */
    int devices;                   /* of all groups together */
    const struct pins *pins;       /* what was fixed of it (pin.h), or NULL */
    json_t *provenance;            /* what the search says of it, or NULL */
    const struct cluster *cluster; /* the machines that it was made for, or NULL */
};

/* Reads a plan file ("-" = stdin) and its model, and checks it. NULL on failure. */
struct plan *plan_read(const char *path, struct err *err);
struct plan *plan_from_json(const json_t *doc, struct err *err);

/* An empty plan for a model (borrowed) with n_stages stages whose op lists and layouts are to
 * be filled: stage s gets ops[bounds[s] .. bounds[s+1]-1] of the model's order, layouts none. */
struct plan *plan_create(struct model *m, int n_stages, const int *bounds);
void plan_destroy(struct plan *p);
/* What a plan decides, for the same model (borrowed): it has neither pins nor provenance. */
struct plan *plan_copy(const struct plan *p, struct model *m);
/* A plan with room for this many stages and nothing in it. */
struct plan *plan_room(struct model *m, int n_stages);

/* Works out first_rank and devices; checks order, groups, divisibility, every layout, and pins. */
int plan_check(struct plan *p, struct err *err);

/* The document: short, with exceptions only where an op differs from its stage. New reference. */
json_t *plan_to_json(const struct plan *p);

int64_t plan_micro_batches(const struct plan *p);
/* The axes of a stage's mesh along which one of its ops (by its index in the stage) has other samples: on
 * them its parameters are replicas with gradients of their own. */
unsigned plan_data_axes(const struct plan *p, const struct stage *st, int i);
/* Of these axes those along which there are several replicas, and they train apart. */
unsigned plan_apart_axes(const struct plan *p, const struct stage *st, int i);
/* Of a tensor of the model: that of the plan, but for whole numbers and sums. */
enum dtype plan_tensor_dtype(const struct plan *p, int tensor);
/* "stage 0" or "stages 0, 2, 4", those of a group; cut where n bytes are too few. */
void plan_group_name(const struct plan *p, int group, char *buf, size_t n);

#endif
