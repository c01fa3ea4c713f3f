/* simulate.h - the time of one step by discrete-event simulation of the compiled program.
 *
 * All ranks of a group run alike, so one timeline per group stands for them. Each segment
 * of a stage is cut at its sends, receives and the norm into a few steps whose durations
 * are summed once; an action of the schedule then costs as many operations as it has
 * transfers. A transfer has room for a few messages (its depth, program.h); a sender waits
 * until the oldest has been taken before it packs again. So the state is small, and memory
 * does not grow with the number of micro-batches.
 *
 *     struct simulation sim;
 *     if (simulate_program(program, &cost, NULL, &sim, &err) < 0) ...
 *     printf("%g s\n", sim.time_us / 1e6);
 *     simulation_release(&sim);
 */
#ifndef WEFT_SIMULATE_H
#define WEFT_SIMULATE_H

#include "cost/cost.h"
#include "program/trace.h"

/* Where a stage's time goes. For each group, compute + collective + p2p + update of its
 * stages and its bubble add up to time_us. */
struct sim_stage {
    double compute_us; /* forward and backward computation */
    /* collectives of forward and backward, as far as they are exposed */
    double collective_us;
    double p2p_us;    /* packing, moving and unpacking */
    double update_us; /* the step's end: reductions, norm, optimizer, tied parameters */
    double bubble_us; /* of its group: waiting for others */
    double forward_us, backward_us; /* of one micro-batch, without p2p and waiting */
    /* of backward_us: gradients of weights, where they wait (zero-bubble) */
    double weights_us;
    double end_us; /* when the last action of its group ends */
};

struct simulation {
    double time_us;         /* of one step */
    double low_us, high_us; /* the same, if all times were at their lower or upper bounds */
    double norm_us;         /* of the collective of all ranks, a part of update_us */
    int n_stages;
    struct sim_stage *stages;
    int slowest;     /* the stage with the most busy time: it bounds time */
    int fullest;     /* the stage with the largest arena: it bounds memory */
    int64_t actions; /* actions of the schedule that were simulated, all groups */
    double share[COST_SOURCES_COUNT]; /* of all stages' busy time, by what it rests on */
};

/* Whose events are written, and where. */
struct sim_trace {
    struct trace *trace;
    bool all_ranks; /* false: the first rank of each group */
};

/* Simulates one step. trace may be NULL. Keys that the profile lacks count as 0 and are
 * noted: the caller asks cost_check. Fails only by deadlock, which a checked plan does not
 * have. */
int simulate_program(const struct program *g, struct cost *c, const struct sim_trace *trace,
                     struct simulation *out, struct err *err);
void simulation_release(struct simulation *s);

/* ---- below: the engine alone, for tests -------------------------------------------- */

enum sim_step_kind { SIM_WORK, SIM_SEND, SIM_RECV, SIM_NORM, SIM_START, SIM_WAIT };

/* A piece of a segment. */
struct sim_step {
    enum sim_step_kind kind;
    int transfer;   /* of send and receive */
    int work;       /* of a collective's start and wait */
    double overlap; /* of start: the fraction of us that hides behind computation */
    bool move; /* of start: a copy between device and host, which runs beside collectives */
    double us; /* work and norm: its length; send: packing; recv: unpacking;
                          start: the collective */
    double compute_us; /* of work: the computation in it */
    int first, end;    /* instructions first .. end-1 */
};

struct sim_transfer {
    int from, to;   /* stages */
    double move_us; /* what taking a message costs the receiver */
    double overlap; /* fraction of move_us that can pass before it asks */
    int64_t depth;  /* messages that may be under way, at least 1; 0 counts as 1 */
};

struct sim_input {
    int n_groups, n_stages, n_transfers;
    const struct group_schedule *groups;
    int n_works;            /* the most collectives that a stage starts */
    struct sim_step *steps; /* of all stages and segments */
    int *seg; /* [n_stages * SEG_COUNT + 1], segment s of stage k is j = k * SEG_COUNT + s:
                 steps[seg[j] .. seg[j + 1] - 1] */
    struct sim_transfer *transfers;
};

/* Called for each finished step with when the group came to it and when it ended; for a
 * start, when the collective ran. */
typedef void sim_step_fn(void *ctx, struct action a, const struct sim_step *step,
                         double begin_us, double end_us);

/* Runs the steps; fills time_us, actions and stages (allocated here) of out. fn may be
 * NULL. */
int simulate_run(const struct sim_input *in, sim_step_fn *fn, void *ctx,
                 struct simulation *out, struct err *err);

#endif
