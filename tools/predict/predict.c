/* The prediction as JSON and as a table. */
#include "predict.h"

#include "comm/comm_workspace.h"
#include "common/json.h"
#include "common/text.h"
#include "cuda/cuda_workspace.h"
#include "device/cpu_workspace.h"
#include "program/beside.h"

#include <stdio.h>

double predict_flops(const struct predict *p) {
    return model_step_flops(p->plan->model, p->plan->batch);
}

/* ---- JSON -------------------------------------------------------------------------- */

/* Nanoseconds are far below what is known: three digits behind the point are enough. */
static json_t *us(double x) {
    char buf[64];
    snprintf(buf, sizeof buf, "%.3f", x);
    double rounded = x;
    sscanf(buf, "%lf", &rounded);
    return json_real(rounded);
}

static void set(json_t *o, const char *key, json_t *v) {
    json_object_set_new(o, key, v);
}

static int64_t workspace(const struct predict *p, int stage) {
    static workspace_query *const floors[] = {cpu_workspace, comm_workspace, cuda_workspace,
                                              NULL};
    return workspace_total(
        &(struct workspace_site){p->program, stage, &p->cluster, p->threads}, floors);
}

/* What another runtime needs beside the arena; 0: it is weft's. */
static int64_t of_runtime(const struct predict *p, int stage) {
    return p->runtime ? runtime_bytes(p->runtime, p->program, stage) : 0;
}

static json_t *memory_json(const struct predict *p, const struct stage_program *sp) {
    json_t *o = json_object();
    for (int c = 0; c < MEM_COUNT; c++)
        set(o, memory_class_name((enum memory_class)c), json_integer(sp->bytes[c]));
    set(o, "total", json_integer(sp->arena_bytes));
    set(o, "workspace", json_integer(workspace(p, sp->stage)));
    set(o, "host", json_integer(sp->host_bytes));
    if (p->runtime)
        set(o, "runtime", json_integer(of_runtime(p, sp->stage)));
    return o;
}

static void add_stage_times(json_t *o, const struct sim_stage *s) {
    set(o, "forward_us", us(s->forward_us));
    set(o, "backward_us", us(s->backward_us));
    set(o, "weights_us", us(s->weights_us));
    set(o, "compute_us", us(s->compute_us));
    set(o, "collective_us", us(s->collective_us));
    set(o, "p2p_us", us(s->p2p_us));
    set(o, "update_us", us(s->update_us));
    set(o, "bubble_us", us(s->bubble_us));
}

static json_t *stage_json(const struct predict *p, int k) {
    const struct stage_program *sp = &p->program->stages[k];
    char mesh[256];
    mesh_format(sp->mesh, mesh, sizeof mesh);
    json_t *o = json_object();
    set(o, "mesh", json_string(mesh));
    if (p->plan->n_groups < p->plan->n_stages)
        set(o, "group", json_integer(p->plan->stages[k].group));
    set(o, "first_rank", json_integer(p->plan->stages[k].first_rank));
    set(o, "devices", json_integer(mesh_devices(sp->mesh)));
    set(o, "in_flight", json_integer(sp->in_flight));
    if (p->provider)
        add_stage_times(o, &p->sim.stages[k]);
    set(o, "memory", memory_json(p, sp));
    return o;
}

static json_t *cluster_json(const struct cluster *c) {
    json_t *o = json_object();
    set(o, "nodes", json_integer(cluster_nodes(c)));
    set(o, "devices", json_integer(cluster_devices(c)));
    return o;
}

/* The stage with the largest arena. */
static int fullest(const struct predict *p) {
    int k = 0;
    for (int i = 1; i < p->program->n_stages; i++)
        if (p->program->stages[i].arena_bytes > p->program->stages[k].arena_bytes)
            k = i;
    return k;
}

/* What ranks of the stage take of their devices beside the arena, as the runtime has it or,
 * for weft's own, as the cluster reserves it; 0 where nothing is reserved. */
static int64_t beside(const struct predict *p, int k) {
    static workspace_query *const floors[] = {cuda_workspace, NULL};
    if (p->runtime)
        return of_runtime(p, k);
    return beside_arena(&(struct workspace_site){p->program, k, &p->cluster, p->threads},
                        floors);
}

/* What an arena may have of the stage's devices, or 0 where the cluster does not say. */
static int64_t memory_limit(const struct predict *p, int k) {
    int64_t all = cluster_memory(&p->cluster, p->plan->stages[k].first_rank,
                                 mesh_devices(&p->plan->stages[k].mesh));
    int64_t left = all ? all - beside(p, k) : 0;
    return all && left < 1 ? 1 : left;
}

static const struct cluster_group *devices_of(const struct predict *p, int k) {
    return cluster_group_of(&p->cluster, p->plan->stages[k].first_rank);
}

/* Bytes by which the worst stage needs more than its devices have; below 0 it fits. */
static int64_t excess(const struct predict *p, int *stage) {
    int64_t most = INT64_MIN;
    for (int k = 0; k < p->program->n_stages; k++) {
        int64_t limit = memory_limit(p, k);
        int64_t over = p->program->stages[k].arena_bytes - limit;
        if (limit && over > most) {
            most = over;
            *stage = k;
        }
    }
    return most;
}

static double utilization(const struct predict *p, double rate) {
    double peak = cluster_flops(&p->cluster, p->plan->dtype, 0, p->plan->devices);
    return peak > 0 ? rate / peak : 0;
}

static void add_speed(json_t *o, const struct predict *p) {
    double flops = predict_flops(p), seconds = p->sim.time_us / 1e6;
    if (seconds <= 0)
        return;
    set(o, "samples_per_second", json_real((double)p->plan->batch / seconds));
    if (flops <= 0)
        return;
    set(o, "flops", json_real(flops));
    set(o, "flops_per_second", json_real(flops / seconds));
    if (utilization(p, 1) > 0)
        set(o, "utilization", json_real(utilization(p, flops / seconds)));
}

/* Bytes of what is reserved on the stage's devices, NCCL's for all of its communicators. */
static json_t *reserve_json(const struct predict *p, int k) {
    const struct reserve *r = &devices_of(p, k)->reserve;
    struct communicators n = program_communicators(p->program, k);
    json_t *o = json_object();
    for (int i = 0; i < RESERVE_COUNT; i++) {
        int64_t times = i == RESERVE_collectives ? n.collectives
                        : i == RESERVE_messages  ? n.messages
                                                 : 1;
        set(o, reserve_name((enum reserve_part)i), json_integer(times * r->bytes[i]));
    }
    return o;
}

static void add_memory(json_t *o, const struct predict *p) {
    int stage = -1, k = fullest(p);
    int64_t over = excess(p, &stage);
    set(o, "memory", json_integer(p->program->stages[k].arena_bytes));
    if (stage < 0)
        return;
    set(o, "memory_limit", json_integer(memory_limit(p, stage)));
    set(o, "fits", json_boolean(over <= 0));
    if (!p->runtime && reserve_fixed(&devices_of(p, stage)->reserve))
        set(o, "reserve", reserve_json(p, stage));
}

static json_t *share_json(const struct simulation *s) {
    json_t *o = json_object();
    for (int k = COST_UNKNOWN + 1; k < COST_SOURCES_COUNT; k++)
        if (s->share[k] > 0)
            set(o, cost_source_name((enum cost_source)k), json_real(s->share[k]));
    return o;
}

static void add_times(json_t *o, const struct predict *p) {
    set(o, "time", json_real(p->sim.time_us / 1e6));
    set(o, "time_us", us(p->sim.time_us));
    set(o, "low_us", us(p->sim.low_us));
    set(o, "high_us", us(p->sim.high_us));
    set(o, "norm_us", us(p->sim.norm_us));
    set(o, "estimate_us", us(p->estimate_us));
    set(o, "device", json_string(p->provider->device));
    set(o, "rests_on", share_json(&p->sim));
    add_speed(o, p);
}

json_t *predict_json(const struct predict *p) {
    json_t *o = json_object(), *stages = json_array(), *bound = json_object();
    for (int k = 0; k < p->program->n_stages; k++)
        json_array_append_new(stages, stage_json(p, k));
    if (p->provider)
        set(bound, "time", json_integer(p->sim.slowest));
    set(bound, "memory", json_integer(fullest(p)));
    set(o, "format", json_string("weft-prediction/1"));
    set(o, "devices", json_integer(p->plan->devices));
    set(o, "cluster", cluster_json(&p->cluster));
    set(o, "dtype", json_string(plan_dtype_name(p->plan->dtype)));
    if (p->runtime)
        set(o, "runtime", json_string(p->runtime->name));
    set(o, "schedule", json_string(schedule_name(p->plan->schedule)));
    set(o, "micro_batches", json_integer(plan_micro_batches(p->plan)));
    if (p->provider)
        add_times(o, p);
    add_memory(o, p);
    if (p->scenario)
        set(o, "scenario", predict_scenario_json(p));
    if (p->falls)
        set(o, "waterfall", predict_waterfall_json(p));
    set(o, "bound", bound);
    set(o, "stages", stages);
    return o;
}

/* ---- table ------------------------------------------------------------------------- */

static void print_speed(const struct predict *p, FILE *f) {
    double rate = predict_flops(p) / p->sim.time_us * 1e6;
    fprintf(f, "step    %s, %.4g samples/s", text_time(p->sim.time_us).s,
            (double)p->plan->batch / p->sim.time_us * 1e6);
    fprintf(f, ", %.4g Gflop/s", rate / 1e9);
    if (utilization(p, rate) > 0)
        fprintf(f, " (%.1f %% of the peak)", 100 * utilization(p, rate));
    fprintf(f, "\nbetween %s and %s", text_time(p->sim.low_us).s,
            text_time(p->sim.high_us).s);
    const char *comma = "; rests on";
    for (int k = COST_UNKNOWN + 1; k < COST_SOURCES_COUNT; k++)
        if (p->sim.share[k] > 0) {
            fprintf(f, "%s %s times for %.1f %%", comma,
                    cost_source_name((enum cost_source)k), 100 * p->sim.share[k]);
            comma = ",";
        }
    fputc('\n', f);
}

static void print_head(const struct predict *p, FILE *f) {
    int64_t nodes = cluster_node_of(&p->cluster, p->plan->devices - 1) + 1;
    if (p->provider)
        print_speed(p, f);
    fprintf(f, "devices %d", p->plan->devices);
    if (p->provider)
        fprintf(f, " of kind %s", p->provider->device);
    if (p->runtime)
        fprintf(f, " under %s", p->runtime->name);
    fprintf(f, " on %lld node%s\n", (long long)nodes, nodes > 1 ? "s" : "");
    long long waves = (long long)plan_micro_batches(p->plan);
    fprintf(f, "batch   %lld in %lld micro-batch%s, %s, %s\n", (long long)p->plan->batch,
            waves, waves == 1 ? "" : "es", schedule_name(p->plan->schedule),
            plan_dtype_name(p->plan->dtype));
    fputs("bounds  ", f);
    if (p->provider)
        fprintf(f, "time: stage %d, ", p->sim.slowest);
    fprintf(f, "memory: stage %d\n\n", fullest(p));
}

static void print_times(const struct predict *p, FILE *f) {
    char mesh[256];
    fprintf(f, "%5s %8s %10s %10s %10s %10s %10s  %s\n", "stage", "devices", "compute ms",
            "collective", "p2p", "update", "bubble", "mesh");
    for (int k = 0; k < p->sim.n_stages; k++) {
        const struct sim_stage *s = &p->sim.stages[k];
        mesh_format(p->program->stages[k].mesh, mesh, sizeof mesh);
        fprintf(f, "%5d %8d %10.2f %10.2f %10.2f %10.2f %10.2f  %s\n", k,
                mesh_devices(p->program->stages[k].mesh), s->compute_us / 1e3,
                s->collective_us / 1e3, s->p2p_us / 1e3, s->update_us / 1e3,
                s->bubble_us / 1e3, mesh);
    }
    fputc('\n', f);
}

/* What some stage keeps in the memory of its devices' hosts; else 0. */
static int64_t most_on_host(const struct predict *p) {
    int64_t most = 0;
    for (int k = 0; k < p->program->n_stages; k++)
        if (p->program->stages[k].host_bytes > most)
            most = p->program->stages[k].host_bytes;
    return most;
}

/* "of 79.18 GiB an arena of stage 0 may have 77.90 GiB; reserved are context ...". */
static void print_reserve(const struct predict *p, int k, FILE *f) {
    const struct cluster_group *g = devices_of(p, k);
    const struct workspace_site at = {p->program, k, &p->cluster, p->threads};
    struct communicators n = program_communicators(p->program, k);
    int64_t nccl = beside_communicators(&at);
    char parts[160];
    reserve_format(&g->reserve, parts, sizeof parts);
    fprintf(f, "\nof a device's %s the arena of stage %d may have %s; reserved: %s",
            text_bytes((double)g->memory_bytes).s, k,
            text_bytes((double)memory_limit(p, k)).s, parts);
    if (nccl)
        fprintf(f, ", NCCL %s (%lld communicators)", text_bytes((double)nccl).s,
                (long long)(n.collectives + n.messages));
    fputc('\n', f);
}

static void print_memory(const struct predict *p, FILE *f) {
    bool host = most_on_host(p) > 0;
    fprintf(f, "%5s %9s %9s", "stage", "in flight", "total MiB");
    for (int c = 0; c < MEM_COUNT; c++)
        fprintf(f, " %11s", memory_class_name((enum memory_class)c));
    fprintf(f, " %11s%s\n", "+workspace", host ? "       +host" : "");
    for (int k = 0; k < p->program->n_stages; k++) {
        const struct stage_program *sp = &p->program->stages[k];
        fprintf(f, "%5d %9lld %9.1f", k, (long long)sp->in_flight,
                (double)sp->arena_bytes / 1048576);
        for (int c = 0; c < MEM_COUNT; c++)
            fprintf(f, " %11.1f", (double)sp->bytes[c] / 1048576);
        fprintf(f, " %11.1f", (double)workspace(p, k) / 1048576);
        if (host)
            fprintf(f, " %11.1f", (double)sp->host_bytes / 1048576);
        fputc('\n', f);
    }
    int stage = -1;
    int64_t over = excess(p, &stage);
    if (stage >= 0 && !p->runtime && reserve_fixed(&devices_of(p, stage)->reserve))
        print_reserve(p, stage, f);
    if (stage >= 0 && over > 0)
        fprintf(f, "\nstage %d needs %s more than a device has\n", stage,
                text_bytes((double)over).s);
}

void predict_text(const struct predict *p, FILE *f) {
    print_head(p, f);
    if (p->provider)
        print_times(p, f);
    print_memory(p, f);
    if (p->falls)
        predict_waterfall_text(p, f);
    if (p->scenario)
        predict_scenario_text(p, f);
}
