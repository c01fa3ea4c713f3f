/* How many targets of a step count is known before its backward pass begins: every rank counts those
 * of its share of the samples, whatever the plan, and one sum tells all. */
#include "exec/exec_impl.h"

#include "common/mem.h"

/* Can some of a loss's targets be such as do not count? */
static bool must_count(const struct model_tensor *targets, int32_t ignore) {
    return ignore >= 0 || targets->source == DATA_TARGET;
}

void exec_prepare_losses(struct exec *x) {
    const struct model *m = x->g->plan->model;
    size_t n = (size_t)model_losses(m);
    x->per_target =
        exec_address(x, x->chunks->sp->per_target, (int64_t)(n * sizeof *x->per_target));
    x->losses = mem_array(n, sizeof *x->losses);
    x->counts = mem_array(n, sizeof *x->counts);
    x->inverse = mem_array(n, sizeof *x->inverse);
    for (int i = 0; i < m->n_ops; i++) {
        const struct model_op *op = &m->ops[i];
        int targets = op_targets(op);
        if (targets < 0)
            continue;
        struct exec_loss *l = &x->losses[x->n_losses++];
        l->ignore = (int32_t)op->attr[ATTR_ignore];
        l->targets = must_count(&m->tensors[targets], l->ignore) ? targets : -1;
        l->terms = program_loss_terms(x->g, i);
    }
}

/* In one sample, piece by piece. */
static int count_sample(struct exec *x, const struct exec_loss *l, int64_t sample,
                        double *count, struct err *err) {
    const struct model *m = x->g->plan->model;
    const struct model_tensor *t = &m->tensors[l->targets];
    struct extents one = model_extents(m, &t->shape, 1);
    int32_t *piece = (int32_t *)x->host;
    int64_t elems = extents_count(&one), most = x->host_bytes / (int64_t)sizeof *piece;
    for (int64_t at = 0, n; at < elems; at += n) {
        n = elems - at < most ? elems - at : most;
        if (exec_read(x, t->source, sample, at, n, piece, err) < 0)
            return -1;
        for (int64_t i = 0; i < n; i++)
            *count += piece[i] >= 0 && piece[i] != l->ignore;
    }
    return 0;
}

/* Every rank takes samples in turn. */
static int count_share(struct exec *x, const struct exec_loss *l, int64_t sample, int64_t n,
                       double *count, struct err *err) {
    int64_t rank = comm_rank(x->comm), size = comm_size(x->comm);
    for (int64_t i = rank; i < n; i += size)
        if (count_sample(x, l, sample + i, count, err) < 0)
            return err_prefix(err, "targets");
    return 0;
}

int exec_count(struct exec *x, int64_t sample, int64_t n, struct err *err) {
    double *counts = x->counts;
    int64_t batches = n / x->g->plan->batch;
    bool shared = false;
    for (int k = 0; k < x->n_losses; k++) {
        const struct exec_loss *l = &x->losses[k];
        counts[k] = 0;
        shared |= l->targets >= 0;
        if (l->targets >= 0 && count_share(x, l, sample, n, &counts[k], err) < 0)
            return -1;
    }
    if (shared && comm_sum_double(comm_world(x->comm), counts, x->n_losses, err) < 0)
        return -1;
    for (int k = 0; k < x->n_losses; k++) {
        const struct exec_loss *l = &x->losses[k];
        if (l->targets < 0)
            counts[k] = (double)(l->terms * batches);
        x->inverse[k] = counts[k] > 0 ? 1 / counts[k] : 0;
    }
    return device_upload(x->streams[STREAM_compute], x->per_target, x->inverse,
                         (int64_t)sizeof *x->inverse * x->n_losses, err);
}
