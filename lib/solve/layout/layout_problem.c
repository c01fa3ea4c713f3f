/* layout_problem.c - the checks of a problem before it is solved, and its release. */
#include "solve/layout/layout.h"

#include <stdlib.h>

static int64_t n_strategies(const struct layout_problem *p, int64_t i) {
    return p->first[i + 1] - p->first[i];
}

void layout_problem_release(struct layout_problem *p) {
    free(p->name);
    free(p->first);
    free(p->cost);
    free(p->usage);
    free(p->live);
    free(p->ends);
    free(p->entry);
    free(p->edge_cost);
    *p = (struct layout_problem){0};
}

/* Adds the largest cost that does not forbid to *sum. Returns -1 when a cost is bad or the
 * sum too large. */
static int add_costs(const int64_t *cost, int64_t n, int64_t *sum) {
    int64_t most = 0;
    for (int64_t s = 0; s < n; s++) {
        if (cost[s] < 0 || cost[s] > LAYOUT_MAX)
            return -1;
        if (cost[s] < LAYOUT_FORBIDDEN && cost[s] > most)
            most = cost[s];
    }
    *sum += most;
    return *sum < LAYOUT_SUM_MAX ? 0 : -1;
}

static int validate_nodes(const struct layout_problem *p, int64_t *sum, struct err *err) {
    int64_t used = 0;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t k = n_strategies(p, i);
        if (k < 0 || k > INT32_MAX || add_costs(p->cost + p->first[i], k, sum) < 0)
            return err_input(err,
                             "node %d: a cost is negative, too large, or overflows "
                             "the sum of costs",
                             (int)i);
        if (add_costs(p->usage + p->first[i], k, &used) < 0)
            return err_input(err,
                             "node %d: a usage is negative, too large, or overflows "
                             "the sum of usages",
                             (int)i);
    }
    return 0;
}

int layout_validate(const struct layout_problem *p, struct err *err) {
    int64_t sum = 0;
    if (validate_nodes(p, &sum, err) < 0)
        return -1;
    for (int64_t e = 0; e < p->n_edges; e++) {
        int32_t u = p->ends[e][0], v = p->ends[e][1];
        if (u < 0 || u >= p->n_nodes || v < 0 || v >= p->n_nodes)
            return err_input(err, "edge %lld: node %d or %d does not exist", (long long)e,
                             (int)u, (int)v);
        int64_t n = n_strategies(p, u) * n_strategies(p, v);
        if (p->entry[e] < 0 || n > p->n_entries - p->entry[e])
            return err_input(err,
                             "edge %lld: %lld x %lld entries from %lld on are more than "
                             "there are",
                             (long long)e, (long long)n_strategies(p, u),
                             (long long)n_strategies(p, v), (long long)p->entry[e]);
        if (add_costs(p->edge_cost + p->entry[e], n, &sum) < 0)
            return err_input(err,
                             "edge %lld: a cost is negative, too large, or overflows "
                             "the sum of costs",
                             (long long)e);
    }
    for (int64_t l = 0; l < p->n_live; l++)
        if (p->live[l].node < 0 || p->live[l].node >= p->n_nodes)
            return err_input(err, "life %lld: node %d does not exist", (long long)l,
                             (int)p->live[l].node);
    return 0;
}
