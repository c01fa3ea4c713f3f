/* link_curve.h - how long collectives and messages take over a link, as a curve of physical form.
 *
 * A collective is launched, goes round in g - 1 rounds of which each has its latency, and moves its
 * bytes at a fraction of what the links of its slowest hop promise to each of the flows there
 * (links.h). A large group of an all-reduce may take a tree instead, whose latency grows with the
 * logarithm of the group (NCCL's double binary tree; Sanders, Speck, Traff 2009).
 */
#ifndef WEFT_LINK_CURVE_H
#define WEFT_LINK_CURVE_H

#include "cost/links.h"
#include "program/instr.h"

struct link_curve {
    double launch_us; /* of a collective or message, whatever its size */
    double round_us;  /* of a round more */
    double reached;   /* fraction of the bandwidth, 0..1 */
    double message;   /* the same of one message between two ranks */
    double within;    /* the truth lies in t / (1 + within) .. t * (1 + within) */
};

/* Microseconds of a collective of `size` ranks; code == I_send: of one message. Negative where the
 * cluster gives no bandwidth. bytes: as profiles count them (profile.h). */
double link_curve_us(const struct link_curve *c, enum opcode code, int64_t size,
                     double bytes, const struct link_class *link);

#endif
