/* The hosts of a run: which there are, which answer, which have failed. */
#include "common/opt.h"
#include "common/progress.h"
#include "keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_FAILURES = 2, ANSWER_S = 10 };

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

static void leave_out(struct keep *k, struct host *h, const char *why) {
    char text[256];
    h->out = true;
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
            leave_out(k, h, "it failed twice");
    }
}

/* Open MPI's own way to reach a host. */
static int ask_host(const struct keep *k, const char *host, char *out, size_t n) {
    const char *agent = getenv("OMPI_MCA_plm_rsh_agent");
    char command[1024];
    snprintf(command, sizeof command, "%s %s %s --version </dev/null 2>&1",
             agent ? agent : "ssh -o BatchMode=yes -o ConnectTimeout=5", host,
             k->command[0]);
    const char *argv[] = {"sh", "-c", command, NULL};
    return keep_ask(argv, ANSWER_S, out, n);
}

int keep_probe_hosts(struct keep *k, bool must, struct err *err) {
    const char *own_argv[] = {k->command[0], "--version", NULL};
    char own[128], there[128];
    int rc = keep_ask(own_argv, ANSWER_S, own, sizeof own);
    if (rc != 0 || strncmp(own, "weft-run ", 9) != 0)
        return err_usage(err, "%s: is no weft-run that can be started", k->command[0]);
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
        leave_out(k, h, other ? "it has another weft" : "it does not answer");
    }
    return 0;
}
