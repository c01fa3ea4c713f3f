/* weft-keep --check, and the same within a run: what each host does alone, all at once, and the links of pairs. */
#define _GNU_SOURCE /* realpath */
#include "common/file.h"
#include "common/json.h"
#include "common/progress.h"
#include "keep.h"
#include "keep/check.h"
#include "keep/measure.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The hosts that take part; one without a name is measured here. */
struct round {
    struct keep *k;
    struct check check;
    struct host **host; /* [check.n] */
    char dir[PATH_MAX];
};

static void find_hosts(struct round *r) {
    struct keep *k = r->k;
    r->host = mem_array((size_t)k->hosts.n, sizeof(struct host *));
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (!k->hosts.p[i].name || agent_is_there(&k->hosts.p[i]))
            r->host[r->check.n++] = &k->hosts.p[i];
    r->check.hosts = mem_array((size_t)r->check.n + 1, sizeof *r->check.hosts);
}

/* "RESULT SPEEDS WHY" */
static void read_speeds(struct check_host *h, const char *answer, const char *failure) {
    struct check_host m = {0};
    int at = 0;
    if (sscanf(answer, "%" SCNx64 " %lf %lf %lf %n", &m.result, &m.speed[0], &m.speed[1],
               &m.speed[2], &at) < 1 + CHECK_SPEED_COUNT)
        snprintf(m.failed, sizeof m.failed, "%.190s",
                 *failure ? failure : "it does not answer");
    else
        snprintf(m.failed, sizeof m.failed, "%.190s", answer + at);
    check_take(h, &m);
}

/* Those that have not been measured, or not well enough, all at once. Returns how many. */
static int measure_some(struct round *r) {
    bool *now = mem_array((size_t)r->check.n + 1, sizeof *now);
    int n = 0;
    for (int i = 0; i < r->check.n; i++)
        n += now[i] = !r->check.hosts[i].times || check_doubts_host(&r->check, i);
    for (int i = 0; i < r->check.n; i++)
        if (now[i] && r->host[i]->name) {
            agent_order(r->k, r->host[i], ORDER_CHECK, "measure 0 %s", r->dir);
        } else if (now[i]) {
            struct check_host m = {0};
            measure_host(r->dir, &m);
            check_take(&r->check.hosts[i], &m);
        }
    agents_settle(r->k, ORDER_CHECK, NULL);
    for (int i = 0; i < r->check.n; i++) {
        const char *failure = "";
        if (now[i] && r->host[i]->name) {
            const char *answer = agent_answer(r->host[i], &failure);
            read_speeds(&r->check.hosts[i], answer, failure);
        }
    }
    free(now);
    return n;
}

static void measure_alone(struct round *r) {
    for (int i = 0; i < CHECK_TIMES && measure_some(r); i++)
        ;
}

/* In one direction, of all pairs at once. */
static void measure_way(struct round *r, struct check_link *pairs, int n, bool back) {
    for (int i = 0; i < n; i++) {
        struct host *from = r->host[back ? pairs[i].b : pairs[i].a];
        const struct host *to = r->host[back ? pairs[i].a : pairs[i].b];
        agent_order(r->k, from, ORDER_CHECK, "link 0 %s %d -", to->name, agent_port(to));
    }
    agents_settle(r->k, ORDER_CHECK, NULL);
    for (int i = 0; i < n; i++) {
        struct check_link *l = &pairs[i];
        double bytes_per_s = 0, round_s = 0;
        const char *failure, *answer = agent_answer(r->host[back ? l->b : l->a], &failure);
        if (sscanf(answer, "%lf %lf", &bytes_per_s, &round_s) != 2)
            snprintf(l->failed, sizeof l->failed, "%.190s",
                     *failure ? failure : "no answer");
        if (!back || bytes_per_s < l->bytes_per_s)
            l->bytes_per_s = bytes_per_s;
        if (!back || round_s > l->round_s)
            l->round_s = round_s;
    }
}

/* A host that sends in two pairs of a round does so one after the other: it has but one answer. */
static void measure_pairs(struct round *r, struct check_link *pairs, int n) {
    for (int begin = 0, end; begin < n; begin = end) {
        bool *busy = mem_array((size_t)r->check.n, sizeof *busy);
        for (end = begin; end < n && !busy[pairs[end].a] && !busy[pairs[end].b]; end++)
            busy[pairs[end].a] = busy[pairs[end].b] = true;
        free(busy);
        measure_way(r, pairs + begin, end - begin, false);
        measure_way(r, pairs + begin, end - begin, true);
        for (int i = begin; i < end; i++)
            check_add(&r->check, &pairs[i]);
    }
}

static int measure_all(struct round *r) {
    find_hosts(r);
    measure_alone(r);
    struct check_link *pairs = mem_array(2 * (size_t)r->check.n + 1, sizeof *pairs);
    for (int round = 1; round <= CHECK_ROUNDS; round++) {
        int n = check_pairs(&r->check, round, pairs);
        for (int i = 0; i < CHECK_TIMES && n; i++) {
            measure_pairs(r, pairs, n);
            n = check_pairs_again(&r->check, round, pairs);
        }
    }
    free(pairs);
    return check_judge(&r->check);
}

static void release(struct round *r) {
    free(r->check.hosts);
    free(r->host);
    check_release(&r->check);
}

/* ---- what is printed ----------------------------------------------------------------------- */

static const char *name_of(const struct round *r, int i) {
    return r->host[i]->name ? r->host[i]->name : "this machine";
}

static json_t *host_json(const struct round *r, int i) {
    const struct check_host *h = &r->check.hosts[i];
    json_t *o =
        json_pack("{s:s, s:s}", "host", name_of(r, i), "state", check_state_name(h->state));
    for (int s = 0; s < CHECK_SPEED_COUNT; s++)
        json_object_set_new(o, check_speed_key((enum check_speed)s),
                            json_real(h->speed[s]));
    if (*h->why)
        json_object_set_new(o, "why", json_string(h->why));
    return o;
}

static json_t *report_json(const struct round *r) {
    json_t *hosts = json_array(), *links = json_array();
    for (int i = 0; i < r->check.n; i++)
        json_array_append_new(hosts, host_json(r, i));
    for (int64_t i = 0; i < r->check.links.n; i++) {
        const struct check_link *l = &r->check.links.p[i];
        json_array_append_new(links, json_pack("{s:[ss], s:i, s:b, s:f, s:f}", "hosts",
                                               name_of(r, l->a), name_of(r, l->b), "round",
                                               l->round, "good", l->good, "bytes_per_s",
                                               l->bytes_per_s, "round_trip_s", l->round_s));
    }
    return json_pack("{s:s, s:o, s:o}", "format", "weft-check/1", "hosts", hosts, "links",
                     links);
}

static void print_text(const struct round *r) {
    printf("%-24s %14s %14s %14s  %s\n", "host", "products", "memory", "disk", "state");
    for (int i = 0; i < r->check.n; i++) {
        const struct check_host *h = &r->check.hosts[i];
        printf("%-24s %8.1f GF/s %9.1f GB/s %9.1f MB/s  %s%s%s\n", name_of(r, i),
               1e-9 * h->speed[CHECK_PRODUCTS], 1e-9 * h->speed[CHECK_MEMORY],
               1e-6 * h->speed[CHECK_DISK], check_state_name(h->state), *h->why ? ": " : "",
               h->why);
    }
    for (int64_t i = 0; i < r->check.links.n; i++) {
        const struct check_link *l = &r->check.links.p[i];
        printf("link %s - %s, round %d: %.3f GB/s, round trip %.0f us%s\n",
               name_of(r, l->a), name_of(r, l->b), l->round, 1e-9 * l->bytes_per_s,
               1e6 * l->round_s, l->good ? "" : ", not good");
    }
}

static bool some_are_not_good(const struct round *r) {
    for (int i = 0; i < r->check.n; i++)
        if (r->check.hosts[i].state != CHECK_GOOD)
            return true;
    return false;
}

static struct round round_of(struct keep *k) {
    struct round r = {.k = k};
    const char *dir = k->o.folder ? k->o.folder : ".";
    if (!realpath(dir, r.dir))
        snprintf(r.dir, sizeof r.dir, "%s", dir);
    return r;
}

int keep_check(struct keep *k, struct err *err) {
    struct round r = round_of(k);
    measure_all(&r);
    if (k->o.text) {
        print_text(&r);
    } else {
        json_t *doc = report_json(&r);
        json_write(doc, stdout);
        json_decref(doc);
    }
    const int status = some_are_not_good(&r) ? EXIT_NO : EXIT_DONE;
    release(&r);
    return file_stdout_check(err) < 0 ? -1 : status;
}

void keep_check_hosts(struct keep *k) {
    struct round r = round_of(k);
    const double start = now_s();
    measure_all(&r);
    for (int i = 0; i < r.check.n; i++) {
        const struct check_host *h = &r.check.hosts[i];
        if (r.host[i]->doubted && r.host[i]->name)
            keep_leave_out(k, r.host[i],
                           "gradients of its ranks were unlike those of their replicas");
        else if (h->state == CHECK_BAD && r.host[i]->name)
            keep_leave_out(k, r.host[i], h->why);
        else if (h->state != CHECK_GOOD)
            note("weft-keep: host %s: %s", name_of(&r, i), h->why);
    }
    note_verbose("weft-keep: %d hosts were checked in %.1f s", r.check.n, now_s() - start);
    release(&r);
}
