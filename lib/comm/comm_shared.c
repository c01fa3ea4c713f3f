/* Memory that the ranks of a node can read: one memfd per rank, mapped by all.
 *
 * A memfd has no name and no file system behind it: nothing is written back to a disk, the
 * size limit of /dev/shm does not apply, and nothing stays behind when a job is killed.
 * Peers open it through /proc/PID/fd. The pages are allocated up front, by the owner, so
 * that a machine with too little memory says so here and not by a bus error later. Where
 * any of this fails on a node, all its ranks take private memory instead and the
 * collectives use rings.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, MAP_POPULATE, MADV_HUGEPAGE */
#endif
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Told to the peers: how to find this rank's memory. */
struct offer {
    int64_t pid, fd, bytes;
};

static void *map_or_null(int64_t bytes, int flags, int fd) {
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, (size_t)bytes,
            MADV_HUGEPAGE); /* only a wish: most kernels have it off here */
    return p;
}

/* Makes the own piece; fd = -1 when it could not be had. */
static struct offer make_own(struct shared *s) {
    struct offer o = {
        .pid = getpid(), .fd = memfd_create("weft", MFD_CLOEXEC), .bytes = s->bytes};
    if (o.fd < 0)
        return o;
    int rc;
    do
        rc = posix_fallocate((int)o.fd, 0, s->bytes);
    while (rc == EINTR);
    s->own = rc == 0 ? map_or_null(s->bytes, MAP_SHARED | MAP_POPULATE, (int)o.fd) : NULL;
    if (!s->own) {
        close((int)o.fd);
        o.fd = -1;
    }
    return o;
}

static char *map_peer(const struct offer *o) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)o->pid, (long long)o->fd);
    int fd = o->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *p = map_or_null(o->bytes, MAP_SHARED, fd);
    close(fd);
    return p;
}

static void unmap_all(struct comm *c, struct shared *s) {
    for (int r = 0; s->peer && r < c->node_size; r++)
        if (s->peer[r] && r != c->node_rank)
            munmap(s->peer[r], (size_t)s->peer_bytes[r]);
    if (s->own)
        munmap(s->own, (size_t)s->bytes);
    free(s->peer);
    free(s->peer_bytes);
    *s = (struct shared){.bytes = s->bytes};
}

/* Fills s->peer from the offers of the job; whether all of this node could be mapped. */
static bool map_peers(struct comm *c, struct shared *s, const struct offer *all) {
    bool ok = true;
    s->peer = mem_array((size_t)c->node_size, sizeof *s->peer);
    s->peer_bytes = mem_array((size_t)c->node_size, sizeof *s->peer_bytes);
    for (int rank = 0; rank < c->size; rank++) {
        int r = c->node_rank_of[rank];
        if (c->node_of[rank] != c->node)
            continue;
        s->peer[r] = rank == c->rank ? s->own : map_peer(&all[rank]);
        s->peer_bytes[r] = all[rank].bytes;
        ok = ok && s->peer[r];
    }
    return ok;
}

/* Whether all ranks of this node, and of the job, say yes. */
static int ask_all(struct comm *c, bool mine, bool *node, bool *job, struct err *err) {
    char *all = mem_alloc((size_t)c->size), own = mine;
    int rc = comm_all_gather(c->world_group, &own, all, 1, DTYPE_u8, err);
    *node = *job = true;
    for (int r = 0; r < c->size; r++) {
        *node = *node && (all[r] || c->node_of[r] != c->node);
        *job = *job && all[r];
    }
    free(all);
    return rc;
}

/* Shared memory if the whole node can have it: s->peer says so. -1 only when MPI fails. */
static int try_shared(struct comm *c, struct shared *s, struct err *err) {
    struct offer own = c->node_size > 1 ? make_own(s) : (struct offer){.fd = -1};
    struct offer *all = mem_array((size_t)c->size, sizeof *all);
    bool node = false, job;
    int rc = comm_all_gather(c->world_group, &own, all, sizeof own, DTYPE_u8, err);
    if (rc == 0)
        rc = ask_all(c, map_peers(c, s, all), &node, &job, err);
    if (own.fd >= 0)
        close((int)own.fd); /* all who could have mapped it by now */
    free(all);
    if (!node)
        unmap_all(c, s);
    return rc;
}

/* All ranks take part to the end and fail together, or some would wait for the others. */
int shared_create(struct comm *c, int64_t bytes, struct shared *out, struct err *err) {
    int64_t page = sysconf(_SC_PAGESIZE);
    bool sane = bytes >= 0 && bytes <= INT64_MAX - page, node, job;
    *out = (struct shared){.bytes = sane ? (bytes / page + 1) * page : INT64_MAX};
    if (try_shared(c, out, err) < 0)
        return -1;
    if (!out->peer)
        out->own = map_or_null(out->bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    bool mine = out->own != NULL;
    int rc = ask_all(c, mine, &node, &job, err);
    if (rc == 0 && job)
        return 0;
    unmap_all(c, out);
    return rc < 0 ? -1
                  : err_system(err, "cannot allocate %lld bytes%s", (long long)bytes,
                               mine ? " on another rank" : "");
}

void shared_release(struct comm *c, struct shared *s) {
    unmap_all(c, s);
}
