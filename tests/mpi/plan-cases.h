/* plan-cases.h - the models that random plans are of: every family, with ties, dropout, several repeats
 * and losses, some of them trained in part, in sizes that many numbers divide.
 */
#ifndef WEFT_TEST_PLAN_CASES_H
#define WEFT_TEST_PLAN_CASES_H

#include "model/model.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

#define MODELS "./tests/models/"
static const struct {
    const char *model, *set;
} cases[] = {
    {"gpt:nano", "layers=2,hidden=48,heads=12,seq=24,vocab=48,tied=1"},
    {MODELS "encdec.json", ""},
    {"gpt:nano", "layers=2,hidden=48,heads=12,seq=24,vocab=48,tied=0"},
    {MODELS "nested.json", ""},
    {"gpt:nano", "layers=3,hidden=48,heads=6,seq=12,vocab=96,tied=1,dropout=0.1"},
    {MODELS "patches.json", ""},
    {"gpt:nano", "layers=1,hidden=96,heads=24,seq=24,vocab=48,tied=1"},
    {"mlp:mnist", "pixels=48,hidden=96,inner=48,classes=24,layers=2"},
    {"gpt:nano", "layers=4,hidden=24,heads=6,seq=8,vocab=24,tied=0,dropout=0.2"},
    {MODELS "encdec.json", "encoders=1,decoders=3,ffn=96,vocab=24,dropout=0.1"},
    {"gpt:nano", "layers=2,hidden=48,heads=8,seq=6,vocab=192,tied=1"},
    {MODELS "nested.json", "narrow=24,heads=12,seq=24,dropout=0.1"},
    {"mlp:mnist", "pixels=24,hidden=48,inner=192,classes=12,layers=4,dropout=0.1"},
    {MODELS "patches.json", "rows=4,columns=24,hidden=96,groups=24,layers=3"},
    {"mlp:mnist", "pixels=96,hidden=24,inner=24,classes=48,layers=1"},
    {MODELS "products.json", ""},
    {"gpt:nano", "layers=2,hidden=36,heads=12,seq=24,vocab=72,tied=1"},
    /* targets that do not count: some samples' more than others' */
    {MODELS "pairs.json", ""},
    {MODELS "pairs.json", "layers=1,target_seq=24,ffn=96,vocab=96,skip=1"},
    {MODELS "experts.json", ""},
    {"moe:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48,experts=4,slack=80"},
    {"moe:nano", "layers=4,hidden=24,heads=4,seq=8,vocab=24,experts=12,group=2,tied=0"},
    {MODELS "windows.json", ""},
    {"wide-resnet:nano", "image=12,base=4,classes=12,group=6"},
    {MODELS "windows.json", "rows=12,columns=24,channels=12,taps=5,b=12"},
    {MODELS "attend.json",
     "seq=12,other=24,heads=12,kv_heads=6,hidden=24,vocab=48,window=5,cap=0.5"},
    {"llama:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=24,vocab=48"},
    {"t5:nano",
     "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=24,target_seq=12,vocab=48,buckets=8"},
    {"gpt-qkv:nano", "layers=2,hidden=48,heads=6,kv_heads=3,seq=24,vocab=48,tied=1"},
    {"transformer:nano", "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=24,vocab=48"},
    {"llama:nano", "layers=2,hidden=48,heads=12,kv_heads=2,ffn=96,seq=12,vocab=48,tied=1"},
    {"t5:nano",
     "layers=2,hidden=24,heads=4,kv=6,ffn=48,seq=12,target_seq=24,vocab=24,dropout=0.1"},
    {"mixtral:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=48,seq=12,vocab=48,experts=6"},
    {"mixtral:nano",
     "layers=3,hidden=24,heads=4,kv_heads=2,ffn=24,seq=8,vocab=24,experts=12,"
     "top=3,group=2,slack=100,tied=1"},
    {"qwen2:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=12,vocab=48,tied=0"},
    {"qwen3:nano", "layers=2,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=24,vocab=48"},
    {"qwen3-moe:nano",
     "layers=2,hidden=24,heads=6,kv_heads=3,kv=4,ffn=24,seq=12,vocab=24,experts=6"},
    {MODELS "block.json", "layers=2,seq=24,hidden=24,heads=12,ffn=48,vocab=48,tied=1"},
    {MODELS "switch.json", "seq=12,hidden=24,ffn=48,vocab=24,experts=6"},
    {MODELS "convnet.json", "height=12,width=24,channels=6,hidden=12,out=24,classes=12"},
    {MODELS "capped.json", ""},
    {"phi3:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=12,vocab=48,share=0.5"},
    {"gpt-neox:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48"},
    {"gemma:nano", "layers=2,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=24,vocab=48"},
    {MODELS "places.json", ""},
    {MODELS "places.json", "front=6,first=0,hidden=48,heads=12,seq=6,layers=1"},
    /* Softmax sees no biases of keys that are not turned: their gradients are rounding noise, of which
     * AdamW would make full steps. So these stand where case_optimizer() says SGD. */
    {"opt:nano", "layers=2,hidden=24,heads=6,positions=16,seq=12,vocab=24"},
    {"gemma2:nano",
     "layers=2,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=12,vocab=24,window=5,fan=6"},
    {"gemma3:nano",
     "layers=3,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=12,vocab=24,window=4"},
    {"bert:nano", "layers=2,hidden=24,heads=6,positions=12,seq=8,vocab=24"}, /* SGD */
    {"t5-gated:nano",
     "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=12,target_seq=8,vocab=24,buckets=8"},
    /* branches beside each other, of which stages have some of each */
    {MODELS "towers.json", "wides=2,narrows=3,dropout=0.1"},
    {"vit:nano", "layers=2,hidden=24,heads=6,image=12,patch=4,classes=12"}, /* SGD */
    {MODELS "tasks.json", ""},
    {"falcon:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48"},
    {"falcon-new:nano", "layers=2,hidden=48,heads=12,kv_heads=4,seq=12,vocab=48"},
    {MODELS "adapters.json",
     "layers=2,seq=24,hidden=24,heads=12,ffn=48,vocab=48,tied=1,lora=6,lora_alpha=3"},
    /* documents in a sequence: attention inside them, rows at positions in them */
    {"llama:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=24,vocab=12,documents=3"},
    {"opt:nano",
     "layers=2,hidden=24,heads=6,positions=16,seq=12,vocab=12,documents=7"}, /* SGD */
    {"gpt:nano", "layers=2,hidden=48,heads=12,seq=24,vocab=12,tied=1,documents=0"},
    {"gemma3:nano", "layers=2,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=24,vocab=12,"
                    "window=4,documents=5"},
    {"bloom:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48"}, /* SGD */
    {"deepseek-v2:nano",
     "layers=2,hidden=24,heads=6,q_rank=12,kv_rank=12,nope=4,rope=4,value=6,ffn=48,"
     "expert_ffn=24,shared=1,seq=12,vocab=24,experts=6,parts=3"},
    {"deepseek-v3:nano",
     "layers=3,dense=1,hidden=24,heads=6,q_rank=12,kv_rank=24,nope=6,rope=4,value=4,ffn=24,"
     "expert_ffn=12,shared=2,seq=8,vocab=48,experts=12,top=3,parts=6,kept=3"},
    {"bloom:nano", "layers=2,hidden=24,heads=12,seq=24,vocab=12,documents=5"}, /* SGD */
    {"deepseek-v2:nano",
     "layers=2,dense=0,hidden=24,heads=12,q_rank=0,kv_rank=12,nope=4,rope=2,value=2,ffn=48,"
     "expert_ffn=24,shared=2,seq=12,vocab=24,experts=4,grouped=0"},
    {MODELS "turns.json", ""},
    {"falcon-rw:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48"}, /* SGD */
    {"olmo2:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=12,vocab=48"},
    {"granite:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=48,seq=12,vocab=48,mlp_biased=1"},
    {"bart:nano", "layers=2,dec_layers=1,hidden=24,heads=6,ffn=48,positions=12,seq=8,"
                  "target_seq=12,vocab=24"}, /* SGD */
    {"cohere2:nano",
     "layers=2,hidden=48,heads=6,kv_heads=3,ffn=48,seq=12,vocab=48,window=5"},
    {"gptj:nano", "layers=2,hidden=48,heads=6,rope=4,seq=12,vocab=48"},
    {"smollm3:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=48,seq=12,vocab=48,"
                     "attention_biased=1"}, /* SGD */
    {"nemotron:nano", "layers=2,hidden=24,heads=6,kv_heads=3,kv=8,ffn=48,seq=12,vocab=24"},
    {"qwen2-moe:nano", "layers=2,hidden=24,heads=6,kv_heads=3,ffn=24,shared_ffn=12,seq=12,"
                       "vocab=24,experts=6"},
    {"roberta:nano", "layers=2,hidden=24,heads=6,positions=14,seq=8,vocab=24"}, /* SGD */
    {"stablelm:nano", "layers=2,hidden=48,heads=6,kv_heads=2,ffn=48,seq=12,vocab=24"},
    {"olmoe:nano",
     "layers=2,hidden=24,heads=6,kv_heads=3,ffn=24,seq=12,vocab=24,experts=6"},
};
enum { WHOLE_CASES = sizeof cases / sizeof *cases };

/* Of these some parameters are frozen: below all that is trained, between, in one branch, beside a bias. */
static const struct {
    const char *model, *set, *frozen;
} frozen_cases[] = {
    {"gpt:nano", "layers=3,hidden=48,heads=12,seq=24,vocab=48,tied=1", "wte wpe layer.0-1"},
    {"gpt:nano", "layers=2,hidden=48,heads=6,seq=12,vocab=48,tied=1,dropout=0.1",
     "* !layer.*.*.bias !layer.1.ln1"},
    {MODELS "encdec.json", "encoders=2,decoders=2", "wte enc.0 dec.*.fc.weight memory"},
    {"llama:nano", "layers=2,hidden=48,heads=12,kv_heads=4,ffn=96,seq=24,vocab=48",
     "* !layer.1.q !layer.0.norm2 !head"},
    {"t5:nano",
     "layers=2,hidden=24,heads=6,kv=4,ffn=48,seq=24,target_seq=12,vocab=48,buckets=8",
     "wte enc norm dec.*.attn dec.0.cross_k"},
    {MODELS "places.json", "", "wte before place layer.0.q"},
    {"mixtral:nano",
     "layers=2,hidden=48,heads=12,kv_heads=4,ffn=48,seq=12,vocab=48,experts=6",
     "layer.*.router layer.0"},
    {"wide-resnet:nano", "image=12,base=4,classes=12,group=6",
     "conv bn.weight bn.bias bn.mean stage.0.first.*.conv1 stage.0.*.*.bn2"},
    {MODELS "tasks.json", "", "trunk up1 down1 up2"},
    {MODELS "experts.json", "", "wte router up layer.*.up"},
};
enum { CASES = WHOLE_CASES + sizeof frozen_cases / sizeof *frozen_cases };

static struct model *load_frozen(int c, struct err *err) {
    json_t *doc = model_document(frozen_cases[c].model, err), *list = json_array();
    char patterns[128], *save;
    snprintf(patterns, sizeof patterns, "%s", frozen_cases[c].frozen);
    for (char *p = strtok_r(patterns, " ", &save); p; p = strtok_r(NULL, " ", &save))
        json_array_append_new(list, json_string(p));
    json_object_set_new(doc, "frozen", list);
    struct model *m = doc ? model_from_json(doc, NULL, frozen_cases[c].set, err) : NULL;
    json_decref(doc);
    return m;
}

static struct model *load_case(int c, struct err *err) {
    return c < WHOLE_CASES ? model_load(cases[c].model, cases[c].set, err)
                           : load_frozen(c - WHOLE_CASES, err);
}

static enum optimizer case_optimizer(int c) {
    static const enum optimizer by[] = {OPTIMIZER_adamw, OPTIMIZER_sgd, OPTIMIZER_muon,
                                        OPTIMIZER_lion,  OPTIMIZER_sgd, OPTIMIZER_adamw};
    return by[c % 6];
}

#endif
