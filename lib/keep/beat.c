#define _GNU_SOURCE /* prctl */
#include "keep/beat.h"

#include "common/mem.h"
#include "common/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

/* ---- processes ------------------------------------------------------------------------- */

static char state_of(pid_t pid) {
    char path[40], text[512], *p;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    p = strrchr(text, ')'); /* behind the program's name, whatever that is */
    return p && p[1] ? p[2] : 0;
}

void beat_look(struct beat *b) {
    pid_t pid = (pid_t)atomic_load(&b->pid);
    atomic_store(&b->seen, pid > 0 ? state_of(pid) : 0);
}

bool beat_is_dead(const struct beat *b) {
    const long long c = atomic_load(&b->seen);
    return atomic_load(&b->pid) > 0 && (c == 0 || c == 'Z' || c == 'X');
}

void beats_kill(struct beats *b, int first, int count) {
    const double until = now_s() + 5;
    for (int left = 1; b && left && now_s() < until; poll(NULL, 0, left ? 5 : 0)) {
        left = 0;
        for (int r = first; r < first + count && r < beats_ranks(b); r++) {
            struct beat *one = beats_at(b, r);
            beat_look(one);
            if (atomic_load(&one->pid) <= 0 || beat_is_dead(one))
                continue;
            kill((pid_t)atomic_load(&one->pid), SIGKILL);
            left++;
        }
    }
}

bool beats_signal(struct beats *b, int first, int count, int sig) {
    bool known = true;
    for (int r = first; b && r < first + count && r < beats_ranks(b); r++) {
        struct beat *one = beats_at(b, r);
        const pid_t pid = (pid_t)atomic_load(&one->pid);
        beat_look(one);
        known &= pid > 0;
        if (pid > 0 && !beat_is_dead(one))
            kill(pid, sig);
    }
    return known;
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

/* The number of the host that this rank is on, among "0:2,3:1"; -1 where that does not say. */
static int host_of(const char *hosts, int rank, bool *first) {
    long number, ranks, before = 0;
    for (const char *p = hosts; p && sscanf(p, "%ld:%ld", &number, &ranks) == 2;
         p = strchr(p, ','), p += p != NULL) {
        *first = rank == before;
        if (rank < (before += ranks))
            return (int)number;
    }
    return -1;
}

char *beat_expand(const char *path, bool *first) {
    const char *mark = strstr(path, "%h");
    const int rank = rank_of_job();
    *first = rank == 0;
    int host = mark ? host_of(getenv(BEAT_HOSTS_VARIABLE), rank, first) : -1;
    size_t n = strlen(path) + 24;
    char *out = mem_alloc(n);
    if (host < 0)
        snprintf(out, n, "%s", path);
    else
        snprintf(out, n, "%.*s%d%s", (int)(mark - path), path, host, mark + 2);
    return out;
}

struct beat *beat_join(void) {
    const char *given = getenv(BEAT_VARIABLE);
    size_t bytes;
    bool first;
    if (!given)
        return NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *path = beat_expand(given, &first);
    struct header *map = map_existing(path, &bytes);
    free(path);
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
