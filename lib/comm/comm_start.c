/* The interface of works: every start checks its arguments, fills in the handle and gives it
 * to the group's backend; the blocking forms start and wait.
 */
#include "comm/comm_impl.h"

#include <string.h>

const char *comm_op_name(enum comm_op op) {
    static const char *const names[] = {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
        "barrier",    "sum_double", "max_double",     "send",       "recv"};
    return names[op];
}

/* Fills in what is the same for all; the rest of the handle is as *args says. */
static int start(struct comm_group *g, const struct comm_work *args, struct comm_work *w,
                 struct err *err) {
    if (args->count < 0 || args->count > INT64_MAX / 8 / g->n)
        return err_system(err, "%s: cannot take %lld elements", comm_op_name(args->op),
                          (long long)args->count);
    enum comm_progress progress = w->progress;
    struct device_stream *stream = w->stream;
    *w = *args;
    w->progress = progress;
    w->stream = stream;
    w->group = g;
    return g->backend->start(w, err);
}

int comm_start_all_reduce(struct comm_group *g, void *buf, int64_t count, enum dtype dtype,
                          struct comm_work *work, struct err *err) {
    struct comm_work args = {
        .op = COMM_all_reduce, .in = buf, .out = buf, .count = count, .dtype = dtype};
    return start(g, &args, work, err);
}

int comm_start_all_gather(struct comm_group *g, const void *in, void *out, int64_t count,
                          enum dtype dtype, struct comm_work *work, struct err *err) {
    struct comm_work args = {
        .op = COMM_all_gather, .in = in, .out = out, .count = count, .dtype = dtype};
    return start(g, &args, work, err);
}

int comm_start_reduce_scatter(struct comm_group *g, void *in, void *out, int64_t count,
                              enum dtype dtype, struct comm_work *work, struct err *err) {
    struct comm_work args = {
        .op = COMM_reduce_scatter, .in = in, .out = out, .count = count, .dtype = dtype};
    return start(g, &args, work, err);
}

int comm_start_all_to_all(struct comm_group *g, const void *in, void *out, int64_t count,
                          enum dtype dtype, struct comm_work *work, struct err *err) {
    struct comm_work args = {
        .op = COMM_all_to_all, .in = in, .out = out, .count = count, .dtype = dtype};
    return start(g, &args, work, err);
}

static int check_peer(const struct comm_group *g, enum comm_op op, int peer,
                      struct err *err) {
    if (peer >= 0 && peer < g->n)
        return 0;
    return err_system(err, "%s: no rank %d in a group of %d", comm_op_name(op), peer, g->n);
}

int comm_start_send(struct comm_group *g, const void *buf, int64_t count, enum dtype dtype,
                    int peer, int tag, struct comm_work *work, struct err *err) {
    if (check_peer(g, COMM_send, peer, err) < 0)
        return -1;
    struct comm_work args = {.op = COMM_send,
                             .in = buf,
                             .count = count,
                             .dtype = dtype,
                             .peer = peer,
                             .tag = tag};
    return start(g, &args, work, err);
}

int comm_start_recv(struct comm_group *g, void *buf, int64_t count, enum dtype dtype,
                    int peer, int tag, struct comm_work *work, struct err *err) {
    if (check_peer(g, COMM_recv, peer, err) < 0)
        return -1;
    struct comm_work args = {.op = COMM_recv,
                             .out = buf,
                             .count = count,
                             .dtype = dtype,
                             .peer = peer,
                             .tag = tag};
    return start(g, &args, work, err);
}

int comm_wait(struct comm_work *w, struct err *err) {
    if (atomic_load_explicit(&w->state, memory_order_relaxed) == WORK_NONE)
        return 0;
    return w->group->backend->wait(w, err);
}

/* A rank that waits at once needs no thread to help it. */
#define WAITED_FOR                                                                         \
    { .progress = COMM_PROGRESS_OFF }

int comm_all_gather(struct comm_group *g, const void *in, void *out, int64_t count,
                    enum dtype dtype, struct err *err) {
    struct comm_work w = WAITED_FOR;
    return comm_start_all_gather(g, in, out, count, dtype, &w, err) < 0
               ? -1
               : comm_wait(&w, err);
}

int comm_send(struct comm_group *g, const void *buf, int64_t count, enum dtype dtype,
              int peer, int tag, struct err *err) {
    struct comm_work w = WAITED_FOR;
    return comm_start_send(g, buf, count, dtype, peer, tag, &w, err) < 0
               ? -1
               : comm_wait(&w, err);
}

int comm_recv(struct comm_group *g, void *buf, int64_t count, enum dtype dtype, int peer,
              int tag, struct err *err) {
    struct comm_work w = WAITED_FOR;
    return comm_start_recv(g, buf, count, dtype, peer, tag, &w, err) < 0
               ? -1
               : comm_wait(&w, err);
}

static int run(struct comm_group *g, const struct comm_work *args, struct err *err) {
    struct comm_work w = WAITED_FOR;
    return start(g, args, &w, err) < 0 ? -1 : comm_wait(&w, err);
}

/* A lane's worth at a time. */
static int fold(struct comm_group *g, enum comm_op op, double *x, int n, struct err *err) {
    for (int at = 0; at < n; at += COMM_FOLD) {
        struct comm_work args = {.op = op, .in = x + at, .out = x + at, .dtype = DTYPE_u8};
        args.count = min64(n - at, COMM_FOLD) * (int64_t)sizeof *x;
        if (run(g, &args, err) < 0)
            return -1;
    }
    return 0;
}

int comm_sum_double(struct comm_group *g, double *x, int n, struct err *err) {
    return fold(g, COMM_sum_double, x, n, err);
}

int comm_max_double(struct comm_group *g, double *x, int n, struct err *err) {
    return fold(g, COMM_max_double, x, n, err);
}

int comm_broadcast(struct comm_group *g, void *buf, int64_t bytes, int root,
                   struct err *err) {
    if (check_peer(g, COMM_broadcast, root, err) < 0)
        return -1;
    struct comm_work args = {.op = COMM_broadcast,
                             .in = buf,
                             .out = buf,
                             .count = bytes,
                             .dtype = DTYPE_u8,
                             .peer = root};
    return run(g, &args, err);
}

int comm_barrier(struct comm_group *g, struct err *err) {
    struct comm_work args = {.op = COMM_barrier, .dtype = DTYPE_u8};
    return run(g, &args, err);
}
