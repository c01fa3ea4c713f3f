/* cost.h - how long an instruction of a compiled program takes, in microseconds.
 *
 * Times come from a provider (provider.h). Computation is asked for by its local shape on the
 * devices of the stage; a collective by bytes, group size, stride and the link that its ring runs
 * over, which follows from the cluster and the ranks that the plan gives the stage. What the
 * provider does not know costs 0 and is noted, each distinct key once with a count: cost_check
 * turns the notes into an error, so no prediction is ever made from a guess.
 *
 *     struct cost c;
 *     cost_init(&c, provider, &cluster);
 *     struct stage_cost sc;
 *     cost_stage(&c, plan, &sp, &sc);            // sp from stage_compile: for the search
 *     if (cost_check(&c, "profile.db", "plan.json", plan, &err) < 0) ...
 *     cost_release(&c);
 */
#ifndef WEFT_COST_H
#define WEFT_COST_H

#include "common/hashtable.h"
#include "cost/link_memo.h"
#include "cost/op_memo.h"
#include "cost/provider.h"

/* What a collective, or a send (which stands for p2p), is keyed by. */
struct comm_key {
    int64_t size, stride, cross, bytes;
};

/* A key that the provider lacks. */
struct cost_key {
    struct instr_key instr; /* where it communicates, only the opcode is set */
    struct comm_key comm;   /* where it computes, all 0 */
    int group;              /* the cluster's group of devices */
    int64_t count;          /* how often it was asked for */
};
bool cost_key_is_comm(const struct cost_key *k);

/* Factors by which times of a step grow where something is slow (scenario.h). */
struct cost_slowdown {
    struct stage_slowdown {
        double compute;
        double link[2]; /* inside a node; where a hop leaves it */
    } * stages;         /* by stage of the plan */
    double job[2];      /* as link, for what all ranks do together */
};

struct cost {
    const struct cost_provider *provider; /* borrowed; NULL: one that knows nothing */
    const struct cost_slowdown *slowdown; /* borrowed; NULL: nothing is slow */
    bool whole_recompute; /* recomputed ops run again whole, needed or not */
    struct cluster cluster;
    struct cost_key *missing; /* in the order of first need */
    int64_t n_missing, cap_missing;
    struct hashtable missing_table; /* over missing */
    struct link_memo links;
    struct op_memo ops;
};

/* provider must outlive c; the cluster is copied. Cannot fail. */
void cost_init(struct cost *c, const struct cost_provider *provider,
               const struct cluster *cluster);
void cost_release(struct cost *c);

/* Forgets what was missing so far (a search goes on with another candidate). */
void cost_forget(struct cost *c);

/* One instruction of a stage of a checked plan, whose first_rank and devices are used.
 * send, recv and input cost 0 here, since a transfer has two ends: see cost_transfer. */
struct cost_time cost_instr(struct cost *c, const struct plan *plan,
                            const struct stage_program *sp, const struct instr *i);

/* Whether the plan has the stage recompute results of this op. */
bool cost_recomputes(const struct stage *st, int op);
/* Whether a backward segment runs this forward instruction once more although the program
 * does not, because whole_recompute is set. */
bool cost_runs_again(const struct cost *c, const struct plan *plan,
                     const struct stage_program *sp, int instr, enum segment seg);

/* Messages of this many bytes, one to each of the n ranks from `receiver` on at the same
 * time; the one from rank `sender` to `receiver` stands for them. The part that overlaps
 * computation is left out. */
double cost_message_us(struct cost *c, int64_t sender, int64_t receiver, int64_t n,
                       int64_t bytes);
/* A strided copy, for packing and unpacking, on devices of the cluster's first group. */
double cost_copy_us(struct cost *c, enum dtype dtype, int64_t elems, int64_t inner);

/* What one use of a transfer costs its two ends. Waiting is left to the simulator. */
struct transfer_cost {
    double pack_us; /* the sender copies into its staging */
    double move_us; /* the receiver takes the message: p2p of what the busiest rank sends or
                         receives, copies for several receivers counted each */
    double unpack_us;    /* and copies what does not lie in one run */
    double overlap;      /* fraction of move_us that goes on while the receiver is busy */
    bool cross;          /* the message leaves a node */
    struct cost_sum sum; /* of the three */
};
struct transfer_cost cost_transfer(struct cost *c, const struct program *g,
                                   const struct transfer *t);

/* A stage: times per use of a segment. */
struct stage_cost {
    double compute_us[SEG_COUNT]; /* without the norm, which all ranks take together */
    double comm_us[SEG_COUNT];    /* collectives inside the stage */
    double us[SEG_COUNT];         /* both together: their sum less what overlaps */
    double p2p_us[SEG_COUNT];     /* packing what it sends, moving what it receives, less
                                     what overlaps */
    /* at a step's end before the norm, with p2p, plus what a separate last backward adds */
    double reduce_us;
    double update_us; /* at a step's end after the norm */
    double norm_us;
    int64_t missing; /* instructions whose key the provider lacks */
};
/* sp may be compiled alone or as part of a program. Other stages are not looked at: a
 * gradient is taken to come from the next stage, packing to copy the sender's own box, and
 * nothing to need unpacking. */
void cost_stage(struct cost *c, const struct plan *plan, const struct stage_program *sp,
                struct stage_cost *out);

/* Asks for everything that a program needs, so that all that is missing is noted. */
void cost_program(struct cost *c, const struct program *g);

/* ---- cost_missing.c: what the provider did not know ---------------------------------- */

void cost_note_missing(struct cost *c, const struct cost_key *k);

/* -1 with EXIT_NO, naming the first few missing keys and the command that measures them
 * all; 0 when nothing is missing. profile and plan_name are file names; plan_name is
 * NULL while a search is still looking for the plan, profile where only datasheets were
 * asked. */
int cost_check(const struct cost *c, const char *profile, const char *plan_name,
               const struct plan *plan, struct err *err);

/* "linear 2048,1536,384,0,1" or "all_reduce size=4 stride=1 node 65536". Returns buf. */
char *cost_key_format(const struct cost_key *k, char *buf, size_t n);

#endif
