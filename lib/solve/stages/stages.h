/* stages.h - slicing a chain of layers into pipeline stages on consecutive devices.
 *
 * Layers 0..L-1 are cut into consecutive stages; the stages stand, in order, on consecutive
 * devices of the row 0..D-1. A stage takes one choice: a submesh (a number of devices,
 * possibly only at certain places of the row) and a configuration on it, which has a time
 * per micro-batch and a greatest number of successor stages that memory allows (with 1F1B,
 * a stage with s successors keeps s + 1 micro-batches alive). With B micro-batches,
 *
 *     value = sum over stages of t_i + (B - 1) * max over stages of t_i
 *
 * The document formats are in weft-solve(1); stages_read.c makes a struct stages_problem of
 * them, stages.c drives the search, stages_dp.c holds the passes over the layers, and
 * stages_check.c works every answer out again from the document alone.
 */
#ifndef WEFT_SOLVE_STAGES_H
#define WEFT_SOLVE_STAGES_H

#include "solve/stages/stages_table.h"

#include <stdbool.h>
#include <stdint.h>

/* One column of the cost table: a configuration on a submesh. */
struct stages_config {
    int submesh, config; /* as the document numbers them */
    /* additive form; NULL/0 in the dense form */
    double *time, *state, *activation; /* per layer */
    double fixed_time, workspace, capacity;
};

/* A configuration at its places of the row. d counts the devices that are left for this
 * stage and all later ones, so the stage stands on devices D-d .. D-d+size-1. */
struct stages_choice {
    int config; /* index into configs */
    int size;   /* devices */
    int lo, hi; /* allowed d, */
    int step;   /* every so many of them from lo on; 0 = all */
};

static inline int stages_choice_step(const struct stages_choice *c) {
    return c->step > 1 ? c->step : 1;
}
static inline bool stages_choice_allows(const struct stages_choice *c, int d) {
    return d >= c->lo && d <= c->hi && (d - c->lo) % stages_choice_step(c) == 0;
}

struct stages_problem {
    int layers, devices;
    double micro_batches;
    bool use_all;   /* every device must be used */
    int max_stages; /* at most so many */
    int num_configs, num_choices;
    struct stages_config *configs;
    struct stages_choice *choices;
    /* Dense form: the document's tables (stages_table_cell() x num_configs); NULL in the
     * additive form. dense_succ holds numbers of successors, -1 = never fits; NULL: any
     * number fits. */
    const double *dense_time;
    const int16_t *dense_succ;
};

/* A document: its tables, and all other members as a tree. */
struct stages_doc {
    json_t *rest;
    struct stages_table cost, succ;
};

/* Reads the document and makes a problem of it, which borrows the tables: release the
 * problem first. EXIT_INPUT with the document's name and the place, EXIT_NO when the
 * deadline of the stream or an interrupt came first. */
int stages_read(struct stages_problem *p, struct stages_doc *doc, struct json_stream *s,
                struct err *err);
void stages_release(struct stages_problem *p);
void stages_doc_release(struct stages_doc *doc);

/* Computes the costs of stages first..k for k = first..end-1 with configuration c: t[k],
 * succ[k]; t = INFINITY where a stage is impossible. succ is capped at the number of
 * layers. Returns end: all longer stages take more than limit. */
int stages_row(const struct stages_problem *p, int first, int c, double limit, double *t,
               int *succ);

struct stages_stage {
    int first, last; /* layers, inclusive */
    int choice;
    int device; /* first device */
    double time;
};

/* A chain of at most `devices` stages. */
struct stages_plan {
    int n;
    struct stages_stage *stages;
    double sum, max, value;
};

struct stages_answer {
    struct stages_plan plan;
    double bound;                 /* no plan is cheaper */
    int64_t passes, label_passes; /* all; those with memory */
};

/* Solves the problem, fills *a (release it) and returns 0. EXIT_NO when there is no plan
 * (the message names what cannot be met) or none was found in time; EXIT_SYSTEM when
 * memory is short. */
int stages_solve(const struct stages_problem *p, const struct solve_limits *limits,
                 struct stages_answer *a, struct err *err);
void stages_answer_release(struct stages_answer *a);

/* Computes the value of an answer again from the document alone. EXIT_NO when it does
 * not keep to the document. */
int stages_check(const struct stages_doc *doc, const json_t *answer, double *value,
                 struct err *err);

#endif
