/* search.h - choosing a plan: one space, one objective, several algorithms.
 *
 * The space: every stage takes a run of ops, a number of devices, and per op of a distinct
 * block (so for all its instances alike) a layout, whether it is recomputed in the backward
 * pass, and ZeRO; all stages share a micro-batch and a schedule. The objective: the time of
 * a step, within the memory of every device. Candidates are scored by the strategy graph
 * (graph.h); finalists are compiled as a whole and simulated: the simulator has the last
 * word. From the first moment on there is a plan that was judged so, and a search that is
 * stopped hands out the best of them.
 *
 *     struct search_problem p = {.model = m, .provider = times, .cluster = c, .devices = 8, ...};
 *     struct search_result r;
 *     if (search_run(&p, algorithm, &r, &err) < 0) ...       // EXIT_NO: nothing fits
 *     json_t *doc = plan_to_json(r.plans[0].plan);
 *     search_result_release(&r);
 */
#ifndef WEFT_SEARCH_H
#define WEFT_SEARCH_H

#include "cost/estimate.h"
#include "cost/simulate.h"
#include "plan/pin.h"

struct order; /* order.h */

struct search_problem {
    /* the model and the machine */
    struct model *model;                  /* borrowed */
    const struct pins *pins;              /* of this model, borrowed; NULL = none */
    const struct cost_provider *provider; /* borrowed */
    const char *profile;                  /* its file, for messages; NULL = none */
    struct cluster cluster;
    int devices; /* used, all of them */
    /* bytes of one device, the largest where there are several kinds; 0 = no limit */
    int64_t memory_bytes;
    bool memory_of_kinds; /* and of each no more than the cluster says of its kind */

    /* the job */
    int64_t batch;
    const int64_t *micro; /* micro-batches to consider, ascending; borrowed */
    int n_micro;
    enum optimizer optimizer;
    enum dtype dtype;

    /* what plans may be */
    int max_stages;     /* 0 = as many as devices */
    int max_zero;       /* highest level of ZeRO */
    unsigned schedules; /* those to consider, bit i = enum schedule i */
    bool may_idle;      /* or on fewer devices, where that is faster (idle.c) */
    bool may_offload;   /* what fits nowhere else may live on hosts (offload.c) */
    int offload;        /* sets of OFFLOADS that all ops keep there */
    bool may_overlap;   /* the best plans are tried with overlap as well (overlap.h) */
    bool as_listed;     /* stages are stretches of the model's own list of ops (order.h) */

    /* how to search */
    int top;              /* plans wanted, of different classes (space_class) */
    int max_hops;         /* hops: how many steps may first make it worse */
    double time_budget_s; /* 0 = until it has converged */
    int64_t work_budget;  /* stages scored, the same on any machine; 0 = no limit */
    double deadline_s;    /* now_s() at which the budget is used up; search_run sets it */
    double
        slack; /* a simpler plan is handed out first if it is slower by at most this share */
    double gap;              /* end when the best is proven to be that near; 0 = go on */
    bool no_bound;           /* leave the certificate out */
    int threads;             /* at most; 0 = all cores. Their number changes nothing else */
    uint64_t seed;           /* of what an algorithm leaves to chance */
    const struct plan *from; /* to start from, borrowed; NULL = none */

    /* what a search around this one knows already */
    const struct order *order; /* the list of ops of `model` and `pins`; NULL = its own */
    double beat_us;  /* of a plan that is known: proofs skip slower ones; 0 = none */
    double known_us; /* a bound that was proven before; 0 = none */
};

/* Bytes of the smallest of n devices from rank `first` on; 0: no limit. */
int64_t search_memory(const struct search_problem *p, int first, int n);

struct search_plan {
    struct plan *plan;  /* owned */
    double time_us;     /* simulated */
    int64_t max_bytes;  /* largest arena */
    const char *member; /* of auto: the algorithm that found it; NULL = it is not auto's */
    uint64_t class;     /* equal for plans that a person would call the same */
    int words;          /* how many it takes to say what it does (space_words) */
};

struct search_result {
    int n;
    struct search_plan *plans; /* the fastest first; with slack the simplest before it */
    struct search_plan
        fastest; /* owned, where a simpler plan stands before it; else its plan is NULL */
    int64_t scored;   /* candidates scored */
    int64_t compiled; /* windows of ops compiled for it */
    double seconds;
    bool complete; /* the algorithm ended by itself */
    /* What the best candidate lacks where none fits. */
    int64_t overflow;
    int overflow_stage;
    double space; /* exhaustive: number of candidates */
    int orders;   /* of the model's ops that were looked at, its own counted */
    /* The certificate: no plan of the space takes less time, and which relaxation proves it
     * (bound.h). */
    double lower_bound_us;
    const char *relaxation; /* "" without a bound */
    /* what the space lacks of the plan to start from; "" = nothing */
    char lost[256];
    /* why there is no plan on all devices; "" = there is one, maybe a slower one */
    char idle[512];
};

struct search;                                                   /* the state of a run */
typedef int search_algorithm(struct search *s, struct err *err); /* algorithms.h has them */

/* Runs an algorithm and judges its best candidates. EXIT_INPUT when pins ask for something that is
 * impossible on these devices (the message names the pin), or when the plan to start from does not
 * suit the problem; EXIT_NO when no plan fits the memory (the message says by how much the best
 * misses and in which stage), or when the profile lacks what the plans that might fit need (it
 * names some of that). */
int search_run(const struct search_problem *p, search_algorithm *algorithm,
               struct search_result *out, struct err *err);
void search_result_release(struct search_result *r);
/* Sets of OFFLOADS: all that ops of the plan keep on hosts; 0 for NULL. */
int search_offloaded(const struct plan *plan);

/* ---- certificates ---------------------------------------------------------------------- */

/* What a plan says of itself under provenance; 0 and "": nothing. */
struct search_claim {
    double time_us, memory_bytes, lower_bound_us;
};

/* A plan of the problem's model, judged without a search: compiled, validated, simulated, and
 * its bound worked out again. */
struct search_verdict {
    double time_us;
    int64_t max_bytes;
    double lower_bound_us;
    const char *relaxation;
};

/* EXIT_NO, with a reason, when the plan's program is faulty, breaks the memory limit, costs
 * something else than it says, or claims a bound that cannot be proven. */
int search_verify_plan(const struct search_problem *p, struct plan *plan,
                       const struct search_claim *claim, struct search_verdict *out,
                       struct err *err);

#endif
