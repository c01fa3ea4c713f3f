/* aceso_graph.h - the configurations of one micro-batch size as paths through a graph
 * (aceso_search.h).
 *
 * A node (behind, at, devices) is the start of a stage at cut `at`: `behind` stages follow
 * it, and together they have `devices` devices. An edge is a stage, and a path from (any,
 * 0, all devices) to the end is a configuration. With N micro-batches its step takes (N -
 * 1) times the longest edge plus the sum of all edges.
 */
#ifndef WEFT_ACESO_GRAPH_H
#define WEFT_ACESO_GRAPH_H

#include "aceso/aceso_search.h"

/* A stage of a path: ops first .. end - 1. */
struct aceso_edge {
    int behind, at, to; /* stages behind it; the cuts where it begins and ends */
    int first, end, devices;
    bool crosses_in, crosses_out; /* the messages in and out are inter-node */
    double us;
};

struct aceso_path {
    int n;
    struct aceso_edge edges[ACESO_MOST_STAGES];
    double us;
    bool solved; /* all of its stages were solved */
};

struct aceso_graph;
/* Creates the graph of the stages that begin and end at cuts[0 .. n - 1], which rise from 0
 * to the number of ops and are borrowed. Paths that take most_us or longer may be left
 * out. */
struct aceso_graph *aceso_graph_create(const struct aceso_problem *p, int64_t micro_batch,
                                       const int *cuts, int n, double most_us);
void aceso_graph_destroy(struct aceso_graph *g);

/* Finds the fastest path below most_us, by the times of solved stages and lower bounds of
 * the others. With `proven`, stages that were not solved exactly also count with their
 * lower bounds. Returns false if there is no such path. */
bool aceso_graph_best(struct aceso_graph *g, double most_us, bool proven,
                      struct aceso_path *out);
/* Solves the stages of a path, each along with all stages that differ from it only in where
 * they end. Updates the times in the path. Returns how many walks that took. */
int aceso_graph_solve(struct aceso_graph *g, double most_us, struct aceso_path *path);
/* Forgets all solved stages. Those that were too slow for their most_us count as
 * impossible, so a search with a higher one must solve them again. */
void aceso_graph_forget(struct aceso_graph *g);
/* Returns the configuration of a solved path. Its stages are solved once more, because only
 * their times were kept. */
struct aceso_config *aceso_graph_config(struct aceso_graph *g,
                                        const struct aceso_path *path);

#endif
