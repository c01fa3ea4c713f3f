/* Plans for numbers of ranks that no file was given for: weft-search makes them while nothing runs, of the same
 * model, batch, optimizer and type, for a cluster like the plan's. */
#include "checkpoint/ckptdir.h"
#include "common/json.h"
#include "common/progress.h"
#include "keep.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_S = 20, WORDS = 32 };
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
    snprintf(name, sizeof name, "plan-%lld.json", (long long)ranks);
    return (struct files){ckpt_join(k->shm, "model.json"),
                          ckpt_join(k->shm, "cluster.json"), ckpt_join(k->o.folder, name)};
}

static int write_inputs(const struct keep *k, const struct files *f, const json_t *plan,
                        int64_t ranks, struct err *err) {
    json_t *c = cluster_for(k, plan, ranks), *m = json_object_get(plan, "model");
    int rc = json_write_file(c, f->cluster, err);
    if (rc == 0 && json_is_object(m))
        rc = json_write_file(m, f->model, err);
    json_decref(c);
    return rc;
}

static int search(const struct keep *k, const struct files *f, const json_t *plan,
                  int64_t ranks, struct err *err) {
    struct words w = {.n = 0};
    char n[24], batch[24], said[512];
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
    add(&w, "--time-budget", BUDGET);
    add(&w, "-o", f->plan);
    int status = keep_ask(w.p, ANSWER_S, said, sizeof said);
    free(tool);
    if (status == EXIT_DONE)
        return 0;
    return err_no(err, "weft-search: %s", *said ? said : "no plan");
}

int keep_make_plan(struct keep *k, int64_t ranks, struct err *err) {
    const double start = now_s();
    json_t *plan = json_read(k->plans.p[0].path, err);
    if (!plan)
        return -1;
    struct files f = files_for(k, ranks);
    int rc = write_inputs(k, &f, plan, ranks, err);
    if (rc == 0)
        rc = search(k, &f, plan, ranks, err);
    if (rc == 0)
        rc = keep_add_plan(k, f.plan, ranks, err);
    if (rc == 0)
        note("weft-keep: a plan for %lld of %lld ranks was found in %.1f s: %s",
             (long long)k->plans.p[k->plans.n - 1].ranks, (long long)ranks, now_s() - start,
             f.plan);
    json_decref(plan);
    unlink(f.cluster);
    unlink(f.model);
    free(f.model);
    free(f.cluster);
    if (rc < 0)
        free(f.plan); /* else the list has it */
    return rc;
}
