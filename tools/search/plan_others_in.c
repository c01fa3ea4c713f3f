/* Configurations of torchtitan and DeepSpeed as plans. Names, defaults and the split of layers among
 * stages are those of torchtitan/config/job_config.py and torchtitan/distributed/pipeline_parallel.py,
 * and of deepspeed/runtime/config.py. What could mean something and is not understood is refused. */
#include "plan_job.h"
#include "plan_line.h"
#include "plan_toml.h"

#include <stdlib.h>
#include <string.h>

static int64_t outer_blocks(const struct model *m) {
    int64_t n = 0;
    for (int b = 0; b < m->n_blocks; b++)
        n += m->blocks[b].parent < 0;
    return n;
}

/* So small that products of three of them are numbers. */
static int read_count(struct line *l, const char *name, int64_t otherwise, int64_t *out) {
    if (line_int(l, name, otherwise, out) < 0)
        return -1;
    return *out <= 1 << 20
               ? 0
               : err_input(l->err, "%s: %lld is more than 2^20", name, (long long)*out);
}

/* -1 stands for what the launcher says: 0 here. */
static int read_rest(struct line *l, const char *name, int64_t *out) {
    const char *text = line_peek(l, name);
    if (text && !strcmp(text, "-1"))
        line_flag(l, name);
    return read_count(l, name, 0, out);
}

/* ---- torchtitan ------------------------------------------------------------------------------ */

#define PART "parallelism."
static const char titan_unread[] =
    "job.* profiling.* metrics.* model.* optimizer.[!n]* lr_scheduler.* checkpoint.* comm.* "
    "compile.* fault_tolerance.* experimental.* debug.* validation.* memory_estimation.* "
    "quantize.* training.dataset* training.steps training.max_norm training.gc_* "
    "training.deterministic training.seed training.debug_* training.enable_cpu_offload "
    "training.dtype parallelism.enable_async_tensor_parallel "
    "parallelism.disable_loss_parallel parallelism.enable_compiled_autograd "
    "activation_checkpoint.selective_* activation_checkpoint.per_op_* "
    "activation_checkpoint.early_stop activation_checkpoint.preserve_rng_state";

/* The replicas, and what they share out: all of it or nothing here, which is one set of replicas. */
static int titan_replicas(struct line *l, const struct plan_words *given) {
    static const char *const reshard[] = {"default", "always", "never", NULL};
    struct plan_words *w = &l->w;
    int64_t replicate, shard;
    if (read_count(l, PART "data_parallel_replicate_degree", 1, &replicate) < 0 ||
        read_rest(l, PART "data_parallel_shard_degree", &shard) < 0)
        return -1;
    int again = line_word(l, PART "fsdp_reshard_after_forward", reshard);
    if (again < 0)
        return -1;
    if (!shard && !given->dp)
        return err_input(l->err,
                         PART "data_parallel_shard_degree: -1 is the rest of the devices: "
                              "--dp N says how many replicas there are in all");
    if (!shard)
        shard = given->dp / replicate;
    w->dp = replicate * shard;
    if (given->dp && given->dp != w->dp)
        return err_input(l->err, "--dp: %lld, and the file has %lld times %lld replicas",
                         (long long)given->dp, (long long)replicate, (long long)shard);
    if (replicate > 1 && shard > 1)
        return err_input(l->err,
                         PART "data_parallel_shard_degree: %lld of %lld replicas: what "
                              "they share out, all share out here",
                         (long long)shard, (long long)w->dp);
    bool keeps = again == 2 || (again == 0 && w->pp > 1); /* between micro-batches */
    w->zero = shard == 1 ? ZERO_NONE : keeps ? ZERO_GRADIENTS : ZERO_PARAMETERS;
    return 0;
}

static int titan_degrees(struct line *l) {
    static const char *const ways[] = {"allgather", "alltoall", NULL};
    struct plan_words *w = &l->w;
    if (read_count(l, PART "tensor_parallel_degree", 1, &w->tp) < 0 ||
        read_count(l, PART "pipeline_parallel_degree", 1, &w->pp) < 0 ||
        read_count(l, PART "context_parallel_degree", 1, &w->cp) < 0 ||
        read_count(l, PART "expert_parallel_degree", 1, &w->ep) < 0)
        return -1;
    int way = line_word(l, PART "context_parallel_rotate_method", ways);
    w->ring = w->cp > 1 && way == 1;
    w->sp = line_truth(l, PART "enable_sequence_parallel", true) && w->tp > 1;
    return way < 0 ? -1 : 0;
}

/* Layers named in each part. */
static int titan_parts(struct line *l, const json_t *parts, int *blocks, int stages) {
    if ((int)json_array_size(parts) != stages)
        return err_input(l->err, PART "module_fqns_per_model_part: %zu parts, expected %d",
                         json_array_size(parts), stages);
    size_t i, j;
    const json_t *part, *name;
    int64_t layers = 0;
    json_array_foreach(parts, i, part) {
        json_array_foreach(part, j, name) {
            const char *text = json_string_value(name);
            blocks[i] += text && !strncmp(text, "layers.", 7);
        }
        layers += blocks[i];
    }
    return layers == l->layers
               ? 0
               : err_input(l->err,
                           PART "module_fqns_per_model_part: %lld layers, expected %lld",
                           (long long)layers, (long long)l->layers);
}

/* The embedding and the output count as layers of the first and the last stage. */
static int titan_even(struct line *l, int *blocks, int stages) {
    int64_t first, last;
    if (read_count(l, PART "pipeline_parallel_first_stage_less_layers", 1, &first) < 0 ||
        read_count(l, PART "pipeline_parallel_last_stage_less_layers", 1, &last) < 0)
        return -1;
    int64_t all = l->layers + (stages > 1 ? first + last : 0);
    for (int s = 0; s < stages; s++) {
        int64_t n = all / stages + (s < all % stages);
        if (stages > 1)
            n -= (s == 0 ? first : 0) + (s == stages - 1 ? last : 0);
        if (n < 0)
            return err_input(l->err,
                             PART "pipeline_parallel_degree: %d stages of %lld layers",
                             stages, (long long)l->layers);
        blocks[s] = (int)n;
    }
    return 0;
}

static int titan_stages(struct line *l, int **blocks) {
    static const char *const schedules[] = {"1F1B", "Interleaved1F1B", "GPipe", NULL};
    struct plan_words *w = &l->w;
    json_t *parts = json_object_get(l->flags, PART "module_fqns_per_model_part");
    int schedule = line_word(l, PART "pipeline_parallel_schedule", schedules);
    int64_t chunks = schedule == 1 ? 2 : 1, per;
    if (schedule < 0 ||
        read_count(l, PART "pipeline_parallel_layers_per_stage", l->layers + 2, &per) < 0)
        return -1;
    if (per <= l->layers)
        chunks = ((l->layers + 2 + per - 1) / per + w->pp - 1) / w->pp;
    if (json_array_size(parts))
        chunks = ((int64_t)json_array_size(parts) + w->pp - 1) / w->pp;
    if (w->pp * chunks > l->layers + 2)
        return err_input(l->err,
                         PART "pipeline_parallel_degree: %lld stages of %lld layers",
                         (long long)(w->pp * chunks), (long long)l->layers);
    w->chunks = chunks;
    w->schedule = w->pp == 1      ? NULL
                  : schedule == 2 ? "gpipe"
                  : chunks > 1    ? "interleaved"
                                  : "1f1b";
    int stages = (int)(w->pp * chunks);
    *blocks = mem_array((size_t)stages, sizeof **blocks);
    w->blocks = *blocks;
    int rc = json_array_size(parts) ? titan_parts(l, parts, *blocks, stages)
                                    : titan_even(l, *blocks, stages);
    line_flag(l, PART "module_fqns_per_model_part");
    return rc;
}

static int titan_batch(struct line *l, const struct model *m) {
    static const char *const types[] = {"bfloat16", "float32", NULL};
    static const char *const grains[] = {"none", "full", NULL};
    static const char *const names[] = {"AdamW", "Adam", NULL};
    static const char *const sums[] = {"float32", NULL};
    struct plan_words *w = &l->w;
    int64_t local, batch, micro, seq, has = plan_model_size(m, "seq");
    if (read_count(l, "training.local_batch_size", 8, &local) < 0 ||
        read_rest(l, "training.global_batch_size", &batch) < 0 ||
        read_count(l, "training.seq_len", 2048, &seq) < 0 ||
        read_count(l, PART "pipeline_parallel_microbatch_size", 1, &micro) < 0)
        return -1;
    int type = line_word(l, "training.mixed_precision_param", types);
    int grain = line_word(l, "activation_checkpoint.mode", grains);
    if (type < 0 || grain < 0 ||
        line_word(l, "training.mixed_precision_reduce", sums) < 0 ||
        line_word(l, "optimizer.name", names) < 0)
        return -1;
    if (seq != has)
        return err_input(l->err, "training.seq_len: %lld, and the model has %lld: --set",
                         (long long)seq, (long long)has);
    if (w->pp > 1 && batch > local * w->dp)
        return err_input(l->err,
                         "training.global_batch_size: %lld, and %lld replicas of "
                         "training.local_batch_size are fewer: the pipeline would run "
                         "empty in between, which is not so here",
                         (long long)batch, (long long)w->dp);
    w->batch = batch ? batch : local * w->dp;
    w->micro_batch = (w->pp > 1 ? micro : local) * w->dp;
    w->dtype = type ? "fp32" : "bf16";
    w->recompute = grain ? "full" : "none";
    return 0;
}

/* ---- DeepSpeed ------------------------------------------------------------------------------- */

static const char deepspeed_unread[] =
    "steps_per_print wall_clock_breakdown dump_state gradient_clipping scheduler.* "
    "optimizer.params.* optimizer.legacy_fusion tensorboard.* wandb.* csv_monitor.* "
    "flops_profiler.* comms_logger.* checkpoint.* data_types.grad_accum_dtype "
    "prescale_gradients gradient_predivide_factor zero_allow_untested_optimizer "
    "zero_force_ds_cpu_optimizer memory_breakdown activation_checkpointing.* "
    "fp16.[!e]* bf16.[!e]* zero_optimization.contiguous_gradients "
    "zero_optimization.reduce_scatter zero_optimization.*bucket_size "
    "zero_optimization.sub_group_size zero_optimization.stage3_* "
    "zero_optimization.round_robin_gradients zero_optimization.allgather_partitions "
    "zero_optimization.offload_*.[!d]* zero_optimization.elastic_checkpoint "
    "zero_optimization.load_from_fp32_weights zero_optimization.use_multi_rank_* "
    "zero_optimization.ignore_unused_parameters zero_optimization.log_trace_* "
    "aio.* load_universal_checkpoint";

/* Two of the three say the third, with the replicas. */
static int deepspeed_batch(struct line *l, const struct plan_words *given) {
    struct plan_words *w = &l->w;
    int64_t batch, micro, times;
    if (read_count(l, "train_batch_size", 0, &batch) < 0 ||
        read_count(l, "train_micro_batch_size_per_gpu", 0, &micro) < 0 ||
        read_count(l, "gradient_accumulation_steps", 0, &times) < 0)
        return -1;
    w->dp = given->dp;
    if (!w->dp && batch && micro)
        w->dp = batch / (micro * (times ? times : 1));
    if (!w->dp)
        return err_input(l->err, "train_batch_size: with train_micro_batch_size_per_gpu it "
                                 "says how many replicas there are, else --dp N does");
    times = times ? times : batch && micro ? batch / (micro * w->dp) : 1;
    micro = micro ? micro : batch / (times * w->dp);
    batch = batch ? batch : micro * times * w->dp;
    if (!micro || batch != micro * times * w->dp)
        return err_input(l->err,
                         "train_batch_size: %lld, and %lld samples times %lld times %lld "
                         "replicas are %lld",
                         (long long)batch, (long long)micro, (long long)times,
                         (long long)w->dp, (long long)(micro * times * w->dp));
    w->batch = batch;
    w->micro_batch = micro * w->dp;
    return 0;
}

static int deepspeed_rest(struct line *l, const struct plan_words *given) {
    static const char *const levels[] = {"0", "1", "2", "3", NULL};
    static const char *const hosts[] = {"none", "cpu", NULL};
    static const char *const names[] = {"AdamW", "Adam", "SGD", NULL};
    static const char *const types[] = {"", "fp32", "fp16", "bf16", "bfp16", NULL};
    struct plan_words *w = &l->w;
    int level = line_word(l, "zero_optimization.stage", levels);
    int state = line_word(l, "zero_optimization.offload_optimizer.device", hosts);
    int held = line_word(l, "zero_optimization.offload_param.device", hosts);
    int name = line_word(l, "optimizer.type", names);
    int sum = line_word(l, "communication_data_type", types);
    if (level < 0 || state < 0 || held < 0 || name < 0 || sum < 0 ||
        read_count(l, "tensor_parallel.autotp_size", 1, &w->tp) < 0)
        return -1;
    w->zero = level;
    w->offload = state && held ? "optimizer,parameters"
                 : state       ? "optimizer"
                 : held        ? "parameters"
                               : NULL;
    w->optimizer = name == 2 ? "sgd" : "adamw";
    w->overlap = line_truth(l, "zero_optimization.overlap_comm", level == ZERO_PARAMETERS);
    bool bf16 = line_truth(l, "bf16.enabled", false),
         fp16 = line_truth(l, "fp16.enabled", false);
    w->dtype = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    /* What is not said is the type of the parameters. */
    w->reduce = sum == 1 ? "fp32" : sum == 2 ? "fp16" : sum > 2 ? "bf16" : w->dtype;
    w->recompute = given->recompute;
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

static json_t *read_titan(struct line *l, const struct plan_words *given, struct model *m) {
    int *blocks = NULL;
    l->layers = outer_blocks(m);
    bool good = titan_degrees(l) == 0 && titan_replicas(l, given) == 0 &&
                titan_stages(l, &blocks) == 0 && titan_batch(l, m) == 0 &&
                line_check_rest(l) == 0;
    json_t *plan = good ? plan_make_for(&l->w, m, l->err) : NULL;
    free(blocks);
    return plan;
}

static json_t *read_deepspeed(struct line *l, const struct plan_words *given,
                              struct model *m) {
    return deepspeed_batch(l, given) == 0 && deepspeed_rest(l, given) == 0 &&
                   line_check_rest(l) == 0
               ? plan_make_for(&l->w, m, l->err)
               : NULL;
}

typedef json_t *reader(struct line *l, const struct plan_words *given, struct model *m);

/* Takes over the settings, which may be NULL. */
static json_t *read_settings(json_t *flags, const char *unread,
                             const struct plan_words *given, reader *read,
                             struct err *err) {
    struct line l = {.flags = flags,
                     .dash = "",
                     .unread = unread,
                     .w.cluster = given->cluster,
                     .err = err};
    struct model *m = flags ? model_load(given->model, given->set, err) : NULL;
    json_t *plan = m ? read(&l, given, m) : NULL;
    if (!plan && err && err->status == EXIT_USAGE) /* the file's words, not the user's */
        err->status = EXIT_INPUT;
    model_destroy(m);
    json_decref(flags);
    return plan;
}

json_t *plan_from_torchtitan(const char *text, const struct plan_words *given,
                             struct err *err) {
    return read_settings(plan_toml_read(text, err), titan_unread, given, read_titan, err);
}

json_t *plan_from_deepspeed(const char *text, const struct plan_words *given,
                            struct err *err) {
    json_t *doc = json_parse(text, strlen(text), "the configuration", err);
    json_t *flat = doc ? plan_json_flat(doc) : NULL;
    json_decref(doc);
    return read_settings(flat, deepspeed_unread, given, read_deepspeed, err);
}
