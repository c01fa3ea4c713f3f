/* partition_flow.h - the least cut between two nodes of a small network (Dinic 1970).
 *
 *     struct partition_flow f;
 *     partition_flow_init(&f, 3);
 *     partition_flow_arc(&f, 0, 2, 5);
 *     partition_flow_arc(&f, 2, 1, 3);
 *     double cut = partition_flow_cut(&f);    // from node 0 to node 1: 3
 *     partition_flow_release(&f);
 */
#ifndef WEFT_SOLVE_PARTITION_FLOW_H
#define WEFT_SOLVE_PARTITION_FLOW_H

#include "common/mem.h"

#include <stdint.h>

struct partition_flow_arc {
    int32_t to,
        next; /* next arc of the same node, -1 = none; the reverse arc is at index ^ 1 */
    double room;
};

struct partition_flow {
    int32_t nodes;
    int32_t *head, *level, *now, *queue; /* of each node */
    ARR(struct partition_flow_arc) arcs;
};

void partition_flow_init(struct partition_flow *f, int32_t nodes);
void partition_flow_release(struct partition_flow *f);

/* room may be INFINITY, but no path from node 0 to node 1 may have only such arcs. */
void partition_flow_arc(struct partition_flow *f, int32_t from, int32_t to, double room);

/* The value of the least cut between node 0 and node 1, not above the true one but for rounding. */
double partition_flow_cut(struct partition_flow *f);

#endif
