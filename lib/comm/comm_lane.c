/* The meeting of a group in shared memory: a barrier that publishes.
 *
 * Arriving is one store to the own counter; the others see it by reading it. Members find
 * each other's lanes by the group's key. A lane that a group has given up keeps its key
 * until the next list of groups is made: by then all ranks have left their last meeting.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "comm/comm_impl.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct desk *desk_of(const struct comm *c, int rank) {
    return (struct desk *)(void *)c->desks.peer[c->node_rank_of[rank]];
}

void lane_take(struct mpi_group *m) {
    struct comm *c = m->comm;
    m->slot = -1;
    if (!c->desks.peer)
        return;
    struct lane *lanes = desk_of(c, c->rank)->lane;
    for (int i = 0; i < COMM_LANES && m->slot < 0; i++)
        if (!c->lane_used[i])
            m->slot = i;
    if (m->slot < 0)
        return;
    c->lane_used[m->slot] = true;
    lanes[m->slot].base = atomic_load(&lanes[m->slot].seq);
    lanes[m->slot].key = m->key;
}

static struct lane *lane_with(struct comm *c, int rank, int64_t key) {
    struct lane *lanes = desk_of(c, rank)->lane;
    for (int i = 0; i < COMM_LANES; i++)
        if (lanes[i].key == key)
            return &lanes[i];
    return NULL;
}

void lane_find(struct mpi_group *m) {
    m->direct = m->comm->desks.peer != NULL;
    for (int p = 0; m->direct && p < m->n; p++) {
        m->lane[p] = lane_with(m->comm, m->ranks[p], m->key);
        m->direct = m->lane[p] != NULL;
        if (m->direct)
            m->base[p] = m->lane[p]->base;
    }
}

void lane_release(struct mpi_group *m) {
    if (m->slot >= 0)
        m->comm->lane_used[m->slot] = false;
}

/* Sequentially consistent on both sides: either the sleeper sees the new count or the owner
 * sees the sleeper. */
void lane_arrive(struct mpi_group *m) {
    struct lane *own = m->lane[m->me];
    atomic_store(&own->seq, m->base[m->me] + ++m->seq);
    if (atomic_load(&own->sleepers))
        syscall(SYS_futex, &own->seq, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    m->met = 1;
}

bool lane_met(struct mpi_group *m) {
    for (; m->met < m->n; m->met++) {
        int p = (m->me + m->met) % m->n;
        uint32_t seq = atomic_load_explicit(&m->lane[p]->seq, memory_order_acquire);
        if ((int32_t)(seq - m->base[p] - m->seq) < 0)
            return false;
    }
    return true;
}

void lane_sleep(struct mpi_group *m) {
    struct timespec limit = {.tv_nsec = 500000};
    int p = (m->me + m->met) % m->n;
    struct lane *l = m->lane[p];
    atomic_fetch_add(&l->sleepers, 1);
    uint32_t seen = atomic_load(&l->seq);
    if ((int32_t)(seen - m->base[p] - m->seq) < 0)
        syscall(SYS_futex, &l->seq, FUTEX_WAIT, seen, &limit, NULL, 0);
    atomic_fetch_sub(&l->sleepers, 1);
}

void lane_put(struct mpi_group *m, const void *in, size_t bytes) {
    int copy = (m->seq + 1) & 1;
    if (bytes)
        memcpy(m->lane[m->me]->data[copy], in, bytes);
    lane_arrive(m);
}

void lane_take_in(struct mpi_group *m) {
    for (int p = 0; p < m->n; p++)
        m->src[p] = m->lane[p]->data[m->seq & 1];
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

void lane_post(struct mpi_group *m, const void *buf) {
    struct comm *c = m->comm;
    struct lane *own = m->lane[m->me];
    int copy = (m->seq + 1) & 1, arena = find_arena(c, buf);
    own->post[copy].arena = arena;
    own->post[copy].offset = arena < 0 ? 0 : (const char *)buf - c->arena[arena].own;
    lane_arrive(m);
}

bool lane_read_posts(struct mpi_group *m) {
    struct comm *c = m->comm;
    for (int p = 0; p < m->n; p++) {
        struct lane *l = m->lane[p];
        int i = l->post[m->seq & 1].arena;
        if (i < 0)
            return false;
        char *base = c->arena[i].peer[c->node_rank_of[m->ranks[p]]];
        m->src[p] = base + l->post[m->seq & 1].offset;
    }
    return true;
}
