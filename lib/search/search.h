/* search.h - choosing a plan: one space, one objective, several algorithms.
 *
 * The space: every stage takes a range of ops, a number of devices and, for each op of
 * a distinct block (and so for all its equal instances), a layout, whether it is
 * recomputed in the backward pass, and ZeRO; all stages share a micro-batch and a
 * schedule. The objective: the time of a step, within the memory of every device.
 * Candidates are scored by the strategy graph (graph.h); finalists are compiled as a
 * whole and simulated, and the simulator has the last word. From the first moment on
 * there is a simulated plan, so a search that is stopped hands out the best one so far.
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
#include "program/workspace.h"

struct order; /* order.h */

struct search_problem {
    /* the model and the machine */
    struct model *model;                  /* borrowed */
    const struct pins *pins;              /* of this model, borrowed; NULL = none */
    const struct cost_provider *provider; /* borrowed */
    const char *profile; /* file of the profile, for messages; NULL = none */
    struct cluster cluster;
    int devices; /* all of them are used */
    /* of one device, the largest if there are several kinds; 0 = no limit */
    int64_t memory_bytes;
    /* a kind of device has no more than the cluster says, even if memory_bytes is larger */
    bool memory_of_kinds;
    /* what ranks take of that beside the arena (program/beside.h); NULL = nothing */
    workspace_query *const *beside;

    /* the job */
    int64_t batch;
    const int64_t *micro; /* micro-batches to consider, ascending; borrowed */
    int n_micro;
    enum optimizer optimizer;
    enum dtype dtype;

    /* what plans may be */
    int max_stages;     /* 0 = as many as devices */
    int max_zero;       /* highest level of ZeRO */
    unsigned schedules; /* to consider, bit i = enum schedule i */
    bool may_idle;      /* fewer devices may be used if that is faster (idle.c) */
    bool may_offload; /* what does not fit may be kept in the memory of hosts (offload.c) */
    int offload;      /* sets of OFFLOADS that all ops keep on hosts */
    bool may_logits;  /* logits that do not fit may be made in pieces (logits.c) */
    int64_t logits;   /* pieces in which all plans make their logits; 0: whole */
    bool may_overlap; /* the best plans are also tried with overlap (overlap.h) */
    bool as_listed;   /* stages are ranges of the model's own list of ops (order.h) */
    bool regather;    /* a sequence that tensor parallelism splits is always regathered */

    /* how to search */
    int top;      /* number of plans wanted, of different classes (space_class) */
    int max_hops; /* of hops: the most steps from a plan to a better one; 0 = its default */
    double time_budget_s; /* 0 = until the algorithm ends by itself */
    int64_t work_budget;  /* in scored stages, the same on any machine; 0 = no limit */
    double deadline_s;    /* now_s() at which the budget is used up; set by search_run */
    /* a simpler plan is handed out first if it is slower by at most this share */
    double slack;
    /* stop when the best is proven to be within this share of the optimum; 0 = never */
    double gap;
    bool no_bound; /* compute no certificate */
    int threads;   /* at most; 0 = all cores. Their number does not change the result */
    uint64_t seed; /* of random choices */
    const struct plan *from; /* plan to start from, borrowed; NULL = none */

    /* what the search that contains this one knows already */
    /* the list of ops of `model` and `pins`; NULL = the model's own */
    const struct order *order;
    /* time of a known plan: what cannot come near it is skipped; 0 = none */
    double beat_us;
    double known_us; /* a bound that is already proven; 0 = none */
};

/* Bytes of the smallest of n devices from rank `first` on; 0: no limit. */
int64_t search_memory(const struct search_problem *p, int first, int n);

struct search_plan {
    struct plan *plan;  /* owned */
    double time_us;     /* simulated */
    int64_t max_bytes;  /* the largest arena of a device */
    const char *member; /* with auto: the algorithm that found it; otherwise NULL */
    uint64_t class;     /* equal for plans that a person would call the same */
    int words;          /* how many words describe it (space_words) */
};

struct search_result {
    int n;
    struct search_plan *plans; /* the fastest first; with slack the simplest before it */
    /* owned; the fastest plan if a simpler one comes before it, else its plan is NULL */
    struct search_plan fastest;
    int64_t scored;   /* candidates scored */
    int64_t compiled; /* windows of ops compiled for the strategy graph */
    double seconds;
    bool complete; /* the algorithm ended by itself */
    /* The bytes that the best candidate lacks if none fits. */
    int64_t overflow;
    int overflow_stage;
    double space; /* of exhaustive: number of candidates */
    int orders;   /* orders of the model's ops that were looked at, including its own */
    /* The certificate: no plan of the space takes less time, and which relaxation
     * proves it (bound.h). */
    double lower_bound_us;
    const char *relaxation; /* "" without a bound */
    /* what the space cannot express of the plan to start from; "" = nothing */
    char lost[256];
    /* why there is no plan on all devices; "" = there is one, possibly a slower one */
    char idle[512];
};

struct search;                                                   /* the state of a run */
typedef int search_algorithm(struct search *s, struct err *err); /* algorithms.h has them */

/* Runs an algorithm and evaluates its best candidates. Fails with EXIT_INPUT if pins
 * ask for something impossible on these devices (the message names the pin) or if the
 * plan to start from does not suit the problem; with EXIT_NO if no plan fits the
 * memory (the message says how much the best plan lacks, and in which stage) or if the
 * profile lacks rows for the plans that might fit (it names some). */
int search_run(const struct search_problem *p, search_algorithm *algorithm,
               struct search_result *out, struct err *err);
void search_result_release(struct search_result *r);
/* The sets of OFFLOADS that any op of the plan keeps on hosts; 0 for NULL. */
int search_offloaded(const struct plan *plan);

/* ---- certificates ---------------------------------------------------------------------- */

/* What a plan's provenance claims; 0: nothing. */
struct search_claim {
    double time_us, memory_bytes, lower_bound_us;
};

/* A plan of the problem's model, evaluated without a search: compiled, validated,
 * simulated, and its bound computed again. */
struct search_verdict {
    double time_us;
    int64_t max_bytes;
    double lower_bound_us;
    const char *relaxation;
};

/* Fails with EXIT_NO and a reason if the plan's program is faulty, exceeds the memory,
 * does not take the time that the plan says, or if its bound cannot be proven. */
int search_verify_plan(const struct search_problem *p, struct plan *plan,
                       const struct search_claim *claim, struct search_verdict *out,
                       struct err *err);

#endif
