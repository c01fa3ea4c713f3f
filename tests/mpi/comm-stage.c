/* comm-stage.c - works between devices whose memory the host cannot touch, by way of the hosts.
 *
 * The device of this test does what its streams were given in a random order that events allow, a
 * little whenever it is asked for something. Its addresses are no addresses of the host's: what
 * reads or writes there by itself dies. Every rank draws the same random list of works from a seed.
 * What they take is written by the device just before they start, what they give is checked on the
 * device just after their wait, and both are overwritten then: so a copy too early or too late is
 * seen. Sums are compared with those in the order of ranks, bit for bit. Rank 0 prints TAP.
 *
 * usage: mpirun -n N comm-stage [SEED]
 *        mpirun -n N comm-stage late   the last rank never comes; how the others end is run.sh's to see
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "comm/comm_stage.h"
#include "common/mem.h"
#include "common/rng.h"
#include "device/device_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { RANKS = 16, GROUPS = 5, WORKS = 20, ROUNDS = 12, MOST = 9000, STREAMS = 3 };
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

static struct comm *comm;
static struct device *device;
static int tap_count, tap_failed;

static void must(int rc, const struct err *err) {
    if (rc == 0)
        return;
    if (comm_fail(comm, err))
        err_report(err, "comm-stage");
    comm_abort(comm, err->status);
}

static void ok_all(int good, const char *name) {
    struct err err = {0};
    double bad = !good;
    must(comm_max_double(comm_world(comm), &bad, 1, &err), &err);
    tap_count++;
    tap_failed += bad != 0;
    if (comm_rank(comm) == 0)
        printf("%sok %d - %s\n", bad != 0 ? "not " : "", tap_count, name);
    fflush(stdout);
}

static float value(int work, int rank, int64_t i) {
    return rng_uniform((uint64_t)work, (uint64_t)rank, (uint64_t)i) - 0.4f;
}

/* One of the list, as all ranks know it, and where this rank's part of it is on the device. */
struct item {
    enum comm_op op;
    int number, src, dst;
    const struct comm_ranks *set;
    struct comm_group *group;
    int64_t count, room; /* elements; of each buffer */
    float *in, *out;     /* NULL: this rank has no part in it */
    bool good;
    struct comm_work work;
    struct device_event *done;
};

static void draw_set(struct rng *r, int *ranks, struct comm_ranks *set, bool all) {
    int n = comm_size(comm);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    for (int i = n - 1; i > 0 && !all; i--) {
        int j = (int)rng_below(r, i + 1), t = ranks[i];
        ranks[i] = ranks[j];
        ranks[j] = t;
    }
    *set = (struct comm_ranks){ranks, all ? n : 1 + (int)rng_below(r, n)};
}

/* Messages are the first group's, which has all ranks. */
static void draw_item(struct rng *r, struct item *it, int number,
                      const struct comm_ranks *sets, struct comm_group **groups) {
    static const enum comm_op ops[] = {COMM_all_reduce,     COMM_all_gather,
                                       COMM_reduce_scatter, COMM_all_to_all,
                                       COMM_send,           COMM_send};
    static const int64_t sizes[] = {1, 100, 3000, MOST};
    int n = comm_size(comm), me = comm_rank(comm);
    *it = (struct item){.op = ops[rng_below(r, 6)], .number = number};
    int k = it->op == COMM_send ? 0 : (int)rng_below(r, GROUPS);
    it->set = &sets[k];
    it->group = groups[k];
    it->src = (int)rng_below(r, n);
    it->dst = (it->src + 1 + (int)rng_below(r, n - 1)) % n;
    it->count = rng_below(r, sizes[rng_below(r, 4)] + 1);
    it->room = it->count * (it->op == COMM_send ? 1 : it->set->n);
    if (it->op == COMM_send ? it->src == me || it->dst == me : it->group != NULL) {
        it->in = device_alloc(device, 4 * it->room, NULL);
        it->out =
            it->op == COMM_all_reduce ? it->in : device_alloc(device, 4 * it->room, NULL);
    }
}

/* Given to the device: the input, at the last moment. */
static void fill(void *arg) {
    struct item *it = arg;
    float *in = real(it->in);
    for (int64_t i = 0; i < it->room; i++)
        in[i] = value(it->number, comm_rank(comm), i);
}

static float wanted_sum(const struct comm_ranks *set, int work, int64_t i) {
    float s = value(work, set->ranks[0], i);
    for (int p = 1; p < set->n; p++)
        s += value(work, set->ranks[p], i);
    return s;
}

static bool check_at(const struct item *it, const float *out, int64_t i) {
    int k = it->number;
    int64_t me = comm_group_rank(it->group), part = i / (it->count ? it->count : 1),
            at = i % (it->count ? it->count : 1);
    switch (it->op) {
    case COMM_all_reduce: return out[i] == wanted_sum(it->set, k, i);
    case COMM_reduce_scatter:
        return i >= it->count || out[i] == wanted_sum(it->set, k, me * it->count + i);
    case COMM_all_gather: return out[i] == value(k, it->set->ranks[part], at);
    case COMM_all_to_all:
        return out[i] == value(k, it->set->ranks[part], me * it->count + at);
    default: return comm_rank(comm) != it->dst || out[i] == value(k, it->src, i);
    }
}

/* Given to the device: whether the output is there; behind it nothing stays as it was. */
static void check(void *arg) {
    struct item *it = arg;
    const float *out = real(it->out);
    int64_t n = it->op == COMM_all_reduce ? it->count : it->room;
    it->good = true;
    for (int64_t i = 0; i < n && it->good; i++)
        it->good = check_at(it, out, i);
    memset(real(it->in), 0xff, 4 * (size_t)it->room);
    memset(real(it->out), 0xff, 4 * (size_t)it->room);
}

static int start_item(struct item *it, struct err *err) {
    struct comm_group *g = it->group;
    struct comm_work *w = &it->work;
    int64_t n = it->count;
    switch (it->op) {
    case COMM_all_reduce: return comm_start_all_reduce(g, it->in, n, DTYPE_f32, w, err);
    case COMM_all_gather:
        return comm_start_all_gather(g, it->in, it->out, n, DTYPE_f32, w, err);
    case COMM_reduce_scatter:
        return comm_start_reduce_scatter(g, it->in, it->out, n, DTYPE_f32, w, err);
    case COMM_all_to_all:
        return comm_start_all_to_all(g, it->in, it->out, n, DTYPE_f32, w, err);
    default: break;
    }
    return comm_rank(comm) == it->dst
               ? comm_start_recv(g, it->out, n, DTYPE_f32, it->src, it->number, w, err)
               : comm_start_send(g, it->in, n, DTYPE_f32, it->dst, it->number, w, err);
}

/* As the executor does it: behind what computes, and what computes behind it. */
static void begin(struct item *it, struct device_stream *compute, struct device_stream *own,
                  struct device_event *computed) {
    struct err err = {0};
    give(compute, (struct op){.kind = OP_CALL, .call = fill, .arg = it});
    must(device_event_record(computed, compute, &err), &err);
    must(device_event_wait(computed, own, &err), &err);
    it->work.stream = own;
    must(start_item(it, &err), &err);
    it->done = device_event_create(device, &err);
    must(device_event_record(it->done, it->work.stream, &err), &err);
}

static void finish(struct item *it, struct device_stream *compute) {
    struct err err = {0};
    must(comm_wait(&it->work, &err), &err);
    must(device_event_wait(it->done, compute, &err), &err);
    give(compute, (struct op){.kind = OP_CALL, .call = check, .arg = it});
}

struct round {
    struct comm_ranks sets[GROUPS];
    int ranks[GROUPS][RANKS];
    struct comm_group *groups[GROUPS];
    struct item items[WORKS];
    struct device_stream *stream[STREAMS]; /* the first computes */
    struct device_event *computed;
};

static void run_items(struct round *r, struct rng *own) {
    int order[WORKS];
    for (int k = 0; k < WORKS; k++) {
        if (r->items[k].in)
            begin(&r->items[k], r->stream[0], r->stream[1 + rng_below(own, STREAMS - 1)],
                  r->computed);
        int j = (int)rng_below(own, k + 1); /* a shuffle of 0 ... k */
        order[k] = order[j];
        order[j] = k;
    }
    for (int k = 0; k < WORKS; k++)
        if (r->items[order[k]].in)
            finish(&r->items[order[k]], r->stream[0]);
}

static int run_round(uint64_t seed) {
    struct err err = {0};
    struct rng r = {.seed = seed}, own = {.seed = seed * 64 + (uint64_t)comm_rank(comm)};
    struct round *round = mem_alloc(sizeof *round);
    int good = 1;
    fake.used = 0;
    fake.rng = own;
    device = device_create(&apart, 0, 1, &err);
    must(device ? 0 : -1, &err);
    for (int k = 0; k < STREAMS; k++)
        round->stream[k] = device_stream_create(device, &err);
    round->computed = device_event_create(device, &err);
    for (int k = 0; k < GROUPS; k++)
        draw_set(&r, round->ranks[k], &round->sets[k], k == 0);
    must(comm_groups_create(comm, round->sets, GROUPS, round->groups, &err), &err);
    for (int k = 0; k < WORKS; k++)
        draw_item(&r, &round->items[k], k, round->sets, round->groups);
    run_items(round, &own);
    must(device_synchronize(round->stream[0], &err), &err);
    for (int k = 0; k < WORKS; k++) {
        good &= !round->items[k].in || round->items[k].good;
        device_event_destroy(round->items[k].done);
    }
    for (int k = 0; k < GROUPS; k++)
        comm_group_destroy(round->groups[k]);
    good &= fake.streams.n == STREAMS && !device->watch; /* nothing is left on the device */
    for (int k = 0; k < STREAMS; k++)
        device_stream_destroy(round->stream[k]);
    device_event_destroy(round->computed);
    device_destroy(device);
    free(round);
    return good;
}

static void run_rounds(uint64_t seed, const char *name) {
    int good = 1;
    for (int k = 0; k < ROUNDS && good; k++)
        if (!(good = run_round(seed + (uint64_t)k)))
            printf("# rank %d: wrong in the round of seed %llu\n", comm_rank(comm),
                   (unsigned long long)seed + (unsigned long long)k);
    ok_all(good, name);
}

/* A message that is given and not waited for arrives while its rank waits for something else. */
static void check_unwaited(void) {
    struct err err = {0};
    int n = comm_size(comm), me = comm_rank(comm), all[RANKS];
    for (int i = 0; i < n; i++)
        all[i] = i;
    struct comm_group *g;
    must(comm_groups_create(comm, &(struct comm_ranks){all, n}, 1, &g, &err), &err);
    fake.used = 0;
    device = device_create(&apart, 0, 1, &err);
    struct device_stream *s = device_stream_create(device, &err);
    struct item it = {
        .op = COMM_send, .src = 0, .dst = 1, .count = MOST, .room = MOST, .group = g};
    it.in = device_alloc(device, 4 * MOST, &err);
    it.out = device_alloc(device, 4 * MOST, &err);
    it.work.stream = s;
    if (me == 0)
        give(s, (struct op){.kind = OP_CALL, .call = fill, .arg = &it});
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
    device = device_create(&apart, 0, 1, &err);
    if (comm_rank(comm) == n - 1)
        nanosleep(&(struct timespec){.tv_sec = 60}, NULL);
    struct comm_work w = {.stream = device_stream_create(device, &err)};
    float *x = device_alloc(device, 4 * 5000, &err);
    must(comm_start_all_reduce(g, x, 5000, DTYPE_f32, &w, &err), &err);
    must(comm_wait(&w, &err), &err);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    bool late = argc > 1 && !strcmp(argv[1], "late");
    fake.direct = argc > 2 && !strcmp(argv[2], "direct");
    struct comm_stage_options stage = {
        .piece_bytes = PIECE, .direct = fake.direct ? COMM_STAGE_DIRECT : COMM_STAGE_COPY};
    options.backend = &comm_backend_stage;
    options.backend_arg = &stage;
    options.timeout_s = late ? 2 : 60;
    comm = comm_create(&argc, &argv, &options, &err);
    if (!comm)
        return err_report(&err, "comm-stage");
    if (late)
        never_comes();
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    char line[100];
    snprintf(line, sizeof line, "%d works at a time in %d groups, seeds %llu and on", WORKS,
             GROUPS, (unsigned long long)seed);
    run_rounds(seed, line);
    ok_all(fake.asked > 0, "and copies were asked for that were not done yet");
    check_unwaited();
    if (comm_rank(comm) == 0)
        printf("1..%d\n", tap_count);
    arr_release(&fake.streams);
    comm_destroy(comm);
    return tap_failed ? EXIT_NO : EXIT_DONE;
}
