/* comm-overlap.c - what the progress thread costs and what it gains.
 *
 * For an all-reduce, an all-gather or a message (from every even rank to the next) of each size:
 * blocking; started and waited for at once, without and with the thread (what the thread costs);
 * and started, computing meanwhile, waited for, without and with it, beside computing first and
 * communicating then (what it gains). The computation takes 1.5 times as long as the
 * communication. Times are medians over rounds in which all of these take turns, of the slowest
 * rank.
 *
 * usage: mpirun -n N comm-overlap [all_reduce|all_gather|message [ROUNDS [BYTES...]]]
 */
#include "comm/comm.h"
#include "common/progress.h"
#include "common/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MOST = 101 };

enum way {
    BLOCKING,
    AT_ONCE_OFF,
    AT_ONCE_ON,
    COMPUTE,
    ONE_BY_ONE,
    BESIDE_OFF,
    BESIDE_ON,
    WAYS
};

static const char *const way_names[WAYS] = {
    "blocking",   "start, wait",          "start, wait, thread",         "compute alone",
    "one by one", "start, compute, wait", "start, compute, wait, thread"};

static struct comm *comm;
static float *buf;
static const char *what = "all_reduce";
static int64_t compute_rounds = 1000;

static void must(int rc, const struct err *err) {
    if (rc < 0)
        comm_abort(comm, err_report(err, "comm-overlap"));
}

static void compute(void) {
    static float x[1024];
    for (int64_t k = 0; k < compute_rounds; k++)
        for (int i = 0; i < 1024; i++)
            x[i] = x[i] * 0.999f + 0.001f;
}

static int start(int64_t bytes, struct comm_work *w, struct err *err) {
    struct comm_group *world = comm_world(comm);
    int me = comm_rank(comm), n = comm_size(comm);
    int64_t count = bytes / 4, each = count / n;
    if (!strcmp(what, "all_reduce"))
        return comm_start_all_reduce(world, buf, count, DTYPE_f32, w, err);
    if (!strcmp(what, "all_gather"))
        return comm_start_all_gather(world, buf + me * each, buf, each, DTYPE_f32, w, err);
    if (me % 2)
        return comm_start_recv(world, buf, count, DTYPE_f32, me - 1, 1, w, err);
    return me + 1 < n ? comm_start_send(world, buf, count, DTYPE_f32, me + 1, 1, w, err)
                      : 0;
}

static void run(enum way way, int64_t bytes) {
    struct err err = {0};
    bool on = way == AT_ONCE_ON || way == BESIDE_ON;
    struct comm_work w = {.progress = on ? COMM_PROGRESS_ON : COMM_PROGRESS_OFF};
    if (way == COMPUTE || way == ONE_BY_ONE)
        compute();
    if (way != COMPUTE)
        must(start(bytes, &w, &err), &err);
    if (way == BESIDE_OFF || way == BESIDE_ON)
        compute();
    must(comm_wait(&w, &err), &err);
}

/* Seconds of one, on the slowest rank. */
static double time_way(enum way way, int64_t bytes) {
    struct err err = {0};
    int burst = bytes < 1 << 16 && way <= AT_ONCE_ON ? 100 : 1;
    must(comm_barrier(comm_world(comm), &err), &err);
    double start = now_s();
    for (int i = 0; i < burst; i++)
        run(way, bytes);
    double took = (now_s() - start) / burst;
    must(comm_max_double(comm_world(comm), &took, 1, &err), &err);
    return took;
}

static void bench(int64_t bytes, int rounds) {
    double x[WAYS][ROUNDS_MOST], c[5], m[5];
    compute_rounds = 20000;
    for (int i = 0; i < 5; i++) {
        c[i] = time_way(COMPUTE, bytes);
        m[i] = time_way(BLOCKING, bytes);
    }
    compute_rounds = 1 + (int64_t)(1.5 * 20000 * stats_median(m, 5) / stats_median(c, 5));
    for (int i = 0; i < rounds; i++)
        for (int way = 0; way < WAYS; way++)
            x[way][i] = time_way((enum way)way, bytes);
    for (int way = 0; way < WAYS && comm_rank(comm) == 0; way++)
        printf("%-10s %9lld  %-30s %12.1f us\n", what, (long long)bytes, way_names[way],
               1e6 * stats_median(x[way], rounds));
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct err err = {0};
    comm = comm_create(&argc, &argv, NULL, &err);
    if (!comm)
        return err_report(&err, "comm-overlap");
    what = argc > 1 ? argv[1] : what;
    int rounds = argc > 2 ? atoi(argv[2]) : 11;
    int64_t most = 16 << 20;
    for (int i = 3; i < argc; i++)
        most = atoll(argv[i]) > most ? atoll(argv[i]) : most;
    if (rounds < 1 || rounds > ROUNDS_MOST || !(buf = comm_alloc(comm, most, &err)))
        comm_abort(comm, err_report(&err, "comm-overlap"));
    memset(buf, 0, (size_t)most); /* repeated sums must not run into infinities */
    for (int i = 3; i < argc; i++)
        bench(atoll(argv[i]), rounds);
    for (int64_t bytes = 1 << 10; argc <= 3 && bytes <= most; bytes *= 128)
        bench(bytes, rounds);
    comm_destroy(comm);
    return EXIT_DONE;
}
