/* floors.h - what an op costs at least, whichever stage it is in and whatever its neighbours
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
 * mesh axes count once. tests/unit/search-bound.c compares floors with compiled plans.
 *
 *     struct floors *f = floors_make(s, NULL);
 *     struct floor_op o = floors_at(f, op, 4, 8);       // micro-batch 4 on 8 devices
 *     for (int i = 0; i < o.n; i++) ... o.ways[i].us ...
 *     floors_free(f);
 */
#ifndef WEFT_FLOORS_H
#define WEFT_FLOORS_H

#include "search/space/devices.h"

/* On more devices it does not matter whether sums run within nodes or between them. */
enum { BOUND_PLACED_DEVICES = 128 };

/* What an op keeps: its operands, and what is its own. */
enum { FLOOR_OWN = KIND_MAX_SLOTS, FLOOR_ITEMS };

/* With one layout and level of ZeRO. A way that is left out is in nothing better than another
 * that is there. */
struct floor_way {
    double us;                /* of a micro-batch, forward and backward */
    double step_us;           /* once a step */
    double fixed;             /* bytes */
    double kept[FLOOR_ITEMS]; /* bytes of a micro-batch in flight */
};

struct floor_op {
    int n;                        /* 0: no layout is legal, or the profile lacks all */
    const struct floor_way *ways; /* valid until floors_free */
    double again_us[FLOOR_ITEMS]; /* of not keeping it; INFINITY where it must be kept */
    double forward_us;            /* what it computes of a micro-batch going forward */
};

/* class: floors of groups that touch these devices, which are no faster than these devices;
 * NULL: for every op the devices that are fastest at it. */
struct floors *floors_make(struct search *s, const struct device_class *class);
void floors_free(struct floors *f);
/* Of an op of the excerpt, with one of the problem's micro-batches. */
struct floor_op floors_at(struct floors *f, int op, int64_t micro_batch, int devices);
/* The least time over a step of so many micro-batches, with a price for a byte and so many
 * micro-batches in flight. */
double floor_least(const struct floor_op *o, double micro_batches, double in_flight,
                   double us_per_byte);
/* What of a floor is adding a contribution to the gradient of a tensor of so many elements:
 * each of its readers but the first has it. */
double floors_addition_us(struct floors *f, int devices, enum dtype dtype, double elems);
/* Can so many devices be better than the number without one of its prime factors? Not where no
 * op can be split that often. */
bool floors_of_use(const struct floors *f, int64_t micro_batch, int devices);

#endif
