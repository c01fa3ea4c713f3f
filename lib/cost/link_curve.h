/* link_curve.h - how long collectives and messages take over a link, as a curve of physical form.
 *
 * A collective is launched, takes g - 1 rounds, each with its latency, and moves its bytes
 * at a fraction of what its slowest hop promises to each flow (links.h). An all-reduce may
 * take a tree instead, whose latency grows with the logarithm of the group (NCCL's double
 * binary tree; Sanders, Speck, Traff 2009). Small collectives take a protocol with short
 * rounds that spends more on each byte, large ones another (NCCL's LL and Simple).
 *
 *     struct curve_shape s = link_shape(I_all_reduce, 8, 1 << 20, &link);
 *     double us = curve_us(NULL, &l->curve, &s);
 */
#ifndef WEFT_LINK_CURVE_H
#define WEFT_LINK_CURVE_H

#include "cost/curve.h"
#include "cost/links.h"

struct link_curve {
    struct curve curve; /* of form CURVE_LINK */
    double
        message; /* fraction of the bandwidth that one message between two ranks reaches */
};

/* A collective of `size` ranks over a link whose bandwidth is known. bytes: as profiles count them
 * (profile.h). */
struct curve_shape link_shape(enum opcode code, int64_t size, double bytes,
                              const struct link_class *link);

/* Microseconds of a collective of `size` ranks; code == I_send: of one message. Negative where the
 * cluster gives no bandwidth. */
double link_curve_us(const struct link_curve *c, enum opcode code, int64_t size,
                     double bytes, const struct link_class *link);

#endif
