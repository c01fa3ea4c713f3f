/* comm-stage.c - works between devices whose memory the host cannot touch, by way of the hosts.
 *
 * The device of this test does what its streams were given in a random order that events allow, a
 * little whenever it is asked for something. Its addresses are no addresses of the host's: what
 * reads or writes there by itself dies. Rank 0 prints TAP.
 *
 * usage: mpirun -n N comm-stage [SEED]
 *        mpirun -n N comm-stage late   the last rank never comes; how the others end is run.sh's to see
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "comm/comm_stage.h"
#include "device-works.h"

#include <sys/mman.h>
#include <time.h>

enum { DEVICE_BYTES = 256 << 20, PIECE = 4096 };

/* ---- the device --------------------------------------------------------------------------- */

enum op_kind { OP_COPY, OP_RECORD, OP_WAIT, OP_CALL };

struct event {
    int64_t given, reached;
};

struct op {
    enum op_kind kind;
    void *dst;
    const void *src;
    int64_t bytes, mark;
    struct event *event;
    void (*call)(void *arg);
    void *arg;
};

struct stream {
    ARR(struct op) ops;
    int64_t done;
};

static struct {
    char *memory;
    bool direct; /* its addresses are the host's after all */
    int64_t used;
    ARR(struct stream *) streams;
    struct rng rng;
    int asked; /* looks at events that were not reached */
} fake;

/* Where an address of the device really is. */
static void *real(const void *p) {
    return fake.direct ? (void *)p : (char *)p + DEVICE_BYTES;
}

static bool can_go_on(const struct stream *s) {
    const struct op *op = s->ops.p + s->done;
    return s->done < s->ops.n && (op->kind != OP_WAIT || op->event->reached >= op->mark);
}

static void do_op(struct stream *s) {
    const struct op *op = &s->ops.p[s->done++];
    switch (op->kind) {
    case OP_COPY: memcpy(op->dst, op->src, (size_t)op->bytes); break;
    case OP_RECORD: op->event->reached = op->mark; break;
    case OP_WAIT: break;
    case OP_CALL: op->call(op->arg); break;
    }
    if (s->done == s->ops.n)
        s->done = s->ops.n = 0;
}

/* Some operations, each of a stream that is drawn among those that can go on; false if none can. */
static bool turn(int64_t n) {
    bool moved = true;
    for (int64_t k = 0; k < n && moved; k++) {
        int64_t first = rng_below(&fake.rng, fake.streams.n), i = 0;
        while (i < fake.streams.n &&
               !can_go_on(fake.streams.p[(first + i) % fake.streams.n]))
            i++;
        moved = i < fake.streams.n;
        if (moved)
            do_op(fake.streams.p[(first + i) % fake.streams.n]);
    }
    return moved;
}

static int create(struct device *dev, struct err *err) {
    (void)dev;
    fake.memory =
        mmap(NULL, 2 * (size_t)DEVICE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fake.memory == MAP_FAILED ||
        mprotect(fake.memory + (fake.direct ? 0 : DEVICE_BYTES), DEVICE_BYTES,
                 PROT_READ | PROT_WRITE))
        return err_system(err, "no memory");
    return 0;
}

static void destroy(struct device *dev) {
    (void)dev;
    munmap(fake.memory, 2 * (size_t)DEVICE_BYTES);
}

static void *alloc(struct device *dev, int64_t bytes, struct err *err) {
    (void)dev, (void)err;
    char *p = fake.memory + fake.used;
    fake.used += (bytes + 4095) / 4096 * 4096;
    return p;
}

static void free_nothing(struct device *dev, void *p) {
    (void)dev, (void)p;
}

static void *alloc_host(struct device *dev, int64_t bytes, struct err *err) {
    (void)dev, (void)err;
    return mem_alloc((size_t)bytes);
}

static void free_host(struct device *dev, void *p) {
    (void)dev;
    free(p);
}

static int stream_create(struct device_stream *s, struct err *err) {
    (void)err;
    s->state = mem_alloc(sizeof(struct stream));
    arr_push(&fake.streams, s->state);
    return 0;
}

static void stream_destroy(struct device_stream *s) {
    struct stream *q = s->state;
    for (int64_t i = 0; i < fake.streams.n; i++)
        if (fake.streams.p[i] == q)
            fake.streams.p[i] = fake.streams.p[--fake.streams.n];
    arr_release(&q->ops);
    free(q);
}

static void give(struct device_stream *s, struct op op) {
    struct stream *q = s->state;
    arr_push(&q->ops, op);
}

static int synchronize(struct device_stream *s, struct err *err) {
    const struct stream *q = s->state;
    while (q->ops.n) {
        if (!turn(1))
            return err_system(err, "a stream waits for ever");
        if (s->device->watch && s->device->watch(s->device->watch_arg, err) < 0)
            return -1;
    }
    return 0;
}

static int event_create(struct device_event *e, struct err *err) {
    (void)err;
    e->state = mem_alloc(sizeof(struct event));
    return 0;
}

static void event_destroy(struct device_event *e) {
    free(e->state);
}

static int event_record(struct device_event *e, struct device_stream *s, struct err *err) {
    struct event *event = e->state;
    (void)err;
    give(s, (struct op){.kind = OP_RECORD, .event = event, .mark = ++event->given});
    return 0;
}

static int event_wait(struct device_event *e, struct device_stream *s, struct err *err) {
    struct event *event = e->state;
    (void)err;
    give(s, (struct op){.kind = OP_WAIT, .event = event, .mark = event->given});
    return 0;
}

static int event_reached(struct device_event *e, struct err *err) {
    const struct event *event = e->state;
    (void)err;
    bool there = event->reached >= event->given;
    fake.asked += !there;
    turn(rng_below(&fake.rng, 4));
    return there;
}

static int upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err) {
    (void)s, (void)dst, (void)src, (void)bytes;
    return err_system(err, "not expected");
}

static int download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                    struct err *err) {
    return upload(s, dst, src, bytes, err);
}

static int launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err) {
    struct op op = {.kind = OP_COPY, .bytes = dtype_size(args->dtype) * n->offload.elems};
    op.src = code == I_offload ? real(in->offload.x) : in->reload.x;
    op.dst = code == I_offload ? out->offload.y : real(out->reload.y);
    give(s, op);
    return code == I_offload || code == I_reload ? 0 : err_system(err, "not expected");
}

static const struct device_backend apart = {.name = "apart",
                                            .create = create,
                                            .destroy = destroy,
                                            .alloc = alloc,
                                            .free = free_nothing,
                                            .alloc_host = alloc_host,
                                            .free_host = free_host,
                                            .stream_create = stream_create,
                                            .stream_destroy = stream_destroy,
                                            .synchronize = synchronize,
                                            .event_create = event_create,
                                            .event_destroy = event_destroy,
                                            .event_record = event_record,
                                            .event_wait = event_wait,
                                            .event_reached = event_reached,
                                            .upload = upload,
                                            .download = download,
                                            .launch = launch};

/* ---- works -------------------------------------------------------------------------------- */

static struct device *make_device(struct err *err) {
    fake.used = 0;
    fake.rng = (struct rng){.seed = (uint64_t)comm_rank(comm)};
    return device_create(&apart, 0, 1, err);
}

static void give_call(struct device_stream *s, void (*call)(void *arg), void *arg) {
    give(s, (struct op){.kind = OP_CALL, .call = call, .arg = arg});
}

static bool nothing_left(struct device *dev, int streams) {
    (void)dev;
    return fake.streams.n == streams;
}

/* A message that is given and not waited for arrives while its rank waits for something else. */
static void check_unwaited(void) {
    struct err err = {0};
    int n = comm_size(comm), me = comm_rank(comm), all[RANKS];
    for (int i = 0; i < n; i++)
        all[i] = i;
    struct comm_group *g;
    must(comm_groups_create(comm, &(struct comm_ranks){all, n}, 1, &g, &err), &err);
    device = make_device(&err);
    struct device_stream *s = device_stream_create(device, &err);
    struct item it = {
        .op = COMM_send, .src = 0, .dst = 1, .count = MOST, .room = MOST, .group = g};
    it.in = device_alloc(device, 4 * MOST, &err);
    it.out = device_alloc(device, 4 * MOST, &err);
    it.work.stream = s;
    if (me == 0)
        give_call(s, fill, &it);
    if (me < 2)
        must(start_item(&it, &err), &err);
    if (me == 1) {
        must(comm_wait(&it.work, &err), &err);
        check(&it);
    }
    must(comm_barrier(comm_world(comm), &err), &err); /* in which rank 0 sends */
    must(comm_wait(&it.work, &err), &err);
    ok_all(me != 1 || it.good,
           "what nobody waits for moves while its rank waits for others");
    comm_group_destroy(g);
    device_stream_destroy(s);
    device_destroy(device);
}

/* All ranks but the last reduce; it never comes. */
static void never_comes(void) {
    struct err err = {0};
    int n = comm_size(comm), all[RANKS];
    for (int i = 0; i < n; i++)
        all[i] = i;
    struct comm_group *g;
    must(comm_groups_create(comm, &(struct comm_ranks){all, n}, 1, &g, &err), &err);
    device = make_device(&err);
    if (comm_rank(comm) == n - 1)
        nanosleep(&(struct timespec){.tv_sec = 60}, NULL);
    struct comm_work w = {.stream = device_stream_create(device, &err)};
    float *x = device_alloc(device, 4 * 5000, &err);
    must(comm_start_all_reduce(g, x, 5000, DTYPE_f32, &w, &err), &err);
    must(comm_wait(&w, &err), &err);
}

int main(int argc, char **argv) {
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    bool late = argc > 1 && !strcmp(argv[1], "late");
    fake.direct = argc > 2 && !strcmp(argv[2], "direct");
    struct comm_stage_options stage = {
        .piece_bytes = PIECE, .direct = fake.direct ? COMM_STAGE_DIRECT : COMM_STAGE_COPY};
    options.backend = &comm_backend_stage;
    options.backend_arg = &stage;
    options.timeout_s = late ? 2 : 60;
    int status = begin_job("comm-stage", &argc, &argv, &options);
    if (status)
        return status;
    if (late)
        never_comes();
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    char line[100];
    snprintf(line, sizeof line, "%d works at a time in %d groups, seeds %llu and on", WORKS,
             GROUPS, (unsigned long long)seed);
    run_rounds(seed, line);
    ok_all(fake.asked > 0, "and copies were asked for that were not done yet");
    check_unwaited();
    arr_release(&fake.streams);
    return end_job();
}
