/* The meeting of a group in shared memory: a barrier that publishes.
 *
 * Arriving is one store to the own counter; waiting reads the counters of the others. A
 * rank waits busily for a few microseconds, then gives its core away (sched_yield), then
 * sleeps on the counter (futex) until its owner arrives: ranks may outnumber cores, and a
 * late peer may be computing for seconds on the very core that a busy waiter would take
 * from it. While it waits it gives MPI a chance to push its pending messages along: a peer
 * may be waiting for one of them, and without that the two would wait for ever.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "comm/comm_impl.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool reached(struct lane *l, uint32_t target) {
    return (int32_t)(atomic_load_explicit(&l->seq, memory_order_acquire) - target) >= 0;
}

/* MPI moves messages only inside its calls; a probe that finds nothing is the cheapest. */
static void push_messages(void) {
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

/* Sleeps until the owner of l arrives once more, or half a millisecond. */
static void sleep_on(struct lane *l, uint32_t target) {
    struct timespec limit = {.tv_nsec = 500000};
    atomic_fetch_add(&l->sleepers, 1);
    uint32_t seen = atomic_load(&l->seq);
    if ((int32_t)(seen - target) < 0)
        syscall(SYS_futex, &l->seq, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&l->sleepers, 1);
}

static void wait_for(const struct comm *c, struct lane *l, uint32_t target) {
    for (int i = 0; i < c->spins; i++) {
        if (reached(l, target))
            return;
        relax();
    }
    for (int i = 1; i <= c->yields; i++) {
        if (reached(l, target))
            return;
        sched_yield();
        if (i % 32 == 0)
            push_messages();
    }
    while (!reached(l, target)) {
        sleep_on(l, target);
        push_messages();
    }
}

/* Sequentially consistent on both sides: either the sleeper sees the new count or the owner
 * sees the sleeper. */
static void arrive(struct comm_group *g) {
    struct lane *own = g->lane[g->me];
    atomic_store(&own->seq, g->base[g->me] + ++g->seq);
    if (atomic_load(&own->sleepers))
        syscall(SYS_futex, &own->seq, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void lane_sync(struct comm_group *g) {
    arrive(g);
    for (int k = 1; k < g->n; k++) {
        int p = (g->me + k) % g->n;
        wait_for(g->comm, g->lane[p], g->base[p] + g->seq);
    }
}

/* Shows everybody the same few bytes of each member: g->src points at them afterwards. */
void lane_put(struct comm_group *g, const void *in, size_t bytes) {
    int copy = (g->seq + 1) & 1;
    if (bytes)
        memcpy(g->lane[g->me]->data[copy], in, bytes);
    lane_sync(g);
    for (int p = 0; p < g->n; p++)
        g->src[p] = (const float *)(const void *)g->lane[p]->data[copy];
}

static int find_arena(const struct comm *c, const void *p) {
    uintptr_t at = (uintptr_t)p;
    for (int i = 0; i < c->arenas; i++) {
        uintptr_t own = (uintptr_t)c->arena[i].own;
        if (c->arena[i].peer && at >= own && at < own + (uintptr_t)c->arena[i].bytes)
            return i;
    }
    return -1;
}

/* Tells where the own buffer lies and learns it of the others; g->src are their addresses
 * here. False when some member's buffer is not in shared memory. */
bool lane_post(struct comm_group *g, const float *buf) {
    struct comm *c = g->comm;
    struct lane *own = g->lane[g->me];
    int copy = (g->seq + 1) & 1, arena = find_arena(c, buf);
    own->post[copy].arena = arena;
    own->post[copy].offset = arena < 0 ? 0 : (const char *)buf - c->arena[arena].own;
    lane_sync(g);
    for (int p = 0; p < g->n; p++) {
        int i = g->lane[p]->post[copy].arena;
        if (i < 0)
            return false;
        char *base = c->arena[i].peer[c->node_rank_of[g->ranks[p]]];
        g->src[p] = (const float *)(const void *)(base + g->lane[p]->post[copy].offset);
    }
    return true;
}
