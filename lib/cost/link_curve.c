/* Collectives over links: see link_curve.h. */
#include "cost/link_curve.h"

#include <math.h>

/* A tree sends every byte up and down, but not all its links are full at once. */
static const double tree_reached = 0.85;

static double bandwidth_of(enum opcode code, const struct link_class *link) {
    return link->level ? code == I_all_to_all ? link->pairs : link->bandwidth : 0;
}

struct curve_shape link_shape(enum opcode code, int64_t size, double bytes,
                              const struct link_class *link) {
    double g = (double)size, us = 1e6 * bytes / bandwidth_of(code, link);
    struct curve_shape s = {.rounds = g - 1, .ring_us = (g - 1) / g * us};
    if (code == I_send)
        s = (struct curve_shape){.rounds = 0, .ring_us = us};
    if (code == I_all_reduce) {
        s.ring_us *= 2;
        s.levels = 2 * ceil(log2(g));
        /* Of two nodes, each sends every byte once while it receives the other's. */
        s.tree_us = link->nodes == 2 ? us : 2 * us / tree_reached;
    }
    return s;
}

double link_curve_us(const struct link_curve *c, enum opcode code, int64_t size,
                     double bytes, const struct link_class *link) {
    double bandwidth = bandwidth_of(code, link);
    if (bandwidth <= 0)
        return -1;
    if (code == I_send)
        return c->curve.p[CURVE_LAUNCH] + 1e6 * bytes / (c->message * bandwidth);
    struct curve_shape s = link_shape(code, size, bytes, link);
    return curve_us(NULL, &c->curve, &s);
}
