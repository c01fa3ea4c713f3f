/* A plan for trainers that take degrees from a file: torchtitan's sections, DeepSpeed's JSON, accelerate's YAML,
 * nnScaler's arguments. Names are those of torchtitan/config/job_config.py (before 2026-02-23; the same names are
 * fields of its dataclasses since), deepspeed/runtime/config.py and accelerate/utils/dataclasses.py. */
#include "plan_job.h"

#include <stdlib.h>
#include <string.h>

struct trainer {
    const char *name;
    int (*check)(const struct plan_job *job, struct err *err); /* what it cannot say */
    void (*put)(FILE *f, const struct plan_job *job);
};

static char *say(const struct plan *p, const struct trainer *t, struct err *err) {
    struct plan_job job;
    char *text = NULL;
    size_t size = 0;
    if (plan_job_of(&job, p, t->name, err) < 0)
        return NULL;
    FILE *f = t->check(&job, err) == 0 ? open_memstream(&text, &size) : NULL;
    if (f) {
        t->put(f, &job);
        fclose(f);
    }
    plan_job_release(&job);
    return text;
}

static const char *yes(bool b) {
    return b ? "true" : "false";
}

static int refuse_if(bool bad, const char *key, const char *why, struct err *err) {
    return bad ? err_input(err, "%s: %s", key, why) : 0;
}

/* ---- torchtitan ------------------------------------------------------------------------------ */

/* [["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]] */
static void put_modules(FILE *f, const struct plan_job *job) {
    fputs("module_fqns_per_model_part = [", f);
    for (int s = 0, layer = 0; s < job->plan->n_stages; s++) {
        const char *comma = "";
        fprintf(f, "%s\n  [", s ? "," : "");
        if (s == 0)
            fprintf(f, "\"tok_embeddings\""), comma = ", ";
        for (int k = 0; k < job->blocks[s]; k++, comma = ", ")
            fprintf(f, "%s\"layers.%d\"", comma, layer++);
        if (s + 1 == job->plan->n_stages)
            fprintf(f, "%s\"norm\", \"output\"", comma);
        fputc(']', f);
    }
    fputs("\n]\n", f);
}

static const char *titan_schedule(const struct plan *p) {
    switch (p->schedule) {
    case SCHEDULE_1f1b: return "1F1B";
    case SCHEDULE_interleaved: return "Interleaved1F1B";
    case SCHEDULE_gpipe: return "GPipe";
    default: return NULL;
    }
}

static int check_titan(const struct plan_job *job, struct err *err) {
    const struct plan *p = job->plan;
    if (refuse_if(!titan_schedule(p) && p->n_stages > 1, "schedule",
                  "torchtitan's names are 1F1B, Interleaved1F1B and GPipe", err) < 0 ||
        refuse_if(job->offload, "stages[0].offload",
                  "torchtitan keeps no optimizer on hosts", err) < 0 ||
        refuse_if(p->reduce == DTYPE_bf16, "reduce", "torchtitan sums gradients in fp32",
                  err) < 0 ||
        refuse_if(p->dtype == DTYPE_f16, "dtype", "torchtitan trains in bf16 or fp32",
                  err) < 0)
        return -1;
    if (refuse_if(job->zero != ZERO_NONE && job->zero < ZERO_GRADIENTS, "stages[0].zero",
                  "torchtitan shards gradients (2) or parameters (3), or nothing", err) < 0)
        return -1;
    return refuse_if(job->recompute == RECOMPUTE_selective, "stages[0].recompute",
                     "torchtitan has nothing that recomputes attention alone", err);
}

/* Parameters are gathered again for the backward pass under level 3, and kept under level 2. */
static void put_titan(FILE *f, const struct plan_job *job) {
    const struct plan *p = job->plan;
    int64_t shard = job->zero ? job->dp : 1;
    fprintf(
        f,
        "[training]\nlocal_batch_size = %lld\nglobal_batch_size = %lld\nseq_len = %lld\n",
        (long long)(job->pp > 1 ? p->batch / job->dp : plan_job_samples(job)),
        (long long)p->batch, (long long)plan_model_size(p->model, "seq"));
    fprintf(f, "mixed_precision_param = \"%s\"\n\n",
            p->dtype == DTYPE_bf16 ? "bfloat16" : "float32");
    fprintf(f,
            "[parallelism]\ndata_parallel_replicate_degree = %lld\n"
            "data_parallel_shard_degree = %lld\n",
            (long long)(job->dp / shard), (long long)shard);
    if (shard > 1)
        fprintf(f, "fsdp_reshard_after_forward = \"%s\"\n",
                job->zero == ZERO_PARAMETERS ? "always" : "never");
    fprintf(f, "tensor_parallel_degree = %lld\ncontext_parallel_degree = %lld\n",
            (long long)job->tp, (long long)job->cp);
    if (job->ring)
        fputs("# until torchtitan 0.2; later ones have no such field\n"
              "context_parallel_rotate_method = \"alltoall\"\n",
              f);
    if (job->tp > 1 && !job->sp) /* which configurations before 2026-02-23 cannot say */
        fputs("enable_sequence_parallel = false\n", f);
    if (job->ep > 1)
        fprintf(f, "expert_parallel_degree = %lld\n", (long long)job->ep);
    fprintf(f, "pipeline_parallel_degree = %lld\n", (long long)job->pp);
    if (p->n_stages > 1) {
        fprintf(f,
                "pipeline_parallel_schedule = \"%s\"\n"
                "pipeline_parallel_microbatch_size = %lld\n",
                titan_schedule(p), (long long)plan_job_samples(job));
        put_modules(f, job);
    }
    fprintf(f, "\n[activation_checkpoint]\nmode = \"%s\"\n",
            job->recompute == RECOMPUTE_all ? "full" : "none");
}

char *plan_to_torchtitan(const struct plan *p, struct err *err) {
    static const struct trainer t = {"torchtitan", check_titan, put_titan};
    return say(p, &t, err);
}

/* ---- DeepSpeed ------------------------------------------------------------------------------- */

/* accelerate's configuration has no more words. */
static int check_degrees(const struct plan_job *job, const char *name, struct err *err) {
    if (job->recompute == RECOMPUTE_selective)
        return err_input(
            err, "stages[0].recompute: %s has nothing that recomputes attention alone",
            name);
    if (job->pp > 1)
        return err_input(err, "stages: %d, and a pipeline is code in %s, not configuration",
                         job->plan->n_stages, name);
    if (job->cp > 1 || job->ep > 1)
        return err_input(err,
                         "stages[0].mesh: %s of %lld, which %s's configuration cannot say",
                         job->cp > 1 ? "context parallelism" : "expert parallelism",
                         (long long)(job->cp > 1 ? job->cp : job->ep), name);
    if (job->sp && job->tp > 1)
        return err_input(err,
                         "stages[0].layout: the sequence is split over tp, which %s does "
                         "not",
                         name);
    return 0;
}

static int check_deepspeed(const struct plan_job *job, struct err *err) {
    return check_degrees(job, "DeepSpeed", err);
}

static json_t *deepspeed_json(const struct plan_job *job) {
    const struct plan *p = job->plan;
    json_t *doc =
        json_pack("{s:I, s:I, s:I}", "train_batch_size", (json_int_t)p->batch,
                  "train_micro_batch_size_per_gpu", (json_int_t)plan_job_samples(job),
                  "gradient_accumulation_steps", (json_int_t)plan_micro_batches(p));
    json_t *zero = json_pack("{s:i, s:b}", "stage", job->zero, "overlap_comm", p->overlap);
    if (job->offload)
        json_object_set_new(zero, "offload_optimizer", json_pack("{s:s}", "device", "cpu"));
    json_object_set_new(doc, "zero_optimization", zero);
    if (p->dtype != DTYPE_f32)
        json_object_set_new(doc, p->dtype == DTYPE_bf16 ? "bf16" : "fp16",
                            json_pack("{s:b}", "enabled", 1));
    if (p->dtype != DTYPE_f32)
        json_object_set_new(doc, "communication_data_type",
                            json_string(plan_dtype_name(p->reduce)));
    if (job->tp > 1)
        json_object_set_new(doc, "tensor_parallel",
                            json_pack("{s:I}", "autotp_size", (json_int_t)job->tp));
    return doc;
}

static void put_deepspeed(FILE *f, const struct plan_job *job) {
    json_t *doc = deepspeed_json(job);
    json_write(doc, f);
    json_decref(doc);
}

char *plan_to_deepspeed(const struct plan *p, struct err *err) {
    static const struct trainer t = {"DeepSpeed", check_deepspeed, put_deepspeed};
    return say(p, &t, err);
}

/* ---- accelerate ------------------------------------------------------------------------------ */

static int check_accelerate(const struct plan_job *job, struct err *err) {
    if (check_degrees(job, "accelerate", err) < 0)
        return -1;
    if (job->tp > 1 && job->dp > 1 && job->zero < ZERO_GRADIENTS)
        return err_input(err,
                         "stages[0].zero: %d: accelerate joins tensor parallelism with "
                         "sharded replicas (2, 3) alone",
                         job->zero);
    return refuse_if(job->zero == ZERO_OPTIMIZER, "stages[0].zero",
                     "1: FSDP shards gradients (2) or parameters (3), or nothing", err);
}

static void put_accelerate(FILE *f, const struct plan_job *job) {
    const struct plan *p = job->plan;
    bool shards = job->zero != ZERO_NONE;
    fprintf(f, "compute_environment: LOCAL_MACHINE\ndistributed_type: %s\n",
            shards ? "FSDP" : "MULTI_GPU");
    fprintf(f, "mixed_precision: '%s'\nnum_processes: %d\n",
            p->dtype == DTYPE_bf16  ? "bf16"
            : p->dtype == DTYPE_f16 ? "fp16"
                                    : "no",
            p->devices);
    if (shards)
        fprintf(f,
                "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: %s\n"
                "  fsdp_offload_params: %s\n  fsdp_activation_checkpointing: %s\n",
                yes(job->zero == ZERO_PARAMETERS), yes(job->offload),
                yes(job->recompute == RECOMPUTE_all));
    fprintf(
        f,
        "parallelism_config:\n  parallelism_config_dp_replicate_size: %lld\n"
        "  parallelism_config_dp_shard_size: %lld\n  parallelism_config_tp_size: %lld\n",
        (long long)(shards ? 1 : job->dp), (long long)(shards ? job->dp : 1),
        (long long)job->tp);
    fprintf(f,
            "# in the script: gradient_accumulation_steps=%lld, %lld samples each time\n",
            (long long)plan_micro_batches(p), (long long)plan_job_samples(job));
}

char *plan_to_accelerate(const struct plan *p, struct err *err) {
    static const struct trainer t = {"accelerate", check_accelerate, put_accelerate};
    return say(p, &t, err);
}

/* ---- nnScaler ---------------------------------------------------------------------------------- */

static int check_nnscaler(const struct plan_job *job, struct err *err) {
    const struct plan *p = job->plan;
    if (refuse_if(
            job->cp > 1 || job->ep > 1, "stages[0].mesh",
            "nnScaler is told of replicas, stages and the devices of one replica alone",
            err) < 0 ||
        refuse_if(p->n_stages > 1 && p->schedule != SCHEDULE_1f1b, "schedule",
                  "nnScaler searches with 1f1b", err) < 0 ||
        refuse_if(p->n_stages > p->n_groups, "stages",
                  "nnScaler has one on each device group", err) < 0 ||
        refuse_if(job->offload, "stages[0].offload", "nnScaler keeps no optimizer on hosts",
                  err) < 0)
        return -1;
    return refuse_if(job->zero > ZERO_OPTIMIZER, "stages[0].zero",
                     "nnScaler shards the optimizer's state (1), or nothing", err);
}

/* Names of fields are those of nnscaler/cli/trainer_args.py, ComputeConfig and pas_autodist. Where stages are
 * cut, and what is split inside of one, nnScaler finds by its own measurements. */
static void put_nnscaler(FILE *f, const struct plan_job *job) {
    const struct plan *p = job->plan;
    fprintf(f,
            "compute_config:\n  plan_ngpus: %lld\n  runtime_ngpus: %d\n  use_zero: %s\n"
            "  use_end2end: true\n  pas_config:\n    update_freq: %lld\n"
            "    pipeline_nstages: %lld\n",
            (long long)(p->devices / job->dp), p->devices, yes(job->zero != ZERO_NONE),
            (long long)plan_micro_batches(p), (long long)job->pp);
    if (job->pp > 1)
        fputs("    pipeline_scheduler: 1f1b\n"
              "    # to be added: pipeline_pivots, the class of the module's layers\n",
              f);
    if (job->recompute != RECOMPUTE_none)
        fprintf(f, "    # to be added: recompute_modules, the class of the module's %s\n",
                job->recompute == RECOMPUTE_all ? "layers" : "attention");
    fprintf(f, "pas_policy: autodist\nmicro_batch_size: %lld\nglobal_batch_size: %lld\n",
            (long long)plan_job_samples(job), (long long)p->batch);
    if (p->dtype != DTYPE_f32)
        fprintf(f, "precision: %s\n", plan_dtype_name(p->dtype));
}

char *plan_to_nnscaler(const struct plan *p, struct err *err) {
    static const struct trainer t = {"nnScaler", check_nnscaler, put_nnscaler};
    return say(p, &t, err);
}
