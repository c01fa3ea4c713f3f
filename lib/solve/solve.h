/* solve.h - solvers of the combinatorial problems that a plan search leaves behind.
 *
 * They know costs and constraints, but nothing of models or devices. Those that searches
 * call come first:
 *
 *   layout     one strategy per node of a graph, within memory: the layouts of a stage
 *   stages     a chain of layers as stages on consecutive devices: where pipelines are cut
 *   relax      pipelines by descent on a relaxed problem, without a proof: `gradient`
 *   partition  the nodes of a graph on devices, in convex pieces: models that are no chain
 *   critical   one value per variable under tables over a few of them each: `ilp`
 *   lp         small integer programs through lp_solve, whose answers are all checked; for
 *              critical
 *   joint      stages, data and tensor degrees and recomputation at once: Piper's table; no
 *              search calls it
 *
 * layout, stages, partition and joint also take problems as documents, for weft-solve(1),
 * and have a page each in doc/. These four are anytime: they stop at a time budget, at a
 * proven gap or when interrupted() (progress.h) turns true, and then give the incumbent.
 * Every answer carries a value, a proven lower bound, and how that was proven. An evaluator
 * that shares no code with the solver computes the value again before it is given.
 *
 *     struct solve_limits limits = {.time_budget_s = 10, .seed = 1};
 *     json_t *answer = solve_document(&solve_layout, &stream, &limits, &err);
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
    int64_t steps; /* partition: how many down-sets to look at, about; 0 = any number */
};

/* A kind of problem, with its solver and its evaluator. */
struct solve_kind {
    const char *name, *about;
    /* Reads a problem document from a stream, which may be larger than memory. NULL on
     * failure: EXIT_INPUT for bad input, EXIT_NO when the stream's deadline or an interrupt
     * came first. Messages begin with the stream's name. */
    void *(*read)(struct json_stream *s, struct err *err);
    /* Returns the document of solve_answer() (solve_doc.h) with the solution added. NULL
     * with EXIT_NO when there is no answer within the limits; the message names the
     * constraint that cannot be met. */
    json_t *(*solve)(const void *problem, const struct solve_limits *limits,
                     struct err *err);
    /* Computes the value of an answer document again, with none of the solver's code. -1
     * when the answer violates the problem. */
    int (*check)(const void *problem, const json_t *answer, double *value, struct err *err);
    void (*release)(void *problem);
};
extern const struct solve_kind solve_layout, solve_stages, solve_partition, solve_joint;

/* All kinds, ended by NULL. */
extern const struct solve_kind *const solve_kinds[];

/* Reads a problem, which counts against the time budget, solves it, has the answer checked,
 * and returns it:
 * {"format": "weft-answer/1", "problem": ..., "value", "bound", "gap", "proof", "time_s",
 *  "optimal": true|false, ... the solution ...}.
 * NULL on failure, as for the functions of the kind. */
json_t *solve_document(const struct solve_kind *kind, struct json_stream *problem,
                       const struct solve_limits *limits, struct err *err);

/* What checking an answer document finds. */
struct solve_verdict {
    double value;
    double bound; /* as the answer states it: a bound is not proven again */
};

/* Checks the answer document at `path` against its problem: that it satisfies the
 * constraints, that its value is as stated and that its bound is not above the value.
 * EXIT_NO when one of these fails, EXIT_INPUT when a document is bad. Messages begin with
 * the name of the document that they are about. */
int solve_verify(const struct solve_kind *kind, struct json_stream *problem,
                 const char *path, struct solve_verdict *verdict, struct err *err);

#endif
