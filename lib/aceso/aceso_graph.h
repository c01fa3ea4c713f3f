/* aceso_graph.h - the configurations of one micro-batch as paths through a graph (aceso_search.h).
 *
 * A node is (behind, at, devices): `behind` stages follow the one that begins there, at cut `at`, with
 * so many devices from there on. A path from (any, 0, all devices) on is a configuration; its time is
 * (N - 1) times its longest edge plus all of them.
 */
#ifndef WEFT_ACESO_GRAPH_H
#define WEFT_ACESO_GRAPH_H

#include "aceso/aceso_search.h"

/* A stage of a path: ops first .. end - 1. */
struct aceso_edge {
    int behind, at, to; /* cuts */
    int first, end, devices;
    bool crosses_in, crosses_out; /* at the edge of a node */
    double us;
};

struct aceso_path {
    int n;
    struct aceso_edge edges[ACESO_MOST_STAGES];
    double us;
    bool solved; /* all of its stages */
};

struct aceso_graph;
/* Stages begin and end at cuts[0 .. n - 1], the first of which is 0, the last the number of ops. Paths
 * that take most_us or longer are left out. */
struct aceso_graph *aceso_graph_create(const struct aceso_problem *p, int64_t micro_batch,
                                       const int *cuts, int n, double most_us);
void aceso_graph_destroy(struct aceso_graph *g);

/* The best path below most_us, by the times of the stages that were solved and bounds of the
 * others; proven: by bounds of those, too, that were not solved exactly. False where there is none. */
bool aceso_graph_best(struct aceso_graph *g, double most_us, bool proven,
                      struct aceso_path *out);
/* Solves the stages of a path, and with them others that begin as they do; returns how many walks that
 * took. The path's time is what they take then. */
int aceso_graph_solve(struct aceso_graph *g, double most_us, struct aceso_path *path);
/* Forgets what was solved: stages that take longer than allowed then are not known. */
void aceso_graph_forget(struct aceso_graph *g);
/* The layouts and marks of a path's stages. */
struct aceso_config *aceso_graph_config(struct aceso_graph *g,
                                        const struct aceso_path *path);

#endif
