/* The plans of a run: that of the command, and those for fewer ranks. weft-run says
 * how many ranks each has, and refuses a wrong one before anything is started. */
#define _GNU_SOURCE /* kill */
#include "common/progress.h"
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reads until the end, or until the time is over. */
static void read_some(int fd, double until, char *out, size_t n) {
    size_t got = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        double left = until - now_s();
        char rest[256];
        if (left <= 0 || poll(&p, 1, (int)(1e3 * left) + 1) <= 0)
            break;
        const bool full = got + 1 >= n;
        ssize_t k = read(fd, full ? rest : out + got, full ? sizeof rest : n - 1 - got);
        if (k <= 0)
            break;
        got += full ? 0 : (size_t)k;
    }
    out[got] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
}

int keep_ask(const char *const *argv, double seconds, char *out, size_t n) {
    int fd[2], status = -1;
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(fd[1], STDOUT_FILENO);
        dup2(fd[1], STDERR_FILENO);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(fd[1]);
    const double until = now_s() + seconds;
    if (pid > 0)
        read_some(fd[0], until, out, n);
    close(fd[0]);
    if (pid < 0)
        return -1;
    if (now_s() >= until)
        kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int add_plan(struct keep *k, const char *path, struct err *err) {
    const char *argv[] = {k->command[0], "--dry-run", path, NULL};
    char said[1024];
    int status = keep_ask(argv, 600, said, sizeof said);
    const char *colon = status == 0 ? strrchr(said, ':') : NULL;
    struct plan_file p = {.path = path};
    /* "one.json: 2 ranks, 1 stage, 0 transfers: no fault found" */
    while (colon && colon > said &&
           sscanf(colon, ": %lld rank", (long long *)&p.ranks) != 1)
        do
            colon--;
        while (colon > said && *colon != ':');
    if (p.ranks > 0) {
        arr_push(&k->plans, p);
        return 0;
    }
    const char *why = strstr(said, "error: ");
    err_input(err, "%s", why ? why + 7 : said);
    if (err && status == EXIT_SYSTEM)
        err->status = status;
    return -1;
}

int keep_read_plans(struct keep *k, struct err *err) {
    char *rest = k->o.plans;
    if (add_plan(k, k->command[k->n_command - 1], err) < 0)
        return -1;
    for (char *one; rest && (one = strtok_r(rest, ",", &rest));)
        if (add_plan(k, one, err) < 0)
            return -1;
    return 0;
}

const struct plan_file *keep_choose_plan(const struct keep *k, int64_t ranks,
                                         struct err *err) {
    const struct plan_file *best = NULL;
    for (int64_t i = 0; i < k->plans.n; i++) {
        const struct plan_file *p = &k->plans.p[i];
        if (p->ranks <= ranks && (!best || p->ranks > best->ranks))
            best = p;
    }
    if (best)
        return best;
    err_no(err, "there is room for %lld ranks, and no plan for so few", (long long)ranks);
    err_hint(err, "weft-search --devices N makes one, --plans names it");
    return NULL;
}
