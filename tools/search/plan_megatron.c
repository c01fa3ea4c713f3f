/* A plan as the flags of Megatron-LM, those of the model and those of the plan. Names and meanings are
 * those of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py. */
#include "plan_job.h"

#include "common/text.h"

#include <stdlib.h>
#include <string.h>

#define TARGET "Megatron-LM"

/* ---- text --------------------------------------------------------------------------------- */

struct flags {
    FILE *f;
};

static void flag(struct flags *x, const char *name) {
    fprintf(x->f, "--%s\n", name);
}

static void flag_int(struct flags *x, const char *name, int64_t value) {
    fprintf(x->f, "--%s %lld\n", name, (long long)value);
}

static void flag_real(struct flags *x, const char *name, double value) {
    char text[32];
    fprintf(x->f, "--%s %s\n", name, json_format_real(value, text));
}

static void flag_text(struct flags *x, const char *name, const char *value) {
    char *word = text_shell_word(value);
    fprintf(x->f, "--%s %s\n", name, word);
    free(word);
}

/* ---- the model ------------------------------------------------------------------------------- */

static const struct model_op *find_op(const struct model *m, const char *last) {
    for (int i = 0; i < m->n_ops; i++) {
        const char *dot = strrchr(m->ops[i].name, '.');
        if (!strcmp(dot ? dot + 1 : m->ops[i].name, last))
            return &m->ops[i];
    }
    return NULL;
}

static bool is_tied(const struct model *m) {
    for (int i = 0; i < m->n_params; i++)
        if (!strcmp(m->params[i].name, "wte.weight"))
            return m->params[i].tied;
    return false;
}

static int outer_blocks(const struct model *m) {
    int n = 0;
    for (int b = 0; b < m->n_blocks; b++)
        n += m->blocks[b].parent < 0;
    return n;
}

/* Of the first of these names: all norms of a family have one. */
static double eps_of(const struct model *m) {
    const struct model_op *op = find_op(m, "norm1");
    op = op ? op : find_op(m, "ln1");
    return op ? op->attr[ATTR_eps] : 1e-5;
}

/* The vocabulary is padded to a multiple of 128 times tp there, unless it is told otherwise. */
static void put_vocab(struct flags *x, int64_t vocab, int64_t tp) {
    int64_t by = 128;
    while (by > 1 && vocab % (by * tp))
        by /= 2;
    flag_int(x, "vocab-size", vocab);
    if (by < 128)
        flag_int(x, "make-vocab-size-divisible-by", by);
}

static void put_experts(struct flags *x, const struct model *m) {
    const struct model_op *route = find_op(m, "route"), *balance = find_op(m, "balance");
    flag_int(x, "num-experts", plan_model_size(m, "experts"));
    flag_int(x, "moe-router-topk", plan_model_size(m, "top"));
    if (route && route->attr[ATTR_normalize] == 0)
        flag(x, "moe-router-pre-softmax");
    if (balance)
        flag_real(x, "moe-aux-loss-coeff", balance->attr[ATTR_coefficient]);
}

static void put_gpt(struct flags *x, const struct model *m) {
    const struct model_op *drop = find_op(m, "drop");
    flag_text(x, "position-embedding-type", "learned_absolute");
    flag_real(x, "hidden-dropout", drop ? drop->attr[ATTR_rate] : 0);
}

static void put_llama(struct flags *x, const struct model *m) {
    flag_text(x, "position-embedding-type", "rope");
    flag_real(x, "rotary-base", find_op(m, "turn_q")->attr[ATTR_base]);
    flag_text(x, "normalization", "RMSNorm");
    flag(x, "swiglu");
    flag(x, "disable-bias-linear");
    if (!strcmp(m->name, "qwen2"))
        flag(x, "add-qkv-bias");
    if (find_op(m, "norm_q"))
        flag(x, "qk-layernorm");
    flag_real(x, "hidden-dropout", 0);
    if (plan_model_size(m, "experts"))
        put_experts(x, m);
}

/* A family that both have; any other model is the user's to describe. */
static bool put_model(struct flags *x, const struct model *m, int64_t tp) {
    static const char *const families[] = {"gpt",   "gpt-qkv", "llama",    "qwen2",
                                           "qwen3", "mixtral", "qwen3-moe"};
    bool known = false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        known |= !strcmp(m->name, families[i]);
    if (!known)
        return false;
    int64_t heads = plan_model_size(m, "heads"), kv_heads = plan_model_size(m, "kv_heads");
    flag_int(x, "num-layers", outer_blocks(m));
    flag_int(x, "hidden-size", plan_model_size(m, "hidden"));
    flag_int(x, "ffn-hidden-size", plan_model_size(m, "ffn"));
    flag_int(x, "num-attention-heads", heads);
    if (kv_heads && kv_heads != heads) {
        flag(x, "group-query-attention");
        flag_int(x, "num-query-groups", kv_heads);
    }
    if (plan_model_size(m, "kv") * heads != plan_model_size(m, "hidden"))
        flag_int(x, "kv-channels", plan_model_size(m, "kv"));
    flag_int(x, "seq-length", plan_model_size(m, "seq"));
    flag_int(x, "max-position-embeddings", plan_model_size(m, "seq"));
    put_vocab(x, plan_model_size(m, "vocab"), tp);
    if (!is_tied(m))
        flag(x, "untie-embeddings-and-output-weights");
    flag_real(x, "norm-epsilon", eps_of(m));
    (strncmp(m->name, "gpt", 3) ? put_llama : put_gpt)(x, m);
    flag_real(x, "attention-dropout", 0);
    return true;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* "Et*12|t*12|t*12|t*12L": E the embedding, t a layer, L the loss, | between stages. */
static void put_layout(struct flags *x, const struct plan_job *job) {
    const struct plan *p = job->plan;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int s = 0; f && s < p->n_stages; s++) {
        fprintf(f, "%s%s", s ? "|" : "", s ? "" : "E");
        if (job->blocks[s])
            fprintf(f, job->blocks[s] > 1 ? "t*%d" : "t", job->blocks[s]);
        if (s + 1 == p->n_stages)
            fputc('L', f);
    }
    if (f)
        fclose(f);
    flag_text(x, "pipeline-model-parallel-layout", text ? text : "");
    free(text);
}

/* The same but for the first and the last stage. */
static bool ends_alone(const struct plan_job *job) {
    int n = job->plan->n_stages;
    for (int s = 2; s < n - 1; s++)
        if (job->blocks[s] != job->blocks[1])
            return false;
    return n > 2 && job->chunks == 1 && job->blocks[0] && job->blocks[n - 1] &&
           job->blocks[1];
}

static void put_stages(struct flags *x, const struct plan_job *job) {
    int n = job->plan->n_stages, middle = n > 1 ? job->blocks[1] : 0;
    flag_int(x, "pipeline-model-parallel-size", job->pp);
    if (job->even) {
        if (job->chunks > 1)
            flag_int(x, "num-layers-per-virtual-pipeline-stage", job->blocks[0]);
        return;
    }
    if (!ends_alone(job)) {
        put_layout(x, job);
        return;
    }
    if (job->blocks[0] != middle)
        flag_int(x, "decoder-first-pipeline-num-layers", job->blocks[0]);
    if (job->blocks[n - 1] != middle)
        flag_int(x, "decoder-last-pipeline-num-layers", job->blocks[n - 1]);
}

static void put_recompute(struct flags *x, const struct plan_job *job) {
    if (job->recompute == RECOMPUTE_none)
        return;
    bool full = job->recompute == RECOMPUTE_all;
    flag_text(x, "recompute-granularity", full ? "full" : "selective");
    if (full) {
        flag_text(x, "recompute-method", "uniform");
        flag_int(x, "recompute-num-layers", 1);
    }
}

static void put_optimizer(struct flags *x, const struct plan_job *job) {
    static const char *const sharding[] = {"no_shard", "optim", "optim_grads",
                                           "optim_grads_params"};
    const struct plan *p = job->plan;
    if (p->optimizer == OPTIMIZER_sgd)
        flag_text(x, "optimizer", "sgd");
    if (job->zero == ZERO_OPTIMIZER)
        flag(x, "use-distributed-optimizer");
    if (job->zero > ZERO_OPTIMIZER) {
        flag(x, "use-megatron-fsdp");
        flag_text(x, "data-parallel-sharding-strategy", sharding[job->zero]);
    }
    if (p->overlap)
        flag(x, "overlap-grad-reduce");
    if (p->overlap && job->zero == ZERO_PARAMETERS)
        flag(x, "overlap-param-gather");
    if (job->offload)
        flag(x, "optimizer-cpu-offload");
    if (p->dtype == DTYPE_f32)
        return;
    flag(x, p->dtype == DTYPE_bf16 ? "bf16" : "fp16");
    if (p->dtype == DTYPE_bf16 && p->reduce == DTYPE_bf16)
        flag(x, "grad-reduce-in-bf16");
    if (p->dtype == DTYPE_f16 && p->reduce == DTYPE_f32)
        flag(x, "accumulate-allreduce-grads-in-fp32");
}

static void put_plan(struct flags *x, const struct plan_job *job) {
    flag_int(x, "tensor-model-parallel-size", job->tp);
    put_stages(x, job);
    if (job->cp > 1) {
        flag_int(x, "context-parallel-size", job->cp);
        flag_text(x, "cp-comm-type", job->ring ? "p2p" : "all_gather");
    }
    if (job->ep > 1)
        flag_int(x, "expert-model-parallel-size", job->ep);
    if (job->sp && job->tp > 1)
        flag(x, "sequence-parallel");
    flag_int(x, "micro-batch-size", plan_job_samples(job));
    flag_int(x, "global-batch-size", job->plan->batch);
    put_recompute(x, job);
    put_optimizer(x, job);
}

/* What the degrees allow, and the trainer does not. */
static int check_job(const struct plan_job *job, struct err *err) {
    const struct plan *p = job->plan;
    if (p->n_stages > 1 && p->schedule != SCHEDULE_1f1b &&
        p->schedule != SCHEDULE_interleaved)
        return err_input(err, "schedule: " TARGET " runs 1f1b or interleaved, the plan %s",
                         schedule_name(p->schedule));
    if (p->dtype == DTYPE_f16 && p->reduce == DTYPE_bf16)
        return err_input(err, "reduce: bf16, and " TARGET " sums gradients of fp16 in fp32 "
                              "or fp16");
    if (job->ep > 1 && job->tp > 1 && !job->sp)
        return err_input(err, "stages[0].layout: experts with tensor parallelism need the "
                              "sequence split over tp in " TARGET);
    if (job->zero > ZERO_OPTIMIZER && p->n_stages > 1)
        return err_input(err,
                         "stages[0].zero: %d, and " TARGET " shards no more than the "
                         "optimizer (1) in a pipeline",
                         job->zero);
    if (job->chunks > 1 && plan_micro_batches(p) % job->pp)
        return err_input(err,
                         "micro_batch: %lld micro-batches are no multiple of the %lld "
                         "device groups, which " TARGET " needs for interleaved stages",
                         (long long)plan_micro_batches(p), (long long)job->pp);
    return 0;
}

char *plan_to_megatron(const struct plan *p, struct err *err) {
    struct plan_job job;
    char *text = NULL;
    size_t size;
    if (plan_job_of(&job, p, TARGET, err) < 0)
        return NULL;
    if (check_job(&job, err) == 0) {
        struct flags x = {open_memstream(&text, &size)};
        if (x.f) {
            if (!put_model(&x, p->model, job.tp))
                fprintf(x.f, "# the flags of the model %s are yours\n", p->model->name);
            put_plan(&x, &job);
            fclose(x.f);
        }
    }
    plan_job_release(&job);
    return text;
}
