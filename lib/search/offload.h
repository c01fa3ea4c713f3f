/* offload.h - searches that keep in the memory of hosts what devices have no room for: search_run
 * (search.h) in terms of searches without.
 *
 *     int rc = search_resident(p, algorithm, &r, &err); // EXIT_NO: r.overflow bytes are missing
 */
#ifndef WEFT_OFFLOAD_H
#define WEFT_OFFLOAD_H

#include "search/search_impl.h"

/* As search_run, on all devices and on fewer (idle.c), with what the problem says is offloaded and nothing
 * else. */
int search_resident(const struct search_problem *p, search_algorithm *algorithm,
                    struct search_result *out, struct err *err);
/* The time of what a first look finds on all devices, INFINITY for nothing. */
double search_look_us(const struct search_problem *p);
/* The best of both, in their order; `from` is empty afterwards. */
void search_merge_plans(struct search_result *to, struct search_result *from, int most);

#endif
