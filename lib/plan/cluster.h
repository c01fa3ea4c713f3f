/* cluster.h - the machines that a plan is meant for (weft-cluster(5)).
 *
 * A cluster is groups of nodes; the nodes of a group are alike, in number and kind of devices
 * and in the links inside them. Ranks fill the nodes in order. Links stand on levels, innermost
 * first: those inside a node (its last is the node itself), then those between nodes. A unit of
 * a level is made of units of the level below; the link of a level is what each of those has to
 * the others, and two ranks talk over the link of the lowest level that holds both. Nothing says
 * that an inner link is the faster one.
 *
 * Every tool takes a cluster in the same three ways: a synthetic string, a file, or the name of
 * a shipped file. A plan carries the cluster that it was made for.
 *
 *     struct cluster c;
 *     if (cluster_read(&c, "node:4 gpu:8", &err) < 0) ...
 *     bool cross = cluster_node_of(&c, 7) != cluster_node_of(&c, 8);    // true
 */
#ifndef WEFT_CLUSTER_H
#define WEFT_CLUSTER_H

#include "common/dtype.h"
#include "common/err.h"
#include "common/json.h"
#include "plan/reserve.h"

#include <stdbool.h>
#include <stdint.h>

enum { CLUSTER_MAX_NAME = 64, CLUSTER_MAX_GROUPS = 16, CLUSTER_MAX_LEVELS = 4 };

/* Types of numbers of which datasheets tell the speed: those that plans compute in. */
enum { CLUSTER_DTYPES = DTYPE_f16 + 1 };

/* What the units of the level below have to each other. Zero speeds are not said. */
struct cluster_link {
    char level[16];
    int64_t size;      /* devices (inside a node) or nodes (between nodes) in one unit */
    double bandwidth;  /* bytes per second out of one unit of the level below; as many in */
    int64_t lanes;     /* equal parts of it; two devices talk over one of them */
    bool cube;         /* a hybrid cube mesh: not every device has a lane to every other */
    double latency_us; /* of one message */
};

/* Nodes that are alike. */
struct cluster_group {
    int64_t nodes, devices;         /* devices of one node */
    int64_t first_node, first_rank; /* of the group */
    char device[CLUSTER_MAX_NAME];  /* kind, as the profile names it; "" = not said */
    char model[CLUSTER_MAX_NAME];   /* device model (weft-device(5)); "" = none */
    int64_t memory_bytes;           /* of one device; 0 = not said */
    struct reserve reserve;         /* of that, what no plan may have; zero if not said */
    double flops[CLUSTER_DTYPES];   /* peak of one device per second; 0 = not said */
    double bandwidth;               /* of its memory, bytes per second; 0 = not said */
    /* between a device and its host's memory, each way; 0 = not said */
    double host_bandwidth;
    double latency_us; /* of one instruction, at least */
    double speed; /* its instructions take their time over this; 0 = not said: as it is */
    int n_links;  /* levels inside the node, at least 1 */
    struct cluster_link links[CLUSTER_MAX_LEVELS];
};

struct cluster {
    int n_groups, n_links;
    struct cluster_group groups[CLUSTER_MAX_GROUPS];
    /* between nodes; the last holds them all */
    struct cluster_link links[CLUSTER_MAX_LEVELS];
};

/* Reads "h100:16x8" (16 nodes of 8 devices of a kind that ships with a device model, with its usual
 * network or, as in "h100:16x8 net:200G", with another), "node:4 gpu:8" (the last level may be
 * called gpu, cpu or device; alone it is one node; rack and switch may stand before node and before
 * the devices), a file (a '/' in it, .json at its end, or "-"), or the name of a shipped cluster. */
int cluster_read(struct cluster *c, const char *ref, struct err *err);
/* From a document, or from a JSON string that holds one of these; and back (a new reference). */
int cluster_from_json(struct cluster *c, const json_t *doc, struct err *err);
json_t *cluster_to_json(const struct cluster *c);

/* One node that holds all: what holds when nobody names a cluster. */
struct cluster cluster_single_node(int64_t devices);

/* Is a kind of device a GPU's? "h100-80gb", "l4" and "gpu" are, "cpu-1t" and names of the user's own
 * ("toy") are not. */
bool cluster_kind_is_gpu(const char *kind);

int64_t cluster_nodes(const struct cluster *c);
int64_t cluster_devices(const struct cluster *c);
int64_t cluster_node_of(const struct cluster *c, int64_t rank);
const struct cluster_group *cluster_group_of(const struct cluster *c, int64_t rank);

/* Of ranks first .. first + n - 1: the least and the most memory of a device that a plan may have,
 * which is without what is reserved whatever the plan is (0: not said of any), and their peaks
 * together (0: not said of all). */
int64_t cluster_memory(const struct cluster *c, int64_t first, int64_t n);
int64_t cluster_most_memory(const struct cluster *c, int64_t first, int64_t n);
double cluster_flops(const struct cluster *c, enum dtype type, int64_t first, int64_t n);

/* The first rank of the group from which on n ranks stand as they do from `first`: equal devices
 * behind equal links. */
int64_t cluster_alias(const struct cluster *c, int64_t first, int64_t n);

/* A unit of a level around a rank: k = 0 is the innermost level. False when there is none so
 * far out. */
struct cluster_unit {
    const struct cluster_link *link; /* inside it, between the units of the level below */
    int level;                       /* the same number for the same level of a group */
    bool cross;                      /* a level between nodes */
    int64_t first, end;              /* its ranks */
};
enum { CLUSTER_LEVELS = 2 * CLUSTER_MAX_LEVELS }; /* numbers of levels are below */
bool cluster_unit(const struct cluster *c, int64_t rank, int k, struct cluster_unit *out);

#endif
