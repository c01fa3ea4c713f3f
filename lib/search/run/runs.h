/* runs.h - what searches that are made of several searches share: on fewer devices (idle.c), in other
 * orders (order_run.c), with hosts (offload.c).
 *
 *     if (search_first_estimate_us(&q, 1) < out->plans[0].time_us &&
 *         search_run_on(&q, algorithm, &more, &facts, NULL) == 0)
 *         search_result_merge(out, &more, &q);
 */
#ifndef WEFT_RUNS_H
#define WEFT_RUNS_H

#include "search/space/order.h"
#include "search/state.h"

/* May another search begin? Neither is the budget used up nor did the user interrupt. */
bool search_in_time(const struct search_problem *p);

/* A search on all devices of the problem, and what it learned beside the result. */
struct run_facts {
    bool ended;             /* the algorithm ran, even if it found no plan */
    bool complete;          /* it ended by itself */
    bool proven;            /* it went through all plans */
    double bound_us;        /* by relaxation; 0 = not known */
    const char *relaxation; /* this one; "" = none */
    double first_us;        /* of its best pipeline at first sight; 0 = not known */
    /* By group of the cluster, how long one of its devices would take for the whole step, if it
     * had the memory; 0 = not known. */
    double alone_us[CLUSTER_MAX_GROUPS];
};
int search_run_on(const struct search_problem *p, search_algorithm *algorithm,
                  struct search_result *out, struct run_facts *facts, struct err *err);
void eval_alone(struct evaluate *ev, double alone_us[CLUSTER_MAX_GROUPS]);

/* Says in err why there is no plan (refuse.c); returns -1. */
int pool_refuse(struct pool *pool, struct search_result *out, struct err *err);

/* Looks for simpler plans within the problem's slack of the fastest, and adds the first that it finds to
 * the pool's plans (simplify.c). */
void search_simplify(struct search *s);

/* A first look: the estimated time, in microseconds, of the best plan with at least so many
 * stages that hops_first (hops.h) finds; INFINITY for none. */
double search_first_estimate_us(const struct search_problem *p, int least_stages);

/* Simulates the pool's best pipelines under schedules that run further ahead (ahead.c). */
void search_ahead(struct search *s);

/* The best plans of both, as many as are wanted, none twice, and the simplest (search_simplest); all else
 * is added up, except for the certificate. `from` is empty afterwards. */
void search_result_merge(struct search_result *to, struct search_result *from,
                         const struct search_problem *p);
/* Of plans in the order of their times, the one that takes the fewest words and is not slower than the
 * first by more than the slack. */
int search_simplest(const struct search_plan *plans, int n, double slack);

/* As search_run, on all devices and on fewer (idle.c), with exactly those offloads that the
 * problem has. */
int search_resident(const struct search_problem *p, search_algorithm *algorithm,
                    struct search_result *out, struct err *err);

/* What the plan to set out from keeps on hosts, where plans may do so; else 0. */
int search_from_hosts(const struct search_problem *p);
/* Goes on where a search of resident plans ended with `rc`: with plans that keep on hosts what devices
 * have no room for, where none fits, where the plan to set out from has it, or where it is faster. */
int search_hosts(const struct search_problem *p, search_algorithm *algorithm, int rc,
                 struct search_result *out, struct err *err);

/* As search_run_on, in the model's order and in others whose first look is good enough; the
 * certificate is about those that are searched. */
int search_run_orders(const struct search_problem *p, search_algorithm *algorithm,
                      struct search_result *out, struct run_facts *facts, struct err *err);
/* As bound_us, of all orders that a search searches whose best plan is this one, of time_us. */
double orders_bound_us(const struct search_problem *p, const struct plan *plan,
                       double time_us);

#endif
