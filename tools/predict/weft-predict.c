/* weft-predict - how long a step of a plan takes and what memory it needs, without running
 * it.
 *
 *     weft-predict -p profile.db plan.json | jq .time
 *
 * Plan to program, program through the simulator, result as one JSON document; and so for every
 * plan that stands in the input. */
#include "predict.h"

#include "common/file.h"
#include "common/opt.h"
#include "common/progress.h"
#include "cost/chakra.h"
#include "program/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *profile, *plan, *cluster, *device, *runtime, *scenario, *trace,
        *trace_ranks, *chakra, *output;
    bool text, memory, datasheets, schedule, waterfall;
};

static int check_options(const struct options *o, struct err *err) {
    if (strcmp(o->trace_ranks, "first") && strcmp(o->trace_ranks, "all"))
        return err_usage(err, "--trace-ranks: expected first or all, got \"%.32s\"",
                         o->trace_ranks);
    if (o->trace && !strcmp(o->trace, "-") && !strcmp(o->output, "-"))
        return err_usage(err, "--trace -: send the prediction elsewhere with -o");
    if (o->memory &&
        (o->trace || o->chakra || o->datasheets || o->scenario || o->waterfall))
        return err_usage(err, "--memory: needs no times, so no %s",
                         o->trace       ? "--trace"
                         : o->chakra    ? "--chakra"
                         : o->scenario  ? "--scenario"
                         : o->waterfall ? "--waterfall"
                                        : "--datasheets");
    return 0;
}

static int parse(struct options *o, int argc, char **argv, struct err *err) {
    *o = (struct options){.plan = "-", .trace_ranks = "first", .output = "-"};
    const struct opt options[] = {
        {'p', "profile", OPT_STR, "FILE",
         "the profile database (without: datasheets alone)", &o->profile},
        {0, "cluster", OPT_STR, "CLUSTER",
         "\"node:4 gpu:8\" or a file (the plan's, or one node)", &o->cluster},
        {0, "device", OPT_STR, "KIND",
         "device kind (the cluster's, or the profile's only one)", &o->device},
        {0, "runtime", OPT_STR, "NAME",
         "whose code runs the plan: weft (the default), megatron, ... or a file",
         &o->runtime},
        {0, "scenario", OPT_STR, "FILE",
         "what goes wrong: stragglers, slow links, failures", &o->scenario},
        {0, "datasheets", OPT_FLAG, NULL,
         "take what the profile lacks from the cluster's datasheets", &o->datasheets},
        {0, "waterfall", OPT_FLAG, NULL,
         "where the time of a step goes, from the peak of the devices down", &o->waterfall},
        {0, "memory", OPT_FLAG, NULL, "predict memory alone", &o->memory},
        {0, "schedule", OPT_FLAG, NULL, "print the order of every device group, and stop",
         &o->schedule},
        {0, "trace", OPT_STR, "FILE",
         "write the simulated timeline, in Chrome trace format", &o->trace},
        {0, "trace-ranks", OPT_STR, "WHICH",
         "first: one rank of each group (the default); all", &o->trace_ranks},
        {0, "chakra", OPT_STR, "DIR",
         "write what every rank does, with times, as Chakra execution traces", &o->chakra},
        {0, "text", OPT_FLAG, NULL, "a table instead of JSON", &o->text},
        {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output",
         &o->output},
        {0},
    };
    const struct opt_tool tool = {
        "weft-predict", "[-p FILE] [options] [PLAN]",
        "Predict time and memory of a training step under a plan.", options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n > 1)
        return err_usage(err, "expected one plan, got %d operands", n);
    if (n == 1)
        o->plan = argv[0];
    return check_options(o, err);
}

static const char *plan_name(const struct options *o) {
    return strcmp(o->plan, "-") ? o->plan : "standard input";
}

/* The one that is asked for, else the one that the plan was made for. */
static int choose_cluster(struct predict *p, const struct options *o, struct err *err) {
    p->cluster =
        p->plan->cluster ? *p->plan->cluster : cluster_single_node(p->plan->devices);
    if (o->cluster && cluster_read(&p->cluster, o->cluster, err) < 0)
        return -1;
    if (cluster_devices(&p->cluster) < p->plan->devices)
        return err_input(err, "%s: the plan needs %d devices, the cluster has %lld",
                         plan_name(o), p->plan->devices,
                         (long long)cluster_devices(&p->cluster));
    return 0;
}

/* Without a profile there are the cluster's datasheets; without them there is memory alone. */
static int choose_provider(struct predict *p, const struct options *o, struct err *err) {
    if (o->memory)
        return 0;
    bool datasheets = o->datasheets || !o->profile;
    p->provider = provider_open(o->profile, o->device, &p->cluster, datasheets, err);
    if (p->provider && !o->profile &&
        provider_check_dtype(&p->cluster, p->plan->dtype, err) < 0) {
        provider_destroy(p->provider);
        p->provider = NULL;
    }
    if (p->provider || o->profile || o->datasheets || o->trace || o->chakra || o->device ||
        o->scenario || o->waterfall)
        return p->provider ? 0 : -1;
    note("weft-predict: memory alone: no profile, and %s", err->msg);
    *err = (struct err){0};
    return 0;
}

/* Times as the code takes them that runs the plan. */
static int choose_runtime(struct predict *p, const struct options *o, struct err *err) {
    if (!o->runtime || !strcmp(o->runtime, "weft"))
        return 0;
    p->runtime = runtime_read(o->runtime, err);
    if (!p->runtime)
        return -1;
    if (p->provider)
        p->provider = provider_runtime(p->runtime, p->provider);
    return 0;
}

/* Its goodput is worth nothing without times. */
static int choose_scenario(struct predict *p, const struct options *o, struct err *err) {
    if (!o->scenario)
        return 0;
    if (!p->provider)
        return err_input(err, "--scenario: there are no times to go wrong");
    p->scenario = scenario_read(o->scenario, err);
    return p->scenario ? 0 : -1;
}

static void list_missing(const struct cost *c) {
    char key[160];
    for (int64_t i = 0; i < c->n_missing; i++)
        note_verbose("missing: %s, needed %lld times",
                     cost_key_format(&c->missing[i], key, sizeof key),
                     (long long)c->missing[i].count);
}

static int simulate_traced(struct predict *p, const struct options *o, struct err *err) {
    struct trace *trace = trace_open(o->trace, err);
    if (!trace)
        return -1;
    struct sim_trace st = {trace, !strcmp(o->trace_ranks, "all")};
    if (simulate_program(p->program, &p->cost, &st, &p->sim, err) < 0) {
        trace_abort(trace);
        return -1;
    }
    return trace_close(trace, err);
}

static int write_chakra(struct predict *p, const struct options *o, struct err *err) {
    struct chakra_counts n;
    if (chakra_write(o->chakra, p->program, &p->cost, &n, err) < 0)
        return err_prefix(err, "--chakra");
    note(
        "weft-predict: %s: %d ranks, %lld nodes, %lld collectives, %lld messages of %lld bytes",
        o->chakra, p->plan->devices, (long long)n.nodes, (long long)n.collectives,
        (long long)n.messages, (long long)n.message_bytes);
    return 0;
}

/* Missing keys are found before anything is drawn. */
static int simulate(struct predict *p, const struct options *o, struct err *err) {
    cost_program(&p->cost, p->program);
    p->estimate_us = estimate_program_us(p->program, &p->cost);
    list_missing(&p->cost);
    if (cost_check(&p->cost, o->profile, o->plan, p->plan, err) < 0)
        return -1;
    double start = now_s();
    int rc = o->trace ? simulate_traced(p, o, err)
                      : simulate_program(p->program, &p->cost, NULL, &p->sim, err);
    note_verbose("weft-predict: %lld actions simulated in %.1f ms",
                 (long long)p->sim.actions, (now_s() - start) * 1e3);
    if (rc == 0 && o->chakra)
        rc = write_chakra(p, o, err);
    if (rc == 0 && p->scenario)
        rc = scenario_simulate(p->scenario, p->program, &p->cost, &p->steps, err);
    p->falls = o->waterfall;
    if (rc == 0 && p->falls)
        rc = waterfall_find(p->program, &p->cost, &p->sim, predict_flops(p), &p->waterfall,
                            err);
    return rc;
}

/* "cpu-2t" computes with two threads. */
static int threads_of(const struct predict *p, const struct options *o) {
    const char *device = p->provider ? p->provider->device : o->device ? o->device : "";
    int threads = 1;
    return sscanf(device, "cpu-%dt", &threads) == 1 && threads > 0 ? threads : 1;
}

static int predict(struct predict *p, const struct options *o, struct err *err) {
    if (choose_cluster(p, o, err) < 0 || choose_provider(p, o, err) < 0 ||
        choose_runtime(p, o, err) < 0 || choose_scenario(p, o, err) < 0)
        return -1;
    p->program = program_compile(p->plan, err);
    if (!p->program || (p->runtime && runtime_check(p->runtime, p->program, err) < 0))
        return -1;
    p->threads = threads_of(p, o);
    cost_init(&p->cost, p->provider, &p->cluster);
    p->cost.whole_recompute = p->runtime && p->runtime->whole_recompute;
    return p->provider ? simulate(p, o, err) : 0;
}

static void release(struct predict *p) {
    simulation_release(&p->sim);
    cost_release(&p->cost);
    program_destroy(p->program);
    provider_destroy(p->provider);
    free(p->runtime);
    free(p->scenario);
    plan_destroy(p->plan);
}

static void write_prediction(const struct predict *p, const struct options *o, FILE *f) {
    if (o->text) {
        predict_text(p, f);
        return;
    }
    json_t *doc = predict_json(p);
    json_write(doc, f);
    json_decref(doc);
}

/* "stages 1, 3: F0.1 F1.1 ..." */
static void print_schedule(const struct plan *p, FILE *f) {
    char name[256];
    for (int k = 0; k < p->n_groups; k++) {
        plan_group_name(p, k, name, sizeof name);
        fprintf(f, "%s: ", name);
        schedule_print(p, k, true, f);
    }
}

static int predict_document(const json_t *doc, const struct options *o, FILE *f,
                            struct err *err) {
    struct predict p = {.plan = plan_from_json(doc, err)};
    int rc = p.plan ? 0 : err_prefix(err, "%s", plan_name(o));
    if (rc == 0 && o->schedule)
        print_schedule(p.plan, f);
    else if (rc == 0 && (rc = predict(&p, o, err)) == 0)
        write_prediction(&p, o, f);
    release(&p);
    return rc;
}

/* All plans of the text, one after the other. */
static int predict_all(const char *text, size_t size, const struct options *o, FILE *f,
                       struct err *err) {
    int line = 0, n = 0, rc = 0;
    for (json_t *doc;
         rc == 0 && (doc = json_parse_next(&text, &size, &line, plan_name(o), err));
         json_decref(doc)) {
        if ((o->trace || o->chakra) && size)
            rc = err_usage(err, "--%s: expected one plan, got several",
                           o->trace ? "trace" : "chakra");
        if (rc == 0)
            rc = predict_document(doc, o, f, err);
        n++;
    }
    if (rc == 0 && !err->status && !n)
        return err_input(err, "%s: expected a plan, got nothing", plan_name(o));
    return rc == 0 && err->status ? -1 : rc;
}

static int run(const struct options *o, struct err *err) {
    struct file_out out;
    size_t size;
    char *text = file_read(o->plan, 0, &size, err);
    if (!text)
        return -1;
    int rc = file_out_open(&out, o->output, err);
    if (rc == 0 && predict_all(text, size, o, out.f, err) < 0) {
        file_out_abort(&out);
        rc = -1;
    } else if (rc == 0) {
        rc = file_out_close(&out, err);
    }
    free(text);
    return rc;
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct options o;
    int rc = parse(&o, argc, argv, &err);
    if (rc == 0)
        rc = run(&o, &err);
    return rc < 0 ? err_report(&err, "weft-predict") : EXIT_DONE;
}
