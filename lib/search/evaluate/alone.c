/* How long single devices would take for a whole step, which bounds what several of them
 * can do. */
#include "search/evaluate/evaluate.h"
#include "search/space/devices.h"

#include <math.h>

/* How long one device would take for the whole step with this micro-batch and without a
 * limit of memory; INFINITY if that is not legal, or the profile lacks it. */
static double device_us(struct evaluate *ev, int rank, int64_t micro_batch) {
    struct search_stage st = {.end = ev->space->p.model->n_ops, .devices = 1};
    space_apply_preset(ev->space, &st, micro_batch, (struct preset){.inner = ~0u});
    const struct prefix *t = eval_prefix(ev, &st, micro_batch, rank, false);
    if (!prefix_legal(ev->space, t, 0, st.end))
        return INFINITY;
    const struct stage_sum *sum = eval_stage_sum(ev, t, &st);
    double m = (double)(ev->space->p.batch / micro_batch);
    return sum->missing ? INFINITY
                        : m * (sum->forward_us + sum->backward_us + sum->weights_us) +
                              sum->reduce_us + sum->update_us;
}

void eval_alone(struct evaluate *ev, double alone_us[CLUSTER_MAX_GROUPS]) {
    const struct cluster *c = &ev->space->p.cluster;
    for (int g = 0; g < c->n_groups && c->groups[g].first_rank < ev->space->p.devices;
         g++) {
        double least = INFINITY;
        alone_us[g] = 0;
        for (int i = 0; i < ev->space->p.n_micro; i++) {
            /* out of time, no other number of devices is searched (idle.c) */
            if (budget_out_of_time(ev->budget))
                return;
            least = fmin(
                least, device_us(ev, (int)c->groups[g].first_rank, ev->space->p.micro[i]));
        }
        alone_us[g] = isfinite(least) ? least : 0;
    }
}
