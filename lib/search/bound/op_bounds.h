/* op_bounds.h - what an op costs at least, whichever stage it is in and whatever its neighbours
 * are.
 *
 * Some instructions of an op compiled alone are there only because it is alone (it takes and
 * sends, and converts what it takes or gives to another placement). The others are there in any
 * stage. The floor of an op has those that no neighbour saves:
 *
 * - what it computes, forward and backward; the optimizer's work on its parameters;
 * - that a result which comes out as parts of a sum is summed; of a tensor's gradients, which
 *   come so from several readers, each has its share of one sum;
 * - that gradients of a tensor's readers are added up (where a reader is in another stage than
 *   the others, the message with the tensor, if that takes less);
 * - gradients of parameters summed over those that hold the same; what ZeRO gathers;
 * - bytes of its parameters, and of what it keeps for its backward pass. What several ops keep
 *   is kept by the first of them. It need not be kept if the op that made it makes it again, at
 *   that price.
 *
 * Left out are conversions where layouts of neighbours disagree, messages, temporaries. Groups
 * of devices are where their links are best. Layouts that differ only in the order of equal
 * mesh axes count once. tests/unit/search-bound.c compares lower bounds with compiled plans.
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

/* On more devices it does not matter whether sums run within nodes or between them. */
enum { BOUND_PLACED_DEVICES = 128 };

/* What an op keeps: its operands, and what is its own. */
enum { OP_BOUND_OWN = KIND_MAX_SLOTS, OP_BOUND_ITEMS };

/* With one layout and level of ZeRO. A way that is left out is in nothing better than another
 * that is there. */
struct op_bound_strategy {
    double us;                   /* of a micro-batch, forward and backward */
    double step_us;              /* once a step */
    double fixed;                /* bytes */
    double kept[OP_BOUND_ITEMS]; /* bytes of a micro-batch in flight */
};

struct op_bound {
    int n; /* 0: no layout is legal, or the profile lacks all */
    const struct op_bound_strategy *strategies; /* valid until op_bounds_free */
    double recompute_us
        [OP_BOUND_ITEMS]; /* of not keeping it; INFINITY where it must be kept */
    double forward_us;    /* what it computes of a micro-batch going forward */
};

/* class: lower bounds of groups that touch these devices, which are no faster than these devices;
 * NULL: for every op the devices that are fastest at it. */
struct op_bounds *op_bounds_make(struct evaluate *ev, const struct device_class *class);
void op_bounds_free(struct op_bounds *f);
/* Of an op of the deduplicated model, with one of the problem's micro-batches. */
struct op_bound op_bounds_at(struct op_bounds *f, int op, int64_t micro_batch, int devices);
/* The least time over a step of so many micro-batches, with a price for a byte and so many
 * micro-batches in flight. */
double op_bound_least(const struct op_bound *o, double micro_batches, double in_flight,
                      double us_per_byte);
/* What of a floor is adding a contribution to the gradient of a tensor of so many elements:
 * each of its readers but the first has it. */
double op_bounds_addition_us(struct op_bounds *f, int devices, enum dtype dtype,
                             double elems);
/* Can so many devices be better than the number without one of its prime factors? Not where no
 * op can be split that often. */
bool op_bounds_of_use(const struct op_bounds *f, int64_t micro_batch, int devices);

#endif
