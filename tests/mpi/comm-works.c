/* comm-works.c - works under way together: in one group, in several, beside messages.
 *
 * Every rank draws the same random list of works from a seed, starts its own in the order of
 * the list, and waits for them in an order of its own: what the members of a group must agree
 * upon is the order of its collectives and nothing else. Results are compared with the rank
 * order sums bit for bit. Rank 0 prints TAP.
 *
 * usage: mpirun -n N comm-works [SEED]
 */
#include "comm/comm_backend.h"
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "tap_ranks.h"
#include "waited.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 16, GROUPS = 6, WORKS = 24, ROUNDS = 30, MOST = 70000 };

static float value(int work, int rank, int64_t i) {
    return rng_uniform((uint64_t)work, (uint64_t)rank, (uint64_t)i) - 0.4f;
}

/* ---- random works --------------------------------------------------------------------- */

/* One of the list, as all ranks know it, and where this rank's part of it is. */
struct item {
    enum comm_op op;
    int number, group, src, dst; /* src, dst: of a message */
    int64_t count;
    float *in, *out; /* NULL: this rank has no part in it */
    struct comm_work work;
};

struct round {
    struct comm_ranks sets[GROUPS];
    int ranks[GROUPS][RANKS];
    struct comm_group *groups[GROUPS];
    struct item items[WORKS];
};

/* Some of the ranks, at least one, in random order. */
static void draw_set(struct rng *r, int *ranks, struct comm_ranks *set) {
    int n = comm_size(comm);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rng_below(r, i + 1), t = ranks[i];
        ranks[i] = ranks[j];
        ranks[j] = t;
    }
    *set = (struct comm_ranks){ranks, 1 + (int)rng_below(r, n)};
}

static void draw_item(struct rng *r, struct item *it, int number) {
    static const enum comm_op ops[] = {COMM_all_reduce,     COMM_all_gather,
                                       COMM_reduce_scatter, COMM_all_to_all,
                                       COMM_send,           COMM_send};
    static const int64_t sizes[] = {1, 100, 3000, MOST};
    int n = comm_size(comm);
    *it = (struct item){.op = ops[rng_below(r, 6)], .number = number};
    it->group = (int)rng_below(r, GROUPS);
    it->src = (int)rng_below(r, n);
    it->dst = (int)rng_below(r, n);
    it->count = 1 + rng_below(r, sizes[rng_below(r, 4)]);
    it->work.progress = (enum comm_progress)rng_below(r, 3);
}

/* Gives every item that this rank has a part in its two buffers, from the arena or not. */
static void place_item(struct round *round, struct item *it, float **arena, float **heap,
                       bool shared) {
    int me = comm_rank(comm);
    struct comm_group *g = round->groups[it->group];
    bool mine = it->op == COMM_send ? it->src == me || it->dst == me : g != NULL;
    if (!mine)
        return;
    int64_t room = it->count * (it->op == COMM_send ? 1 : round->sets[it->group].n);
    float **from = shared ? arena : heap;
    it->in = *from;
    it->out = it->op == COMM_all_reduce ? it->in : *from + room;
    *from += 2 * room;
    for (int64_t i = 0; i < room; i++)
        it->in[i] = value(it->number, me, i);
}

static int start_item(struct round *round, struct item *it, struct comm_work *second,
                      struct err *err) {
    struct comm_group *g = round->groups[it->group], *world = comm_world(comm);
    int me = comm_rank(comm);
    switch (it->op) {
    case COMM_all_reduce:
        return comm_start_all_reduce(g, it->in, it->count, DTYPE_f32, &it->work, err);
    case COMM_all_gather:
        return comm_start_all_gather(g, it->in, it->out, it->count, DTYPE_f32, &it->work,
                                     err);
    case COMM_reduce_scatter:
        return comm_start_reduce_scatter(g, it->in, it->out, it->count, DTYPE_f32,
                                         &it->work, err);
    case COMM_all_to_all:
        return comm_start_all_to_all(g, it->in, it->out, it->count, DTYPE_f32, &it->work,
                                     err);
    default: break;
    }
    if (it->dst == me && comm_start_recv(world, it->out, it->count, DTYPE_f32, it->src,
                                         it->number, &it->work, err) < 0)
        return -1;
    if (it->src != me)
        return 0;
    return comm_start_send(world, it->in, it->count, DTYPE_f32, it->dst, it->number,
                           it->dst == me ? second : &it->work, err);
}

static float wanted_sum(const struct comm_ranks *set, int work, int64_t i) {
    float s = value(work, set->ranks[0], i);
    for (int p = 1; p < set->n; p++)
        s += value(work, set->ranks[p], i);
    return s;
}

static int check_item(const struct round *round, const struct item *it) {
    const struct comm_ranks *set = &round->sets[it->group];
    int n = set->n, good = 1, me = comm_rank(comm), k = it->number;
    if (!it->in || (it->op == COMM_send && it->dst != me))
        return 1;
    int64_t at = it->op == COMM_send ? 0 : comm_group_rank(round->groups[it->group]);
    for (int64_t i = 0; i<it->count; i += it->count> 1000 ? 37 : 1) {
        if (it->op == COMM_send)
            good &= it->out[i] == value(k, it->src, i);
        else if (it->op == COMM_all_reduce)
            good &= it->out[i] == wanted_sum(set, k, i);
        else if (it->op == COMM_reduce_scatter)
            good &= it->out[i] == wanted_sum(set, k, at * it->count + i);
        for (int p = 0; p < n && it->op == COMM_all_gather; p++)
            good &= it->out[p * it->count + i] == value(k, set->ranks[p], i);
        for (int p = 0; p < n && it->op == COMM_all_to_all; p++)
            good &=
                it->out[p * it->count + i] == value(k, set->ranks[p], at * it->count + i);
    }
    return good;
}

/* Computes for a random while: some works are through before their wait, some are not. */
static void dawdle(struct rng *own) {
    double until = now_s() + (double)rng_below(own, 300) * 1e-6;
    while (now_s() < until)
        ;
}

static int run_round(uint64_t seed, float *arena, float *heap) {
    struct err err = {0};
    struct rng r = {.seed = seed}, own = {.seed = seed * 64 + (uint64_t)comm_rank(comm)};
    struct round *round = mem_alloc(sizeof *round);
    struct comm_work second[WORKS] = {{0}};
    int order[WORKS], good = 1;
    for (int k = 0; k < GROUPS; k++)
        draw_set(&r, round->ranks[k], &round->sets[k]);
    must(comm_groups_create(comm, round->sets, GROUPS, round->groups, &err), &err);
    for (int k = 0; k < WORKS; k++) {
        draw_item(&r, &round->items[k], k);
        place_item(round, &round->items[k], &arena, &heap, rng_below(&own, 4) > 0);
    }
    for (int k = 0; k < WORKS; k++) {
        if (round->items[k].in)
            must(start_item(round, &round->items[k], &second[k], &err), &err);
        int j = (int)rng_below(&own, k + 1); /* a shuffle of 0 ... k */
        order[k] = order[j];
        order[j] = k;
        if (rng_below(&own, 3) == 0)
            dawdle(&own);
    }
    for (int k = 0; k < WORKS; k++) {
        must(comm_wait(&round->items[order[k]].work, &err), &err);
        must(comm_wait(&second[order[k]], &err), &err);
        good &= check_item(round, &round->items[order[k]]);
    }
    for (int k = 0; k < GROUPS; k++)
        comm_group_destroy(round->groups[k]);
    free(round);
    return good;
}

/* ---- progress ------------------------------------------------------------------------- */

/* What was started with a thread to help is complete when all ranks have slept: a sum and a
 * message from each to the next. Without one nothing has moved. */
static int check_hidden(float *buf, int64_t count, enum comm_progress progress) {
    struct err err = {0};
    struct comm_work w[3] = {
        {.progress = progress}, {.progress = progress}, {.progress = progress}};
    struct comm_group *world = comm_world(comm);
    int n = comm_size(comm), me = comm_rank(comm), done = 0;
    memset(buf, 0, (size_t)(3 * count) * sizeof *buf);
    must(comm_barrier(world, &err), &err);
    must(comm_start_all_reduce(world, buf, count, DTYPE_f32, &w[0], &err), &err);
    must(comm_start_recv(world, buf + count, count, DTYPE_f32, (me + n - 1) % n, 0, &w[1],
                         &err),
         &err);
    must(comm_start_send(world, buf + 2 * count, count, DTYPE_f32, (me + 1) % n, 0, &w[2],
                         &err),
         &err);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    for (int i = 0; i < 3; i++) {
        done += atomic_load(&w[i].state) == WORK_DONE;
        must(comm_wait(&w[i], &err), &err);
    }
    return progress == COMM_PROGRESS_ON ? done == 3 : done < 3;
}

/* Lists that differ between ranks are an error on all of them, and the job goes on. */
static int check_lists(void) {
    struct err err = {0};
    int ranks[2] = {0, 1};
    struct comm_group *g;
    struct comm_ranks set = {ranks, comm_rank(comm) == 1 ? 1 : 2};
    int rc = comm_groups_create(comm, &set, 1, &g, &err);
    return rc < 0 && !g &&
           !strcmp(err.msg, "rank 1 was given a different list of groups than rank 0");
}

static int check_types(void) {
    struct err err = {0};
    unsigned char x[4] = {0};
    int rc = waited_all_reduce(comm_world(comm), x, 2, DTYPE_u8, &err);
    return rc < 0 && !strcmp(err.msg, "all_reduce: no sums of u8 on the host");
}

int main(int argc, char **argv) {
    struct err err = {0};
    int status = begin_job("comm-works", &argc, &argv, NULL);
    if (status)
        return status;
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int64_t room = 2 * (int64_t)WORKS * MOST * comm_size(comm);
    float *arena = comm_alloc(comm, room * 4, &err);
    must(arena ? 0 : -1, &err);
    float *heap = malloc((size_t)room * sizeof *heap);
    if (!heap)
        comm_abort(comm, EXIT_SYSTEM);
    int good = 1;
    for (int k = 0; k < ROUNDS && good; k++) {
        good = run_round(seed + (uint64_t)k, arena, heap);
        if (!good)
            printf("# rank %d: wrong in the round of seed %llu\n", comm_rank(comm),
                   (unsigned long long)seed + (unsigned long long)k);
    }
    ok_all(good, "%d works at a time in %d groups, seeds %llu and on", WORKS, GROUPS,
           (unsigned long long)seed);
    ok_all(check_hidden(arena, MOST, COMM_PROGRESS_ON),
           "a sum and messages are complete when their ranks have slept");
    if (comm_size(comm) > 1)
        ok_all(check_hidden(heap, MOST, COMM_PROGRESS_OFF),
               "and not without the thread for progress");
    ok_all(check_types(), "what cannot be summed is an error value");
    if (comm_size(comm) > 1)
        ok_all(check_lists(), "lists of groups that differ are an error on all ranks");
    free(heap);
    return end_job();
}
