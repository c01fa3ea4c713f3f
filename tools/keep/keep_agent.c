#define _GNU_SOURCE /* accept4 */
#include "keep_agent.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/ckptdir.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/opt.h"
#include "common/progress.h"
#include "keep/beat.h"
#include "keep/copy.h"
#include "keep/courier.h"
#include "keep/lines.h"
#include "keep/measure.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 10, LINK_BYTES = 16 << 20 };
#define STATE_S 0.2 /* at least so often a line comes */

struct job {
    pid_t pid;
    int64_t number;
};

struct agent {
    char folder[4096], token[100];
    char *memory, *beats_path, *parent;
    struct courier courier;
    int listen, first, count;
    struct beats *beats;
    int64_t whole; /* the last step that was told */
    double told_s;
    long long *told_us; /* [count] at_us of the beats that were told */
    ARR(struct job) jobs;
    struct lines orders;
};

/* One write a line: jobs write, too. */
static void say(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) < 0)
        _exit(EXIT_SYSTEM);
}

/* ---- beats --------------------------------------------------------------------------------- */

static void tell_beat(struct agent *a, int rank, double now) {
    const struct beat *b = beats_at(a->beats, rank);
    char line[900];
    const atomic_llong *v = &b->pid;
    int n = snprintf(line, sizeof line, "beat %.6f %d", now, rank);
    for (int i = 0; i < BEAT_NUMBERS; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %lld",
                      (long long)atomic_load(&v[i]));
    say("%s %.255s", line, b->message);
    a->told_us[rank - a->first] = atomic_load(&b->at_us);
}

static void tell_beats(struct agent *a, bool all) {
    const double now = now_s();
    const bool due = all || now - a->told_s >= STATE_S;
    for (int r = a->first; a->beats && r < a->first + a->count; r++) {
        struct beat *b = beats_at(a->beats, r);
        const long long was = atomic_load(&b->seen);
        beat_look(b);
        if (due || was != atomic_load(&b->seen) ||
            a->told_us[r - a->first] != atomic_load(&b->at_us))
            tell_beat(a, r, now);
    }
    if (due) {
        say("state %.6f", now);
        a->told_s = now;
    }
}

/* The newest step that the ranks here have put in its place. */
static void tell_whole(struct agent *a) {
    struct ckpt_entries e;
    int64_t step = 0;
    if (!a->memory || ckpt_scan(&e, a->memory, NULL) < 0)
        return;
    for (int64_t i = 0; i < e.n; i++)
        if (e.p[i].state == CKPT_WHOLE)
            step = e.p[i].step;
    arr_release(&e);
    if (step != a->whole)
        say("whole %lld", (long long)step);
    a->whole = step;
}

/* What MPI has left here; where the supervisor is on this machine that is its to remove. */
static void clear_mpi(const struct agent *a) {
    char *own = ckpt_join(a->parent, "beats"), *mpi = ckpt_join(a->parent, "mpi");
    if (access(own, F_OK) < 0) {
        ckpt_remove_dir(mpi, NULL);
        mkdir(mpi, 0700);
    }
    free(own);
    free(mpi);
}

static void watch_ranks(struct agent *a, int ranks, int first, int count) {
    struct err err = {0};
    struct beats *old = ranks ? beats_open(a->beats_path) : NULL;
    if (old)
        beats_kill(old, 0, beats_ranks(old)); /* of a supervisor that was killed */
    beats_close(old);
    beats_close(a->beats);
    free(a->told_us);
    a->beats = ranks ? beats_create(a->beats_path, ranks, &err) : beats_open(a->beats_path);
    if (a->beats && first + count > beats_ranks(a->beats))
        count = 0;
    a->first = first;
    a->count = count;
    a->told_us = mem_array((size_t)count + 1, sizeof *a->told_us);
    if (ranks)
        clear_mpi(a);
    a->whole = 0;
    if (a->beats)
        say("ready");
    else if (ranks)
        say("broken %.300s", err.msg);
    /* Else the host's memory is gone, and its ranks with it: their attempt ends by that. */
}

/* ---- jobs ---------------------------------------------------------------------------------- */

/* The file of a rank here, or the index that rank 0 makes. */
static bool is_own(const void *ctx, const char *name) {
    const struct agent *a = ctx;
    int rank = 0;
    if (!strcmp(name, "index.json"))
        return a->first == 0;
    return sscanf(name, "rank-%d.", &rank) == 1 && rank >= a->first &&
           rank < a->first + a->count;
}

static bool is_any(const void *ctx, const char *name) {
    (void)ctx;
    (void)name;
    return true;
}

static int send_own(const struct agent *a, int64_t step, const struct courier_peer *to,
                    struct err *err) {
    char *dir = ckpt_dir_path(a->memory, CKPT_WHOLE, step);
    DIR *d = opendir(dir);
    int rc = d ? 0 : err_system(err, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (is_own(a, e->d_name))
            rc = courier_put(&a->courier, to, step, e->d_name, err);
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

/* An index that cannot be read is none. */
static void list_index(const char *dir, int64_t step) {
    struct checkpoint_file *f;
    int64_t n = checkpoint_files(dir, &f, NULL);
    for (int64_t i = 0; i < n; i++)
        say("listed %lld %lld %s", (long long)step, (long long)f[i].bytes, f[i].name);
    free(f);
    char *path = ckpt_join(dir, "index.json");
    struct stat st;
    if (n < 0)
        unlink(path);
    else if (stat(path, &st) == 0)
        say("listed %lld %lld index.json", (long long)step, (long long)st.st_size);
    free(path);
}

static void list_step(const struct agent *a, int64_t step) {
    char *dir = ckpt_dir_path(a->memory, CKPT_WHOLE, step);
    struct stat st;
    list_index(dir, step);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path = ckpt_join(dir, e->d_name);
        if (e->d_name[0] != '.' && stat(path, &st) == 0 && S_ISREG(st.st_mode))
            say("file %lld %lld %s", (long long)step, (long long)st.st_size, e->d_name);
        free(path);
    }
    if (d)
        closedir(d);
    free(dir);
}

static int list_steps(const struct agent *a, struct err *err) {
    struct ckpt_entries e;
    if (ckpt_scan(&e, a->memory, err) < 0)
        return -1;
    for (int64_t i = 0; i < e.n; i++)
        if (e.p[i].state == CKPT_WHOLE)
            list_step(a, e.p[i].step);
    arr_release(&e);
    return 0;
}

/* All of it goes but this step. */
static int drop_others(const struct agent *a, int64_t step, struct err *err) {
    struct ckpt_entries e;
    int rc = ckpt_scan(&e, a->memory, err);
    for (int64_t i = 0; rc == 0 && i < e.n; i++) {
        if (e.p[i].state == CKPT_WHOLE && e.p[i].step == step)
            continue;
        char *path = ckpt_dir_path(a->memory, e.p[i].state, e.p[i].step);
        rc = ckpt_remove_dir(path, err);
        free(path);
    }
    arr_release(&e);
    return rc;
}

/* A file that is not what was written goes: another host may have it. */
static int keep_step(const struct agent *a, int64_t step, struct err *err) {
    if (!step)
        return drop_others(a, 0, err);
    char *dir = ckpt_dir_path(a->memory, CKPT_WHOLE, step);
    struct checkpoint_file *f;
    int64_t n = checkpoint_files(dir, &f, err);
    int rc = n < 0 ? -1 : 0;
    for (int64_t i = 0; i < n; i++) {
        char *path = ckpt_join(dir, f[i].name);
        uint64_t hash = 0;
        if (bulk_hash(path, f[i].bytes, &(struct bulk_way){.threads = 2}, &hash, err) < 0 ||
            hash != f[i].hash) {
            rc = err_input(err, "%s: is not what was written", path);
            unlink(path);
        }
        free(path);
    }
    free(f);
    free(dir);
    return rc < 0 ? -1 : drop_others(a, step, err);
}

/* What could not be measured is told, too: it is an answer. */
static int measure(const char *dir, char *text, size_t n) {
    struct check_host h = {0};
    measure_host(dir, &h);
    int at = snprintf(text, n, "%016" PRIx64, h.result);
    for (int s = 0; s < CHECK_SPEED_COUNT; s++)
        at += snprintf(text + at, n - (size_t)at, " %.6g", h.speed[s]);
    snprintf(text + at, n - (size_t)at, " %s", h.failed);
    return 0;
}

static int measure_link(const struct agent *a, const struct courier_peer *to, char *text,
                        size_t n, struct err *err) {
    double bytes_per_s = 0, round_s = 0;
    if (courier_measure(&a->courier, to, LINK_BYTES, &bytes_per_s, &round_s, err) < 0)
        return -1;
    snprintf(text, n, "%.6g %.6g", bytes_per_s, round_s);
    return 0;
}

/* What it has to say goes to text, of n bytes. */
static int do_job(const struct agent *a, const char *order, char *text, size_t n,
                  struct err *err) {
    char verb[16] = "", peer[300] = "", what[100] = "";
    long long step = 0;
    int at = 0;
    struct courier_peer p = {peer, 0};
    sscanf(order, "%15s %lld %n", verb, &step, &at);
    if (!strcmp(verb, "list"))
        return list_steps(a, err);
    if (!strcmp(verb, "keep"))
        return keep_step(a, step, err);
    if (!strncmp(verb, "copy", 4))
        return copy_share(a->memory, step, order + at,
                          strcmp(verb, "copy") ? is_any : is_own, a, err);
    if (!strcmp(verb, "measure"))
        return measure(order + at, text, n);
    if (sscanf(order + at, "%299s %d %99s", peer, &p.port, what) != 3)
        return err_input(err, "what order is \"%.100s\"?", order);
    if (!strcmp(verb, "send"))
        return send_own(a, step, &p, err);
    if (!strcmp(verb, "link"))
        return measure_link(a, &p, text, n, err);
    return courier_get(&a->courier, &p, step, what, err);
}

static pid_t fork_job(struct agent *a, int64_t number, const char *order) {
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct err err = {0};
    char text[500] = "";
    if (do_job(a, order, text, sizeof text, &err) < 0)
        say("failed %lld %.500s", (long long)number, err.msg);
    else
        say("done %lld %s", (long long)number, text);
    _exit(0);
}

static void start_job(struct agent *a, int64_t number, const char *order) {
    pid_t pid = fork_job(a, number, order);
    if (pid < 0)
        say("failed %lld fork: %s", (long long)number, strerror(errno));
    else
        arr_push(&a->jobs, ((struct job){pid, number}));
}

/* One that could not say how it ended is said to have failed. */
static void reap(struct agent *a) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int64_t i = 0; i < a->jobs.n; i++)
            if (a->jobs.p[i].pid == pid) {
                if (status)
                    say("failed %lld its process died", (long long)a->jobs.p[i].number);
                a->jobs.p[i] = a->jobs.p[--a->jobs.n];
                break;
            }
}

static void accept_one(struct agent *a) {
    int fd = accept4(a->listen, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (fork() == 0) {
        courier_serve(&a->courier, fd);
        _exit(0);
    }
    close(fd);
}

/* ---- orders -------------------------------------------------------------------------------- */

static int greet(struct agent *a, const char *order) {
    struct err err = {0};
    int port = 0;
    if (sscanf(order, "hello %4095s %99s", a->folder, a->token) != 2)
        return -1;
    a->memory = ckpt_join(a->folder, "memory");
    a->beats_path = ckpt_join(a->folder, "beats");
    a->parent = mem_strdup(a->folder);
    *strrchr(a->parent, '/') = '\0';
    a->courier = (struct courier){a->memory, a->token};
    if (ckpt_make_dirs(a->memory, &err) < 0 ||
        (a->listen = courier_listen(&port, &err)) < 0) {
        say("broken %.300s", err.msg);
        return -1;
    }
    say("hello %d %s", port, WEFT_VERSION);
    return 0;
}

static void remove_all(struct agent *a) {
    char *own = ckpt_join(a->parent, "beats");
    ckpt_remove_dir(access(own, F_OK) < 0 ? a->parent : a->folder, NULL);
    say("removed");
    exit(EXIT_DONE);
}

static void obey(struct agent *a, const char *order) {
    long long n[3] = {0};
    int at = 0;
    char verb[16] = "";
    sscanf(order, "%15s %lld %lld %lld", verb, &n[0], &n[1], &n[2]);
    if (!strcmp(verb, "hello")) {
        if (greet(a, order) < 0)
            exit(EXIT_SYSTEM);
    } else if (!a->memory) {
        exit(EXIT_USAGE);
    } else if (!strcmp(verb, "begin")) {
        watch_ranks(a, (int)n[0], (int)n[1], (int)n[2]);
    } else if (!strcmp(verb, "again")) {
        watch_ranks(a, 0, (int)n[0], (int)n[1]);
    } else if (!strcmp(verb, "end")) {
        beats_kill(a->beats, a->first, a->count);
        tell_beats(a, true);
        say("ended");
    } else if (!strcmp(verb, "stop")) {
        beats_signal(a->beats, a->first, a->count, SIGUSR1);
    } else if (!strcmp(verb, "mirrored") && a->beats) {
        atomic_store(&beats_at(a->beats, 0)->mirrored, n[0]);
    } else if (!strcmp(verb, "remove")) {
        remove_all(a);
    } else if (sscanf(order, "%lld %n", &n[0], &at) == 1) {
        start_job(a, n[0], order + at);
    }
}

/* false at the end of input. */
static bool read_orders(struct agent *a) {
    ssize_t n = lines_read(&a->orders, STDIN_FILENO);
    if (n < 0 && errno == EINTR)
        return true;
    for (char *order; n > 0 && (order = lines_next(&a->orders));)
        obey(a, order);
    return n > 0;
}

int agent_run(void) {
    static struct agent a = {.listen = -1};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (;;) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = a.listen, .events = POLLIN}};
        poll(p, 2, TICK_MS);
        if (p[0].revents && !read_orders(&a))
            break;
        if (p[1].revents & POLLIN)
            accept_one(&a);
        reap(&a);
        tell_whole(&a);
        if (a.memory)
            tell_beats(&a, false);
    }
    beats_kill(a.beats, a.first, a.count);
    /* Where nothing was begun nothing stays. */
    if (a.memory && rmdir(a.memory) == 0 && rmdir(a.folder) == 0)
        rmdir(a.parent);
    return EXIT_DONE;
}
