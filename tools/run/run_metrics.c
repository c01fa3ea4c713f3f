/* What is said of a training besides its losses. */
#include "run.h"

#include "common/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Positions of a sample that the model writes or is told the next token of; 0: it reads no tokens. */
static int64_t tokens_of_sample(const struct model *m) {
    for (int i = 0; i < m->n_ops; i++) {
        const int targets = op_targets(&m->ops[i]);
        if (targets >= 0 && m->tensors[targets].shape.rank > 1)
            return m->dims[m->tensors[targets].shape.dim[1]].size;
    }
    return 0;
}

void run_say_what(const struct plan *p, const struct data *data, bool gpus) {
    const struct model *m = p->model;
    const struct data_info *d = data_info(data);
    const int64_t tokens = tokens_of_sample(m);
    const double all = model_count_parameters(m, false);
    const double trained = model_count_parameters(m, true);
    char each[64] = "", of[48] = "";
    if (trained < all)
        snprintf(of, sizeof of, " (%.4g trained)", 1e-6 * trained);
    if (tokens)
        snprintf(each, sizeof each, " of %lld tokens", (long long)tokens);
    note("weft-run: %s%s%s, %.4g million parameters%s, %s; %d rank%s on %s, %d stage%s, %s",
         m->name, m->preset[0] ? ":" : "", m->preset, 1e-6 * all, of,
         plan_dtype_name(p->dtype), p->devices, p->devices == 1 ? "" : "s",
         gpus ? "GPUs" : "CPUs", p->n_stages, p->n_stages == 1 ? "" : "s",
         optimizer_name(p->optimizer));
    note(
        "weft-run: a step is %lld samples%s; %s: %lld samples to train on, %lld to validate",
        (long long)p->batch, each, d->format, (long long)d->size[DATA_TRAIN],
        (long long)d->size[DATA_VALID]);
}

double run_share_of_peak(const struct plan *p, double seconds) {
    const double peak = p->cluster ? cluster_flops(p->cluster, p->dtype, 0, p->devices) : 0;
    return peak > 0 ? model_step_flops(p->model, p->batch) / seconds / peak : NAN;
}

double run_epochs(const struct data *data, int64_t samples) {
    const int64_t size = data_size(data, DATA_TRAIN);
    return size > 0 ? (double)samples / (double)size : 0;
}

int run_print_timing(struct comm *comm, const struct exec *x, struct err *err) {
    double s[OPCODE_COUNT], total = 0;
    memcpy(s, exec_seconds(x), sizeof s);
    const double share = exec_seconds_share(x); /* a GPU's, of some steps */
    for (int i = 0; i < OPCODE_COUNT; i++)
        s[i] = share > 0 ? s[i] / share : 0;
    if (comm_sum_double(comm_world(comm), s, OPCODE_COUNT, err) < 0)
        return -1;
    for (int i = 0; i < OPCODE_COUNT; i++)
        total += s[i];
    if (comm_rank(comm) != 0)
        return 0;
    double products = s[I_linear] + s[I_linear_dx] + s[I_linear_dw] + s[I_matmul] +
                      s[I_matmul_dw] + s[I_conv2d] + s[I_conv2d_dx] + s[I_conv2d_dw] +
                      s[I_orthogonalize];
    for (int i = 0; i < OPCODE_COUNT; i++)
        if (s[i] > 0.0005 * total)
            fprintf(stderr, "%-22s %8.3f s %5.1f %%\n", opcode_name((enum opcode)i), s[i],
                    100 * s[i] / total);
    fprintf(stderr, "%-22s %8.3f s %5.1f %%\n", "outside products", total - products,
            100 * (total - products) / total);
    return 0;
}
