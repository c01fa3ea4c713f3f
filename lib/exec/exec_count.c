/* How many targets of a step count is known before its backward pass begins: every rank counts those
 * of its share of the samples, whatever the plan (exec_read.c), and one sum tells all. */
#include "exec/exec_impl.h"

#include "common/mem.h"

/* Can some of a loss's targets be such as do not count? */
static bool must_count(const struct exec *x, const struct model_tensor *targets,
                       int32_t ignore) {
    return ignore >= 0 || targets->source == DATA_TARGET ||
           (x->data && data_ignores(x->data));
}

void exec_prepare_losses(struct exec *x) {
    const struct model *m = x->g->plan->model;
    size_t n = (size_t)model_losses(m);
    x->per_target =
        exec_address(x, x->chunks->sp->per_target, (int64_t)(n * sizeof *x->per_target));
    x->losses = mem_array(n, sizeof *x->losses);
    x->counts = mem_array(n + 1, sizeof *x->counts);
    x->inverse = mem_array(n, sizeof *x->inverse);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        int targets = op_targets(op);
        if (targets < 0)
            continue;
        struct exec_loss *l = &x->losses[x->n_losses++];
        l->ignore = (int32_t)op->attr[ATTR_ignore];
        l->targets = must_count(x, &m->tensors[targets], l->ignore) ? targets : -1;
        l->terms = program_loss_terms(x->g, i);
    }
}

int exec_count(struct exec *x, int64_t batches, struct err *err) {
    double *counts = x->counts;
    bool shared = false;
    counts[x->n_losses] = 0;
    for (int k = 0; k < x->n_losses; k++)
        shared |= x->losses[k].targets >= 0;
    if (shared && exec_prefetch_counts(x->prefetch, counts, err) < 0)
        return -1;
    if (shared && comm_sum_double(comm_world(x->comm), counts, x->n_losses + 1, err) < 0)
        return -1;
    for (int k = 0; k < x->n_losses; k++) {
        const struct exec_loss *l = &x->losses[k];
        if (l->targets < 0)
            counts[k] = (double)(l->terms * batches);
        x->inverse[k] = counts[k] > 0 ? 1 / counts[k] : 0;
    }
    x->missing += (int64_t)counts[x->n_losses];
    return device_upload(x->streams[STREAM_compute], x->per_target, x->inverse,
                         (int64_t)sizeof *x->inverse * x->n_losses, err);
}
