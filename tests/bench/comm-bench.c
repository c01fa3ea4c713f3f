/* comm-bench.c - the collectives beside the MPI library's own, in the same run.
 *
 * For every size the two are timed in turn (ours, theirs, ours, ...), so that other work on
 * the machine meets both alike; the figure of each is the median, of the slowest rank.
 * "ratio" is the median of the paired ratios: below 1 ours is faster. GB/s are bytes of the
 * whole vector (the larger of in and out) over the time.
 *
 * usage: mpirun -n N comm-bench [MAX_BYTES [heap]]    heap: private buffers, so the rings
 */
#include "../mpi/waited.h"
#include "comm/comm.h"
#include "common/progress.h"
#include "common/stats.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct comm *comm;
static float *a, *b; /* max_bytes each */
static int n, me;

static void check(int rc, const struct err *err) {
    if (rc < 0)
        comm_abort(comm, err_report(err, "comm-bench"));
}

/* One run with `bytes` in the larger buffer, by us or by MPI. */
static void all_reduce(int64_t bytes, int ours) {
    struct err err = {0};
    if (ours)
        check(waited_all_reduce(comm_world(comm), a, bytes / 4, DTYPE_f32, &err), &err);
    else
        MPI_Allreduce(MPI_IN_PLACE, a, (int)(bytes / 4), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
}

static void all_gather(int64_t bytes, int ours) {
    struct err err = {0};
    int count = (int)(bytes / 4 / n);
    if (ours)
        check(comm_all_gather(comm_world(comm), a + me * (int64_t)count, a, count,
                              DTYPE_f32, &err),
              &err);
    else
        MPI_Allgather(MPI_IN_PLACE, count, MPI_FLOAT, a, count, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(int64_t bytes, int ours) {
    struct err err = {0};
    int count = (int)(bytes / 4 / n);
    if (ours)
        check(waited_reduce_scatter(comm_world(comm), a, b, count, DTYPE_f32, &err), &err);
    else
        MPI_Reduce_scatter_block(a, b, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(int64_t bytes, int ours) {
    struct err err = {0};
    int count = (int)(bytes / 4 / n);
    if (ours)
        check(waited_all_to_all(comm_world(comm), a, b, count, DTYPE_f32, &err), &err);
    else
        MPI_Alltoall(a, count, MPI_FLOAT, b, count, MPI_FLOAT, MPI_COMM_WORLD);
}

/* Every even rank sends to the next odd one. */
static void send_recv(int64_t bytes, int ours) {
    struct err err = {0};
    int peer = me ^ 1;
    if (peer >= n)
        return;
    if (!ours && me < peer) {
        MPI_Send(a, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    } else if (!ours) {
        MPI_Recv(a, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        struct comm_group *world = comm_world(comm);
        check(me < peer ? comm_send(world, a, bytes, DTYPE_u8, peer, 1, &err)
                        : comm_recv(world, a, bytes, DTYPE_u8, peer, 1, &err),
              &err);
    }
}

typedef void run_fn(int64_t bytes, int ours);

/* Seconds a call takes on the slowest rank, mean over a burst. */
static double time_burst(run_fn *run, int64_t bytes, int ours, int burst) {
    struct err err = {0};
    check(comm_barrier(comm_world(comm), &err), &err);
    double start = now_s();
    for (int i = 0; i < burst; i++)
        run(bytes, ours);
    double took = (now_s() - start) / burst;
    check(comm_max_double(comm_world(comm), &took, 1, &err), &err);
    return took;
}

static void bench(const char *name, run_fn *run, int64_t bytes) {
    enum { PAIRS = 15 };
    double own[PAIRS], mpi[PAIRS], ratio[PAIRS];
    int burst = bytes > 1 << 20 ? 1 : 20;
    memset(a, 0, (size_t)bytes); /* repeated sums must not run into infinities */
    time_burst(run, bytes, 1, 1);
    time_burst(run, bytes, 0, 1);
    for (int i = 0; i < PAIRS; i++) {
        own[i] = time_burst(run, bytes, 1, burst);
        mpi[i] = time_burst(run, bytes, 0, burst);
        ratio[i] = own[i] / mpi[i];
    }
    double t = stats_median(own, PAIRS), m = stats_median(mpi, PAIRS);
    if (me == 0)
        printf("%-14s %9lld %10.1f %10.1f %9.2f %9.2f %7.2f\n", name, (long long)bytes,
               t * 1e6, m * 1e6, (double)bytes / t * 1e-9, (double)bytes / m * 1e-9,
               stats_median(ratio, PAIRS));
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        run_fn *run;
    } all[] = {{"all_reduce", all_reduce},
               {"all_gather", all_gather},
               {"reduce_scatter", reduce_scatter},
               {"all_to_all", all_to_all},
               {"send_recv", send_recv}};
    struct err err = {0};
    comm = comm_create(&argc, &argv, NULL, &err);
    if (!comm)
        return err_report(&err, "comm-bench");
    n = comm_size(comm);
    me = comm_rank(comm);
    int64_t most = argc > 1 ? atoll(argv[1]) : 64 << 20;
    a = argc > 2 ? malloc((size_t)(2 * most)) : comm_alloc(comm, 2 * most, &err);
    if (!a)
        comm_abort(comm, err_report(&err, "comm-bench"));
    b = a + most / 4;
    memset(a, 0, (size_t)(2 * most));
    if (me == 0)
        printf("# %d ranks on %d nodes\n%-14s %9s %10s %10s %9s %9s %7s\n", n,
               comm_nodes(comm), "collective", "bytes", "us", "MPI us", "GB/s", "MPI GB/s",
               "ratio");
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        for (int64_t bytes = 1024; bytes <= most; bytes *= 4)
            bench(all[k].name, all[k].run, bytes);
    if (argc > 2)
        free(a);
    comm_destroy(comm);
    return EXIT_DONE;
}
