/* op_bounds.h - the least costs of an op, whichever stage it is in and whatever its
 * neighbours are.
 *
 * If an op is compiled alone, some instructions are there only because it is alone: it
 * receives and sends, and converts operands and results to another placement. All
 * others are there in any stage. The lower bound of the op has those that no neighbour
 * can save:
 *
 * - what it computes, forward and backward, and the optimizer's work on its
 *   parameters;
 * - the reduction of a result that is a partial sum; if a tensor's gradients from
 *   several readers are partial sums, each has a share of one reduction;
 * - adding up the gradients of a tensor's readers (or the message with the tensor to a
 *   reader in another stage, if that takes less);
 * - reducing the gradients of parameters over the devices that hold the same ones, and
 *   gathering what ZeRO shards;
 * - the bytes of its parameters, and of what it keeps for its backward pass. What
 *   several ops keep is charged to the first of them. It need not be kept if the op that
 *   made it computes it again, which then costs that time.
 *
 * Conversions between layouts of neighbours, messages and temporaries are left out.
 * Groups of devices are assumed to stand where their links are best. Layouts that differ
 * only in the order of equal mesh axes count once. tests/unit/search-bound.c compares
 * lower bounds with compiled plans.
 *
 *     struct op_bounds *f = op_bounds_make(ev, NULL);
 *     struct op_bound o = op_bounds_at(f, op, 4, 8);       // micro-batch 4 on 8 devices
 *     for (int i = 0; i < o.n; i++) ... o.strategies[i].us ...
 *     op_bounds_free(f);
 */
#ifndef WEFT_OP_BOUNDS_H
#define WEFT_OP_BOUNDS_H

#include "search/evaluate/evaluate.h"
#include "search/space/devices.h"

/* On more devices bounds do not distinguish whether reductions run within nodes or
 * between them, to keep the number of layouts small. */
enum { BOUND_PLACED_DEVICES = 128 };

/* What an op keeps for its backward pass: operands, and tensors of its own. */
enum { OP_BOUND_OWN = KIND_MAX_SLOTS, OP_BOUND_ITEMS };

/* The costs with one layout and level of ZeRO. Strategies that are no better in anything
 * than a listed one are left out. */
struct op_bound_strategy {
    double us;                   /* of a micro-batch, forward and backward */
    double step_us;              /* once in a step */
    double fixed;                /* bytes */
    double kept[OP_BOUND_ITEMS]; /* bytes for each micro-batch in flight */
};

struct op_bound {
    int n; /* 0: no layout is legal, or the profile lacks all of them */
    const struct op_bound_strategy *strategies; /* valid until op_bounds_free */
    /* of computing it again instead of keeping it; INFINITY if it must be kept */
    double recompute_us[OP_BOUND_ITEMS];
    double forward_us; /* the forward time of a micro-batch */
};

/* class: the lower bounds are for groups that include some of these devices and so are no
 * faster than they are. NULL: every op is timed on the devices that are fastest at it. */
struct op_bounds *op_bounds_make(struct evaluate *ev, const struct device_class *class);
void op_bounds_free(struct op_bounds *f);
/* Returns the strategies of an op of the deduplicated model, with one of the problem's
 * micro-batches. */
struct op_bound op_bounds_at(struct op_bounds *f, int op, int64_t micro_batch, int devices);
/* The least time of the op over a step of this many micro-batches, with a dual of
 * us_per_byte microseconds for each byte and this many micro-batches in flight. */
double op_bound_least(const struct op_bound *o, double micro_batches, double in_flight,
                      double us_per_byte);
/* The part of a lower bound that adds to the gradient of a tensor with this many elements.
 * Every reader of the tensor but the first has it. */
double op_bounds_addition_us(struct op_bounds *f, int devices, enum dtype dtype,
                             double elems);
/* Returns whether this many devices can be faster than the number without one of its prime
 * factors. They cannot if no op can be split that often. */
bool op_bounds_of_use(const struct op_bounds *f, int64_t micro_batch, int devices);

#endif
