/* device-works.h - works between devices at random, for tests of backends on streams.
 *
 * Every rank draws the same random list of works from a seed. What they take is written by the device
 * just before they start, what they give is checked on the device just after their wait, and both are
 * overwritten then: so what happens too early or too late is seen. Sums are compared with those in
 * the order of ranks, bit for bit. Who includes it says how its device is made and reached:
 *
 *     static struct device *make_device(struct err *err);
 *     static void give_call(struct device_stream *s, void (*call)(void *arg), void *arg);
 *     static void *real(const void *p);           // what the device has at its address p
 *     static bool nothing_left(struct device *dev, int streams);     // but so many streams
 */
#ifndef WEFT_TEST_DEVICE_WORKS_H
#define WEFT_TEST_DEVICE_WORKS_H

#include "comm/comm_backend.h"
#include "common/mem.h"
#include "common/rng.h"
#include "device/device_backend.h"
#include "tap_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 16, GROUPS = 5, WORKS = 20, ROUNDS = 12, MOST = 9000, STREAMS = 3 };

static struct device *make_device(struct err *err);
static void give_call(struct device_stream *s, void (*call)(void *arg), void *arg);
static void *real(const void *p);
static bool nothing_left(struct device *dev, int streams);

static struct device *device;

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
    give_call(compute, fill, it);
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
    give_call(compute, check, it);
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
    device = make_device(&err);
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
    good &= nothing_left(device, STREAMS) && !device->watch;
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
    ok_all(good, "%s", name);
}

#endif
