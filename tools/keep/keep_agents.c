/* The supervisor's side of agents: it starts them, tells them what to do, and hears what they say. */
#define _GNU_SOURCE /* pipe2 */
#include "common/opt.h"
#include "common/progress.h"
#include "keep.h"
#include "keep/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 256 };
#define GREET_S  10.0 /* until one has greeted */
#define SILENT_S 1.5  /* of one that has */
#define AGAIN_S  3.0  /* until one that was lost has greeted again */
#define WAIT_S   10.0 /* for what takes no time */

enum agent_state { AGENT_STARTS, AGENT_THERE, AGENT_GONE };

struct agent {
    enum agent_state state;
    pid_t pid;
    int in, out, port;
    bool ready, ended, again;
    double heard_s;
    int64_t whole;
    int pending[ORDER_KINDS];
    char broken[300]; /* why it does not work */
    char answer[500]; /* of the last order that was done; "" = it failed */
    char failure[300];
    struct lines said;
};

/* ---- lines --------------------------------------------------------------------------------- */

void agent_tell(struct host *h, const char *format, ...) {
    char line[5000];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (!h->agent || h->agent->state == AGENT_GONE || n >= (int)sizeof line - 1)
        return;
    line[n++] = '\n';
    /* One that does not read is found out by its silence. */
    if (write(h->agent->in, line, (size_t)n) != n)
        h->agent->heard_s = 0;
}

static void end_order(struct keep *k, struct agent *a, enum order_kind kind,
                      const struct host *h, const char *failed) {
    if (a->pending[kind] <= 0)
        return;
    snprintf(a->failure, sizeof a->failure, "%s", failed ? failed : "");
    a->pending[kind]--;
    k->orders.pending[kind]--;
    if (failed)
        snprintf(k->orders.failed[kind], sizeof k->orders.failed[kind],
                 "host %.90s: %.280s", h->name, failed);
}

/* The number of a job is its kind: an agent's orders of one kind are counted, not told apart. */
void agent_order(struct keep *k, struct host *h, enum order_kind kind, const char *format,
                 ...) {
    char text[4700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->agent->pending[kind]++;
    k->orders.pending[kind]++;
    agent_tell(h, "%d %s", (int)kind, text);
    if (h->agent->state == AGENT_GONE)
        end_order(k, h->agent, kind, h, "its agent is gone");
}

/* Times of another host's clock become this one's. */
static void take_beat(struct keep *k, const char *line) {
    char *p;
    const double then = strtod(line, &p);
    const long rank = strtol(p, &p, 10);
    if (!k->now || rank < 0 || rank >= beats_ranks(k->now))
        return;
    struct beat *b = beats_at(k->now, (int)rank), new;
    atomic_llong *from = &new.pid, *to = &b->pid;
    for (int i = 0; i < BEAT_NUMBERS; i++)
        atomic_init(&from[i], strtoll(p, &p, 10));
    snprintf(b->message, sizeof b->message, "%s", *p == ' ' ? p + 1 : p);
    const long long shift = (long long)(1e6 * (now_s() - then));
    if (atomic_load(&new.at_us))
        atomic_fetch_add(&new.at_us, shift);
    if (atomic_load(&new.first_us))
        atomic_fetch_add(&new.first_us, shift);
    for (int i = 0; i < BEAT_NUMBERS; i++)
        atomic_store(&to[i], atomic_load(&from[i]));
}

static void take_part(struct keep *k, const struct host *h, const char *line, bool listed) {
    struct part p = {.host = (int)(h - k->hosts.p), .listed = listed};
    long long step, bytes;
    if (sscanf(line, "%lld %lld %63s", &step, &bytes, p.name) != 3)
        return;
    p.step = step;
    p.bytes = bytes;
    parts_add(&k->parts, &p);
}

/* What stands behind this word, or NULL. */
static const char *behind(const char *line, const char *word) {
    size_t n = strlen(word);
    return !strncmp(line, word, n) && (line[n] == ' ' || !line[n])
               ? line + n + (line[n] == ' ')
               : NULL;
}

static void take_job(struct keep *k, struct host *h, const char *p, bool failed) {
    char *text;
    const long kind = strtol(p, &text, 10);
    text += *text == ' ';
    snprintf(h->agent->answer, sizeof h->agent->answer, "%s", failed ? "" : text);
    if (kind >= 0 && kind < ORDER_KINDS)
        end_order(k, h->agent, (enum order_kind)kind, h, failed ? text : NULL);
}

static void take_line(struct keep *k, struct host *h, const char *line) {
    struct agent *a = h->agent;
    const char *p;
    if ((p = behind(line, "beat")))
        take_beat(k, p);
    else if ((p = behind(line, "whole")))
        a->whole = strtoll(p, NULL, 10);
    else if ((p = behind(line, "file")))
        take_part(k, h, p, false);
    else if ((p = behind(line, "listed")))
        take_part(k, h, p, true);
    else if ((p = behind(line, "done")))
        take_job(k, h, p, false);
    else if ((p = behind(line, "failed")))
        take_job(k, h, p, true);
    else if ((p = behind(line, "hello"))) {
        a->state = AGENT_THERE;
        a->port = atoi(p);
        if (a->again) {
            agent_tell(h, "again %d %d", h->first, h->count);
            note("weft-keep: the agent of host %s died; it is started again", h->name);
        }
    } else if (behind(line, "ready"))
        a->ready = true;
    else if (behind(line, "ended"))
        a->ended = true;
    else if (!behind(line, "state"))
        snprintf(a->broken, sizeof a->broken, "%s",
                 (p = behind(line, "broken")) ? p : line);
}

static void let_go(struct keep *k, struct host *h) {
    struct agent *a = h->agent;
    if (a->state == AGENT_GONE)
        return;
    a->state = AGENT_GONE;
    if (a->in >= 0)
        close(a->in);
    close(a->out);
    kill(-a->pid, SIGKILL);
    waitpid(a->pid, NULL, 0);
    for (int kind = 0; kind < ORDER_KINDS; kind++)
        while (a->pending[kind])
            end_order(k, a, (enum order_kind)kind, h, "its agent is gone");
}

static void hear(struct keep *k, struct host *h) {
    struct agent *a = h->agent;
    ssize_t n = lines_read(&a->said, a->out);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        let_go(k, h);
        return;
    }
    a->heard_s = now_s();
    for (char *line; (line = lines_next(&a->said));)
        take_line(k, h, line);
}

int agents_descriptors(const struct keep *k, int *fds, int n) {
    int found = 0;
    for (int64_t i = 0; i < k->hosts.n && found < n; i++) {
        const struct agent *a = k->hosts.p[i].agent;
        if (a && a->state != AGENT_GONE)
            fds[found++] = a->out;
    }
    return found;
}

void agents_hear(struct keep *k, int milliseconds) {
    int fds[MOST], n = agents_descriptors(k, fds, MOST);
    struct pollfd p[MOST];
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (poll(p, (nfds_t)n, milliseconds) <= 0)
        return;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        for (int j = 0; h->agent && j < n; j++)
            if (p[j].revents && h->agent->state != AGENT_GONE && h->agent->out == p[j].fd)
                hear(k, h);
    }
}

int agents_settle(struct keep *k, enum order_kind kind, struct err *err) {
    while (k->orders.pending[kind] > 0 && keep_signals() < 2) {
        agents_hear(k, 100);
        for (int64_t i = 0; i < k->hosts.n; i++)
            if (k->hosts.p[i].agent && now_s() - k->hosts.p[i].agent->heard_s > GREET_S)
                let_go(k, &k->hosts.p[i]);
    }
    const bool failed = *k->orders.failed[kind];
    if (failed)
        err_system(err, "%s", k->orders.failed[kind]);
    *k->orders.failed[kind] = '\0';
    return failed ? -1 : 0;
}

/* ---- processes ----------------------------------------------------------------------------- */

static void become(const struct keep *k, const struct host *h, const int in[2],
                   const int out[2]) {
    char shell[512], command[5000], *tool = keep_tool(k, "weft-keep");
    setpgid(0, 0);
    keep_shell(h->name, shell, sizeof shell);
    snprintf(command, sizeof command, "exec %s %s --agent", shell, tool);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(out[1], STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int start(struct keep *k, struct host *h, struct err *err) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        return err_system(err, "pipe: %s", strerror(errno));
    const pid_t pid = keep_fork();
    if (pid == 0)
        become(k, h, in, out);
    close(in[0]);
    close(out[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    if (!h->agent)
        h->agent = mem_alloc(sizeof *h->agent);
    *h->agent = (struct agent){.pid = pid, .in = in[1], .out = out[0], .heard_s = now_s()};
    agent_tell(h, "hello %s/host-%d %s", k->shm, (int)(h - k->hosts.p), k->token);
    return pid < 0 ? err_system(err, "fork: %s", strerror(errno)) : 0;
}

const char *agent_answer(const struct host *h, const char **failure) {
    *failure = h->agent->failure;
    return h->agent->answer;
}

bool agent_is_there(const struct host *h) {
    return !h->out && h->agent && h->agent->state == AGENT_THERE;
}

int agent_port(const struct host *h) {
    return h->agent->port;
}

static bool is_silent(const struct agent *a) {
    return now_s() - a->heard_s > SILENT_S;
}

static bool some_start(const struct keep *k) {
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (!k->hosts.p[i].out && k->hosts.p[i].agent->state == AGENT_STARTS)
            return true;
    return false;
}

static void draw_token(struct keep *k) {
    uint64_t n[2] = {0};
    if (getrandom(n, sizeof n, 0) != sizeof n)
        n[0] = (uint64_t)getpid();
    snprintf(k->token, sizeof k->token, "%016" PRIx64 "%016" PRIx64, n[0], n[1]);
}

int agents_start(struct keep *k, bool must, struct err *err) {
    if (!*k->token)
        draw_token(k);
    const double until = now_s() + GREET_S;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (h->agent && (h->out || is_silent(h->agent)))
            let_go(k, h);
        if (!h->out && !agent_is_there(h) && start(k, h, err) < 0)
            return -1;
    }
    while (some_start(k) && now_s() < until)
        agents_hear(k, 100);
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (h->out || agent_is_there(h))
            continue;
        let_go(k, h);
        const char *why = *h->agent->broken ? h->agent->broken : "no word of it";
        if (!must) {
            keep_leave_out(k, h, why);
            continue;
        }
        err_system(err, "host %s: weft-keep cannot be started there: %s", h->name, why);
        return err_hint(err, "--disk-only does without");
    }
    return 0;
}

void agents_stop(struct keep *k) {
    /* They clean up at the end of their input. */
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (k->hosts.p[i].agent && k->hosts.p[i].agent->state != AGENT_GONE) {
            close(k->hosts.p[i].agent->in);
            k->hosts.p[i].agent->in = -1;
        }
    for (int i = 0, fd; i < 20 && agents_descriptors(k, &fd, 1); i++)
        agents_hear(k, 50);
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (h->agent)
            let_go(k, h);
        free(h->agent);
        h->agent = NULL;
    }
    parts_release(&k->parts);
}

/* ---- an attempt ---------------------------------------------------------------------------- */

int64_t agents_whole(const struct keep *k) {
    int64_t step = -1;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        const struct host *h = &k->hosts.p[i];
        if (!host_works(h))
            continue;
        if (!agent_is_there(h) || (step >= 0 && h->agent->whole != step))
            return 0;
        step = h->agent->whole;
    }
    return step > 0 ? step : 0;
}

/* Waits for an answer of all hosts with ranks; false where one does not come. */
static bool all_said(struct keep *k, bool (*said)(const struct agent *a)) {
    const double until = now_s() + WAIT_S;
    for (;;) {
        bool all = true;
        for (int64_t i = 0; i < k->hosts.n; i++) {
            const struct host *h = &k->hosts.p[i];
            if (h->count && agent_is_there(h) && !is_silent(h->agent))
                all &= said(h->agent);
        }
        if (all || now_s() > until)
            return all;
        agents_hear(k, 20);
    }
}

static bool is_ready(const struct agent *a) {
    return a->ready || *a->broken;
}

static bool has_ended(const struct agent *a) {
    return a->ended;
}

int agents_begin(struct keep *k, int64_t ranks, struct beats *now, struct err *err) {
    k->now = NULL;
    k->mirroring = 0;
    k->mirrored = k->gathered;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (!host_works(h))
            continue;
        h->agent->ready = h->agent->ended = false;
        h->agent->whole = 0;
        *h->agent->broken = '\0';
        agent_tell(h, "begin %lld %d %d", (long long)ranks, h->first, h->count);
    }
    if (!all_said(k, is_ready))
        return err_system(err, "the agent of a host does not answer");
    /* A host that is left out may have been broken before; it was not asked. */
    for (int64_t i = 0; i < k->hosts.n; i++) {
        const struct host *h = &k->hosts.p[i];
        if (host_works(h) && *h->agent->broken)
            return err_system(err, "host %s: %s", h->name, h->agent->broken);
    }
    k->now = now;
    return 0;
}

void agents_end(struct keep *k) {
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (k->hosts.p[i].count)
            agent_tell(&k->hosts.p[i], "end");
    all_said(k, has_ended);
    k->now = NULL;
}

/* One that was killed while its host lives comes back and finds the beats where they were. */
static bool comes_back(struct keep *k, struct host *h) {
    if (h->agent->again || start(k, h, NULL) < 0)
        return false;
    h->agent->again = true;
    return true;
}

const char *agents_lost(struct keep *k, double stepped_s) {
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (!host_works(h) || !h->agent)
            continue;
        struct agent *a = h->agent;
        if (a->state == AGENT_GONE && !comes_back(k, h))
            return h->name;
        const double last = stepped_s > a->heard_s ? stepped_s : a->heard_s;
        if (now_s() - last > (a->state == AGENT_STARTS ? AGAIN_S : SILENT_S)) {
            let_go(k, h);
            return h->name;
        }
        if (a->ready)
            a->again = false; /* the next loss is another one */
    }
    return NULL;
}
