/* weft-search --cost aceso:FOLDER: the search over Aceso's tables (lib/aceso), and its configurations as
 * files or for people. */
#include "search_aceso.h"

#include "aceso/aceso_config.h"
#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "common/text.h"
#include "search_tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1 << 20;

static struct {
    char *set;
    const char *model, *cost, *cluster, *micro, *algorithm, *out;
    int64_t devices, memory, batch, top, max_stages;
    double time_budget;
    bool text, explain, pareto;
} o = {.algorithm = "auto",
       .out = "-",
       .devices = -1, /* of numbers below 0, and NAN: not given */
       .memory = -1,
       .batch = -1,
       .top = 1,
       .max_stages = -1,
       .time_budget = NAN};

/* Those of weft-search that mean something here. */
static const struct opt options[] = {
    {'m', "model", OPT_STR, "MODEL", "gpt:1.3B, t5:770M, wide-resnet:1B", &o.model},
    {0, "set", OPT_LIST, "LIST", "layers=N", &o.set},
    {0, "cost", OPT_STR, "TABLES", "aceso:FOLDER", &o.cost},
    {0, "devices", OPT_INT, "N", "devices to use (all of the cluster)", &o.devices},
    {0, "cluster", OPT_STR, "CLUSTER", "\"node:4 gpu:8\" or a file (one node)", &o.cluster},
    {0, "memory", OPT_BYTES, "BYTES", "memory of a device (the cluster's)", &o.memory},
    {'b', "global-batch", OPT_INT, "N", "samples per step", &o.batch},
    {0, "micro-batch", OPT_STR, "LIST", "micro-batches to consider", &o.micro},
    {'a', "algorithm", OPT_STR, "NAME", "auto or dp, which are one", &o.algorithm},
    {0, "max-stages", OPT_INT, "N", "pipeline stages at most (16)", &o.max_stages},
    {0, "top", OPT_INT, "K", "the K best that were seen", &o.top},
    {0, "time-budget", OPT_TIME, "TIME", "stop after this long", &o.time_budget},
    {'o', "output", OPT_STR, "FILE", "write here", &o.out},
    {0, "text", OPT_FLAG, NULL, "a summary for people", &o.text},
    {0, "explain", OPT_FLAG, NULL, "why this configuration", &o.explain},
    {0, "pareto", OPT_FLAG, NULL, "the front of time against memory", &o.pareto},
    {0}};
static const struct opt_tool tool = {"weft-search", "--cost aceso:FOLDER", "", options};

/* ---- for people ----------------------------------------------------------------------------- */

struct range {
    int least, most;
};

static void widen(struct range *r, int v) {
    r->least = v < r->least ? v : r->least;
    r->most = v > r->most ? v : r->most;
}

/* "4", "1..4" */
static const char *range_text(struct range r, char *buf, size_t n) {
    snprintf(buf, n, r.least == r.most ? "%d" : "%d..%d", r.least, r.most);
    return buf;
}

/* What ops first .. end - 1 have; returns how many are marked for recomputation. */
static int count_ops(const struct aceso_config *c, int first, int end, struct range *tp,
                     struct range *dp) {
    int marks = 0;
    *tp = *dp = (struct range){INT32_MAX, 0};
    for (int i = first; i < end; i++) {
        widen(tp, c->layout[i].tp);
        widen(dp, c->layout[i].dp);
        marks += c->recompute[i];
    }
    return marks;
}

const char *search_aceso_words(const struct aceso_config *c, char *buf, size_t n) {
    struct range tp, dp;
    char tps[32], dps[32];
    int marks = count_ops(c, 0, c->n_ops, &tp, &dp);
    snprintf(buf, n,
             "pp %d, dp %s, tp %s, %d ops marked for recomputation, micro-batch %lld",
             c->n_stages, range_text(dp, dps, sizeof dps), range_text(tp, tps, sizeof tps),
             marks, (long long)c->micro_batch);
    return buf;
}

static void print_text(FILE *f, int i, const struct aceso_plan *plan) {
    const struct aceso_config *c = plan->config;
    fprintf(f, "%splan %d: a step takes %s, the fullest device holds %s\n", i ? "\n" : "",
            i + 1, text_time(plan->cost.us).s, text_bytes(plan->cost.mib * MIB).s);
    fprintf(f, "  micro-batch %lld of %lld\n", (long long)c->micro_batch,
            (long long)c->batch);
    for (int s = 0; s < c->n_stages; s++) {
        struct range tp, dp;
        char tps[32], dps[32];
        int marks = count_ops(c, c->first[s], c->first[s + 1], &tp, &dp);
        fprintf(f, "  stage %d: %d ops on %d device%s, tp:%s dp:%s", s,
                c->first[s + 1] - c->first[s], c->devices[s], c->devices[s] > 1 ? "s" : "",
                range_text(tp, tps, sizeof tps), range_text(dp, dps, sizeof dps));
        if (marks)
            fprintf(f, ", %d marked for recomputation", marks);
        fputc('\n', f);
    }
}

static void print_notes(const struct aceso_result *r) {
    const struct aceso_step_cost *best = &r->plans[0].cost;
    note(
        "weft-search: %lld rows of stages solved in %.2f s%s; all costs are those of aceso",
        (long long)r->solved, r->seconds,
        r->complete ? "" : " (stopped early: the best so far)");
    /* The configuration has no room for its time, so this is exact. */
    note("weft-search: a step takes %.3f ms, the fullest device holds %s", best->us / 1e3,
         text_bytes(best->mib * MIB).s);
    if (r->bound_us > 0)
        note("weft-search: no plan takes less than %s, gap %.2f %%",
             text_time(r->bound_us).s, 100 * (1 - r->bound_us / best->us));
}

/* ---- --pareto ------------------------------------------------------------------------------- */

/* One line of the front. */
static void write_point(const struct aceso_problem *p, const struct aceso_plan *plan,
                        FILE *f) {
    char words[WORDS_LINE];
    json_t *line = json_pack("{s:f, s:I, s:s, s:o}", "time", plan->cost.us / 1e6, "memory",
                             (json_int_t)ceil(plan->cost.mib * MIB), "words",
                             search_aceso_words(plan->config, words, sizeof words), "plan",
                             aceso_config_json(p->model, plan->config));
    json_dumpf(line, f, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', f);
    json_decref(line);
}

/* The fastest configuration, the fastest that needs less than that, and so on, in steps of a sixteenth
 * of the memory at least (the epsilon-constraint method, Haimes et al. 1971). A search with less
 * memory may find what one with more has missed; then the slower one goes. */
static int pareto(const struct aceso_problem *p, FILE *f, struct err *err) {
    struct aceso_problem now = *p;
    ARR(struct aceso_result) front = {0};
    struct aceso_result r;
    struct err last = {0};
    now.top = 1;
    while (!aceso_stopped(p) && aceso_search(&now, &r, &last) == 0) {
        const struct aceso_step_cost *cost = &r.plans[0].cost;
        note("weft-search: %s in %s", text_time(cost->us).s, text_bytes(cost->mib * MIB).s);
        now.limits.mib = cost->mib - cost->mib / 16;
        while (front.n && arr_last(&front).plans[0].cost.us >= cost->us)
            aceso_result_release(&front.p[--front.n]);
        arr_push(&front, r);
    }
    int rc = front.n ? 0 : -1;
    if (rc < 0)
        *err = last;
    for (int64_t i = 0; i < front.n; i++) {
        write_point(p, &front.p[i].plans[0], f);
        aceso_result_release(&front.p[i]);
    }
    arr_release(&front);
    return rc;
}

/* ---- the search ----------------------------------------------------------------------------- */

static int search(const struct aceso_problem *p, FILE *f, struct err *err) {
    struct aceso_result r;
    if (o.pareto)
        return pareto(p, f, err);
    if (aceso_search(p, &r, err) < 0)
        return -1;
    print_notes(&r);
    int rc = o.explain ? search_aceso_explain(p, &r.plans[0], f, err) : 0;
    for (int i = 0; i < r.n && !o.explain; i++) {
        json_t *doc = aceso_config_json(p->model, r.plans[i].config);
        if (o.text)
            print_text(f, i, &r.plans[i]);
        else
            json_write(doc, f);
        json_decref(doc);
    }
    aceso_result_release(&r);
    return rc;
}

static int search_to_file(const struct aceso_problem *p, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, o.out, err) < 0)
        return -1;
    if (search(p, out.f, err) == 0)
        return file_out_close(&out, err);
    file_out_abort(&out);
    return -1;
}

/* ---- what is asked for ---------------------------------------------------------------------- */

/* Micro-batches as they are asked for, or all that were measured and divide the batch. */
struct micro {
    ARR(int64_t) list;
};
static int read_micro(const struct aceso_problem *p, struct micro *out, struct err *err) {
    const struct aceso_tables *t = &p->model->tables;
    for (int i = 0; i < t->n_mbs && !o.micro; i++)
        if (p->batch % t->mbs[i] == 0)
            arr_push(&out->list, t->mbs[i]);
    if (!o.micro && !out->list.n)
        return err_no(err, "no micro-batch that was measured divides the batch of %lld",
                      (long long)p->batch);
    for (const char *s = o.micro; s;) {
        char *end;
        long long b = *s >= '0' && *s <= '9' ? strtoll(s, &end, 10) : 0;
        if (b < 1 || (*end && *end != ','))
            return err_usage(
                err, "--micro-batch: expected numbers such as 1,2,4, got \"%s\"", o.micro);
        if (p->batch % b)
            return err_usage(err, "--micro-batch: %lld does not divide the batch of %lld",
                             b, (long long)p->batch);
        arr_push(&out->list, b);
        s = *end ? end + 1 : NULL;
    }
    return 0;
}

static int check_options(struct err *err) {
    const struct {
        int64_t value;
        const char *name;
    } positive[] = {{o.devices, "devices"},
                    {o.memory, "memory"},
                    {o.max_stages, "max-stages"},
                    {o.top, "top"},
                    {o.batch, "global-batch"}};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value == 0)
            return err_usage(err, "--%s: expected at least 1, got 0", positive[i].name);
    if (o.text + o.explain + o.pareto > 1)
        return err_usage(err, "--text, --explain, --pareto: only one of them");
    if (!o.model)
        return opt_missing("-m MODEL", err);
    if (o.batch < 1)
        return opt_missing("--global-batch N", err);
    if (o.top > 1000)
        return err_usage(err, "--top: %lld is not in 1..1000", (long long)o.top);
    if (strcmp(o.algorithm, "auto") != 0 && strcmp(o.algorithm, "dp") != 0)
        return err_usage(err, "--algorithm: with --cost aceso there is dp, got \"%s\"",
                         o.algorithm);
    return 0;
}

static int set_devices(struct aceso_problem *p, struct err *err) {
    struct cluster c = cluster_single_node(o.devices);
    if (o.cluster && cluster_read(&c, o.cluster, err) < 0)
        return -1;
    if (!o.cluster && o.devices < 1)
        return opt_missing("--devices N or --cluster CLUSTER", err);
    if (c.n_groups > 1)
        return err_usage(err, "--cluster: with --cost all nodes are alike");
    int64_t all = cluster_devices(&c), devices = o.devices > 0 ? o.devices : all;
    if (devices > all || devices > 1 << 14)
        return err_usage(err, "--devices: %lld, but the cluster has %lld",
                         (long long)devices, (long long)all);
    int64_t bytes = o.memory > 0 ? o.memory : cluster_most_memory(&c, 0, devices);
    p->devices = (int)devices;
    p->per_node = (int)c.groups[0].devices;
    p->limits.mib = bytes > 0 ? (double)bytes / MIB : INFINITY;
    return 0;
}

static int run(struct err *err) {
    static const char prefix[] = "aceso:";
    struct aceso_problem p = {0};
    struct micro micro = {{0}};
    int rc = -1;
    if (strncmp(o.cost, prefix, strlen(prefix)) != 0 || !o.cost[strlen(prefix)])
        return err_usage(err, "--cost: expected aceso:FOLDER, got \"%s\"", o.cost);
    if (check_options(err) < 0 || set_devices(&p, err) < 0)
        return -1;
    struct aceso_model *m = aceso_model_open(o.cost + strlen(prefix), o.model, o.set, err);
    p.model = m;
    p.batch = o.batch;
    p.max_stages =
        o.max_stages > 0 ? (int)fmin((double)o.max_stages, ACESO_MOST_STAGES) : 0;
    p.top = (int)o.top;
    p.deadline_s = isnan(o.time_budget) ? 0 : now_s() + o.time_budget;
    if (m && read_micro(&p, &micro, err) == 0) {
        p.micro = micro.list.p;
        p.n_micro = (int)micro.list.n;
        interrupt_catch();
        rc = search_to_file(&p, err);
    }
    arr_release(&micro.list);
    aceso_model_close(m);
    return rc;
}

int search_aceso(int argc, char **argv, struct err *err) {
    int rc = opt_parse(&tool, argc, argv, err);
    rc = rc < 0 ? err_prefix(err, "with --cost") : run(err);
    free(o.set);
    return rc;
}
