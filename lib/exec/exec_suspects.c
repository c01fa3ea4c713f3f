/* Which replicas' gradients are unlike those of the others.
 *
 * Where the plan does not trust its replicas, the rules over their gradients add up of how many numbers
 * each is suspected (program/passes/pass_aggregate.c). At the step's end the ranks sum this by rank of
 * the job, with the norm, and keep a running mean: a rank that is suspected in step after step is a
 * matter of its machine. The same sum says whose loss is no number: one bad machine does not make the
 * step's loss unknown. */
#include "exec/exec_impl.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a step in the running mean: the last ten or so count. */
static const double NEW = 0.1;

/* What a rank tells: losses that it counts, of them those that are no numbers; then by rank of the job
 * numbers that are suspected, and numbers in all. */
enum { LOSSES, LOST, BY_RANK };

bool exec_suspects_are_told(const struct exec *x) {
    return x->g->plan->aggregate != AGGREGATE_mean;
}

int64_t exec_suspects_numbers(const struct exec *x) {
    return exec_suspects_are_told(x) ? BY_RANK + 2 * (int64_t)x->g->plan->devices : 0;
}

static bool counts_loss(const struct exec_chunk *c) {
    for (int i = 0; i < c->sp->n_instrs; i++) {
        const enum opcode code = c->sp->instrs[i].code;
        if ((code == I_cross_entropy || code == I_cross_entropy_finish) &&
            c->ready[i].args.counts)
            return true;
    }
    return false;
}

void exec_suspects_prepare(struct exec *x) {
    int64_t most = 1;
    if (!exec_suspects_are_told(x))
        return;
    for (int k = 0; k < x->n_chunks; k++) {
        const struct exec_chunk *c = &x->chunks[k];
        x->tells_loss |= counts_loss(c);
        most = c->sp->n_suspects > most ? c->sp->n_suspects : most;
    }
    x->suspected = mem_array((size_t)most, sizeof *x->suspected);
    x->suspicion = mem_array((size_t)x->g->plan->devices, sizeof *x->suspicion);
    x->members = mem_array((size_t)x->g->plan->devices, sizeof *x->members);
}

void exec_suspects_release(struct exec *x) {
    free(x->suspected);
    free(x->suspicion);
    free(x->members);
}

int exec_suspects_begin(struct exec *x, struct err *err) {
    for (int k = 0; k < x->n_chunks; k++) {
        const struct stage_program *sp = x->chunks[k].sp;
        const int64_t bytes = (int64_t)sizeof *x->suspected * sp->n_suspects;
        if (!bytes)
            continue;
        memset(x->suspected, 0, (size_t)bytes);
        if (device_upload(x->streams[STREAM_compute], exec_address(x, sp->suspects, bytes),
                          x->suspected, bytes, err) < 0)
            return -1;
    }
    return 0;
}

/* By rank of the job what one stage suspects the members of each group of. */
static void add_stage(struct exec *x, const struct exec_chunk *c, double *by_rank) {
    const struct stage_program *sp = c->sp;
    const int first = x->g->plan->stages[sp->stage].first_rank;
    uint64_t added = 0; /* sets of axes */
    for (int i = 0; i < sp->n_instrs; i++) {
        const struct instr *ins = &sp->instrs[i];
        const uint64_t set = (uint64_t)1 << ins->axes;
        if ((ins->code != I_median && ins->code != I_trimmed && ins->code != I_fair) ||
            (added & set))
            continue;
        added |= set;
        const int64_t *told = x->suspected + ins->slot;
        const int n = mesh_group(sp->mesh, ins->axes, x->rank - first, x->members);
        for (int m = 0; m < n; m++) {
            by_rank[2 * (first + x->members[m])] += (double)told[m];
            by_rank[2 * (first + x->members[m]) + 1] += (double)told[n];
        }
    }
}

int exec_suspects_tell(struct exec *x, double loss, double *out, struct err *err) {
    memset(out, 0, sizeof *out * (size_t)exec_suspects_numbers(x));
    if (!exec_suspects_are_told(x))
        return 0;
    out[LOSSES] = x->tells_loss;
    out[LOST] = x->tells_loss && !isfinite(loss);
    for (int k = 0; k < x->n_chunks; k++) {
        const struct stage_program *sp = x->chunks[k].sp;
        const int64_t bytes = (int64_t)sizeof *x->suspected * sp->n_suspects;
        if (!bytes)
            continue;
        if (device_download(x->streams[STREAM_compute], x->suspected,
                            exec_address(x, sp->suspects, bytes), bytes, err) < 0)
            return -1;
        add_stage(x, &x->chunks[k], out + BY_RANK);
    }
    return 0;
}

double exec_suspects_learn(struct exec *x, const double *sums) {
    if (!exec_suspects_are_told(x))
        return 1;
    for (int r = 0; r < x->g->plan->devices; r++) {
        const double *of = sums + BY_RANK + 2 * r;
        if (of[1] > 0)
            x->suspicion[r] += NEW * (of[0] / of[1] - x->suspicion[r]);
    }
    return sums[LOSSES] / (sums[LOSSES] - sums[LOST]);
}
