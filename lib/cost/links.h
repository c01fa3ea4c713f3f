/* links.h - the links that a group of ranks, or a message, takes in a cluster.
 *
 * A collective runs as a ring through its group in the order of ranks. Every hop takes the
 * link of the lowest level that holds both ends. All hops that leave the same unit share
 * that link, those of the stage's other groups included, since all run at once. The slowest
 * hop sets the ring's speed.
 *
 *     struct link_class l = links_of_group(&cluster, &mesh, first_rank, axes);
 *     us = 2 * (n - 1) * (bytes / n / l.bandwidth * 1e6 + l.latency_us);    // an all-reduce
 */
#ifndef WEFT_LINKS_H
#define WEFT_LINKS_H

#include "plan/cluster.h"
#include "plan/mesh.h"

struct link_class {
    /* of the slowest hop, borrowed from the cluster; NULL: no hop at all */
    const char *level;
    bool cross;       /* some hop leaves a node */
    int64_t nodes;    /* that the group stands on */
    int64_t flows;    /* that share the slowest hop's link */
    double bandwidth; /* bytes per second of one flow there; 0 = the cluster does not say */
    /* bytes per second that a rank sends where each sends to all (all-to-all) */
    double pairs;
    /* bytes per second of one flow where each rank sends to any one other */
    double partners;
    double latency_us; /* of the slowest link of the ring */
};

/* The slowest hop of all groups of a stage along these axes, which run at the same time. */
struct link_class links_of_group(const struct cluster *c, const struct mesh *mesh,
                                 int64_t first_rank, unsigned axes);

/* All ranks first .. first + n - 1, as one group. */
struct link_class links_of_ranks(const struct cluster *c, int64_t first, int64_t n);

/* Messages to each of n ranks from `receiver` on, each from another sender; the one from
 * `sender` to `receiver` stands for them. */
struct link_class links_of_message(const struct cluster *c, int64_t sender,
                                   int64_t receiver, int64_t n);

#endif
