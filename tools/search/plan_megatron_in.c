/* A launch line of Megatron-LM as a plan: the model is a shipped family with the line's sizes, the plan
 * is made of its degrees. Defaults are those of megatron/training/arguments.py. A flag that is neither
 * read here nor known to say nothing of model and plan is refused by name. */
#include "plan_line.h"
#include "plan_shell.h"

#include "common/opt.h"
#include "common/progress.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Patterns of flags that say nothing of a model or a plan. */
static const char unread[] =
    "train-* eval-* lr* min-lr weight-decay* clip-grad adam-* sgd-* seed "
    "init-method-* save* load* no-save-* no-load-* finetune data-* "
    "*-data-path tokenizer-* vocab-file merge-file split num-workers "
    "dataloader-type mmap-* no-mmap* no-create-attention-mask* log-* "
    "tensorboard-* timing-* wandb-* profile* exit-* manual-gc* "
    "distributed-* use-mcore-models use-legacy-models transformer-impl "
    "attention-backend use-flash-attn attention-softmax-in-fp32 "
    "no-masked-* no-bias-* no-rope-fusion no-gradient-accumulation-fusion "
    "no-persist-* no-async-* moe-grouped-gemm moe-token-dispatcher-type "
    "moe-permute-fusion moe-router-dtype moe-per-layer-logging ckpt-* "
    "dist-ckpt-* async-save use-dist-ckpt* use-checkpoint-* auto-detect-* "
    "override-* mock-data master-* node-rank rdzv-* local-rank tee "
    "start-method max-restarts log-dir redirects job-name partition "
    "account time container-* nodelist exclusive mpi export output error "
    "gres rank cross-entropy-* tp-comm-overlap* defer-embedding-* "
    "no-check-* check-* tp-comm-bootstrap-backend "
    "apply-query-key-layer-scaling enable-* app-tag* reset-* "
    "eod-mask-loss sft calculate-per-token-loss "
    "make-vocab-size-divisible-by attention-dropout nccl-* delay-* "
    "use-cpu-* max-tokens-to-oom legacy-tokenizer "
    "num-dataset-builder-threads distribute-saved-activations "
    "overlap-p2p-communication use-tp-pp-dp-mapping "
    "moe-router-load-balancing-type empty-unused-memory-level "
    "initial-loss-scale loss-scale* hysteresis min-loss-scale "
    "rampup-batch-size";

/* ---- the model ------------------------------------------------------------------------------- */

/* What a family is told apart by. */
static int choose_family(struct line *l) {
    static const char *const norms[] = {"LayerNorm", "RMSNorm", NULL};
    static const char *const positions[] = {"learned_absolute", "rope", NULL};
    bool swiglu = line_flag(l, "swiglu"), bare = line_flag(l, "disable-bias-linear");
    bool qkv_bias = line_flag(l, "add-qkv-bias"), qk = line_flag(l, "qk-layernorm");
    bool experts = line_peek(l, "num-experts"),
         rotates = line_flag(l, "use-rotary-position-embeddings");
    int norm = line_word(l, "normalization", norms);
    int position = line_word(l, "position-embedding-type", positions);
    if (norm < 0 || position < 0)
        return -1;
    line_flag(l, "no-position-embedding"); /* of a rope */
    bool rope = rotates || position == 1;
    bool apart =
        line_peek(l, "group-query-attention") || line_peek(l, "context-parallel-size");
    if (swiglu && bare && rope && norm == 1)
        l->family = experts    ? qk ? "qwen3-moe" : "mixtral"
                    : qkv_bias ? "qwen2"
                    : qk       ? "qwen3"
                               : "llama";
    else if (!swiglu && !bare && !rope && norm == 0 && !experts && !qk)
        l->family = apart ? "gpt-qkv" : "gpt";
    else
        return err_input(l->err,
                         "%s%s%s%s%s: no family of models has these and not the others of "
                         "--swiglu, --disable-bias-linear, RMSNorm and rope",
                         swiglu ? "--swiglu " : "", bare ? "--disable-bias-linear " : "",
                         rope ? "rope " : "", norm ? "RMSNorm " : "LayerNorm ",
                         experts ? "--num-experts" : "");
    return 0;
}

static void set_size(json_t *doc, const char *name, int64_t value) {
    json_object_set_new(json_object_get(doc, "sizes"), name, json_integer(value));
}

static void set_rate(json_t *doc, const char *name, double value) {
    if (json_object_get(json_object_get(doc, "rates"), name))
        json_object_set_new(json_object_get(doc, "rates"), name, json_real(value));
}

/* Padded to a multiple of 128 times tp. */
static int set_vocab(struct line *l, json_t *doc) {
    int64_t vocab, by;
    bool said = line_peek(l, "vocab-size");
    if (line_int(l, "vocab-size", 50257, &vocab) < 0 ||
        line_int(l, "make-vocab-size-divisible-by", 128, &by) < 0)
        return -1;
    if (!said)
        note("weft-plan: --vocab-size is not said: taken is GPT-2's of 50257");
    by *= l->w.tp;
    set_size(doc, "vocab", (vocab + by - 1) / by * by);
    return 0;
}

static int set_heads(struct line *l, json_t *doc, int64_t hidden) {
    int64_t heads, groups, channels;
    bool grouped = line_flag(l, "group-query-attention");
    if (line_int(l, "num-attention-heads", -1, &heads) < 0 ||
        line_int(l, "num-query-groups", grouped ? 1 : heads, &groups) < 0 ||
        line_int(l, "kv-channels", heads ? hidden / heads : 1, &channels) < 0)
        return -1;
    set_size(doc, "heads", heads);
    set_size(doc, "kv", channels);
    if (strcmp(l->family, "gpt") != 0)
        set_size(doc, "kv_heads", grouped ? groups : heads);
    return 0;
}

static int set_experts(struct line *l, json_t *doc, int64_t ffn) {
    int64_t experts, top, width;
    double balance, capacity;
    const char *balancing = line_peek(l, "moe-router-load-balancing-type");
    if (line_int(l, "num-experts", -1, &experts) < 0 ||
        line_int(l, "moe-router-topk", 2, &top) < 0 ||
        line_int(l, "moe-ffn-hidden-size", ffn, &width) < 0 ||
        line_real(l, "moe-aux-loss-coeff", 0, &balance) < 0 ||
        line_real(l, "moe-expert-capacity-factor", 0, &capacity) < 0)
        return -1;
    if (balancing && strcmp(balancing, "aux_loss") != 0 && strcmp(balancing, "none") != 0)
        return err_input(l->err,
                         "--moe-router-load-balancing-type: \"%.64s\": expected "
                         "aux_loss",
                         balancing);
    set_size(doc, "experts", experts);
    set_size(doc, "top", top);
    set_size(doc, "ffn", width);
    set_size(doc, "normalize", !line_flag(l, "moe-router-pre-softmax"));
    set_rate(doc, "balance", balance);
    if (capacity > 0)
        set_size(doc, "slack", (int64_t)(100 * capacity + 0.5));
    return 0;
}

static int set_sequence(struct line *l, json_t *doc) {
    int64_t seq, most;
    if (line_int(l, "seq-length", -1, &seq) < 0 ||
        line_int(l, "max-position-embeddings", seq, &most) < 0)
        return -1;
    if (!strncmp(l->family, "gpt", 3) && most != seq)
        return err_input(l->err,
                         "--max-position-embeddings: %lld, and sequences of %lld: a "
                         "table of positions has as many",
                         (long long)most, (long long)seq);
    set_size(doc, "seq", seq);
    return 0;
}

static int set_rates(struct line *l, json_t *doc) {
    double eps, base, dropout, percent;
    if (line_real(l, "norm-epsilon", 1e-5, &eps) < 0 ||
        line_real(l, "rotary-base", 10000, &base) < 0 ||
        line_real(l, "rotary-percent", 1, &percent) < 0 ||
        line_real(l, "hidden-dropout", 0.1, &dropout) < 0)
        return -1;
    if (percent != 1)
        return err_input(l->err, "--rotary-percent: %g: only whole heads are turned",
                         percent);
    if (dropout > 0 && strncmp(l->family, "gpt", 3) != 0)
        note(
            "weft-plan: --hidden-dropout %g is left out, as models of the family %s have none",
            dropout, l->family);
    set_rate(doc, "eps", eps);
    set_rate(doc, "base", base);
    set_rate(doc, "dropout", dropout);
    return 0;
}

/* The document of the family with the line's sizes; new reference. */
static json_t *read_model(struct line *l) {
    char file[64], path[PATH_MAX];
    int64_t hidden, ffn;
    bool gpt = !strncmp(l->family, "gpt", 3);
    snprintf(file, sizeof file, "%s.json", l->family);
    json_t *doc = share_path("models", file, path, sizeof path, l->err) < 0
                      ? NULL
                      : json_read(path, l->err);
    if (!doc)
        return NULL;
    json_object_del(doc, "presets");
    json_object_del(doc, "default");
    int rc = line_int(l, "hidden-size", -1, &hidden);
    if (rc == 0)
        rc = line_int(l, "ffn-hidden-size", gpt ? 4 * hidden : 8 * hidden / 3 / 64 * 64,
                      &ffn);
    if (rc == 0) {
        set_size(doc, "layers", l->layers);
        set_size(doc, "hidden", hidden);
        set_size(doc, "ffn", ffn);
        set_size(doc, "tied", !line_flag(l, "untie-embeddings-and-output-weights"));
        rc = set_heads(l, doc, hidden) < 0 || set_sequence(l, doc) < 0 ||
                     set_vocab(l, doc) < 0 || set_rates(l, doc) < 0
                 ? -1
                 : 0;
    }
    if (rc == 0 && json_object_get(json_object_get(doc, "sizes"), "experts"))
        rc = set_experts(l, doc, ffn);
    if (rc == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

/* ---- stages ---------------------------------------------------------------------------------- */

typedef ARR(char) letters;

/* "Et*3|(tt|)*29" as letters and bars, brackets and repeats written out. Returns the rest. */
static const char *expand(const char *s, letters *out, int depth, struct err *err) {
    while (*s && *s != ')') {
        int64_t begin = out->n;
        if (*s == '(') {
            s = depth < 8 ? expand(s + 1, out, depth + 1, err) : NULL;
            if (!s || *s != ')') {
                err_input(err, "brackets that do not match");
                return NULL;
            }
        } else if (strchr("EtL|", *s)) {
            arr_push(out, *s);
        } else if (*s != ',') {
            err_input(err, "\"%c\" is none of E, t, L and |", *s);
            return NULL;
        }
        s++;
        if (*s != '*')
            continue;
        char *end;
        long times = strtol(s + 1, &end, 10);
        int64_t n = out->n - begin;
        if (end == s + 1 || times < 1 || times > 4096 || n * times > 1 << 20) {
            err_input(err, "expected a number of times behind *");
            return NULL;
        }
        s = end;
        for (int64_t i = n; i < n * times; i++)
            arr_push(out, out->p[begin + i % n]);
    }
    return s;
}

/* Layers of each stage; E must be first and L last. */
static int read_layout(struct line *l, const char *text, int stages, int *blocks) {
    letters x = {0};
    const char *end = expand(text, &x, 0, l->err);
    int s = 0, rc = end ? 0 : -1;
    if (end && *end)
        rc = err_input(l->err, "brackets that do not match");
    if (rc == 0 && (x.n < 2 || x.p[0] != 'E' || x.p[x.n - 1] != 'L'))
        rc = err_input(l->err, "expected E first and L last");
    for (int64_t i = 1; rc == 0 && i + 1 < x.n; i++) {
        s += x.p[i] == '|';
        if (x.p[i] == 'E' || x.p[i] == 'L' || s >= stages)
            rc = err_input(l->err,
                           s >= stages ? "more than %d stages" : "%d stages, E and L once",
                           stages);
        else
            blocks[s] += x.p[i] == 't';
    }
    if (rc == 0 && s != stages - 1)
        rc = err_input(l->err, "%d stages, expected %d", s + 1, stages);
    int64_t layers = 0;
    for (int k = 0; k < stages; k++)
        layers += blocks[k];
    if (rc == 0 && layers != l->layers)
        rc = err_input(l->err, "%lld layers, expected %lld", (long long)layers,
                       (long long)l->layers);
    for (int k = 1; rc == 0 && k + 1 < stages; k++)
        if (!blocks[k])
            rc = err_input(l->err, "stage %d is empty", k);
    arr_release(&x);
    return rc < 0 ? err_prefix(l->err, "--pipeline-model-parallel-layout: \"%.200s\"", text)
                  : 0;
}

/* The first and the last stage may have other numbers of layers than those between. */
static int read_ends(struct line *l, int stages, int *blocks) {
    int64_t first, last;
    bool has_first = line_peek(l, "decoder-first-pipeline-num-layers"),
         has_last = line_peek(l, "decoder-last-pipeline-num-layers");
    if (line_int(l, "decoder-first-pipeline-num-layers", 1, &first) < 0 ||
        line_int(l, "decoder-last-pipeline-num-layers", 1, &last) < 0)
        return -1;
    int64_t rest = l->layers - (has_first ? first : 0) - (has_last ? last : 0);
    int others = stages - has_first - has_last;
    if (rest < 0 || others < 0 || (others ? rest % others : rest))
        return err_input(l->err, "--num-layers: %lld do not divide among %d stages",
                         (long long)l->layers, stages);
    for (int s = 0; s < stages; s++)
        blocks[s] = (int)(s == 0 && has_first           ? first
                          : s == stages - 1 && has_last ? last
                                                        : rest / others);
    return 0;
}

static int read_stages(struct line *l, int **blocks) {
    int64_t pp, per, chunks;
    const char *layout = line_text(l, "pipeline-model-parallel-layout", NULL);
    if (line_int(l, "pipeline-model-parallel-size", 1, &pp) < 0 ||
        line_int(l, "num-layers-per-virtual-pipeline-stage", l->layers, &per) < 0 ||
        line_int(l, "num-virtual-stages-per-pipeline-rank", 0, &chunks) < 0)
        return -1;
    if (pp > l->layers + 2 || per > l->layers)
        return err_input(l->err,
                         "--pipeline-model-parallel-size: %lld stages of %lld layers",
                         (long long)pp, (long long)l->layers);
    if (!chunks)
        chunks = pp > 1 && per < l->layers / pp ? l->layers / pp / per : 1;
    if (layout && chunks == 1) { /* its stages say how many take turns */
        letters x = {0};
        struct err ignored = {0};
        int64_t bars = 0;
        if (expand(layout, &x, 0, &ignored))
            for (int64_t i = 0; i < x.n; i++)
                bars += x.p[i] == '|';
        arr_release(&x);
        chunks = (bars + 1) % pp == 0 ? (bars + 1) / pp : 1;
    }
    if (chunks > l->layers + 2)
        return err_input(l->err,
                         "--num-virtual-stages-per-pipeline-rank: %lld, of %lld layers",
                         (long long)chunks, (long long)l->layers);
    l->w.pp = pp;
    l->w.chunks = chunks;
    int stages = (int)(pp * chunks);
    *blocks = mem_array((size_t)stages, sizeof **blocks);
    l->w.blocks = *blocks;
    return layout ? read_layout(l, layout, stages, *blocks) : read_ends(l, stages, *blocks);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int read_devices(struct line *l) {
    int64_t nodes, each, ranks;
    const char *world = line_peek(l, "$WORLD_SIZE");
    bool said = line_peek(l, "nproc-per-node") || line_peek(l, "ntasks-per-node");
    if (line_int(l, "nnodes", 1, &nodes) < 0 ||
        line_int(l, "nproc-per-node", 0, &each) < 0 ||
        line_int(l, "nodes", nodes, &nodes) < 0 ||
        line_int(l, "ntasks-per-node", each, &each) < 0 ||
        line_int(l, "world-size", 0, &ranks) < 0)
        return -1;
    l->world = said ? nodes * each : ranks;
    if (said && l->world < 1 << 20) {
        snprintf(l->machines, sizeof l->machines, "node:%lld gpu:%lld", (long long)nodes,
                 (long long)each);
        l->w.cluster = l->machines;
    }
    if (!l->world && world && opt_parse_int(world, &l->world) < 0)
        l->world = 0;
    return 0;
}

static int read_degrees(struct line *l) {
    static const char *const ways[] = {"p2p", "all_gather", "allgather", NULL};
    struct plan_words *w = &l->w;
    int64_t expert_tp;
    if (line_int(l, "tensor-model-parallel-size", 1, &w->tp) < 0 ||
        line_int(l, "context-parallel-size", 1, &w->cp) < 0 ||
        line_int(l, "expert-model-parallel-size", 1, &w->ep) < 0 ||
        line_int(l, "expert-tensor-parallel-size", w->tp, &expert_tp) < 0)
        return -1;
    int way = line_word(l, "cp-comm-type", ways);
    if (way < 0)
        return -1;
    if (expert_tp != w->tp && w->ep > 1)
        return err_input(l->err,
                         "--expert-tensor-parallel-size: %lld, and experts are split as "
                         "--tensor-model-parallel-size says here: %lld",
                         (long long)expert_tp, (long long)w->tp);
    w->ring = w->cp > 1 && way == 0;
    w->sp = line_flag(l, "sequence-parallel");
    return 0;
}

/* What tensor, pipeline and context parallelism leave of the devices are replicas. */
static int read_replicas(struct line *l) {
    struct plan_words *w = &l->w;
    int64_t each = w->tp * w->pp * w->cp, micro, batch;
    if (!l->world) {
        l->world = each * w->ep;
        note("weft-plan: --nproc-per-node is not said: taken are %lld devices",
             (long long)l->world);
    }
    if (l->world % each)
        return err_input(
            l->err, "%lld devices are no multiple of tp %lld, pp %lld and cp %lld",
            (long long)l->world, (long long)w->tp, (long long)w->pp, (long long)w->cp);
    w->dp = l->world / each;
    if (line_int(l, "micro-batch-size", -1, &micro) < 0 ||
        line_int(l, "global-batch-size", micro * w->dp, &batch) < 0)
        return -1;
    w->micro_batch = micro * w->dp;
    w->batch = batch;
    return 0;
}

static int read_recompute(struct line *l) {
    static const char *const grains[] = {"", "selective", "full", NULL};
    static const char *const methods[] = {"uniform", "block", NULL};
    const char *modules = line_text(l, "recompute-modules", NULL);
    int64_t layers, most = l->w.blocks[0];
    int grain = line_word(l, "recompute-granularity", grains);
    int method = line_word(l, "recompute-method", methods);
    for (int64_t s = 0; s < l->w.pp * l->w.chunks; s++)
        most = l->w.blocks[s] > most ? l->w.blocks[s] : most;
    if (grain < 0 || method < 0 ||
        line_int(l, "recompute-num-layers", method ? most : 1, &layers) < 0)
        return -1;
    if (line_flag(l, "recompute-activations") && !grain)
        grain = 1;
    if (grain == 1 && modules && strcmp(modules, "core_attn") != 0)
        return err_input(l->err, "--recompute-modules: \"%.64s\": expected core_attn",
                         modules);
    if (grain == 2 && (method ? layers < most : layers != 1))
        return err_input(l->err,
                         "--recompute-num-layers: %lld: expected %lld, all layers one by "
                         "one",
                         (long long)layers, (long long)(method ? most : 1));
    l->w.recompute = grain == 2 ? "full" : grain == 1 ? "selective" : "none";
    return 0;
}

static int read_optimizer(struct line *l) {
    static const char *const optimizers[] = {"adam", "sgd", NULL};
    static const char *const sharding[] = {"no_shard", "optim", "optim_grads",
                                           "optim_grads_params", NULL};
    struct plan_words *w = &l->w;
    int optimizer = line_word(l, "optimizer", optimizers);
    int level = line_word(l, "data-parallel-sharding-strategy", sharding);
    if (optimizer < 0 || level < 0)
        return -1;
    bool fsdp = line_flag(l, "use-megatron-fsdp");
    fsdp |= line_flag(l, "use-custom-fsdp");
    w->zero = line_flag(l, "use-distributed-optimizer");
    w->zero = fsdp ? level : w->zero;
    w->optimizer = optimizer ? "sgd" : "adamw";
    w->overlap = line_flag(l, "overlap-grad-reduce");
    if (line_flag(l, "overlap-param-gather") && w->zero < ZERO_PARAMETERS)
        note(
            "weft-plan: --overlap-param-gather is left out: parameters that only an optimizer "
            "shards are gathered at the end of a step here");
    if (line_flag(l, "optimizer-cpu-offload"))
        w->offload = "optimizer";
    bool bf16 = line_flag(l, "bf16"), fp16 = line_flag(l, "fp16");
    bool wide = line_flag(l, "accumulate-allreduce-grads-in-fp32");
    bool narrow = line_flag(l, "grad-reduce-in-bf16");
    w->dtype = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    w->reduce = bf16 && narrow ? "bf16" : fp16 && !wide ? "fp16" : "fp32";
    return 0;
}

static json_t *read_line(struct line *l, int **blocks) {
    json_t *doc = NULL;
    if (line_int(l, "num-layers", -1, &l->layers) < 0 || choose_family(l) < 0 ||
        read_devices(l) < 0 || read_degrees(l) < 0 || read_stages(l, blocks) < 0 ||
        read_replicas(l) < 0 || read_recompute(l) < 0 || read_optimizer(l) < 0)
        return NULL;
    doc = read_model(l);
    struct model *m =
        doc && line_check_rest(l) == 0 ? model_from_json(doc, NULL, NULL, l->err) : NULL;
    json_t *plan = m ? plan_make_for(&l->w, m, l->err) : NULL;
    model_destroy(m);
    json_decref(doc);
    return plan;
}

json_t *plan_from_megatron(const char *text, struct err *err) {
    struct line l = {
        .flags = plan_shell_flags(text, err), .dash = "--", .unread = unread, .err = err};
    int *blocks = NULL;
    json_t *plan = l.flags ? read_line(&l, &blocks) : NULL;
    if (!plan && err)
        err->status = err->status == EXIT_SYSTEM ? EXIT_SYSTEM : EXIT_INPUT;
    json_decref(l.flags);
    free(blocks);
    return plan;
}
