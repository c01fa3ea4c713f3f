/* cost.h - how long an instruction of a compiled program takes, in microseconds.
 *
 * Durations come from the profile alone. Computation is looked up by its local shape;
 * a collective by bytes, group size, stride and whether the group crosses nodes, which
 * follows from the cluster and the ranks that the plan gives the stage. What the profile
 * lacks costs 0 and is noted, each distinct key once with a count: cost_check turns the
 * notes into an error, so no prediction is ever made from a guess.
 *
 *     struct cost c;
 *     cost_init(&c, times, &cluster);
 *     struct stage_cost sc;
 *     cost_stage(&c, plan, &sp, &sc);            // sp from stage_compile: for the search
 *     if (cost_check(&c, "profile.db", plan, &err) < 0) ...
 *     cost_release(&c);
 */
#ifndef WEFT_COST_H
#define WEFT_COST_H

#include "cost/profile.h"
#include "plan/cluster.h"
#include "program/program.h"

/* A key that the profile lacks. code is an opcode; of a collective or of send (which stands
 * for p2p) n holds group size, stride, cross, bytes. */
struct cost_key {
    enum opcode code;
    int64_t n[INSTR_MAX_SHAPE];
    int64_t count; /* how often it was asked for */
};

struct cost {
    const struct profile_times *times; /* borrowed */
    struct cluster cluster;
    struct cost_key *missing; /* in the order of first need */
    int64_t n_missing, cap_missing;
    int64_t *slots; /* hash table over missing: index + 1, or 0 */
    int64_t n_slots;
    struct {
        int first_rank; /* of the stage that the answers below are about; -1 = none */
        struct mesh mesh;
        signed char crosses[1 << MESH_MAX_AXES]; /* by set of axes; -1 = not asked yet */
    } groups;
};

/* times must outlive c; the cluster is copied. Cannot fail. */
void cost_init(struct cost *c, const struct profile_times *times,
               const struct cluster *cluster);
void cost_release(struct cost *c);

/* Forgets what was missing so far (a search goes on with another candidate). */
void cost_forget(struct cost *c);

/* One instruction of a stage of a checked plan (its first_rank and devices count). send,
 * recv and input cost 0 here: a transfer has both ends, see cost_transfer. */
double cost_instr_us(struct cost *c, const struct plan *plan,
                     const struct stage_program *sp, const struct instr *i);

/* The same instruction's time that may hide behind computation, 0..1 of it: the profile's
 * overlap for collectives, 0 for anything else. */
double cost_instr_overlap(struct cost *c, const struct plan *plan,
                          const struct stage_program *sp, const struct instr *i);

/* Does the group of any rank of the stage along these axes stand on more than one node? */
bool cost_group_crosses(struct cost *c, const struct plan *plan, int stage, unsigned axes);

/* One message of this many bytes between ranks `stride` apart. */
double cost_p2p_us(struct cost *c, int64_t stride, bool cross, int64_t bytes);
/* A strided copy, for packing and unpacking. */
double cost_copy_us(struct cost *c, int64_t elems, int64_t inner);

/* What one use of a transfer costs its two ends; waiting is the simulator's. */
struct transfer_cost {
    double pack_us;   /* the sender copies into its staging */
    double move_us;   /* the receiver takes the message: p2p of what one rank receives */
    double unpack_us; /* and copies what does not lie in one run */
    double overlap;   /* fraction of move_us that goes on while the receiver is busy */
    bool cross;       /* the two stages have ranks on different nodes */
};
struct transfer_cost cost_transfer(struct cost *c, const struct program *g,
                                   const struct transfer *t);

/* A stage: times per use of a segment. The update is cut at the norm, which all ranks of
 * the job take together. */
struct stage_cost {
    double compute_us[SEG_COUNT]; /* SEG_UPDATE: both halves, without the norm */
    double comm_us[SEG_COUNT];    /* collectives inside the stage */
    double us[SEG_COUNT];         /* both together: their sum less what overlaps */
    double p2p_us[SEG_COUNT];     /* packing what it sends, moving what it receives, less
                                     what overlaps */
    double reduce_us;             /* of the update, p2p too, what stands before the norm */
    double norm_us;
    int64_t missing; /* instructions whose key the profile lacks */
};
/* sp: compiled alone or as part of a program. Alone, what other stages do is not known: a
 * gradient is taken to come from the next stage, packing to copy the sender's own block,
 * and nothing to need unpacking. */
void cost_stage(struct cost *c, const struct plan *plan, const struct stage_program *sp,
                struct stage_cost *out);

/* -1 with EXIT_NO, naming the first few missing keys and the command that would measure
 * them; 0 when nothing is missing. profile: its file name. */
int cost_check(const struct cost *c, const char *profile, const struct plan *plan,
               struct err *err);

/* "linear 2048,1536,384,0,1" or "all_reduce size=4 stride=1 node 65536". Returns buf. */
char *cost_key_format(const struct cost_key *k, char *buf, size_t n);

/* ---- streams ----------------------------------------------------------------------- */

/* Instructions of one rank on a compute and a communication stream, for as long as nothing
 * comes from or goes to another stage: an instruction starts when its stream is free and
 * its operands are written; of a collective, the part that the backend does not overlap
 * stops the compute stream as well. With overlap 0 (the CPU) times just add up. */
struct streams {
    double compute_us, comm_us; /* until when each is busy */
    double *ready;              /* [n_buffers] when a buffer was last written */
    int64_t *epoch;             /* [n_buffers] ready counts only when this equals now */
    int64_t now;
};
void streams_init(struct streams *s, const struct stage_program *sp);
void streams_release(struct streams *s);
/* Begins again at time 0. */
void streams_reset(struct streams *s);
/* Adds an instruction; returns its start. */
double streams_add(struct streams *s, const struct instr *i, double us, double overlap);
/* Until when both are busy. */
double streams_end(const struct streams *s);

#endif
