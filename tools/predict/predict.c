/* The prediction as JSON and as a table. */
#include "predict.h"

#include "common/file.h"
#include "common/json.h"

#include <stdio.h>

double predict_flops(const struct predict *p) {
    return 3 * model_forward_flops(p->plan->model, p->plan->batch);
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

static json_t *memory_json(const struct stage_program *sp) {
    json_t *o = json_object();
    for (int c = 0; c < MEM_COUNT; c++)
        set(o, memory_class_name((enum memory_class)c), json_integer(sp->bytes[c]));
    set(o, "total", json_integer(sp->arena_bytes));
    return o;
}

static json_t *stage_json(const struct predict *p, int k) {
    const struct stage_program *sp = &p->program->stages[k];
    const struct sim_stage *s = &p->sim.stages[k];
    char mesh[256];
    mesh_format(sp->mesh, mesh, sizeof mesh);
    json_t *o = json_object();
    set(o, "mesh", json_string(mesh));
    set(o, "first_rank", json_integer(p->plan->stages[k].first_rank));
    set(o, "devices", json_integer(mesh_devices(sp->mesh)));
    set(o, "in_flight", json_integer(sp->slots));
    set(o, "forward_us", us(s->forward_us));
    set(o, "backward_us", us(s->backward_us));
    set(o, "compute_us", us(s->compute_us));
    set(o, "collective_us", us(s->collective_us));
    set(o, "p2p_us", us(s->p2p_us));
    set(o, "update_us", us(s->update_us));
    set(o, "bubble_us", us(s->bubble_us));
    set(o, "memory", memory_json(sp));
    return o;
}

static json_t *cluster_json(const struct cluster *c) {
    json_t *o = json_object();
    set(o, "nodes", json_integer(c->nodes));
    set(o, "devices_per_node", json_integer(c->devices_per_node));
    return o;
}

static int64_t memory_bytes(const struct predict *p) {
    return p->program->stages[p->sim.fullest].arena_bytes;
}

static void add_speed(json_t *o, const struct predict *p) {
    double flops = predict_flops(p), seconds = p->sim.time_us / 1e6;
    if (flops <= 0 || seconds <= 0)
        return;
    set(o, "flops", json_real(flops));
    set(o, "flops_per_second", json_real(flops / seconds));
    if (p->cluster.flops > 0)
        set(o, "utilization",
            json_real(flops / seconds / (p->cluster.flops * p->plan->devices)));
}

static void add_memory(json_t *o, const struct predict *p) {
    set(o, "memory", json_integer(memory_bytes(p)));
    if (p->cluster.memory_bytes) {
        set(o, "memory_limit", json_integer(p->cluster.memory_bytes));
        set(o, "fits", json_boolean(memory_bytes(p) <= p->cluster.memory_bytes));
    }
}

int predict_write_json(const struct predict *p, const char *path, struct err *err) {
    json_t *o = json_object(), *stages = json_array(), *bound = json_object();
    for (int k = 0; k < p->sim.n_stages; k++)
        json_array_append_new(stages, stage_json(p, k));
    set(bound, "time", json_integer(p->sim.slowest));
    set(bound, "memory", json_integer(p->sim.fullest));
    set(o, "format", json_string("weft-prediction/1"));
    set(o, "time", json_real(p->sim.time_us / 1e6));
    set(o, "time_us", us(p->sim.time_us));
    set(o, "norm_us", us(p->sim.norm_us));
    set(o, "estimate_us", us(p->estimate_us));
    set(o, "device", json_string(profile_times_device(p->times)));
    set(o, "devices", json_integer(p->plan->devices));
    set(o, "cluster", cluster_json(&p->cluster));
    set(o, "schedule", json_string(schedule_name(p->plan->schedule)));
    set(o, "micro_batches", json_integer(plan_micro_batches(p->plan)));
    if (p->sim.time_us > 0)
        set(o, "samples_per_second",
            json_real((double)p->plan->batch / p->sim.time_us * 1e6));
    add_speed(o, p);
    add_memory(o, p);
    set(o, "bound", bound);
    set(o, "stages", stages);
    int rc = json_write_file(o, path, err);
    json_decref(o);
    return rc;
}

/* ---- table ------------------------------------------------------------------------- */

static void print_duration(double us_, FILE *f) {
    if (us_ < 1e4)
        fprintf(f, "%.1f us", us_);
    else if (us_ < 1e7)
        fprintf(f, "%.2f ms", us_ / 1e3);
    else
        fprintf(f, "%.3f s", us_ / 1e6);
}

static void print_head(const struct predict *p, FILE *f) {
    fputs("step    ", f);
    print_duration(p->sim.time_us, f);
    fprintf(f, ", %.4g samples/s", (double)p->plan->batch / p->sim.time_us * 1e6);
    double rate = predict_flops(p) / p->sim.time_us * 1e6;
    fprintf(f, ", %.4g Gflop/s", rate / 1e9);
    if (p->cluster.flops > 0)
        fprintf(f, " (%.1f %% of the peak)",
                100 * rate / (p->cluster.flops * p->plan->devices));
    fprintf(f, "\ndevices %d of kind %s on %lld node%s\n", p->plan->devices,
            profile_times_device(p->times), (long long)p->cluster.nodes,
            p->cluster.nodes > 1 ? "s" : "");
    fprintf(f, "batch   %lld in %lld micro-batches, %s\n", (long long)p->plan->batch,
            (long long)plan_micro_batches(p->plan), schedule_name(p->plan->schedule));
    fprintf(f, "bounds  time: stage %d, memory: stage %d\n\n", p->sim.slowest,
            p->sim.fullest);
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
}

static void print_memory(const struct predict *p, FILE *f) {
    fprintf(f, "\n%5s %8s %9s", "stage", "flying", "total MiB");
    static const char *const names[MEM_COUNT] = {"params", "grads",  "optim",
                                                 "activ",  "tempor", "buffers"};
    for (int c = 0; c < MEM_COUNT; c++)
        fprintf(f, " %9s", names[c]);
    fputc('\n', f);
    for (int k = 0; k < p->sim.n_stages; k++) {
        const struct stage_program *sp = &p->program->stages[k];
        fprintf(f, "%5d %8lld %9.1f", k, (long long)sp->slots,
                (double)sp->arena_bytes / 1048576);
        for (int c = 0; c < MEM_COUNT; c++)
            fprintf(f, " %9.1f", (double)sp->bytes[c] / 1048576);
        fputc('\n', f);
    }
    if (p->cluster.memory_bytes && memory_bytes(p) > p->cluster.memory_bytes)
        fprintf(f, "\nstage %d needs %.1f MiB more than a device has\n", p->sim.fullest,
                (double)(memory_bytes(p) - p->cluster.memory_bytes) / 1048576);
}

int predict_write_text(const struct predict *p, const char *path, struct err *err) {
    struct file_out out;
    if (file_out_open(&out, path, err) < 0)
        return -1;
    print_head(p, out.f);
    print_times(p, out.f);
    print_memory(p, out.f);
    return file_out_close(&out, err);
}
