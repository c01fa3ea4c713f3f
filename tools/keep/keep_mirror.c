/* Checkpoints in the memories of several hosts: what is new goes to peers, the newest that is whole is gathered before
 * an attempt, and now and then one goes to disk. The supervisor decides; agents move the bytes. */
#define _GNU_SOURCE /* realpath */
#include "checkpoint/checkpoint.h"
#include "common/progress.h"
#include "keep.h"
#include "keep/copy.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 64, KEPT_ON_DISK = 2 };

/* Hosts with ranks, in their order. */
static int hosts_at_work(struct keep *k, struct host **out) {
    int n = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (host_works(&k->hosts.p[i]))
            out[n++] = &k->hosts.p[i];
    return n;
}

/* ---- to peers ------------------------------------------------------------------------------ */

static void send_to_peers(struct keep *k, int64_t step) {
    struct host **hosts = mem_array((size_t)k->hosts.n, sizeof(struct host *));
    const int n = hosts_at_work(k, hosts);
    for (int i = 0; i < n; i++)
        for (int c = 1; c <= k->o.peers; c++) {
            const int to = parts_peer(n, (int)k->o.peers, i, c);
            if (to >= 0)
                agent_order(k, hosts[i], ORDER_MIRROR, "send %lld %s %d own",
                            (long long)step, hosts[to]->name, agent_port(hosts[to]));
        }
    free(hosts);
    k->mirroring = step;
}

/* Rank 0 waits for this word before the next checkpoint in memory: also where it failed. */
static void end_mirroring(struct keep *k) {
    struct err why = {0};
    if (agents_settle(k, ORDER_MIRROR, &why) < 0)
        note("weft-keep: step %lld was not copied to the memory of a peer: %s",
             (long long)k->mirroring, why.msg);
    k->mirrored = k->mirroring;
    k->mirroring = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (host_works(&k->hosts.p[i]) && k->hosts.p[i].first == 0)
            agent_tell(&k->hosts.p[i], "mirrored %lld", (long long)k->mirrored);
}

void mirror_step(struct keep *k) {
    if (k->mirroring && !k->orders.pending[ORDER_MIRROR])
        end_mirroring(k);
    const int64_t step = k->mirroring ? 0 : agents_whole(k);
    if (step > k->mirrored)
        send_to_peers(k, step);
}

/* ---- before an attempt --------------------------------------------------------------------- */

int64_t mirror_on_disk(const struct keep *k) {
    char *path = NULL;
    int64_t step = 0;
    if (checkpoint_older(k->save, INT64_MAX, &path, &step, NULL) <= 0)
        step = 0;
    free(path);
    return step;
}

static void list_parts(struct keep *k) {
    k->parts.list.n = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (agent_is_there(&k->hosts.p[i]))
            agent_order(k, &k->hosts.p[i], ORDER_GATHER, "list 0");
    agents_settle(k, ORDER_GATHER, NULL);
}

/* Each host at work keeps this step and nothing else; the others nothing. */
static int keep_only(struct keep *k, int64_t step, struct err *err) {
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (agent_is_there(&k->hosts.p[i]))
            agent_order(k, &k->hosts.p[i], ORDER_GATHER, "keep %lld",
                        k->hosts.p[i].count ? (long long)step : 0);
    return agents_settle(k, ORDER_GATHER, err);
}

/* Has a host fetch what it lacks of the step; returns how many files. */
static int fetch_for(struct keep *k, struct host *h, int64_t step) {
    const int self = (int)(h - k->hosts.p);
    int n = 0;
    for (int64_t i = 0; i < k->parts.list.n; i++) {
        struct part p = k->parts.list.p[i];
        if (!p.listed || p.step != step || parts_has(&k->parts, &p, self))
            continue;
        const struct host *from = &k->hosts.p[parts_source(&k->parts, &p)];
        agent_order(k, h, ORDER_GATHER, "fetch %lld %s %d %s", (long long)step, from->name,
                    agent_port(from), p.name);
        p.listed = false;
        p.host = self;
        parts_add(&k->parts, &p);
        n++;
    }
    return n;
}

static int fetch_all(struct keep *k, int64_t step) {
    int n = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (agent_is_there(&k->hosts.p[i]) && k->hosts.p[i].count)
            n += fetch_for(k, &k->hosts.p[i], step);
    return n;
}

/* Memory has nothing that is whole. */
static void tell_lack(const struct keep *k, const struct part *lacks, int64_t disk) {
    char text[300], then[64] = "beginning anew";
    if (disk)
        snprintf(then, sizeof then, "going on from step %lld on disk", (long long)disk);
    snprintf(text, sizeof text, "step %lld in memory lacks %s, which no host has; %s",
             (long long)lacks->step, lacks->name, then);
    note("weft-keep: %s", text);
    journal_add(
        k->journal,
        &(struct event){
            .kind = EVENT_NOTE, .attempt = k->attempt, .step = lacks->step, .text = text},
        NULL);
}

/* One round; true when there is nothing more to do. A file that is not what was written is gone behind it, so that
 * the next round finds another copy, or another step. */
static bool gather_once(struct keep *k, int64_t disk) {
    const struct part *lacks;
    struct err why = {0};
    list_parts(k);
    const int64_t step = parts_newest(&k->parts, INT64_MAX, &lacks);
    if (step <= disk) {
        if (lacks && lacks->step > disk)
            tell_lack(k, lacks, disk);
        keep_only(k, 0, NULL);
        return true;
    }
    const double start = now_s();
    const int fetched = fetch_all(k, step);
    if (agents_settle(k, ORDER_GATHER, &why) < 0 || keep_only(k, step, &why) < 0) {
        note("weft-keep: step %lld in memory: %s", (long long)step, why.msg);
        return false;
    }
    k->gathered = step;
    if (fetched)
        note("weft-keep: step %lld is in memory: %d files came from peers in %.2f s",
             (long long)step, fetched, now_s() - start);
    return true;
}

void mirror_gather(struct keep *k) {
    const int64_t disk = mirror_on_disk(k);
    k->gathered = 0;
    for (int i = 0; i < ROUNDS && keep_signals() < 2; i++)
        if (gather_once(k, disk))
            return;
    keep_only(k, 0, NULL);
}

/* ---- to disk ------------------------------------------------------------------------------- */

static int order_copies(struct keep *k, int64_t step, struct err *err) {
    char dir[PATH_MAX];
    if (copy_begin(k->save, err) < 0)
        return -1;
    if (!realpath(k->save, dir))
        return err_system(err, "%s: %s", k->save, strerror(errno));
    for (int64_t i = 0; i < k->hosts.n; i++) {
        struct host *h = &k->hosts.p[i];
        if (!agent_is_there(h) || !h->count)
            continue;
        agent_order(k, h, ORDER_COPY, "%s %lld %s",
                    step == k->gathered ? "copy-all" : "copy", (long long)step, dir);
        if (step == k->gathered)
            break; /* its files are of other ranks, and here are all */
    }
    return 0;
}

int mirror_copy(struct keep *k, int64_t *copying, struct err *err) {
    if (*copying && k->orders.pending[ORDER_COPY])
        return 0;
    if (*copying) {
        const int64_t step = *copying;
        *copying = 0;
        return agents_settle(k, ORDER_COPY, err) < 0 ||
                       copy_end(k->save, step, KEPT_ON_DISK, err) < 0
                   ? -1
                   : 1;
    }
    if (!k->mirrored || k->mirrored <= mirror_on_disk(k))
        return 0;
    if (order_copies(k, k->mirrored, err) < 0)
        return -1;
    *copying = k->mirrored;
    return 0;
}
