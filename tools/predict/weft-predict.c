/* weft-predict - how long a step of a plan takes and what memory it needs, without running
 * it.
 *
 *     weft-predict -p profile.db plan.json | jq .time
 *
 * Plan to program, program through the simulator, result as one JSON document. */
#include "predict.h"

#include "common/opt.h"
#include "common/progress.h"

#include <stdio.h>
#include <string.h>

struct options {
    const char *profile, *plan, *cluster, *device, *trace, *trace_ranks, *output;
    bool text;
};

static int parse(struct options *o, int argc, char **argv, struct err *err) {
    *o = (struct options){.plan = "-", .trace_ranks = "first", .output = "-"};
    const struct opt options[] = {
        {'p', "profile", OPT_STR, "FILE", "the profile database", &o->profile},
        {0, "cluster", OPT_STR, "CLUSTER",
         "\"node:4 gpu:8\" or a file (one node holding all)", &o->cluster},
        {0, "device", OPT_STR, "KIND",
         "device kind (the cluster's, or the profile's only one)", &o->device},
        {0, "trace", OPT_STR, "FILE",
         "write the simulated timeline, in Chrome trace format", &o->trace},
        {0, "trace-ranks", OPT_STR, "WHICH",
         "first: one rank of each stage (the default); all", &o->trace_ranks},
        {0, "text", OPT_FLAG, NULL, "a table instead of JSON", &o->text},
        {'o', "output", OPT_STR, "FILE", "write to FILE instead of standard output",
         &o->output},
        {0},
    };
    const struct opt_tool tool = {
        "weft-predict", "-p FILE [options] [PLAN]",
        "Predicts time and memory of a training step under a plan.", options};
    int n = opt_parse(&tool, argc, argv, err);
    if (n < 0)
        return -1;
    if (n > 1)
        return err_usage(err, "expected one plan, got %d operands", n);
    if (n == 1)
        o->plan = argv[0];
    if (!o->profile)
        return err_usage(err, "no profile: name it with -p");
    if (strcmp(o->trace_ranks, "first") && strcmp(o->trace_ranks, "all"))
        return err_usage(err, "--trace-ranks: expected first or all, got \"%.32s\"",
                         o->trace_ranks);
    if (o->trace && !strcmp(o->trace, "-") && !strcmp(o->output, "-"))
        return err_usage(err, "--trace -: give the prediction another place with -o");
    return 0;
}

static int choose_cluster(struct predict *p, const struct options *o, struct err *err) {
    p->cluster = cluster_single_node(p->plan->devices);
    if (o->cluster && cluster_read(&p->cluster, o->cluster, err) < 0)
        return -1;
    if (cluster_devices(&p->cluster) < p->plan->devices)
        return err_input(err, "%s: the plan needs %d devices, the cluster has %lld",
                         strcmp(o->plan, "-") ? o->plan : "standard input",
                         p->plan->devices, (long long)cluster_devices(&p->cluster));
    return 0;
}

static int load_profile(struct predict *p, const struct options *o, struct err *err) {
    const char *device = o->device            ? o->device
                         : *p->cluster.device ? p->cluster.device
                                              : NULL;
    struct profile *db = profile_open(o->profile, false, err);
    if (!db)
        return -1;
    p->times = profile_load(db, device, err);
    profile_close(db);
    return p->times ? 0 : -1;
}

/* Missing keys are found before anything is drawn: costs are looked up for the estimate
 * first, which needs the same ones. */
static int simulate(struct predict *p, const struct options *o, struct err *err) {
    p->estimate_us = estimate_program_us(p->program, &p->cost);
    for (int t = 0; t < p->program->n_transfers; t++)
        cost_transfer(&p->cost, p->program, &p->program->transfers[t]);
    if (cost_check(&p->cost, o->profile, p->plan, err) < 0)
        return -1;
    if (!o->trace)
        return simulate_program(p->program, &p->cost, NULL, &p->sim, err);
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

static int predict(struct predict *p, const struct options *o, struct err *err) {
    p->plan = plan_read(o->plan, err);
    if (!p->plan || choose_cluster(p, o, err) < 0 || load_profile(p, o, err) < 0)
        return -1;
    p->program = program_compile(p->plan, err);
    if (!p->program)
        return -1;
    cost_init(&p->cost, p->times, &p->cluster);
    double start = now_s();
    if (simulate(p, o, err) < 0)
        return -1;
    note_verbose("weft-predict: %lld actions simulated in %.1f ms",
                 (long long)p->sim.actions, (now_s() - start) * 1e3);
    return o->text ? predict_write_text(p, o->output, err)
                   : predict_write_json(p, o->output, err);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct options o;
    struct predict p = {0};
    int rc = parse(&o, argc, argv, &err);
    if (rc == 0)
        rc = predict(&p, &o, &err);
    simulation_release(&p.sim);
    cost_release(&p.cost);
    program_destroy(p.program);
    profile_times_destroy(p.times);
    plan_destroy(p.plan);
    return rc < 0 ? err_report(&err, "weft-predict") : EXIT_DONE;
}
