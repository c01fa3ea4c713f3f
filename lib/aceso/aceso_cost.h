/* aceso_cost.h - what a configuration of Aceso costs, by the formulas of its
 * aceso_cost_model.py.
 *
 * Stage s of S, with k = S - 1 - s stages behind it, takes for one micro-batch
 *
 *     forward + backward of its ops + forward of its recomputed ops
 *         + conversions between layouts + messages in and out
 *
 * and a step of N micro-batches takes (N - 1) times the slowest stage plus all stages once
 * (1F1B with a flush). A device of the stage holds
 *
 *     state * W + (input + activations - saved) * (k + 1) + peak + max(reserved, W)
 *
 * where `saved` is what recomputation drops, and `peak` the activations of the largest run
 * of ops, which are there once more while the run is recomputed. Reductions of gradients,
 * the update and tied parameters are not counted.
 *
 *     struct aceso_stage_cost cost;
 *     if (aceso_cost_stage(m, config, 0, &cost))
 *         printf("%g us, %g MiB\n", cost.us, cost.mib);
 */
#ifndef WEFT_ACESO_COST_H
#define WEFT_ACESO_COST_H

#include "aceso/aceso_model.h"

/* How an op is split over its stage's devices, tp times dp of them. The algorithm tells
 * which dim tp splits. */
struct aceso_layout {
    int tp, dp, algorithm;
};

struct aceso_config {
    int64_t batch, micro_batch; /* samples; those of a micro-batch are split by dp */
    int per_node;               /* devices of a node */
    int n_ops, n_stages;
    int *first;                  /* [n_stages + 1] first op of each stage, and the end */
    int *devices;                /* [n_stages] */
    struct aceso_layout *layout; /* [n_ops] */
    bool *recompute; /* [n_ops] marks; a run of marked ops keeps its last result only */
};

struct aceso_config *aceso_config_create(int n_ops, int n_stages);
void aceso_config_destroy(struct aceso_config *c); /* may be NULL */

struct aceso_stage_cost {
    double us; /* of a micro-batch, including: */
    double recompute_us, convert_us, message_us;
    double mib; /* of a device */
};

/* Computes what a stage costs. Returns false if an op was not measured in its layout, or
 * there is no conversion between two. */
bool aceso_cost_stage(const struct aceso_model *m, const struct aceso_config *c, int stage,
                      struct aceso_stage_cost *out);

struct aceso_step_cost {
    double us, mib; /* of a step; of the fullest device */
    int slowest, fullest;
};
bool aceso_cost_step(const struct aceso_model *m, const struct aceso_config *c,
                     struct aceso_step_cost *out);

/* ---- parts of the formulas, which the search sums in another order ------------------------ */

/* Returns the time of the conversion from op i - 1 in layout `before` to op i in layout l,
 * which reads `mib` MiB, or INFINITY if Aceso has none. */
double aceso_convert_us(const struct aceso_model *m, int i, struct aceso_layout before,
                        struct aceso_layout l, double mib);

/* Returns whether the activations of op i are dropped if it and op i + 1 are marked. */
bool aceso_drops_saved(const struct aceso_model *m, int i);
/* Returns whether a run of marked ops ends behind op i even if op i + 1 is marked. */
bool aceso_run_ends(const struct aceso_model *m, int i);

#endif
