/* Collectives over links: see link_curve.h. */
#include "cost/link_curve.h"

#include <math.h>

/* A tree sends every byte up and down, but not all its links are full at once. */
static const double tree_reached = 0.85;

static double tree_us(const struct link_curve *c, double size, double bytes,
                      double bandwidth) {
    return c->launch_us + 2 * ceil(log2(size)) * c->round_us +
           1e6 * 2 * bytes / (tree_reached * c->reached * bandwidth);
}

double link_curve_us(const struct link_curve *c, enum opcode code, int64_t size,
                     double bytes, const struct link_class *link) {
    double g = (double)size, wire = (g - 1) / g * bytes;
    double bandwidth = code == I_all_to_all ? link->pairs : link->bandwidth;
    if (!link->level || bandwidth <= 0)
        return -1;
    if (code == I_send)
        return c->launch_us + 1e6 * bytes / (c->message * bandwidth);
    if (code == I_all_reduce)
        wire *= 2;
    double ring =
        c->launch_us + (g - 1) * c->round_us + 1e6 * wire / (c->reached * bandwidth);
    if (code != I_all_reduce)
        return ring;
    double tree = tree_us(c, g, bytes, bandwidth);
    return tree < ring ? tree : ring;
}
