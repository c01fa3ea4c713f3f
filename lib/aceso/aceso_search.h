/* aceso_search.h - finds the best configuration of one of Aceso's models: the size of a
 * micro-batch, the stages and their devices, and for each op its tensor and data
 * parallelism, its algorithm and whether it is recomputed.
 *
 * For one micro-batch size, configurations are the paths through a graph whose nodes are
 * (stages from here on, first op, devices from here on) and whose edges are stages. Every
 * edge has a lower bound at first (aceso_stage_bound). The search finds the path that is
 * best by these bounds, solves its stages (aceso_stage_solve) and repeats, until all stages
 * of the best path are solved: then no other configuration is faster. Stages begin only
 * where layers do at first, and anywhere later.
 *
 *     struct aceso_problem p = {.model = m, .batch = 512, .micro = sizes, .n_micro = 4,
 *                               .devices = 4, .per_node = 4, .limits.mib = 12000, .top = 1};
 *     if (aceso_search(&p, &r, &err) == 0)
 *         printf("%g us\n", r.plans[0].cost.us);
 *     aceso_result_release(&r);
 */
#ifndef WEFT_ACESO_SEARCH_H
#define WEFT_ACESO_SEARCH_H

#include "aceso/aceso_stage.h"
#include "common/progress.h"

enum { ACESO_MOST_STAGES = 16 }; /* as in Aceso's own search */

struct aceso_problem {
    const struct aceso_model *model;
    int64_t batch;
    const int64_t *micro; /* micro-batches to consider */
    int n_micro;
    int devices, per_node;
    int max_stages;             /* 0: ACESO_MOST_STAGES */
    int stages;                 /* exactly so many; 0: any number */
    struct aceso_limits limits; /* memory, and decisions that are pinned */
    int top;                    /* how many configurations to keep */
    double deadline_s;          /* on the clock of now_s(); 0: none */
};

/* Returns whether the search was interrupted, or its time is over. */
static inline bool aceso_stopped(const struct aceso_problem *p) {
    return interrupted() || (p->deadline_s > 0 && now_s() > p->deadline_s);
}

struct aceso_plan {
    struct aceso_config *config;
    struct aceso_step_cost cost;
};

struct aceso_result {
    int n;                    /* at least 1 */
    struct aceso_plan *plans; /* fastest first */
    double bound_us;          /* no configuration is faster; 0: not known */
    int64_t solved;           /* walks of aceso_stage_solve */
    bool complete;            /* it was not stopped */
    double seconds;
};

/* Searches and fills *r. EXIT_NO when nothing fits. */
int aceso_search(const struct aceso_problem *p, struct aceso_result *r, struct err *err);
void aceso_result_release(struct aceso_result *r);

#endif
