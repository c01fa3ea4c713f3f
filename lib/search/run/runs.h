/* runs.h - what searches that consist of several searches share: on fewer devices (idle.c),
 * in other orders (order_run.c), with logits in pieces (logits.c), with hosts (offload.c).
 *
 *     if (search_first_estimate_us(&q, 1) < out->plans[0].time_us &&
 *         search_run_on(&q, algorithm, &more, &facts, NULL) == 0)
 *         search_result_merge(out, &more, &q);
 */
#ifndef WEFT_RUNS_H
#define WEFT_RUNS_H

#include "search/space/order.h"
#include "search/state.h"

/* What search_run_on, a search on all devices of the problem, learns besides its result. */
struct run_facts {
    bool ended;             /* the algorithm ran, even if it found no plan */
    bool complete;          /* it ended by itself */
    bool proven;            /* it listed all plans */
    double bound_us;        /* of the relaxation; 0 = not known */
    const char *relaxation; /* which relaxation; "" = none */
    double first_us; /* estimate of the best pipeline of a first look; 0 = not known */
    /* By group of the cluster: how long one of its devices would take for the whole
     * step if it had the memory; 0 = not known. */
    double alone_us[CLUSTER_MAX_GROUPS];
};
int search_run_on(const struct search_problem *p, search_algorithm *algorithm,
                  struct search_result *out, struct run_facts *facts, struct err *err);

/* Returns whether parameters, gradients and the optimizer's state exceed the memory of all
 * devices together, however they are split (refuse.c). */
bool search_cannot_fit(const struct space *sp);
/* Explains in err why there is no plan (refuse.c); returns -1. */
int pool_refuse(struct pool *pool, struct search_result *out, struct err *err);

/* Looks for simpler plans within the problem's slack of the fastest, and adds the
 * first one that it finds to the pool's plans (simplify.c). */
void search_simplify(struct search *s);

/* A first look: the estimated time in microseconds of the best plan with at least this
 * many stages that hops_first (hops.h) finds; INFINITY if there is none. */
double search_first_estimate_us(const struct search_problem *p, int least_stages);

/* Simulates the pool's best pipelines under schedules that run further ahead
 * (ahead.c). */
void search_ahead(struct search *s);

/* Merges `from` into `to`: the best plans of both, as many as are wanted, none twice,
 * and the simplest (search_simplest). Counts are added up; the certificate stays.
 * `from` is empty afterwards. */
void search_result_merge(struct search_result *to, struct search_result *from,
                         const struct search_problem *p);
/* Given plans in the order of their times, returns the one that needs the fewest words
 * and is slower than the first by at most the slack. */
int search_simplest(const struct search_plan *plans, int n, double slack);

/* Like search_run, on all devices and on fewer (idle.c), with exactly those offloads
 * that the problem has. */
int search_resident(const struct search_problem *p, search_algorithm *algorithm,
                    struct search_result *out, struct err *err);

/* The problem of a search that follows one for `p` and starts from another plan, or from
 * none. It looks for plans alone, without a bound, on all devices and in the model's order
 * of ops. The caller sets what else is new. */
struct search_problem search_following(const struct search_problem *p,
                                       const struct plan *from);
/* Searches for the plans of a problem that search_following made, unless its time is over,
 * and adds them to those of `out`. Returns whether there are any. In place of auto only its
 * first rounds run. */
bool search_follow(const struct search_problem *p, const struct search_problem *following,
                   search_algorithm *algorithm, struct search_result *out);

/* Returns whether the plan pays for a lack of memory: by recompute, regathering, or ZeRO
 * beyond the optimizer's state. */
bool search_pays(const struct plan *plan);

/* Returns whether the plan to start from makes logits in pieces and plans may do so. */
bool search_from_pieces(const struct search_problem *p);
/* Continues after a search for plans with whole logits that returned `rc`, with plans that
 * make them in pieces: if no plan fits, if the plan to start from does so, or if that may
 * be faster. */
int search_logits(const struct search_problem *p, search_algorithm *algorithm, int rc,
                  struct search_result *out, struct err *err);

/* What the plan to start from keeps on hosts, if plans may do so; otherwise 0. */
int search_from_hosts(const struct search_problem *p);
/* Continues after a search for resident plans that returned `rc`, with plans that keep
 * tensors on hosts: if no plan fits, if the plan to start from does so, or if that may be
 * faster. */
int search_hosts(const struct search_problem *p, search_algorithm *algorithm, int rc,
                 struct search_result *out, struct err *err);

/* Like search_run_on, in the model's order and in others whose first look is good
 * enough; the certificate covers the orders that are searched. */
int search_run_orders(const struct search_problem *p, search_algorithm *algorithm,
                      struct search_result *out, struct run_facts *facts, struct err *err);
/* Like bound_us, for all the orders that a search would look at if its best plan were this
 * one and took time_us. */
double orders_bound_us(const struct search_problem *p, const struct plan *plan,
                       double time_us);

#endif
