/* comm-backend.c - a second backend, made of nothing but the two headers of comm.
 *
 * It counts what is asked of it and lets the world group, which stays MPI's, do the work: so
 * its groups are of all ranks. What a backend with streams does at a wait, this one does too:
 * it returns at once for what it knows to be done.
 *
 * usage: mpirun -n N comm-backend
 */
#include "comm/comm_backend.h"
#include "common/mem.h"
#include "tap_ranks.h"
#include "waited.h"

#include <stdlib.h>
#include <string.h>

struct counts {
    struct comm *comm;
    int opened, groups, closed_groups, starts, waits;
};

static void *open_counting(struct comm *job, void *arg, struct err *err) {
    struct counts *c = arg;
    (void)err;
    c->comm = job;
    c->opened++;
    return c;
}

static void close_counting(void *job) {
    struct counts *c = job;
    c->opened--;
}

/* Rank 0 of each group tells the others a number, as one would an id to meet by. */
static int open_groups(void *job, struct comm_group **groups, int n, struct err *err) {
    struct counts *c = job;
    for (int i = 0; i < n; i++) {
        int *id = groups[i] ? mem_alloc(sizeof *id) : NULL;
        if (!id)
            continue;
        *id = groups[i]->me == 0 ? groups[i]->id : -1;
        groups[i]->state = id;
        c->groups++;
        if (comm_broadcast(comm_world(c->comm), id, sizeof *id, groups[i]->ranks[0], err) <
            0)
            return -1;
    }
    return 0;
}

static void close_group(struct comm_group *group) {
    struct counts *c = group->job;
    c->closed_groups++;
    free(group->state);
}

static int start(struct comm_work *work, struct err *err) {
    struct counts *c = work->group->job;
    c->starts++;
    work->state = WORK_DONE;
    if (work->op != COMM_all_reduce)
        return err_system(err, "only sums");
    return waited_all_reduce(comm_world(c->comm), work->out, work->count, work->dtype, err);
}

static int wait_counting(struct comm_work *work, struct err *err) {
    struct counts *c = work->group->job;
    (void)err;
    c->waits++;
    work->state = WORK_NONE;
    return 0;
}

static const struct comm_backend counting = {.name = "counting",
                                             .open = open_counting,
                                             .close = close_counting,
                                             .open_groups = open_groups,
                                             .close_group = close_group,
                                             .start = start,
                                             .wait = wait_counting};

static void check(struct counts *counts) {
    struct err err = {0};
    struct comm_group *g[2];
    int n = comm_size(comm), rank = comm_rank(comm);
    int *ranks = mem_array((size_t)n, sizeof *ranks);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    struct comm_ranks sets[2] = {{ranks, n}, {ranks, n}};
    must(comm_groups_create(comm, sets, 2, g, &err), &err);
    ok_here(counts->opened == 1 && counts->groups == 2 && *(int *)g[0]->state == g[0]->id &&
                *(int *)g[1]->state == g[1]->id && g[0]->id != g[1]->id,
            "the groups of a list are its own, with ids that all know");
    float x[3] = {1, 2, (float)rank};
    must(waited_all_reduce(g[1], x, 3, DTYPE_f32, &err), &err);
    ok_here(counts->starts == 1 && counts->waits == 1 && x[0] == (float)n &&
                x[2] == (float)(n * (n - 1) / 2),
            "it starts and waits for their works");
    double one = 1;
    must(comm_sum_double(comm_world(comm), &one, 1, &err), &err);
    ok_here(counts->starts == 1 && one == n, "the world group stays with MPI");
    comm_group_destroy(g[0]);
    comm_group_destroy(g[1]);
    free(ranks);
}

int main(int argc, char **argv) {
    struct counts counts = {0};
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    options.backend = &counting;
    options.backend_arg = &counts;
    int status = begin_job("comm-backend", &argc, &argv, &options);
    if (status)
        return status;
    check(&counts);
    comm_destroy(comm);
    comm = NULL;
    ok_here(counts.opened == 0 && counts.closed_groups == 2, "and is closed with the job");
    return end_job();
}
