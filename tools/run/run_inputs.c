/* What a training needs besides the plan is opened, compared and checked before its first step. */
#define _DEFAULT_SOURCE /* getentropy */
#include "run.h"

#include "common/file.h"
#include "common/mem.h"
#include "common/progress.h"
#include "model/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int open_data(struct data **data, const struct model *m, const struct run_options *o,
                     struct err *err) {
    struct data_spec spec = {.source = o->data,
                             .valid_source = o->valid_data,
                             .seed = o->seed.value,
                             .gaps = o->bad_samples > 0,
                             .balanced = o->balanced,
                             .validation = o->valid_data ? 0 : o->set.validation};
    return exec_data_spec(m, &spec, err) < 0 ? -1 : data_open(data, &spec, err);
}

int run_threads(struct comm *comm, int64_t wanted) {
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int threads = wanted ? (int)wanted : cores / comm_node_size(comm);
    return threads < 1 ? 1 : threads;
}

/* At most, with ranks in blocks on nodes that are alike. */
static int64_t workspace(struct comm *comm, const struct program *g, int stage,
                         int threads) {
    int nodes = comm_nodes(comm);
    struct cluster c = cluster_single_node((comm_size(comm) + nodes - 1) / nodes);
    c.groups[0].nodes = nodes;
    return run_workspace(g, stage, &c, threads);
}

/* Memory is promised freely and taken at the first touch, so a plan that is too large would be
 * killed in the middle of its first step, with whatever else runs there. A GPU says it by itself. */
static int check_memory(struct comm *comm, const struct program *g,
                        const struct run_options *o, struct err *err) {
    const int threads = run_threads(comm, o->threads);
    const struct plan *p = g->plan;
    int group = program_group_of_rank(g, comm_rank(comm)), nodes = comm_nodes(comm);
    int stage = p->chunks[p->first_chunk[group]];
    const struct stage_program *sp = &g->stages[stage];
    double own = (double)sp->host_bytes;
    if (!run_on_gpu(o, p, comm_rank(comm)))
        own += (double)(sp->arena_bytes + workspace(comm, g, stage, threads));
    double *node = mem_array((size_t)nodes, sizeof *node); /* bytes that each needs */
    node[comm_node(comm)] = own;
    int rc = comm_sum_double(comm_world(comm), node, nodes, err);
    double needs = node[comm_node(comm)];
    double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    free(node);
    if (rc < 0 || has <= 0 || needs <= has)
        return rc;
    return err_system(
        err,
        "stages[%d]: one rank needs %.1f GB and the ranks of this node %.1f GB; "
        "it has %.1f GB",
        stage, 1e-9 * own, 1e-9 * needs, 1e-9 * has);
}

/* Only whole batches are validated on, and none twice. */
static int check_validation(const struct run_options *o, struct run_inputs *in,
                            int64_t batch, bool speaks, struct err *err) {
    int64_t samples = data_size(in->data, DATA_VALID), there = samples / batch;
    in->valid_batches = o->valid_batches;
    if ((!o->valid_every && !o->eval) || in->valid_batches <= there)
        return 0;
    if (!there) {
        err_input(err,
                  "--%s: the validation data has %lld samples, fewer than a batch "
                  "of %lld",
                  o->eval ? "eval" : "valid-every", (long long)samples, (long long)batch);
        return err_hint(err, "--validation keeps more of --data, --valid-data takes files");
    }
    in->valid_batches = there;
    if (speaks && o->valid_batches < INT64_MAX)
        note(
            "weft-run: the validation data has %lld batches: --valid-batches is lowered to "
            "that",
            (long long)there);
    return 0;
}

/* The folders that this run writes checkpoints to are its own from here on. */
static int lock_folders(struct run_inputs *in, const struct run_options *o,
                        struct err *err) {
    const char *dir[RUN_FOLDERS] = {[RUN_DISK] = o->save, [RUN_MEMORY] = o->memory_here};
    for (int f = 0; f < RUN_FOLDERS; f++)
        if (dir[f] && in->lock[f] < 0 && (in->lock[f] = checkpoint_lock(dir[f], err)) < 0)
            return -1;
    return 0;
}

/* What is written at the end must be writable at the beginning. */
static int open_outputs(struct run_inputs *in, const struct run_options *o,
                        const struct checkpoint_info *ck, struct err *err) {
    const char *dir[RUN_FOLDERS] = {[RUN_DISK] = o->save, [RUN_MEMORY] = o->memory_here};
    if (lock_folders(in, o, err) < 0)
        return -1;
    for (int f = 0; f < RUN_FOLDERS; f++)
        if (dir[f] &&
            checkpoint_check_run(dir[f], ck ? ck->run : 0, ck ? ck->step : 0, err) < 0)
            return -1;
    if (o->tensorboard &&
        !(in->events = run_events_open(o->tensorboard, ck ? ck->step : 0, err)))
        return -1;
    return o->trace ? file_out_check(o->trace, err) : 0;
}

static uint64_t new_run(void) {
    uint64_t id = 0;
    if (getentropy(&id, sizeof id) < 0 || !id)
        id = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    return id;
}

static struct checkpoint_info about_run(const struct run_options *o,
                                        const struct data *data, const char *facts,
                                        const struct checkpoint_info *ck) {
    const struct data_info *d = data_info(data);
    return (struct checkpoint_info){.run = ck ? ck->run : new_run(),
                                    .facts = facts,
                                    .data = {d->format, d->items, d->hash[DATA_TRAIN]},
                                    .settings = o->set};
}

/* The config.json beside weights says what they are the weights of: their shapes do not say it all. */
static int check_init_config(struct model *m, const char *path, struct err *err) {
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *slash = strrchr(path, '/');
    int stem = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    char *file = mem_alloc((size_t)stem + sizeof "/config.json");
    sprintf(file, "%.*s%sconfig.json", stem, path, folder || slash ? "/" : "");
    json_t *config = access(file, R_OK) == 0 ? json_read(file, err) : json_object();
    int rc = !config ? -1 : json_object_size(config) ? config_check(m, config, err) : 0;
    if (rc < 0 && config)
        err_prefix(err, "--init: %s", file);
    json_decref(config);
    free(file);
    return rc;
}

/* The weights to begin with, where nothing is gone on from. */
static int open_init(struct run_inputs *in, struct model *m, const char *path,
                     struct err *err) {
    if (!path || in->ck)
        return 0;
    if (check_init_config(m, path, err) < 0)
        return -1;
    in->weights = weights_of(m, err);
    in->init = in->weights ? weight_file_open(in->weights, path, err) : NULL;
    return in->init ? 0 : -1;
}

/* Its adapter_config.json must be this model's, as far as shapes do not tell. */
static int check_adapter(struct model *m, const char *folder, struct err *err) {
    static const char *const keys[] = {"peft_type", "r", "lora_alpha"};
    static const char *const absent[] = {"use_rslora", "use_dora", "lora_bias",
                                         "alpha_pattern", "rank_pattern"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    json_t *config = json_read(path, err), *own = weights_adapter_config(m, NULL);
    int rc = config ? 0 : -1;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && own && rc == 0; i++) {
        const json_t *has = json_object_get(config, keys[i]);
        const json_t *want = json_object_get(own, keys[i]);
        const bool number = json_is_number(has) && json_is_number(want);
        if (number ? json_number_value(has) != json_number_value(want)
                   : !json_equal(has, want))
            rc = err_input(err, "%s: %s: the model has another", path, keys[i]);
    }
    for (size_t i = 0; i < sizeof absent / sizeof *absent && rc == 0; i++) {
        const json_t *v = json_object_get(config, absent[i]);
        if (json_is_true(v) || json_object_size(v))
            rc = err_input(err, "%s: %s: weft has no such adapters", path, absent[i]);
    }
    json_decref(config);
    json_decref(own);
    return rc;
}

static int open_adapter(struct run_inputs *in, struct model *m, const char *folder,
                        struct err *err) {
    char path[PATH_MAX];
    if (!folder || in->ck)
        return 0;
    in->adapter_weights = weights_of_adapter(m, err);
    if (!in->adapter_weights)
        return err_prefix(err, "--adapter");
    if (check_adapter(m, folder, err) < 0)
        return err_prefix(err, "--adapter");
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    in->adapter = weight_file_open(in->adapter_weights, path, err);
    return in->adapter ? 0 : -1;
}

/* The checkpoint to go on from, if any. */
static int open_resume(struct run_inputs *in, struct comm *comm, const struct plan *p,
                       const struct run_options *o, struct err *err) {
    if (o->resume && comm_rank(comm) == 0)
        run_note_unfinished(o);
    if (o->resume && exec_agree(comm, checkpoint_open(&in->ck, o->resume, err), err) < 0)
        return -1;
    if (o->auto_resume &&
        (exec_agree(comm, comm_rank(comm) == 0 ? lock_folders(in, o, err) : 0, err) < 0 ||
         run_open_newest(comm, o, &in->search, &in->ck, err) < 0))
        return -1;
    int rc = in->ck ? run_check_resume(o, p->model, p->optimizer, in->ck, err) : 0;
    return exec_agree(comm, rc, err);
}

int run_open_inputs(struct run_inputs *in, struct comm *comm, const struct program *g,
                    struct run_options *o, struct err *err) {
    const struct plan *p = g->plan;
    bool speaks = comm_rank(comm) == 0;
    *in = (struct run_inputs){.lock = {-1, -1}, .facts = model_facts(p->model)};
    if (exec_agree(comm, run_check_device(o, p, comm_rank(comm), err), err) < 0)
        return -1;
    if (open_resume(in, comm, p, o, err) < 0)
        return -1;
    const struct checkpoint_info *ck = in->ck ? checkpoint_info(in->ck) : NULL;
    run_settle(o, ck, p->optimizer, speaks);
    if (ck && speaks)
        run_note_batch(ck, p->batch);
    if (exec_agree(comm, open_data(&in->data, p->model, o, err), err) < 0 ||
        exec_agree(comm, open_init(in, p->model, o->init, err), err) < 0 ||
        exec_agree(comm, open_adapter(in, p->model, o->adapter, err), err) < 0 ||
        run_agree_inputs(comm, p->model, in->data, in->ck, in->init, in->adapter, err) < 0)
        return -1;
    if (speaks && data_info(in->data)->cut)
        note("weft-run: --data: sequences that are longer than the model's are cut");
    int rc = ck && !o->eval ? run_check_data(o, in->ck, in->data, speaks, err) : 0;
    if (rc == 0)
        rc = check_validation(o, in, p->batch, speaks, err);
    in->about = about_run(o, in->data, in->facts, ck);
    if (rc == 0 && speaks)
        rc = open_outputs(in, o, ck, err);
    if (exec_agree(comm, rc, err) < 0 ||
        (o->keep_best &&
         run_open_best(&in->best, comm, o->save, in->about.run, ck, err) < 0))
        return -1;
    return exec_agree(comm, check_memory(comm, g, o, err), err);
}

void run_close_inputs(struct run_inputs *in) {
    data_close(in->data);
    checkpoint_close(in->ck);
    weight_file_close(in->init);
    weights_destroy(in->weights);
    weight_file_close(in->adapter);
    weights_destroy(in->adapter_weights);
    for (int f = 0; f < RUN_FOLDERS; f++)
        checkpoint_unlock(in->lock[f]);
    run_events_close(in->events);
    free(in->best.dir);
    free(in->facts);
}
