/* search_impl.h - the state behind search.h and space.h. */
#ifndef WEFT_SEARCH_IMPL_H
#define WEFT_SEARCH_IMPL_H

#include "search/run/watch.h"
#include "search/source.h"
#include "search/space/space.h"

/* Of an edge's tensor on one device, as an op asks for it (a reader for its value, the
 * origin for its gradient), and as it holds what it sends (the other way round): elements.
 * 0: not known yet. */
struct share {
    double want, held;
};

/* The loads of all ops under one setting and one set of layouts, as prefix sums: any stretch of
 * the whole model is the difference of two of them. */
struct prefix {
    struct setting st;
    const struct layout *layouts;
    struct mesh mesh;
    struct load *until;    /* [ops of the excerpt + 1] of everything before an op */
    struct load *instance; /* [runs] of one instance, the second */
    struct brief {
        double time_us; /* of a micro-batch, with its share of the update */
        double forward_us, backward_us;
        double fixed, slot[POOL_COUNT], across;
    } * brief;                   /* of `until`, [+ 1]; and of `instance` behind it */
    int64_t *temp, *update_temp; /* [ops of the excerpt] */
    int64_t *temp_of_span, *update_temp_of_span; /* the largest of every few of them */
    struct share *taken, *given; /* [readers of the excerpt's edges], [edges] */
    int *illegal;                /* [+ 1] ops before whose layout splits unevenly */
};

/* The part of a stage's score that does not depend on its neighbours. */
struct stage_sum {
    double forward_us, backward_us, weights_us, reduce_us, update_us;
    double fixed, slot[POOL_COUNT], temp, update_temp; /* bytes */
    bool missing;
};

struct option; /* hops.h */

/* A candidate that is being scored: what is known of its stages so far. */
struct work {
    const struct candidate *c;
    int n;
    int *rank; /* first rank of each stage */
    const struct prefix **prefixes;
    struct estimate_stage *times;
    double *staging; /* bytes */
    const struct stage_sum **sums;
    int *first_passing; /* [+ 1] of each stage, among what it takes going forward */
    bool missing;
};

/* A tensor that passes from one stage to a later one, and its gradient back. */
struct passing {
    int from, to;
    int origin, reader;         /* ops: the tensor's, and the first that reads it there */
    double forward_us, back_us; /* what taking it costs the receiver, either way */
};

/* Micro-batches that a stage holds at once, by pool. */
struct in_flight {
    int64_t n[POOL_COUNT];
};

static inline double held_bytes(const double slot[POOL_COUNT], const struct in_flight *f) {
    double bytes = 0;
    for (int p = 0; p < POOL_COUNT; p++)
        bytes += slot[p] * (double)f->n[p];
    return bytes;
}

/* Bytes on a device by when they are held, without what waits to be sent; of stages of one group
 * together. */
struct stage_bytes {
    double kept, temp, update;
};
static inline void stage_bytes_add(struct stage_bytes *to, const struct stage_sum *sum,
                                   const struct in_flight *f) {
    to->kept += sum->fixed + held_bytes(sum->slot, f);
    to->update += sum->update_temp;
    to->temp = to->temp > sum->temp ? to->temp : sum->temp;
}
static inline double stage_bytes_sum(const struct stage_bytes *b) {
    return b->kept + (b->temp > b->update ? b->temp : b->update);
}

struct kept {
    struct candidate c;
    struct score score;
    uint64_t hash, class; /* class: see search_class */
    const char *member;   /* of auto that found it, or NULL */
    bool judged;          /* compiled and simulated */
    int64_t excess;       /* then: bytes beyond the memory, */
    int fullest;          /* on the devices of this stage */
};

/* One of the best at some time (looks.h). */
struct look {
    struct kept k;
    bool instead; /* of the one before, where that turns out too large */
};

/* A plan that was judged good. */
struct judged {
    struct search_plan plan;
    uint64_t class; /* of its candidate */
    bool first;     /* of its class */
};

/* A tensor or parameter that passes a cut of the list of ops. */
struct crossing {
    int n;
    const int *edges; /* of the whole model */
};

/* What pins leave of the space (pins.c). */
struct pinned {
    int n_stages;   /* 0: any number */
    int last_stage; /* the highest that an op is to be in */
    /* [n_ops + 1] the op begins a stage; is in that of the op before. NULL: no pins. */
    bool *cut, *whole;
    int *until; /* [n_ops + 1] where a stage that begins with this op has to end */
    /* [n_ops + 1] stage k begins at least and at most there: of ops whose stage is pinned */
    int *least, *most;
    /* [n_ops + 1] the first op from it on that has a pinned mesh, or n_ops; NULL: none has */
    int *meshed;
    bool again; /* some op is always recomputed */
};

/* What a plan lacks on the devices of one stage. */
struct shortage {
    int64_t bytes, limit;
    int stage, first, end; /* ops */
};

enum { MOST_RIVALS = 9, MOST_WINNERS = 64 };

struct search {
    struct search_problem p;
    struct cost cost;
    struct graph graph;
    int max_groups, max_stages;
    /* What the survey found. */
    double *flops;       /* [n_ops + 1] of all ops before one */
    int *inner, n_inner; /* dims */
    int *sequences, n_sequences;
    int *images, n_images; /* dims along which windows slide: heights, then widths */
    int *experts, n_experts;
    bool *again[AGAIN_LEVELS];  /* [nodes] */
    struct crossing *crossings; /* [n_ops + 1], in front of an op */
    int *crossing_edges;
    struct pinned pinned;
    struct candidate from; /* to start from, if there is one */
    bool has_from;
    /* What was worked out. */
    struct memo prefixes, sums, layouts, styles, made_in, meshes, in_flight, verdicts;
    ARR(struct passing) passing; /* of the candidate under work */
    int64_t prefix_bytes;
    struct filling *filling; /* prefix_fill.c's, or NULL */
    struct option *starts; /* of hops_starts, in this round of less memory; NULL: not yet */
    int64_t n_starts;
    /* The best so far, best first, by the estimate; and those that were judged. */
    struct kept *kept;
    int n_kept, max_kept;
    struct judged *plans;
    int n_plans;
    struct judged fallback; /* judged on the way, in case no finalist is good */
    /* search_keep_rival, search_keep_winners */
    struct kept rivals[MOST_RIVALS + MOST_WINNERS];
    int n_rivals;
    ARR(struct look) looks;          /* in the order of the work */
    int64_t looks_judged, next_look; /* how many; when so many stages are scored */
    struct kept nearest;             /* the best that is known but does not fit */
    bool has_nearest;
    struct kept unknown; /* the best that might fit, had the profile all of it */
    bool has_unknown;
    /* Finalists that turned out too large when they were compiled: by how much at least,
     * where. If all did, the search is repeated with so much less memory. */
    int64_t reserve_bytes;
    struct shortage refused;       /* 0 bytes: none */
    double judge_s, last_judged_s; /* what judging takes; when it was last done */
    int64_t scored, stages_scored; /* candidates, and their stages */
    /* mcmc, dp, ilp: end when so many were scored; 0 = by their own measure */
    int64_t most_stages;
    const char *member;  /* of auto, that runs; NULL = none */
    struct watch *watch; /* of all threads; NULL = no progress is shown */
    double start_s, space;
    bool complete;
    bool tight;   /* it is not known that all of the model fits on every device */
    bool hides;   /* plans may have overlap (overlap.h) */
    bool has_far; /* are there tensors that many ops read (far.h)? */
    bool exact;   /* see search_be_exact */
    bool proven;  /* the algorithm left out nothing that is estimated within SEARCH_SLACK */
    double first_us; /* what a first look at the problem finds (runs.h); 0 = not known */
    double bound_us; /* no plan is faster than that, by relaxation; 0 = not known yet */
    /* the same by what was listed and judged; 0 = nothing is proven */
    double listed_us;
};

/* For proofs. The estimated time of a plan that may be the best is above its simulated time by
 * less than the first factor; the estimated bytes of any plan are above those of the compiled
 * one by less than the second (buffers of toys are rounded up to 64 bytes each, or share them).
 * The first is measured, not proven: a gradient that several ops want in other layouts is
 * converted once, but every edge counts the conversion (tests/unit/search-bound.c). */
#define SEARCH_SLACK        1.2
#define SEARCH_MEMORY_SLACK 1.25

/* For algorithms that prove their result: from now on only plans are kept that fit when they are
 * compiled, and are estimated within SEARCH_SLACK of the best. */
void search_be_exact(struct search *s);
/* Room for so many of the best candidates. */
void search_keep_most(struct search *s, int most);
bool search_may_be_best(struct search *s, const struct candidate *c,
                        const struct score *score);

/* Is the budget used up, or did the user interrupt? search_stopped is also true where the gap
 * is closed. */
bool search_out_of_time(const struct search *s);
double search_time_left_s(const struct search *s); /* of the budget */
/* May another search begin? Neither is the budget used up nor did the user interrupt. */
bool search_in_time(const struct search_problem *p);
/* The same for a solver's limits: 0 = no limit. */
double search_budget_left_s(const struct search *s);

/* A search on all devices of the problem, and what it learned beside the result. */
struct run_facts {
    bool ended;             /* the algorithm ran, even if it found no plan */
    bool complete;          /* it ended by itself */
    bool proven;            /* it went through all plans */
    double bound_us;        /* by relaxation; 0 = not known */
    const char *relaxation; /* this one; "" = none */
    double first_us; /* of its best pipeline at first sight (runs.h); 0 = not known */
    /* By group of the cluster, how long one of its devices would take for the whole step, if it
     * had the memory; 0 = not known. */
    double alone_us[CLUSTER_MAX_GROUPS];
};
int search_run_on(const struct search_problem *p, search_algorithm *algorithm,
                  struct search_result *out, struct run_facts *facts, struct err *err);
void search_alone(struct search *s, double alone_us[CLUSTER_MAX_GROUPS]);

/* Says in err why there is no plan (refuse.c); returns -1. */
int search_refuse(struct search *s, struct search_result *out, struct err *err);
struct shortage search_shortage(const struct search *s, const struct candidate *c,
                                int stage, int64_t bytes);

/* Begins and ends the state of a run. */
void search_begin(struct search *s, const struct search_problem *p);
void search_end(struct search *s);

void search_survey(struct search *s);
void search_forget(struct search *s); /* releases what the survey and the scores made */
void search_forget_starts(struct search *s);

/* apart: weight gradients are made apart. */
const struct prefix *search_prefix(struct search *s, const struct search_stage *st,
                                   int64_t micro_batch, int first_rank, bool apart);
/* Of stage k of a candidate, whose first rank is known. */
const struct prefix *candidate_prefix(struct search *s, const struct candidate *c, int k,
                                      int first_rank);
struct in_flight candidate_in_flight(struct search *s, const struct candidate *c, int k);
enum { TEMP_SPAN = 8 }; /* ops of which a prefix knows the largest temporaries */
/* Works out the sums of a prefix whose setting and layouts are known (prefix_fill.c). */
void prefix_fill(struct search *s, struct prefix *t);
void prefix_forget_filling(struct search *s);
/* Frees prefix sums when there are many; between candidates only. */
void search_trim(struct search *s);
void search_forget_prefixes(struct search *s);
/* Does the layout of this op of the excerpt split evenly? */
bool prefix_op_is_legal(const struct prefix *t, int op);
/* An edge with all that it connects in one stage; NULL where a layout of them splits
 * unevenly. */
const struct load *prefix_edge(struct search *s, const struct prefix *t,
                               const struct edge *e);
/* The load of everything before op i of the whole model. */
struct load prefix_until(const struct search *s, const struct prefix *t, int op);
double prefix_time_us(const struct search *s, const struct prefix *t, int op); /* brief's */
struct brief prefix_brief(const struct search *s, const struct prefix *t, int op);
struct brief prefix_brief_of(const struct search *s, const struct prefix *t,
                             const struct load *l);
int64_t prefix_temp(const struct search *s, const struct prefix *t, int first, int end,
                    int64_t *update_temp);
/* How an op of the excerpt, origin or reader, sees the edge's tensor. */
struct share prefix_share_of(const struct search *s, const struct prefix *t,
                             const struct edge *e, int op);
/* Of an edge's i-th reader, or (i < 0) of its origin. */
struct share prefix_share(const struct search *s, const struct prefix *t,
                          const struct edge *e, int i);

/* Its elements on all devices together. */
double prefix_all(const struct search *s, const struct prefix *t, const struct edge *e);

/* Adds what it costs to take the tensors that pass a cut in front of an op: going forward, for
 * the stage after the cut; their gradients, for the stage before it (slice.c). Both stages have
 * as many devices; far: on different nodes. */
void search_takes(struct search *s, const struct prefix *t, int op, bool far, double *in_us,
                  double *out_us);

/* What recomputing instances of blocks in a stage costs and saves. */
struct load search_again(struct search *s, const struct prefix *t,
                         const struct search_stage *st);
/* The next op of a stage from `first` on that may have another layout than those before it in the stage:
 * instances of a run have the same, so one period of it is enough. */
int search_next_distinct(const struct search *s, int first, int op);
/* Can ops first .. end-1 be laid out so? */
bool prefix_legal(const struct search *s, const struct prefix *t, int first, int end);
/* A single device has nothing to shard. */
static inline int search_zero_of(const struct search_stage *st) {
    return st->devices > 1 ? st->zero : ZERO_NONE;
}
/* The mesh that a stage has in another search for the same problem; the stage's ops and devices
 * are set. */
const struct mesh *search_mesh_from(struct search *s, struct search *other,
                                    const struct search_stage *st);
struct plan *search_plan_of(struct search *s, const struct candidate *c);
/* Merges neighbouring axes on which all ops of a stage do the same; false where there are none
 * (merge.c). */
bool search_merge_meshes(struct plan *plan);
/* Names axes by what they are used for; pinned meshes stay. */
void search_name_axes(const struct search *s, struct plan *plan);

/* The stage's own part of a score, looked up or summed. */
const struct stage_sum *search_stage_sum(struct search *s, const struct prefix *t,
                                         const struct search_stage *st);
/* Adds what passes between the stages of a candidate to their times and their staging; the
 * stages are summed up already. */
void search_add_messages(struct search *s, struct work *w);

/* ---- pins.c ---------------------------------------------------------------------------- */

/* What is pinned of the plan as a whole, or PIN_FREE. */
int64_t search_pinned(const struct search *s, enum pin_field field);
/* Checks before the search whether the pins can be obeyed at all; -1 with a message if not. */
int search_check_pins(struct search *s, struct err *err);
void search_forget_pins(struct search *s);
/* May an op of the excerpt have this layout in a stage with this mesh, pinned or not? */
bool search_pins_allow(const struct search *s, int op, const struct mesh *pinned,
                       const struct mesh *mesh, const struct layout *l);
/* Makes the layout legal and obey the pins, by changes on as few mesh axes as possible. */
void search_obey(const struct search *s, int op, const struct mesh *pinned,
                 const struct mesh *mesh, int64_t micro_batch, struct layout *l);
/* Do the pins of cuts allow ops first .. end-1 as a stage? */
bool search_may_be_stage(const struct search *s, int first, int end);
/* Does the candidate obey all pins but those of layouts? */
bool search_obeys(const struct search *s, const struct candidate *c);
/* Moves cuts as little as possible, and gives the stages devices; false where pins cannot be
 * obeyed. */
bool search_place_stages(const struct search *s, struct candidate *c);
/* The end of stage k that begins at `first`: one that pins allow, at most `wanted` if there is
 * one. */
int search_allowed_end(const struct search *s, int n_stages, int k, int first, int wanted);
/* Puts into the plan what is pinned and no algorithm chooses: overlap, the type in which
 * gradients are reduced. */
void search_put_pins(const struct search *s, struct plan *plan);

/* A plan as a candidate (from.c); `lost` says what of it the space does not have, "" = nothing.
 * EXIT_INPUT where it is for another number of devices or another model, or cannot be a
 * candidate. */
int search_take_plan(struct search *s, const struct plan *plan, struct candidate *out,
                     char *lost, size_t size, struct err *err);

/* Is the dim one of these? */
static inline bool search_has_dim(const int *dims, int n, int dim) {
    for (int k = 0; k < n; k++)
        if (dims[k] == dim)
            return true;
    return false;
}

/* Equal for candidates that a person would call the same plan: those with the same stages on the same
 * numbers of devices, micro-batch and schedule, of which most devices have the same level of ZeRO and
 * of recompute, and split most of their work inside alike (different.c). By the layouts alone, so
 * it is the same for a plan that was read back. */
uint64_t search_class(const struct search *s, const struct candidate *c);

/* Judges the best candidate, if that is due. */
void search_verify(struct search *s);
/* The simulated time of the best candidate; INFINITY where there is none, or it does not fit. */
double search_simulated_us(struct search *s);
/* The candidates that would be judged now are judged at the end as well, even if others push
 * them out of the list of the best. */
void search_keep_winners(struct search *s);
/* Compiles the best candidate; while it turns out too large, the search has that much less
 * memory from now on. Returns whether the memory was reduced: then scores change (settle.c). */
bool search_settle(struct search *s);
/* By how many bytes a candidate's plan exceeds the memory of a device, judged as at the end; 0:
 * it fits. */
int64_t search_excess(struct search *s, const struct kept *kept);
/* Compiles and simulates p->plan: false where it does not fit, or the profile lacks something;
 * else its time and memory are set. */
bool search_judge_plan(struct search *s, struct search_plan *p);
/* How many finalists are judged beyond the number that is wanted. */
int64_t search_spare(const struct search *s);
/* Judges the finalists. */
void search_judge(struct search *s);

#endif
