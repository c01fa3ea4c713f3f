/* waterfall.h - where the time of a step goes, from the peak of the devices down to what is reached.
 *
 * For the busiest device group: what the model's products would take if all devices of the
 * job computed them evenly at their peak, then what comes on top, term by term. The terms
 * add up to the simulated step to the nanosecond, and the last is what no other explains.
 * Each is how much faster the group would be if that alone cost nothing, unless something
 * else takes its place.
 *
 *     struct waterfall w;
 *     if (waterfall_find(program, &cost, &sim, flops, &w, &err) < 0) ...
 *     for (int i = 0; i < WATERFALL_COUNT; i++)
 *         printf("%s %g us\n", waterfall_name(i), (double)w.ns[i] / 1e3);
 */
#ifndef WEFT_WATERFALL_H
#define WEFT_WATERFALL_H

#include "cost/simulate.h"

/* id, what it is in words */
#define WATERFALL_TERMS(X)                                                                 \
    X(peak, "the model's products at the peak of all devices")                             \
    X(uneven, "products of this group beyond its even share")                              \
    X(recompute, "results that are computed again")                                        \
    X(products, "products below the peak")                                                 \
    X(attention, "attention below the peak")                                               \
    X(memory, "what moves memory")                                                         \
    X(collectives, "collectives that nothing hides")                                       \
    X(host, "waiting for the host to issue kernels")                                       \
    X(messages, "messages between stages")                                                 \
    X(update, "the step's end: reductions, norm, optimizer")                               \
    X(bubble, "waiting for other stages")                                                  \
    X(rest, "what is left")
enum waterfall_term {
#define X(id, about) WATERFALL_##id,
    WATERFALL_TERMS(X)
#undef X
        WATERFALL_COUNT
};
const char *waterfall_name(enum waterfall_term t);
const char *waterfall_about(enum waterfall_term t);

struct waterfall {
    int stage; /* the one that bounds time; the terms are about its group */
    int64_t ns
        [WATERFALL_COUNT]; /* add up to the simulated step; uneven and rest may be negative */
};

/* flops: of the model's products in a step (forward and backward, nothing computed again). -1 with
 * exit status 3 where the cluster does not say the devices' peak in the plan's type. */
int waterfall_find(const struct program *g, struct cost *c, const struct simulation *sim,
                   double flops, struct waterfall *out, struct err *err);

#endif
