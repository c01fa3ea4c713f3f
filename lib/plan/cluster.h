/* cluster.h - the machines that a plan is meant for (weft-cluster(5)).
 *
 * A cluster is equal nodes with equal devices; ranks fill the nodes in order, so rank r
 * stands on node r / devices_per_node. Every tool takes a cluster in the same three ways: a
 * synthetic string, a file, or the name of a shipped file.
 *
 *     struct cluster c;
 *     if (cluster_read(&c, "node:4 gpu:8", &err) < 0) ...
 *     bool cross = cluster_node_of(&c, 7) != cluster_node_of(&c, 8);    // true
 */
#ifndef WEFT_CLUSTER_H
#define WEFT_CLUSTER_H

#include "common/err.h"

#include <stdint.h>

enum { CLUSTER_MAX_NAME = 64 };

struct cluster {
    int64_t nodes;
    int64_t devices_per_node;
    char device[CLUSTER_MAX_NAME]; /* kind, as the profile names it; "" = not said */
    int64_t memory_bytes;          /* of one device; 0 = not said */
    double flops;                  /* peak of one device per second; 0 = not known */
};

/* Reads "node:4 gpu:8" (the second level may be called gpu, cpu or device; "gpu:8" alone is
 * one node), a file (a '/' in it, .json at its end, or "-"), or the name of a shipped
 * cluster. */
int cluster_read(struct cluster *c, const char *ref, struct err *err);

/* One node that holds all: what holds when nobody names a cluster. */
struct cluster cluster_single_node(int64_t devices);

int64_t cluster_devices(const struct cluster *c);
int64_t cluster_node_of(const struct cluster *c, int64_t rank);

#endif
