/* Timing. All ranks take the same decisions, because they decide by the same numbers: the
 * time of a sample is the slowest rank's, known to all.
 *
 * A sample is a burst of calls, long enough for the clock and for the barrier before it to
 * be lost in it. Samples are taken until the standard error of their median is small or the
 * time for the row is used up.
 */
#include "profile-comm.h"

#include "common/progress.h"
#include "common/stats.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES_LEAST = 9, SAMPLES_MOST = 200, BURST_MOST = 1000, TAG = 7 };

static const double burst_s = 1e-3; /* a burst lasts about that long */

/* All groups of the case, on every rank; the ranks left over look on. */
int bench_enter(struct bench *b, const struct row *row, struct err *err) {
    if (b->g == row->g && b->s == row->s)
        return 0;
    bench_leave(b);
    int g = row->g, block = g * row->s, n = comm_size(b->comm) / block * row->s;
    int *ranks = mem_array((size_t)(n * g), sizeof *ranks);
    struct comm_ranks *sets = mem_array((size_t)n, sizeof *sets);
    struct comm_group **groups = mem_array((size_t)n, sizeof *groups);
    for (int k = 0; k < n; k++) {
        sets[k] = (struct comm_ranks){ranks + k * g, g};
        for (int i = 0; i < g; i++)
            ranks[k * g + i] = k / row->s * block + k % row->s + i * row->s;
    }
    int rc = comm_groups_create(b->comm, sets, n, groups, err);
    for (int k = 0; k < n && rc == 0; k++)
        b->group = groups[k] ? groups[k] : b->group;
    b->g = row->g;
    b->s = row->s;
    free(ranks);
    free(sets);
    free(groups);
    return rc;
}

void bench_leave(struct bench *b) {
    comm_group_destroy(b->group);
    b->group = NULL;
    b->g = b->s = 0;
}

int bench_start(struct bench *b, const struct row *row, struct comm_work *work,
                struct err *err) {
    struct comm_group *g = b->group;
    int64_t all = row->bytes / 4, each = all / row->g;
    switch (row->collective) {
    case COLLECTIVE_all_reduce:
        return comm_start_all_reduce(g, b->in, all, DTYPE_f32, work, err);
    case COLLECTIVE_all_gather:
        return comm_start_all_gather(g, b->in, b->out, each, DTYPE_f32, work, err);
    case COLLECTIVE_reduce_scatter:
        return comm_start_reduce_scatter(g, b->in, b->out, each, DTYPE_f32, work, err);
    case COLLECTIVE_all_to_all:
        return comm_start_all_to_all(g, b->in, b->out, each, DTYPE_f32, work, err);
    case COLLECTIVE_p2p:
        return comm_group_rank(g) == 0
                   ? comm_start_send(g, b->in, all, DTYPE_f32, 1, TAG, work, err)
                   : comm_start_recv(g, b->out, all, DTYPE_f32, 0, TAG, work, err);
    case COLLECTIVE_COUNT: break;
    }
    return 0;
}

/* A message goes one way, as in a pipeline: the ranks' clocks are their GPUs'. */
static int run_on_gpu(struct bench *b, const struct row *row, struct err *err) {
    struct comm_work work = {0};
    return bench_gpu_work(b, row, &work, err) < 0 ? -1 : bench_gpu_join(b, &work, err);
}

/* There and back; half of that is the time of a message. */
static int ping_pong(struct bench *b, int64_t count, struct err *err) {
    int me = comm_group_rank(b->group), rc = 0;
    for (int way = 0; way < 2 && rc == 0; way++)
        rc = me == way ? comm_send(b->group, b->in, count, DTYPE_f32, 1 - me, TAG, err)
                       : comm_recv(b->group, b->out, count, DTYPE_f32, 1 - me, TAG, err);
    return rc;
}

int bench_run(struct bench *b, const struct row *row, struct err *err) {
    struct comm_work work = {.progress = COMM_PROGRESS_OFF};
    if (!b->group)
        return 0;
    if (b->gpu)
        return run_on_gpu(b, row, err);
    if (row->collective == COLLECTIVE_p2p)
        return ping_pong(b, row->bytes / 4, err);
    return bench_start(b, row, &work, err) < 0 ? -1 : comm_wait(&work, err);
}

int bench_time(struct bench *b, int (*run)(void *arg, struct err *err), void *arg,
               int burst, double *took_s, bool *stop, struct err *err) {
    struct comm_group *world = comm_world(b->comm);
    if (comm_barrier(world, err) < 0)
        return -1;
    double start = now_s();
    if (b->gpu && bench_gpu_begin(b, err) < 0)
        return -1;
    for (int i = 0; i < burst; i++)
        if (run(arg, err) < 0)
            return -1;
    double took = now_s() - start;
    if (b->gpu && bench_gpu_end(b, &took, err) < 0)
        return -1;
    double x[2] = {took / burst, interrupted()};
    if (comm_max_double(world, x, 2, err) < 0)
        return -1;
    *took_s = x[0];
    *stop = x[1] > 0;
    return 0;
}

struct call {
    struct bench *b;
    const struct row *row;
};

static int run_call(void *arg, struct err *err) {
    struct call *c = arg;
    return bench_run(c->b, c->row, err);
}

/* Standard error of the median of n values, relative to it; for a normal distribution the
 * inter-quartile range is 1.35 sigma and the error of the median 1.25 sigma / sqrt(n). */
static bool precise(const struct limits *l, double *x, int64_t n) {
    return n >= SAMPLES_LEAST &&
           1.25 / 1.35 * 2 * stats_spread(x, n) / sqrt((double)n) < l->error;
}

/* Fills x with samples; returns how many, 0 when interrupted, -1 on failure. */
static int take_samples(struct bench *b, struct call *c, double *x, struct err *err) {
    double once = 0, spent = 0;
    bool stop = false;
    for (int warm = 0; warm < 2; warm++)
        if (bench_time(b, run_call, c, 1 + 2 * warm, &once, &stop, err) < 0)
            return -1;
    int burst =
        once > burst_s ? 1 : (int)fmin(BURST_MOST, ceil(burst_s / fmax(once, 1e-9)));
    int n = 0;
    while (!stop && n < SAMPLES_MOST && !precise(&b->limits, x, n) &&
           (n < 5 || spent < b->limits.row_s)) {
        if (bench_time(b, run_call, c, burst, &x[n], &stop, err) < 0)
            return -1;
        spent += x[n++] * burst;
    }
    return stop ? 0 : n;
}

int bench_measure(struct bench *b, const struct row *row, struct measured *out,
                  struct err *err) {
    double x[SAMPLES_MOST];
    struct call call = {b, row};
    int n = take_samples(b, &call, x, err);
    if (n < 0)
        return -1;
    double half =
        row->collective == COLLECTIVE_p2p && !b->gpu ? 0.5 : 1; /* there and back */
    *out = (struct measured){.median_us = half * 1e6 * stats_median(x, n),
                             .spread = stats_spread(x, n),
                             .repeats = n,
                             .stop = n == 0};
    return 0;
}
