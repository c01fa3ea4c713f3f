/* The memory of GPUs: is there enough before anything is allocated, and what was taken. */
#include "run.h"

#include "common/progress.h"
#include "common/text.h"
#include "cuda/cuda_workspace.h"
#include "program/beside.h"

#include <stdio.h>

/* Ranks that have this rank's GPU. Where nobody asked for its name they are taken to see the same ones. */
static int64_t sharers(struct comm *comm, const struct nccl_report *nccl, int gpus) {
    int64_t n = nccl->here;
    if (n)
        return n;
    for (int r = 0; r < comm_node_size(comm); r++)
        n += r % gpus == comm_node_rank(comm) % gpus;
    return n;
}

/* ---- before the first step ----------------------------------------------------------------- */

/* What a rank will ask CUDA for, what its libraries and communicators will take as far as that is reserved,
 * and what its GPU has. */
struct gpu_memory {
    int64_t arena, workspace, libraries, nccl;
    int64_t total, left;
};

/* The plan's cluster says what is reserved; where it says nothing, what is usual counts. */
static struct gpu_memory memory_of(const struct program *g, int rank) {
    const struct plan *p = g->plan;
    const int stage = p->chunks[p->first_chunk[program_group_of_rank(g, rank)]];
    struct cluster c = p->cluster ? *p->cluster : cluster_single_node(p->devices);
    for (int i = 0; i < c.n_groups; i++)
        if (!c.groups[i].memory_bytes)
            c.groups[i].reserve = reserve_of_kind("gpu");
    return (struct gpu_memory){
        .arena = g->stages[stage].arena_bytes,
        .workspace = cuda_workspace_of(g, stage),
        .libraries = cluster_group_of(&c, rank)->reserve.bytes[RESERVE_libraries],
        .nccl = beside_communicators(&(struct workspace_site){g, stage, &c, 1})};
}

/* What is certain not to fit is an error, what may not a note. CUDA's own part is taken already. */
static int judge(const struct gpu_memory *m, int64_t ranks, struct err *err) {
    int64_t own = ranks * (m->arena + m->workspace);
    int64_t beside = m->libraries + ranks * m->nccl;
    if (own > m->left) {
        err_system(err,
                   "out of memory: %.3f GB are planned for %lld rank%s of a GPU, and "
                   "%.3f of its %.3f GB are free",
                   1e-9 * (double)own, (long long)ranks, ranks > 1 ? "s" : "",
                   1e-9 * (double)m->left, 1e-9 * (double)m->total);
        err_hint(err, "weft-predict says what a plan takes; ranks that share a GPU share "
                      "its memory");
        return -1;
    }
    if (own + beside > m->left)
        note("weft-run: %.3f GB are planned and %.3f GB reserved for libraries and NCCL, "
             "and %.3f of the GPU's %.3f GB are free: this may not be enough",
             1e-9 * (double)own, 1e-9 * (double)beside, 1e-9 * (double)m->left,
             1e-9 * (double)m->total);
    return 0;
}

int run_check_memory(struct comm *comm, const struct run_options *o,
                     const struct program *g, const struct nccl_report *nccl,
                     struct err *err) {
    const int rank = comm_rank(comm);
    if (!run_on_gpu(o, g->plan, rank))
        return 0;
    struct gpu_memory m = memory_of(g, rank);
    int gpus = cuda_count(err), index = cuda_index(comm_node_rank(comm), err);
    if (gpus < 0 || index < 0 || cuda_memory(index, &m.total, &m.left, err) < 0)
        return -1;
    if (!nccl->communicators)
        m.nccl = 0;
    if (rank == 0)
        note("weft-run: a rank takes %.3f GB of a GPU's %.3f GB, of which %.3f are free; "
             "reserved: %.3f GB for libraries, %.3f for NCCL",
             1e-9 * (double)(m.arena + m.workspace), 1e-9 * (double)m.total,
             1e-9 * (double)m.left, 1e-9 * (double)m.libraries, 1e-9 * (double)m.nccl);
    return judge(&m, sharers(comm, nccl, gpus), err);
}

/* ---- after it ------------------------------------------------------------------------------ */

/* numbers: bytes of the GPU, own, and beside. Where ranks share a GPU, each is taken to have as much as this
 * one. */
static int ask_memory(struct comm *comm, const struct cuda_report *r,
                      const struct nccl_report *nccl, double *numbers, struct err *err) {
    int gpus = cuda_count(err), index = cuda_index(comm_node_rank(comm), err);
    int64_t total, left;
    if (gpus < 0 || index < 0 || cuda_memory(index, &total, &left, err) < 0)
        return -1;
    numbers[0] = (double)total;
    numbers[1] = (double)r->own_bytes;
    numbers[2] = (double)(total - left - sharers(comm, nccl, gpus) * r->own_bytes);
    return 0;
}

/* The most of any rank. What weft did not ask for is CUDA's, its libraries' and other processes'. */
int run_report_memory(struct comm *comm, const struct cuda_report *r,
                      const struct nccl_report *nccl, struct err *err) {
    enum { NUMBERS = 4 };
    double numbers[NUMBERS] = {[3] = nccl->communicators};
    int rc = exec_agree(comm, r ? ask_memory(comm, r, nccl, numbers, err) : 0, err);
    if (rc < 0 || comm_max_double(comm_world(comm), numbers, NUMBERS, err) < 0)
        return -1;
    char made[64] = "";
    if (numbers[3] > 0)
        snprintf(made, sizeof made, ", with %.0f communicator%s of NCCL", numbers[3],
                 numbers[3] > 1 ? "s" : "");
    if (comm_rank(comm) == 0)
        note(
            "weft-run: of a GPU's %.2f GB a rank takes %.3f GB; CUDA, its libraries and others "
            "take %.3f GB beside%s",
            1e-9 * numbers[0], 1e-9 * numbers[1], 1e-9 * numbers[2], made);
    return 0;
}
