/* Plans for numbers of ranks that no file was given for: weft-search makes them while nothing runs, of the same
 * model, batch, optimizer and type, for a cluster like the plan's. */
#include "checkpoint/ckptdir.h"
#include "common/json.h"
#include "common/progress.h"
#include "common/rng.h"
#include "keep.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the fastest, in twentieths: what is less is slow, as STRAGGLER_RATIO has it. Restarts wait for searches, so what chance
 * does in a few steps is no reason for one. */
enum { ANSWER_S = 20, WORDS = 40, LEAST_SPEED = 15 };
#define BUDGET "1.5s"

/* Where a plan has no cluster: ranks of one thread on a CPU, as share/clusters/cpu-2.json describes them, and
 * Ethernet of 10 Gb/s. What is wrong in it makes a plan slower, not its result another. */
static json_t *cpu_cluster(const struct keep *k, int64_t ranks) {
    int64_t nodes = 0, most = 1;
    for (int64_t i = 0; i < k->hosts.n; i++) {
        const struct host *h = &k->hosts.p[i];
        nodes += !h->out;
        most = !h->out && h->slots > most ? h->slots : most;
    }
    if (nodes <= 1 || most > ranks) {
        nodes = 1;
        most = ranks;
    }
    json_t *links = json_pack("[{s:s, s:f, s:f}]", "level", "node", "bandwidth", 6e9,
                              "latency_us", 5.0);
    if (nodes > 1)
        json_array_append_new(links, json_pack("{s:s, s:f, s:f}", "level", "between",
                                               "bandwidth", 1.25e9, "latency_us", 50.0));
    return json_pack("{s:s, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:o}", "format",
                     "weft-cluster/1", "nodes", (json_int_t)nodes, "devices_per_node",
                     (json_int_t)most, "device", "cpu-1t", "flops", 118e9, "bandwidth",
                     15e9, "host_bandwidth", 7.5e9, "latency_us", 0.5, "links", links);
}

/* The plan's own, with as many nodes as the ranks need. */
static json_t *cluster_for(const struct keep *k, const json_t *plan, int64_t ranks) {
    json_t *c = json_object_get(plan, "cluster");
    int64_t each = 0, nodes = 1;
    if (!json_is_object(c))
        return cpu_cluster(k, ranks);
    c = json_deep_copy(c);
    json_opt_int(c, "nodes", 1, INT32_MAX, &nodes, NULL);
    if (json_opt_int(c, "devices_per_node", 1, INT32_MAX, &each, NULL) == 0 && each &&
        nodes * each < ranks)
        json_object_set_new(c, "nodes", json_integer((ranks + each - 1) / each));
    return c;
}

/* ---- hosts that differ --------------------------------------------------------------------- */

/* In twentieths of the fastest of those that the ranks are on; all 20 where nobody knows. Returns how many hosts. */
static int speeds_of(const struct keep *k, int64_t ranks, int *twentieths, int64_t *count) {
    double fastest = 0;
    int n = 0;
    for (int64_t i = 0; i < k->hosts.n; i++)
        if (!k->hosts.p[i].out && k->hosts.p[i].speed > fastest)
            fastest = k->hosts.p[i].speed;
    for (int64_t i = 0, left = ranks; i < k->hosts.n && left > 0; i++) {
        const struct host *h = &k->hosts.p[i];
        if (h->out)
            continue;
        const double share = h->speed > 0 ? h->speed / fastest : 1;
        count[n] = left < h->slots ? left : h->slots;
        left -= count[n];
        twentieths[n++] = share < 0.05 ? 1 : (int)(20 * share + 0.5);
    }
    return n;
}

uint64_t keep_speeds(const struct keep *k, int64_t ranks) {
    int *speed = mem_array((size_t)k->hosts.n, sizeof *speed), alike = 1;
    int64_t *count = mem_array((size_t)k->hosts.n, sizeof *count);
    const int n = speeds_of(k, ranks, speed, count);
    for (int i = 0; i < n; i++)
        alike &= speed[i] >= LEAST_SPEED;
    const uint64_t hash = alike ? 0 : hash_bytes(speed, (size_t)n * sizeof *speed, 1);
    free(speed);
    free(count);
    return hash;
}

/* A level between nodes, where the cluster has but one. */
static json_t *links_between(const json_t *cluster) {
    json_t *links = json_deep_copy(json_object_get(cluster, "links")), *last;
    if (!links)
        links = json_pack("[{s:s, s:f, s:f}]", "level", "node", "bandwidth", 6e9,
                          "latency_us", 5.0);
    last = json_array_get(links, json_array_size(links) - 1);
    const char *level = json_string_value(json_object_get(last, "level"));
    if (level && !strcmp(level, "node"))
        json_array_append_new(links, json_pack("{s:s, s:f, s:f}", "level", "between",
                                               "bandwidth", 1.25e9, "latency_us", 50.0));
    return links;
}

/* The same cluster with a group for each host. Takes it over. */
static json_t *with_speeds(const struct keep *k, json_t *cluster, int64_t ranks) {
    static const char *const of_device[] = {"device",         "device_model", "memory",
                                            "reserve",        "flops",        "bandwidth",
                                            "host_bandwidth", "latency_us"};
    if (!keep_speeds(k, ranks) || json_object_get(cluster, "groups"))
        return cluster;
    int *speed = mem_array((size_t)k->hosts.n, sizeof *speed);
    int64_t *count = mem_array((size_t)k->hosts.n, sizeof *count);
    const int n = speeds_of(k, ranks, speed, count);
    json_t *groups = json_array(), *v;
    for (int i = 0; i < n; i++) {
        json_t *g = json_pack("{s:i, s:I, s:f}", "nodes", 1, "devices",
                              (json_int_t)count[i], "speed", 0.05 * speed[i]);
        for (size_t d = 0; d < sizeof of_device / sizeof *of_device; d++)
            if ((v = json_object_get(cluster, of_device[d])))
                json_object_set(g, of_device[d], v);
        json_array_append_new(groups, g);
    }
    json_t *out = json_pack("{s:s, s:o, s:o}", "format", "weft-cluster/1", "groups", groups,
                            "links", links_between(cluster));
    json_decref(cluster);
    free(speed);
    free(count);
    return out;
}

/* ---- the search ---------------------------------------------------------------------------- */

struct words {
    const char *p[WORDS];
    int n;
};

static void add(struct words *w, const char *option, const char *value) {
    if (!value || !*value)
        return;
    w->p[w->n++] = option;
    w->p[w->n++] = value;
}

static void add_member(struct words *w, const char *option, const json_t *plan,
                       const char *key) {
    add(w, option, json_string_value(json_object_get(plan, key)));
}

/* What the search is given and gives, in the journal's folder. */
struct files {
    char *model, *cluster, *plan;
};

static struct files files_for(const struct keep *k, int64_t ranks) {
    char name[64];
    const uint64_t speeds = keep_speeds(k, ranks);
    if (speeds)
        snprintf(name, sizeof name, "plan-%lld-%04x.json", (long long)ranks,
                 (unsigned)(speeds & 0xffff));
    else
        snprintf(name, sizeof name, "plan-%lld.json", (long long)ranks);
    return (struct files){ckpt_join(k->shm, "model.json"),
                          ckpt_join(k->shm, "cluster.json"), ckpt_join(k->o.folder, name)};
}

static int write_inputs(const struct keep *k, const struct files *f, const json_t *plan,
                        int64_t ranks, struct err *err) {
    json_t *c = with_speeds(k, cluster_for(k, plan, ranks), ranks),
           *m = json_object_get(plan, "model");
    int rc = json_write_file(c, f->cluster, err);
    if (rc == 0 && json_is_object(m))
        rc = json_write_file(m, f->model, err);
    json_decref(c);
    return rc;
}

static int search(const struct keep *k, const struct files *f, const json_t *plan,
                  int64_t ranks, const char *from, struct err *err) {
    struct words w = {.n = 0};
    char n[24], batch[24], memory[24] = "", said[512];
    char *tool = keep_tool(k, "weft-search");
    const bool inline_model = json_is_object(json_object_get(plan, "model"));
    snprintf(n, sizeof n, "%lld", (long long)ranks);
    snprintf(batch, sizeof batch, "%lld",
             (long long)json_integer_value(json_object_get(plan, "batch")));
    add(&w, tool, "-q");
    if (inline_model)
        add(&w, "-m", f->model);
    else
        add_member(&w, "-m", plan, "model");
    add_member(&w, "--set", plan, "set");
    add_member(&w, "--optimizer", plan, "optimizer");
    add_member(&w, "--dtype", plan, "dtype");
    add(&w, "-b", batch);
    add(&w, "--devices", n);
    add(&w, "--cluster", f->cluster);
    add(&w, "-p", keep_option(k, "--profile"));
    if (k->rank_bytes > 0)
        snprintf(memory, sizeof memory, "%.0f", k->rank_bytes);
    add(&w, "--memory", memory);
    add(&w, "--from", from);
    add(&w, "--time-budget", BUDGET);
    add(&w, "-o", f->plan);
    int status = keep_ask(w.p, ANSWER_S, said, sizeof said);
    free(tool);
    if (status == EXIT_DONE)
        return 0;
    return err_no(err, "weft-search: %s", *said ? said : "no plan");
}

static void release(struct files *f) {
    unlink(f->cluster);
    unlink(f->model);
    free(f->model);
    free(f->cluster);
}

int keep_make_plan(struct keep *k, int64_t ranks, const char *from, struct err *err) {
    const double start = now_s();
    json_t *plan = json_read(k->plans.p[0].path, err);
    if (!plan)
        return -1;
    struct files f = files_for(k, ranks);
    const struct plan_file made = {
        .path = f.plan, .made_for = ranks, .speeds = keep_speeds(k, ranks)};
    int rc = write_inputs(k, &f, plan, ranks, err);
    if (rc == 0)
        rc = search(k, &f, plan, ranks, from, err);
    if (rc == 0)
        rc = keep_add_plan(k, &made, err);
    if (rc == 0)
        note("weft-keep: a plan for %lld of %lld ranks%s was found in %.1f s: %s",
             (long long)k->plans.p[k->plans.n - 1].ranks, (long long)ranks,
             made.speeds ? ", on hosts that differ," : "", now_s() - start, f.plan);
    json_decref(plan);
    release(&f);
    if (rc < 0)
        free(f.plan); /* else the list has it */
    return rc;
}

json_t *keep_prediction(const struct keep *k, const struct plan_file *p) {
    json_t *plan = json_read(p->path, NULL), *said = NULL;
    struct files f = files_for(k, p->ranks);
    char *out = ckpt_join(k->shm, "prediction.json"), *tool = keep_tool(k, "weft-predict");
    char text[256];
    struct words w = {.n = 0};
    add(&w, tool, "-o");
    w.p[w.n++] = out;
    add(&w, "--cluster", f.cluster);
    add(&w, "-p", keep_option(k, "--profile"));
    w.p[w.n++] = p->path;
    if (plan && write_inputs(k, &f, plan, p->ranks, NULL) == 0 &&
        keep_ask(w.p, ANSWER_S, text, sizeof text) == EXIT_DONE)
        said = json_read(out, NULL);
    json_decref(plan);
    unlink(out);
    release(&f);
    free(f.plan);
    free(out);
    free(tool);
    return said;
}

double keep_predict(const struct keep *k, const struct plan_file *p) {
    json_t *said = keep_prediction(k, p);
    const double us = json_number_value(json_object_get(said, "time_us"));
    json_decref(said);
    return us;
}
