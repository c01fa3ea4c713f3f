/* aceso.h - Aceso's published profile database and its cost formulas as a source (source.h), after
 * Liu et al., "Aceso: Efficient Parallel DNN Training through Iterative Bottleneck Alleviation",
 * EuroSys 2024, and its artifact, whose formulas are kept as they are, oddities included:
 *
 * - time: a stage is the sum of what its ops took forward and backward (collectives of tensor
 *   parallelism are inside), of what is computed again, of conversions between layouts, and of
 *   what is received and sent;
 * - memory: 8 bytes (4 for ResNet) of state per byte of weights, activations of as many micro-batches
 *   as there are stages from this one on, the largest stretch computed again, and what the allocator
 *   reserves.
 *
 * Reductions of gradients, the update and tied parameters are not in it. An op has tp, dp and an
 * algorithm: layouts split batch on the outer axes, and a dim of tensor parallelism on the inner
 * ones, of which an op with two algorithms has two.
 */
#ifndef WEFT_ACESO_H
#define WEFT_ACESO_H

#include "common/json.h"
#include "plan/plan.h"
#include "search/source/source.h"

/* The database in a folder, for a model such as gpt:1.3B, t5:770M or wide-resnet:1B (resnet:1B), of as
 * many layers as `set` says ("layers=48"; NULL: those of the model). NULL, with an error, where
 * the folder lacks it or a file is wrong. */
struct source *aceso_open(const char *dir, const char *model, const char *set,
                          struct err *err);

/* Aceso's configuration file of a plan over the source's model. A new reference. */
json_t *aceso_document(const struct source *src, const struct plan *plan);

#endif
