/* The hosts of a run: which there are, which answer, which have failed. */
#include "common/opt.h"
#include "common/progress.h"
#include "keep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_FAILURES = 2, ANSWER_S = 10, LONGEST_S = 600 };

static int add_host(struct keep *k, char *text, struct err *err) {
    struct host h = {.name = text, .slots = 1};
    char *colon = strrchr(text, ':');
    if (colon) {
        *colon = '\0';
        if (opt_parse_int(colon + 1, &h.slots) < 0 || h.slots < 1)
            return err_usage(err, "--hosts: %s: expected HOST:RANKS, got \"%s\"", text,
                             colon + 1);
    }
    if (!*text)
        return err_usage(err, "--hosts: expected HOST:RANKS,HOST:RANKS,...");
    arr_push(&k->hosts, h);
    return 0;
}

int keep_read_hosts(struct keep *k, struct err *err) {
    char *rest = k->o.hosts;
    for (char *one; rest && (one = strtok_r(rest, ",", &rest));)
        if (add_host(k, one, err) < 0)
            return -1;
    if (!k->hosts.n)
        arr_push(&k->hosts, (struct host){.slots = INT32_MAX});
    return 0;
}

bool keep_one_machine(const struct keep *k) {
    for (int64_t i = 0; i < k->hosts.n; i++) {
        const char *name = k->hosts.p[i].name;
        if (name && strcmp(name, "localhost") != 0 && strncmp(name, "127.", 4) != 0)
            return false;
    }
    return true;
}

int64_t keep_slots(const struct keep *k) {
    int64_t n = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        n += k->hosts.p[i].out ? 0 : k->hosts.p[i].slots;
    return n;
}

char *keep_host_list(const struct keep *k) {
    char *list = mem_alloc(1);
    size_t n = 0;
    if (!k->hosts.p[0].name) {
        free(list);
        return NULL;
    }
    for (int64_t i = 0; i < k->hosts.n; i++) {
        const struct host *h = &k->hosts.p[i];
        if (h->out)
            continue;
        size_t room = strlen(h->name) + 24;
        list = mem_grow(list, n + room, 1);
        n += (size_t)snprintf(list + n, room, "%s%s:%lld", n ? "," : "", h->name,
                              (long long)h->slots);
    }
    return list;
}

void keep_assign(struct keep *k, int64_t ranks) {
    int64_t first = 0;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        const int64_t left = h->out ? 0 : ranks - first;
        h->first = (int)first;
        h->count = (int)(left < h->slots ? left : h->slots);
        first += h->count;
    }
}

void keep_note_speed(struct keep *k, struct host *h, double ratio) {
    h->speed = 1 / ratio;
    journal_add(k->journal,
                &(struct event){.kind = EVENT_SPEED,
                                .attempt = k->attempt,
                                .value = h->speed,
                                .text = h->name ? h->name : "this machine"},
                NULL);
}

struct host *keep_host_at(struct keep *k, int64_t rank) {
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (h->out)
            continue;
        if (rank < h->slots)
            return h;
        rank -= h->slots;
    }
    return NULL;
}

const char *keep_host_of(struct keep *k, int64_t rank) {
    const struct host *h = keep_host_at(k, rank);
    if (!h)
        return "an unknown host";
    return h->name ? h->name : "this machine";
}

void keep_leave_out(struct keep *k, struct host *h, const char *why) {
    char text[256];
    h->out = true;
    h->wait_s = h->wait_s > 0 ? fmin(2 * h->wait_s, LONGEST_S) : k->o.retry_s;
    h->ask_s = now_s() + h->wait_s;
    snprintf(text, sizeof text, "%s is left out: %s", h->name, why);
    note("weft-keep: host %s", text);
    journal_add(k->journal,
                &(struct event){.kind = EVENT_HOST, .attempt = k->attempt, .text = text},
                NULL);
}

void keep_host_failed(struct keep *k, const char *name) {
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (h->name && !strcmp(h->name, name) && ++h->failures == MOST_FAILURES)
            keep_leave_out(k, h, "it failed twice");
    }
}

char *keep_tool(const struct keep *k, const char *name) {
    const char *run = k->command[0], *slash = strrchr(run, '/');
    const int n = slash ? (int)(slash - run) + 1 : 0;
    const size_t room = (size_t)n + strlen(name) + 1;
    char *path = mem_alloc(room);
    snprintf(path, room, "%.*s%s", n, run, name);
    return path;
}

/* Open MPI's own way to reach one. */
void keep_shell(const char *host, char *out, size_t n) {
    const char *agent = getenv("OMPI_MCA_plm_rsh_agent");
    snprintf(out, n, "%s %s", agent ? agent : "ssh -o BatchMode=yes -o ConnectTimeout=5",
             host);
}

static int ask_host(const struct keep *k, const char *host, char *out, size_t n) {
    char shell[512], command[1024];
    keep_shell(host, shell, sizeof shell);
    snprintf(command, sizeof command, "%s %s --version </dev/null 2>&1", shell,
             k->command[0]);
    const char *argv[] = {"sh", "-c", command, NULL};
    return keep_ask(argv, ANSWER_S, out, n);
}

static int own_version(const struct keep *k, char *own, size_t n, struct err *err) {
    const char *argv[] = {k->command[0], "--version", NULL};
    int rc = keep_ask(argv, ANSWER_S, own, n);
    if (rc == 0 && !strncmp(own, "weft-run ", 9))
        return 0;
    return err_usage(err, "%s: is no weft-run that can be started", k->command[0]);
}

int keep_probe_hosts(struct keep *k, bool must, struct err *err) {
    char own[128], there[128];
    if (own_version(k, own, sizeof own, err) < 0)
        return -1;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (!h->name || h->out)
            continue;
        int status = ask_host(k, h->name, there, sizeof there);
        if (status == 0 && !strcmp(own, there))
            continue;
        const bool other = status == 0;
        if (must && other)
            return err_input(err, "host %s has %s, this one %s", h->name, there, own);
        if (must)
            return err_system(err, "host %s does not answer: %s", h->name,
                              *there ? there : "nothing within 10 s");
        keep_leave_out(k, h, other ? "it has another weft" : "it does not answer");
    }
    return 0;
}

/* ---- hosts that come back ------------------------------------------------------------------ */

/* In a process of its own: an answer may take long. */
static void start_asking(struct keep *k, int64_t i) {
    k->asked = i;
    k->asker = keep_fork();
    if (k->asker != 0)
        return;
    char own[128], there[128];
    _exit(own_version(k, own, sizeof own, NULL) < 0 ||
          ask_host(k, k->hosts.p[i].name, there, sizeof there) != 0 ||
          strcmp(own, there) != 0);
}

/* One that fails again is out at once, and is asked less often from then on. */
static bool take_in(struct keep *k, struct host *h) {
    char text[256];
    h->out = false;
    h->failures = MOST_FAILURES - 1;
    snprintf(text, sizeof text, "%s is taken in: it answers again", h->name);
    note("weft-keep: host %s", text);
    journal_add(k->journal,
                &(struct event){.kind = EVENT_HOST, .attempt = k->attempt, .text = text},
                NULL);
    return true;
}

bool keep_hosts_back(struct keep *k) {
    if (k->asker > 0) {
        int status = 0;
        if (waitpid(k->asker, &status, WNOHANG) == 0)
            return false;
        k->asker = 0;
        struct host *h = &k->hosts.p[k->asked];
        h->ask_s = now_s() + h->wait_s;
        return h->out && status == 0 && take_in(k, h);
    }
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (k->hosts.p[i].out && now_s() >= k->hosts.p[i].ask_s) {
            start_asking(k, i);
            break;
        }
    return false;
}
