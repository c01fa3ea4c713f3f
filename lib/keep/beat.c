#define _GNU_SOURCE /* prctl */
#include "keep/beat.h"

#include "common/mem.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x7765667462656174ll /* "weftbeat" */

/* The file: this, then the beats. */
struct header {
    int64_t magic, bytes_of_one, ranks, supervisor;
};

struct beats {
    struct header *map;
    size_t bytes;
};

const char *beat_phase_name(enum beat_phase phase) {
    static const char *const names[] = {
#define X(id, text) text,
        BEAT_PHASES(X)
#undef X
    };
    return names[phase];
}

static size_t bytes_for(int64_t ranks) {
    return sizeof(struct header) + (size_t)ranks * sizeof(struct beat);
}

/* ---- the supervisor -------------------------------------------------------------------- */

static struct header *map_file(int fd, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static struct beats *beats_of(struct header *map, size_t bytes) {
    struct beats *b = mem_alloc(sizeof *b);
    *b = (struct beats){map, bytes};
    return b;
}

struct beats *beats_create(const char *path, int ranks, struct err *err) {
    const size_t bytes = bytes_for(ranks);
    struct header *map = NULL;
    /* A fresh file: a rank that is left of another attempt writes to the old one. */
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        map = map_file(fd, bytes);
    if (!map)
        err_system(err, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (!map)
        return NULL;
    *map = (struct header){MAGIC, sizeof(struct beat), ranks, getpid()};
    return beats_of(map, bytes);
}

/* The file as it is, if it is one of ours. */
static struct header *map_existing(const char *path, size_t *bytes) {
    struct stat st;
    struct header *map = NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof *map)
        map = map_file(fd, *bytes = (size_t)st.st_size);
    if (fd >= 0)
        close(fd);
    if (map && (map->magic != MAGIC || map->bytes_of_one != sizeof(struct beat) ||
                map->ranks < 0 || bytes_for(map->ranks) > *bytes)) {
        munmap(map, *bytes);
        map = NULL;
    }
    return map;
}

struct beats *beats_open(const char *path) {
    size_t bytes;
    struct header *map = map_existing(path, &bytes);
    return map ? beats_of(map, bytes) : NULL;
}

void beats_close(struct beats *b) {
    if (b)
        munmap(b->map, b->bytes);
    free(b);
}

int beats_ranks(const struct beats *b) {
    return (int)b->map->ranks;
}

struct beat *beats_at(struct beats *b, int rank) {
    return (struct beat *)(b->map + 1) + rank;
}

/* ---- a rank ---------------------------------------------------------------------------- */

static int rank_of_job(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return 0;
}

struct beat *beat_join(void) {
    const char *path = getenv(BEAT_VARIABLE);
    size_t bytes;
    if (!path)
        return NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct header *map = map_existing(path, &bytes);
    int rank = rank_of_job();
    /* The supervisor may have died before the line above. */
    if (map && kill((pid_t)map->supervisor, 0) < 0 && errno == ESRCH)
        raise(SIGKILL);
    if (!map || rank < 0 || rank >= map->ranks)
        return NULL;
    struct beat *b = (struct beat *)(map + 1) + rank;
    atomic_store(&b->pid, getpid());
    beat_enter(b, BEAT_START);
    return b;
}

static void touch(struct beat *b) {
    atomic_store(&b->at_us, (long long)(1e6 * now_s()));
}

void beat_enter(struct beat *b, enum beat_phase phase) {
    if (!b)
        return;
    atomic_store(&b->phase, phase);
    touch(b);
}

void beat_step(struct beat *b, int64_t step, int64_t sample, double seconds, double work) {
    if (!b)
        return;
    atomic_store(&b->sample, sample);
    atomic_store(&b->step, step);
    atomic_fetch_add(&b->work_us, (long long)(1e6 * work));
    atomic_store(&b->last_us, (long long)(1e6 * seconds));
    atomic_fetch_add(&b->steps_us, (long long)(1e6 * seconds));
    touch(b);
    if (!atomic_load(&b->first_us))
        atomic_store(&b->first_us, atomic_load(&b->at_us));
}

void beat_doubted(struct beat *b, double share) {
    if (b)
        atomic_store(&b->doubted, (long long)(1000 * share));
}

void beat_saved(struct beat *b, int in_memory, double seconds) {
    if (!b)
        return;
    atomic_fetch_add(in_memory ? &b->copies : &b->saves, 1);
    atomic_fetch_add(in_memory ? &b->copy_us : &b->save_us, (long long)(1e6 * seconds));
    touch(b);
}

void beat_ended(struct beat *b, int status, const char *message) {
    if (!b)
        return;
    snprintf(b->message, sizeof b->message, "%s", message);
    atomic_store(&b->status, 1 + status);
    beat_enter(b, BEAT_END);
}
