/* Flags of a launch line, as text, numbers and words. */
#include "plan_megatron_flags.h"

#include "common/opt.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

const char *line_peek(const struct line *l, const char *name) {
    return json_string_value(json_object_get(l->flags, name));
}

bool line_flag(struct line *l, const char *name) {
    return json_object_del(l->flags, name) == 0;
}

/* The text lives as long as `keep`, a JSON object. */
const char *line_text(struct line *l, const char *name, const char *otherwise) {
    json_t *v = json_object_get(l->flags, name);
    if (!v)
        return otherwise;
    char key[96];
    snprintf(key, sizeof key, " %s", name); /* which no flag is called */
    json_object_set(l->flags, key, v);
    json_object_del(l->flags, name);
    return line_peek(l, key);
}

int line_int(struct line *l, const char *name, int64_t otherwise, int64_t *out) {
    const char *text = line_text(l, name, NULL);
    *out = otherwise;
    if (!text)
        return otherwise < 0 ? err_input(l->err, "--%s: missing, and needed", name) : 0;
    if (opt_parse_int(text, out) < 0 || *out < 1 || *out > (int64_t)1 << 40)
        return err_input(l->err, "--%s: expected a number from 1, got \"%.64s\"", name,
                         text);
    return 0;
}

int line_real(struct line *l, const char *name, double otherwise, double *out) {
    const char *text = line_text(l, name, NULL);
    char *end = NULL;
    *out = text ? strtod(text, &end) : otherwise;
    return !text || (end != text && !*end && *out >= 0 && *out < 1e15)
               ? 0
               : err_input(l->err, "--%s: expected a number, got \"%.64s\"", name, text);
}

/* One of some words; the number of it. */
int line_word(struct line *l, const char *name, const char *const *words) {
    const char *text = line_text(l, name, words[0]);
    for (int i = 0; words[i]; i++)
        if (!strcmp(text, words[i]))
            return i;
    err_input(l->err, "--%s: \"%.64s\" cannot be expressed here", name, text);
    return -1;
}

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

static bool is_unread(const char *name) {
    char *patterns = mem_strdup(unread), *save = NULL;
    bool found = *name == '$' || *name == ' '; /* a variable; what has been read */
    for (char *p = strtok_r(patterns, " ", &save); p && !found;
         p = strtok_r(NULL, " ", &save))
        found = !fnmatch(p, name, 0);
    free(patterns);
    return found;
}

int line_check_rest(struct line *l) {
    const char *name;
    json_t *v;
    json_object_foreach(l->flags, name, v) {
        if (!is_unread(name))
            return err_input(l->err, "--%.64s %.64s: this is not understood", name,
                             json_string_value(v));
    }
    return 0;
}
