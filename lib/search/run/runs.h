/* runs.h - what searches that are made of several searches share: on fewer devices (idle.c), in other
 * orders (order_run.c), with hosts (offload.c).
 *
 *     if (search_look_us(&q, 1) < out->plans[0].time_us &&
 *         search_run_on(&q, algorithm, &more, &facts, NULL) == 0)
 *         search_result_merge(out, &more, q.top);
 */
#ifndef WEFT_RUNS_H
#define WEFT_RUNS_H

#include "search/search_impl.h"

/* A first look: the estimated time, in microseconds, of the best plan with at least so many
 * stages that hops_first (hops.h) finds; INFINITY for none. */
double search_look_us(const struct search_problem *p, int least_stages);
/* The same of a search in which hops_first, and nothing else, has scored plans. */
double search_first_us(const struct search *s, int least_stages);
enum {
    LOOK_PIPELINE = 2
}; /* stages: plans with one are the same in all orders (order.h) */

/* The `most` best plans of both, none twice; all else is added up, except for the certificate.
 * `from` is empty afterwards. */
void search_result_merge(struct search_result *to, struct search_result *from, int most);

/* As search_run, on all devices and on fewer (idle.c), with exactly those offloads that the
 * problem has. */
int search_resident(const struct search_problem *p, search_algorithm *algorithm,
                    struct search_result *out, struct err *err);

#endif
