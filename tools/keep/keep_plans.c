/* The plans of a run: that of the command, those for other numbers of ranks, and those that were made.
 * weft-run says how many ranks each has, and refuses a wrong one before anything is started. */
#define _GNU_SOURCE /* kill */
#include "common/json.h"
#include "common/progress.h"
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLICE_MS = 50 }; /* so soon a signal is heeded while an answer is waited for */

pid_t keep_fork(void) {
    const pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self)
            _exit(127);
    }
    return pid;
}

/* Reads until the end, until the time is over, or until a person wants no more of it; is it the end? */
static bool read_some(int fd, double until, char *out, size_t n) {
    bool ended = false;
    size_t got = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (const int came = keep_signals(); now_s() < until && keep_signals() == came;) {
        char rest[256];
        if (poll(&p, 1, SLICE_MS) <= 0)
            continue;
        const bool full = got + 1 >= n;
        ssize_t k = read(fd, full ? rest : out + got, full ? sizeof rest : n - 1 - got);
        if ((ended = k <= 0))
            break;
        got += full ? 0 : (size_t)k;
    }
    out[got] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return ended;
}

int keep_ask(const char *const *argv, double seconds, char *out, size_t n) {
    int fd[2], status = -1;
    if (pipe2(fd, O_CLOEXEC) < 0)
        return -1;
    const pid_t pid = keep_fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(fd[1], STDOUT_FILENO);
        dup2(fd[1], STDERR_FILENO);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(fd[1]);
    const bool ended = pid > 0 && read_some(fd[0], now_s() + seconds, out, n);
    close(fd[0]);
    if (pid < 0)
        return -1;
    if (!ended)
        kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int keep_add_plan(struct keep *k, const struct plan_file *given, struct err *err) {
    const char *argv[] = {k->command[0], "--dry-run=json", given->path, NULL};
    char said[1024];
    int status = keep_ask(argv, 600, said, sizeof said);
    json_t *found = status == 0 ? json_parse(said, strlen(said), given->path, NULL) : NULL;
    struct plan_file p = *given;
    bool good = found && json_int(found, "ranks", 1, INT32_MAX, &p.ranks, NULL) == 0;
    json_decref(found);
    if (good) {
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
    if (keep_add_plan(k, &(struct plan_file){.path = k->command[k->n_command - 1]}, err) <
        0)
        return -1;
    for (char *one; rest && (one = strtok_r(rest, ",", &rest));)
        if (keep_add_plan(k, &(struct plan_file){.path = one}, err) < 0)
            return -1;
    return 0;
}

/* The file for just so many on hosts of these speeds, or what was found when one was looked for; NULL. */
static const struct plan_file *plan_of(const struct keep *k, int64_t ranks,
                                       uint64_t speeds) {
    for (int64_t i = 0; i < k->plans.n; i++) {
        const struct plan_file *p = &k->plans.p[i];
        if (!p->too_large && (p->ranks == ranks || p->made_for == ranks) &&
            p->speeds == speeds)
            return p;
    }
    return NULL;
}

static const struct plan_file *largest_plan(const struct keep *k, int64_t ranks) {
    const struct plan_file *best = NULL;
    for (int64_t i = 0; i < k->plans.n; i++) {
        const struct plan_file *p = &k->plans.p[i];
        if (!p->too_large && p->ranks <= ranks && (!best || p->ranks > best->ranks))
            best = p;
    }
    return best;
}

/* For hosts that differ from one that is good for equal ones; no search that has failed is done again. */
static void make_plan(struct keep *k, int64_t ranks, uint64_t speeds) {
    struct err why = {0};
    const struct plan_file *equal = plan_of(k, ranks, 0);
    const char *from = equal && equal->ranks == ranks ? equal->path : NULL;
    if (speeds && speeds == k->no_plan_for)
        return;
    if (keep_make_plan(k, ranks, from, &why) == 0)
        return;
    note("weft-keep: no plan for %lld ranks%s: %s", (long long)ranks,
         speeds ? " on hosts that differ" : "", why.msg);
    k->no_plan_for = speeds;
}

const struct plan_file *keep_choose_plan(struct keep *k, int64_t ranks, struct err *err) {
    if (ranks > k->wanted)
        ranks = k->wanted;
    const uint64_t speeds = ranks > 0 && !k->o.no_search ? keep_speeds(k, ranks) : 0;
    if (ranks > 0 && !k->o.no_search && !plan_of(k, ranks, speeds))
        make_plan(k, ranks, speeds);
    const struct plan_file *p = plan_of(k, ranks, speeds);
    if (p || (p = plan_of(k, ranks, 0)) || (p = largest_plan(k, ranks)))
        return p;
    err_no(err, "there is room for %lld ranks, and no plan for so few", (long long)ranks);
    err_hint(err, "weft-search --devices N makes one, --plans names it");
    return NULL;
}
