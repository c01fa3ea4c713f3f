/* partition.h - the nodes of a DAG on k devices, in convex pieces with an acyclic quotient.
 *
 * The pieces form a pipeline: stage 0 first. A stage is an accelerator or a CPU; at most
 * `accels` and `cpus` of them are used, and none is empty. What counts:
 *
 * - The load of an accelerator is the sum of accel_s, plus send_s once for each node
 *   outside that feeds it, plus send_s once for each own node with a consumer elsewhere.
 * - The load of a CPU is the sum of cpu_s; it pays for no communication.
 * - The value is the largest load.
 * - An accelerator with s stages behind it keeps min(micro_batches, s + 1) micro-batches in
 *   flight and needs sum(size + that many activations) <= max_size; CPUs have no limit.
 *
 * Nodes of one colour class stand on one device. An edge between forward nodes never leads
 * to an earlier stage; a backward node follows its colour class. A class that has no
 * forward node is held by its backward edges: they never lead to a later stage. (Edges from
 * forward to backward nodes, and between backward nodes whose classes both have forward
 * nodes, only cost communication.) This is the problem of Tarnawski et al., "Efficient
 * Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.
 *
 *     struct partition_problem p;
 *     struct partition_answer a;
 *     if (partition_read(stream, &p, err) < 0 || partition_solve(&p, &limits, &a, err) < 0)
 *         return -1;
 *     printf("%g >= %g, node 0 on stage %d\n", a.value, a.bound, a.stage_of[0]);
 *     partition_answer_release(&a), partition_release(&p);
 */
#ifndef WEFT_SOLVE_PARTITION_H
#define WEFT_SOLVE_PARTITION_H

#include "solve/solve.h"

#include <stdbool.h>
#include <stdint.h>

struct partition_node {
    int64_t id;        /* as the document names it */
    double accel_s;    /* latency on an accelerator */
    double cpu_s;      /* latency on a CPU */
    double size;       /* bytes it needs on its device whatever is in flight */
    double activation; /* bytes it needs per micro-batch in flight */
    double send_s;     /* time to send or receive its output */
    int64_t color;     /* index of its colour class, 0..colors-1 */
    bool supported;    /* may stand on an accelerator */
    bool backward;     /* follows its colour class */
};

struct partition_edge {
    int32_t from, to; /* indices of nodes */
};

struct partition_problem {
    struct partition_node *nodes;
    struct partition_edge *edges;
    int32_t n, m;          /* nodes, edges */
    int32_t colors;        /* colour classes; a node without one has its own */
    int accels, cpus;      /* devices at most */
    double max_size;       /* bytes of one accelerator */
    int64_t micro_batches; /* in flight at most */
};

struct partition_answer {
    int32_t *stage_of; /* stage of each node */
    bool *is_cpu;      /* of each stage */
    int stages;
    double value, bound;
    bool optimal;
    const char *proof; /* one line, static */
    int64_t steps;     /* down-sets looked at */
    double time_s;
};

/* Reads the document (doc/solve-partition.md). EXIT_INPUT with the document's name and the
 * place on bad input, EXIT_NO when the deadline of the stream or an interrupt came
 * first. */
int partition_read(struct json_stream *s, struct partition_problem *p, struct err *err);
void partition_release(struct partition_problem *p);

/* Solves the problem. EXIT_NO names the constraint when nothing fits or nothing was
 * found in time. */
int partition_solve(const struct partition_problem *p, const struct solve_limits *limits,
                    struct partition_answer *a, struct err *err);
void partition_answer_release(struct partition_answer *a);

/* What one stage takes, as the evaluator finds it. */
struct partition_stage {
    double load;    /* as defined above */
    double compute; /* latencies alone */
    double memory;  /* bytes with what is in flight */
};

/* The independent evaluator: checks every rule above and computes the value from the nodes
 * and edges alone. out[stages] may be NULL. EXIT_NO names the rule that is broken. */
int partition_check(const struct partition_problem *p, const int32_t *stage_of,
                    const bool *is_cpu, int stages, struct partition_stage *out,
                    double *value, struct err *err);

#endif
