/* A plan that is looked for while ranks run. weft-search takes seconds, in which the ranks must be watched and signals
 * heeded: so a process of its own chooses, and tells what it chose when it is done. It dies with the supervisor. */
#define _GNU_SOURCE /* pipe2, kill */
#include "common/progress.h"
#include "keep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What it says; less than a pipe holds, so it never waits for being read. */
struct answer {
    struct plan_file plan; /* its path is the one below */
    char path[4200];       /* "" = there is none */
    uint64_t no_plan_for;
    double is_us,
        would_us; /* of a step with the plan of now, and with this one; 0 = nobody knows */
};

/* Plans are for the ranks that are wanted, if there is room for them. */
static int64_t ranks_for(const struct keep *k, int64_t room) {
    return room < k->wanted ? room : k->wanted;
}

/* In the process. */
static void choose(struct keep *k, int64_t ranks, const struct plan_file *now, int fd) {
    struct answer a = {.path = ""};
    setpgid(0, 0); /* Ctrl-C is for the supervisor */
    const struct plan_file *p = keep_choose_plan(k, ranks, NULL);
    if (p) {
        a.plan = *p;
        snprintf(a.path, sizeof a.path, "%s", p->path);
    }
    if (p && now && strcmp(p->path, now->path) != 0) {
        a.is_us = keep_predict(k, now);
        a.would_us = keep_predict(k, p);
    }
    a.no_plan_for = k->no_plan_for;
    _exit(write(fd, &a, sizeof a) != (ssize_t)sizeof a);
}

static void start(struct keep *k, int64_t ranks, const struct plan_file *now) {
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) < 0)
        return;
    struct planner *p = &k->planner;
    *p = (struct planner){.fd = fd[0], .ranks = ranks, .speeds = keep_speeds(k, ranks)};
    if ((p->pid = keep_fork()) == 0)
        choose(k, ranks, now, fd[1]);
    close(fd[1]);
    if (p->pid < 0)
        planner_stop(k);
}

void planner_stop(struct keep *k) {
    struct planner *p = &k->planner;
    if (p->pid > 0) {
        kill(p->pid, SIGKILL); /* weft-search dies with it */
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (p->pid)
        close(p->fd);
    p->pid = 0;
}

/* The one in the list, which it joins if it is new; NULL where none was found. */
static const struct plan_file *listed(struct keep *k, const struct answer *a) {
    for (int64_t i = 0; i < k->plans.n; i++)
        if (!strcmp(k->plans.p[i].path, a->path))
            return &k->plans.p[i];
    if (!*a->path)
        return NULL;
    struct plan_file p = a->plan;
    p.path = mem_strdup(a->path);
    arr_push(&k->plans, p);
    return &k->plans.p[k->plans.n - 1];
}

bool planner_poll(struct keep *k, int64_t room, const struct plan_file *now,
                  struct planned *out) {
    struct planner *p = &k->planner;
    struct answer a;
    const int64_t ranks = ranks_for(k, room);
    if (!p->pid)
        start(k, ranks, now);
    if (!p->pid || waitpid(p->pid, NULL, WNOHANG) != p->pid)
        return false;
    p->pid = 0;
    const bool told = read(p->fd, &a, sizeof a) == (ssize_t)sizeof a;
    close(p->fd);
    *out = (struct planned){.plan = NULL};
    if (!told) /* it died: there is no answer to wait for */
        return true;
    out->plan = listed(k, &a);
    if (a.is_us > 0 && a.would_us > 0)
        out->times = a.would_us / a.is_us;
    k->no_plan_for = a.no_plan_for;
    /* Hosts or wishes may have changed meanwhile; then the question is another. */
    return ranks == p->ranks && p->speeds == keep_speeds(k, ranks);
}
