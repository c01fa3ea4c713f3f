/* What the ranks compute on: the CPU, or a GPU each where the plan is for GPUs. */
#include "run.h"

#include "comm/comm_stage.h"
#include "common/progress.h"
#include "cuda/cuda_workspace.h"

#include <stdio.h>
#include <string.h>

/* The kind of device that a rank's part of the plan was made for; "" where nothing says it. */
static const char *planned_kind(const struct plan *p, int rank) {
    const struct cluster_group *g = p->cluster && rank < cluster_devices(p->cluster)
                                        ? cluster_group_of(p->cluster, rank)
                                        : NULL;
    if (g && g->device[0])
        return g->device;
    const json_t *times = json_object_get(p->provenance, "profile");
    const char *measured = json_string_value(json_object_get(times, "device"));
    return measured ? measured : "";
}

bool run_on_gpu(const struct run_options *o, const struct plan *p, int rank) {
    if (o->device)
        return !strcmp(o->device, "cuda");
    return cluster_kind_is_gpu(planned_kind(p, rank));
}

int run_check_device(const struct run_options *o, const struct plan *p, int rank,
                     struct err *err) {
    if (!run_on_gpu(o, p, rank))
        return 0;
    if (cuda_index(0, err) >= 0)
        return 0;
    if (!o->device)
        err_prefix(err, "the plan is for devices of kind \"%s\"", planned_kind(p, rank));
    return *err->hint ? -1 : err_hint(err, "--device cpu trains under it on the CPU");
}

struct cuda_backend run_cuda(const struct run_options *o, const struct program *g, int rank,
                             struct cuda_choices *choices, struct cuda_report *report) {
    const struct cuda_options options = {.program = g,
                                         .rank = rank,
                                         .deterministic = o->deterministic,
                                         .tf32 = o->tf32,
                                         .choices = choices,
                                         .report = report};
    return cuda_backend(&options);
}

/* The times that the plan was made from may be those of products that round their operands. */
static void note_tf32(const struct run_options *o, const struct plan *p) {
    static const char suffix[] = "-tf32";
    const char *kind = planned_kind(p, 0);
    const size_t n = strlen(kind), most = sizeof suffix - 1;
    if (!o->tf32 && n > most && !strcmp(kind + n - most, suffix))
        note("weft-run: the plan is for \"%s\", whose times are those of --tf32", kind);
}

/* "h100-80gb" is an "h100", with TF32 too. */
static bool same_kind(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return (!*a || *a == '-') && (!*b || *b == '-');
}

/* What was planned may not fit, or not be the best, on another GPU. */
static void note_other_gpu(const struct comm *comm, const struct plan *p) {
    const char *kind = planned_kind(p, comm_rank(comm));
    const int gpu = cuda_index(comm_node_rank(comm), NULL);
    char own[64];
    if (cluster_kind_is_gpu(kind) && gpu >= 0 &&
        cuda_kind(gpu, own, sizeof own, NULL) == 0 && !same_kind(kind, own))
        note("weft-run: the plan is for devices of kind \"%s\", and this GPU is of kind "
             "\"%s\"",
             kind, own);
}

/* Where all have GPUs by NCCL, and by way of the hosts where ranks share one; where only some have, all
 * of it by way of the hosts. */
int run_join(struct comm *comm, const struct run_options *o, const struct plan *p,
             struct nccl_report *report, struct err *err) {
    int n = comm_size(comm), gpus = 0;
    for (int r = 0; r < n; r++)
        gpus += run_on_gpu(o, p, r);
    if (!gpus)
        return 0;
    if (comm_rank(comm) == 0)
        note_tf32(o, p);
    if (comm_rank(comm) == 0 && run_on_gpu(o, p, 0))
        note_other_gpu(comm, p);
    if (gpus < n)
        return comm_use(comm, &comm_backend_stage, NULL, err);
    if (nccl_use(comm, report, err) < 0)
        return -1;
    if (report->none && n > 1 && comm_rank(comm) == 0)
        note("weft-run: built without NCCL: what is between GPUs goes by way of the hosts");
    if (report->sharing && comm_rank(comm) == 0)
        note("weft-run: %d of %d ranks share a GPU with others; what is between those goes "
             "by way of the hosts",
             report->sharing, n);
    return 0;
}

int run_report_convolutions(struct comm *comm, const struct cuda_report *r,
                            struct err *err) {
    double lacks = *r->no_cudnn != 0;
    if (comm_max_double(comm_world(comm), &lacks, 1, err) < 0)
        return -1;
    if (lacks > 0 && comm_rank(comm) == 0)
        note("weft-run: without cuDNN weft's own kernels do convolutions%s%s%s",
             *r->no_cudnn ? " (" : "", r->no_cudnn, *r->no_cudnn ? ")" : "");
    return 0;
}
