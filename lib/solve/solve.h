/* solve.h - what the four solvers (layout, partition, stages, joint) have in common.
 *
 * They know costs and constraints, nothing of models or devices. Each is anytime: it stops at
 * a time budget, at a proven gap or when interrupted() (progress.h) turns true, and then gives
 * its incumbent. Every answer carries a value, a proven lower bound, and how it was proven;
 * an evaluator that shares no code with the solver re-computes the value before it is given.
 */
#ifndef WEFT_SOLVE_H
#define WEFT_SOLVE_H

#include "common/err.h"
#include "common/json_stream.h"

#include <stdbool.h>
#include <stdint.h>

struct solve_limits {
    double time_budget_s; /* wall seconds from the call; 0 = none */
    double gap;    /* stop when (value - bound) / |bound| <= gap; 0 = prove optimality */
    uint64_t seed; /* same seed, same answer, as long as no time limit strikes */
    int threads;   /* at most; 0 = all cores */
    int64_t steps; /* partition: down-sets that are looked at, about; 0 = any number */
};

/* One per problem: reads a problem document from a stream, which may be larger than memory (the
 * time budget counts the reading), solves it, returns the answer document
 * {"format": "weft-answer/1", "problem": ..., "value", "bound", "gap", "proof", "time_s",
 *  "optimal": true|false, ... the solution ...}.
 * NULL on failure: EXIT_INPUT for bad input, EXIT_NO when there is no answer within the limits
 * (the message names the constraint that cannot be met). Messages begin with the stream's name. */
json_t *solve_layout_json(struct json_stream *problem, const struct solve_limits *limits,
                          struct err *err);
json_t *solve_partition_json(struct json_stream *problem, const struct solve_limits *limits,
                             struct err *err);
json_t *solve_stages_json(struct json_stream *problem, const struct solve_limits *limits,
                          struct err *err);
json_t *solve_joint_json(struct json_stream *problem, const struct solve_limits *limits,
                         struct err *err);

/* What is found out about an answer again. */
struct solve_verdict {
    double value;
    double bound; /* as the answer says: it is not proven again */
};

/* Works the answer document at `path` to a problem of this kind ("layout", ...) out again, without
 * the solver: that it keeps to the problem, that its value is what it says and that its bound is not
 * above. EXIT_NO when something does not hold, EXIT_INPUT when a document is bad; messages begin with
 * the name of the document that they are about. */
int solve_verify(const char *kind, struct json_stream *problem, const char *path,
                 struct solve_verdict *verdict, struct err *err);

#endif
