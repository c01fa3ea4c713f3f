/* A search, from the outside in:
 *
 *   search_run         the search below, then with logits in pieces (logits.c) and with
 *                      tensors on hosts (offload.c), if memory is short
 *   search_resident    on all devices, then on fewer if some only slow it down (idle.c)
 *   search_run_orders  in the model's own order of ops, then in orders that can be cut
 *                      better (order_run.c)
 *   search_run_on      the algorithm, its finalists, other schedules, simpler plans, the
 *                      certificate (search.c) */
#include "common/progress.h"
#include "search/run/runs.h"

#include <string.h>

/* Moves the simplest plan to the front, with the others in the order of their times, and
 * drops those beyond `top`. */
static void put_simplest_first(const struct search_problem *p, struct search_result *out) {
    int simplest = search_simplest(out->plans, out->n, p->slack);
    struct search_plan best = out->plans[simplest];
    memmove(&out->plans[1], &out->plans[0], sizeof best * (size_t)simplest);
    out->plans[0] = best;
    if (simplest > 0 && p->top == 1) {
        out->fastest = out->plans[1];
        out->plans[1].plan = NULL;
    }
    while (out->n > p->top)
        plan_destroy(out->plans[--out->n].plan);
}

int search_run(const struct search_problem *p, search_algorithm *algorithm,
               struct search_result *out, struct err *err) {
    struct search_problem timed = *p, resident;
    timed.deadline_s = p->time_budget_s > 0 ? now_s() + p->time_budget_s : 0;
    resident = timed;
    /* a later search, with hosts or in pieces, starts from this plan */
    if (search_from_hosts(&timed) || search_from_pieces(&timed))
        resident.from = NULL;
    int rc = search_resident(&resident, algorithm, out, err);
    rc = search_logits(&timed, algorithm, rc, out, err);
    rc = search_hosts(&timed, algorithm, rc, out, err);
    if (rc == 0)
        put_simplest_first(p, out);
    return rc;
}
