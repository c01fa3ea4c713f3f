/* Hugging Face's config.json as a model: published models have as many parameters as their files, and
 * what cannot be expressed is refused by its key. */
#include "model.h"
#include "published.h"

#include "model/config.h"
#include "model/weights.h"

#include <math.h>

static int64_t count(const struct model *m) {
    int64_t n = 0;
    for (int p = 0; m && p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        n += extents_count(&x);
    }
    return n;
}

static struct model *model_of_config(const char *text, struct err *err) {
    json_t *config = json_of(text, err);
    json_t *doc = config_is(config) ? config_to_model(config, err) : NULL;
    struct model *m = doc ? model_from_json(doc, NULL, NULL, err) : NULL;
    json_decref(doc);
    json_decref(config);
    return m;
}

static void test_published(void) {
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct err err = {0};
        struct model *m = model_of_config(published[i].config, &err);
        ok(count(m) == published[i].parameters, "%s: %lld parameters, published %lld %s",
           published[i].name, (long long)count(m), (long long)published[i].parameters,
           err.msg);
        model_destroy(m);
    }
}

static void refuses(const char *config, const char *text, const char *what) {
    struct err err = {0};
    struct model *m = model_of_config(config, &err);
    ok(!m && err.status == EXIT_INPUT && strstr(err.msg, text) == err.msg, "%s: %s", what,
       err.msg);
    model_destroy(m);
}

/* Who has a model of another type is told how it comes in all the same. */
static void test_unknown(void) {
    struct err err = {0};
    struct model *m = model_of_config("{'model_type': 'mamba'}", &err);
    ok(!m && strstr(err.hint, "export-pt2.py") && strstr(err.hint, ".pt2"),
       "an unknown family: %s", err.hint);
    model_destroy(m);
}

#define SMALL LLAMA(2, 32, 4, 2, 48, 64, 16)
static void test_refused(void) {
    refuses("{'model_type': 'mamba'}", "model_type: \"mamba\"", "an unknown family");
    refuses("{'model_type': 'llama', 'rope_scaling': {'rope_type': 'longrope', "
            "'factor': 8.0}, " SMALL "}",
            "rope_scaling: {\"factor\":8.0,\"rope_type\":\"longrope\"}",
            "positions scaled in an unknown way");
    refuses("{'model_type': 'llama', 'rope_parameters': {'rope_type': 'longrope', "
            "'rope_theta': 10000.0, 'factor': 8.0}, " SMALL "}",
            "rope_scaling: ", "the same in its newer form");
    refuses("{'model_type': 'llama', 'rope_scaling': {'rope_type': 'yarn', 'factor': 8.0, "
            "'truncate': false}, " SMALL "}",
            "rope_scaling: ", "a way with a member that is not known");
    refuses(
        "{'model_type': 'phi3', 'rope_scaling': {'rope_type': 'longrope', 'short_factor': "
        "[1.0, 2.0], 'long_factor': [1.0, 'x']}, " SMALL "}",
        "rope_scaling: ", "a factor that is no number");
    refuses(
        "{'model_type': 'phi3', 'rope_scaling': {'rope_type': 'longrope', 'short_factor': "
        "[1.0, 2.0, 3.0], 'long_factor': [1.0, 2.0, 3.0]}, " SMALL "}",
        "ops[1] (layer).ops[4] (turn_q): short: expected a number for each of 4 pairs, got 3",
        "fewer factors than pairs");
#define MOE                                                                                \
    "'q_lora_rank': null, 'hidden_size': 32, 'num_hidden_layers': 2, "                     \
    "'num_attention_heads': 4, 'intermediate_size': 48, 'vocab_size': 64, "                \
    "'num_experts_per_tok': 2, 'rope_interleave': false}"
    refuses("{'model_type': 'deepseek_v2', 'topk_method': 'noaux_tc', " MOE,
            "topk_method: expected true or false", "a way to choose that the family lacks");
    refuses("{'model_type': 'deepseek_v3', " MOE, "rope_interleave: expected true",
            "pairs that lie otherwise");
    refuses("{'model_type': 'llama', 'sliding_window': 4096, " SMALL "}",
            "sliding_window: 4096", "a window");
    refuses("{'model_type': 'gemma2', 'layer_types': ['full_attention', "
            "'sliding_attention', 'sliding_attention'], " SMALL "}",
            "layer_types: ", "layers whose windows do not alternate");
    refuses("{'model_type': 'gemma3_text', 'rope_parameters': {'full_attention': "
            "{'rope_type': 'default'}, 'sliding_attention': {'rope_type': 'linear', "
            "'factor': 2.0}}, " SMALL "}",
            "rope_parameters: ", "layers with windows that are scaled");
    refuses("{'model_type': 'opt', 'word_embed_proj_dim': 16, 'hidden_size': 32, "
            "'ffn_dim': 48, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
            "'max_position_embeddings': 16, 'vocab_size': 64}",
            "word_embed_proj_dim: expected 32", "OPT 350M, whose embedding is narrower");
    refuses("{'model_type': 'bert', 'position_embedding_type': 'relative_key', "
            "'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
            "'intermediate_size': 48, 'max_position_embeddings': 16, 'vocab_size': 64}",
            "position_embedding_type: expected \"absolute\"", "BERT with other positions");
    refuses("{'model_type': 'vit', 'image_size': [224, 192]}",
            "image_size: expected a whole number", "an image that is no square");
    refuses("{'model_type': 'olmo2', 'attention_bias': true, " SMALL "}",
            "attention_bias: expected false", "biases that the family lacks");
    refuses("{'model_type': 'cohere', 'use_qk_norm': true, " SMALL "}",
            "use_qk_norm: expected false", "norms that the family lacks");
    refuses("{'model_type': 'smollm3', 'no_rope_layers': [1, 0, 0, 1], " SMALL "}",
            "no_rope_layers: [1,0,0,1]", "layers without positions at no distance");
    refuses("{'model_type': 'falcon', 'alibi': true, 'bias': true, 'parallel_attn': true, "
            "'multi_query': false, 'new_decoder_architecture': false, 'hidden_size': 32, "
            "'num_hidden_layers': 2, 'num_attention_heads': 4, 'vocab_size': 64}",
            "alibi: expected false", "Falcon with slopes, side by side");
    refuses("{'model_type': 'qwen3', 'layer_types': ['full_attention', "
            "'sliding_attention'], " SMALL "}",
            "layer_types: ", "layers of several types");
    refuses("{'model_type': 't5', 'feed_forward_proj': 'gated-silu', 'vocab_size': 64, "
            "'d_model': 32, 'd_ff': 48, 'd_kv': 8, 'num_heads': 4, 'num_layers': 2}",
            "feed_forward_proj: expected \"relu\"", "T5 with another gate");
    refuses("{'model_type': 'gpt2', 'n_embd': 32, 'n_head': 4, 'n_positions': 16, "
            "'vocab_size': 64}",
            "n_layer: missing", "a key that is missing");
    refuses("{'model_type': 'gpt2', 'n_embd': 32.5, 'n_head': 4, 'n_positions': 16, "
            "'vocab_size': 64, 'n_layer': 2}",
            "n_embd: expected a whole number", "half a dim");
    refuses("{'model_type': 'gpt2', 'n_embd': 32, 'n_head': 4, 'n_positions': 16, "
            "'vocab_size': 64, 'n_layer': 2, 'tie_word_embeddings': 1}",
            "tie_word_embeddings: expected true or false", "a number for a truth");
    refuses("{'model_type': 'gpt2', 'n_embd': 32, 'n_head': 4, 'n_positions': 16, "
            "'vocab_size': 64, 'n_layer': 2, 'resid_pdrop': 0.1, 'embd_pdrop': 0.2}",
            "embd_pdrop: expected 0.1", "two rates of what is one here");
}

/* A model's own config is read as the same model. */
static void test_return(const char *ref, const char *set) {
    struct err err = {0};
    struct model *m = model_load(ref, set, &err);
    json_t *config = m ? weights_config(m, &err) : NULL;
    json_t *doc = config ? config_to_model(config, &err) : NULL;
    struct model *back = doc ? model_from_json(doc, NULL, NULL, &err) : NULL;
    ok(back && back->hash == m->hash, "%s: out as config.json and in again: the same %s",
       ref, err.msg);
    ok(config && config_check(m, config, &err) == 0, "and not refused beside weights %s",
       err.msg);
    json_decref(doc);
    json_decref(config);
    model_destroy(back);
    model_destroy(m);
}

/* How many keys a query sees at most in each of a config's attentions, in their order. */
static void windows_are(const char *config, const char *want, const char *what) {
    struct err err = {0};
    struct model *m = model_of_config(config, &err);
    char got[256] = "";
    for (int i = 0; m && i < m->n_ops; i++)
        if (m->ops[i].kind == OP_attention)
            snprintf(got + strlen(got), sizeof got - strlen(got), " %g/%g",
                     m->ops[i].attr[ATTR_window], m->ops[i - 1].attr[ATTR_base]);
    ok(!strcmp(got, want), "%s:%s %s", what, got, err.msg);
    model_destroy(m);
}

/* LongRoPE: the length of a sequence chooses the list; the gain is that of the model's. */
static void test_longrope(void) {
    static const struct {
        const char *set;
        double slower;
    } cases[] = {{NULL, 8.25}, {"seq=16", 1.5}, {"seq=17", 8.25}};
    struct err err = {0};
    json_t *config = json_of(
        "{'model_type': 'phi3', 'rope_scaling': {'rope_type': 'longrope', "
        "'short_factor': [1, 1.5], 'long_factor': [4, 8.25]}, "
        "'original_max_position_embeddings': 16, " LLAMA(2, 32, 8, 2, 48, 64, 256) "}",
        &err);
    json_t *doc = config ? config_to_model(config, &err) : NULL;
    for (int i = 0; i < 3; i++) {
        struct model *m = doc ? model_from_json(doc, NULL, cases[i].set, &err) : NULL;
        const struct model_op *turn = m ? &m->ops[5] : NULL;
        ok(turn && turn->kind == OP_rotary && turn->slower &&
               turn->slower[1] == cases[i].slower &&
               fabs(turn->attr[ATTR_gain] - sqrt(2)) < 1e-15,
           "longrope, %s: the second pair turns %g times slower %s",
           cases[i].set ? cases[i].set : "as it is", turn ? turn->slower[1] : 0, err.msg);
        json_t *back = m ? weights_config(m, &err) : NULL;
        json_t *again = back ? config_to_model(back, &err) : NULL;
        struct model *n = again ? model_from_json(again, NULL, NULL, &err) : NULL;
        ok(n && n->hash == m->hash, "out as config.json and in again: the same %s",
           err.msg);
        model_destroy(n);
        json_decref(again);
        json_decref(back);
        model_destroy(m);
    }
    json_decref(doc);
    json_decref(config);
}

#define FIVE LLAMA(5, 32, 4, 2, 48, 64, 16) ", 'head_dim': 8"
static void test_windows(void) {
    windows_are(
        "{'model_type': 'mistral', 'rms_norm_eps': 1e-5, 'sliding_window': 7, " SMALL "}",
        " 7/10000 7/10000", "Mistral's");
    windows_are("{'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': 7, "
                "'max_window_layers': 3, " FIVE "}",
                " 0/10000 0/10000 0/10000 7/10000 7/10000", "Qwen2's, of its last layers");
    windows_are("{'model_type': 'qwen2', 'use_sliding_window': true, 'sliding_window': 7, "
                "'max_window_layers': 9, 'layer_types': ['full_attention', "
                "'sliding_attention', 'sliding_attention', 'sliding_attention', "
                "'sliding_attention'], " FIVE "}",
                " 0/10000 7/10000 7/10000 7/10000 7/10000", "a list goes before a number");
    windows_are("{'model_type': 'qwen2', 'use_sliding_window': false, 'sliding_window': 7, "
                "'max_window_layers': 3, " FIVE "}",
                " 0/10000 0/10000 0/10000 0/10000 0/10000", "switched off");
    windows_are("{'model_type': 'gemma2', 'sliding_window': 9, " FIVE "}",
                " 9/10000 0/10000 9/10000 0/10000 9/10000", "Gemma 2's, which alternate");
    windows_are(
        "{'model_type': 'gemma3_text', 'sliding_window': 9, "
        "'sliding_window_pattern': 3, 'rope_theta': 500, 'rope_local_base_freq': 20, "
        "" FIVE "}",
        " 9/20 9/20 0/500 9/20 9/20", "Gemma 3's, which turn otherwise");
    windows_are("{'model_type': 'gemma3_text', 'sliding_window': 9, 'layer_types': "
                "['sliding_attention', 'full_attention', 'sliding_attention', "
                "'full_attention', 'sliding_attention'], 'rope_parameters': "
                "{'full_attention': {'rope_type': 'default', 'rope_theta': 500}, "
                "'sliding_attention': {'rope_type': 'default', 'rope_theta': 20}}, " FIVE
                "}",
                " 9/20 0/500 9/20 0/500 9/20", "the same in the newer form");
}

static void beside(const char *ref, const char *config, const char *text,
                   const char *what) {
    struct err err = {0};
    struct model *m = model_load(ref, NULL, &err);
    json_t *c = json_of(config, &err);
    int rc = m ? config_check(m, c, &err) : -1;
    ok(text ? rc < 0 && err.status == EXIT_INPUT && strstr(err.msg, text) == err.msg
            : rc == 0,
       "%s: %s", what, err.msg);
    json_decref(c);
    model_destroy(m);
}

static void test_beside(void) {
    beside("gpt:nano", "{'model_type': 'gpt2', 'n_head': 6, 'attn_pdrop': 0.1}", NULL,
           "what is left out, and dropout, may differ");
    beside("gpt:nano", "{'model_type': 'gpt2', 'n_head': 12}", "n_head: expected 6",
           "another number of heads");
    beside("gpt:nano", "{'model_type': 'gpt2', 'activation_function': 'relu'}",
           "activation_function: expected \"gelu_new\"", "GPT-2 with relu");
    beside("phi3:nano",
           "{'model_type': 'phi3', 'num_key_value_heads': 2, 'sliding_window': 64}",
           "sliding_window: expected null", "a window that the model has not");
    beside("llama:nano", "{'model_type': 'gemma'}", "model_type: expected that of llama",
           "Gemma as Llama");
    beside("mistral:nano",
           "{'model_type': 'mistral', 'sliding_window': 4096, "
           "'num_key_value_heads': 2, 'rms_norm_eps': 1e-5}",
           "sliding_window: expected 64", "another window");
    beside("llama:nano", "{'model_type': 'mistral', 'sliding_window': null}",
           "model_type: expected that of llama", "Mistral as Llama");
    beside("llama:nano",
           "{'model_type': 'llama', 'num_key_value_heads': 2, 'rms_norm_eps': 1e-5, "
           "'rope_scaling': {'rope_type': 'yarn', 'factor': 8.0}}",
           "rope_scaling.factor: expected 1", "scaled positions");
    beside("llama:nano", "{'model_type': 'llama', 'num_key_value_heads': 2}",
           "rms_norm_eps: expected 1.", "a default that is not the model's");
    beside("mlp", "{'model_type': 'vit'}", NULL, "a model without names elsewhere");
}

int main(void) {
    test_published();
    test_refused();
    test_unknown();
    test_return("gpt:nano", NULL);
    test_return("gpt:gpt2", NULL);
    test_return("llama:nano", "tied=1");
    test_return("mixtral:nano", NULL);
    test_return("qwen2:nano", NULL);
    test_return("qwen3:nano", NULL);
    test_return("qwen3-moe:nano", NULL);
    test_return("llama:nano", "rope_factor=8,rope_original=64,rope_low=1,rope_high=4");
    test_return(
        "qwen2:nano",
        "rope_factor=4,rope_original=64,rope_high=32,rope_by_pair=1,rope_gain=1.13");
    test_return("llama:nano", "rope_factor=2");
    test_return("phi3:nano", "share=0.75");
    test_return("gpt-neox:nano", NULL);
    test_return("falcon:nano", NULL);
    test_return("falcon-new:nano", NULL);
    test_return("falcon-rw:nano", NULL);
    test_return("gemma:nano", NULL);
    test_return("llama:nano", "attention_biased=1,mlp_biased=1");
    test_return("olmo2:nano", NULL);
    test_return("olmoe:nano", NULL);
    test_return("granite:nano", "attention_biased=1");
    test_return("stablelm:nano", "biased=1");
    test_return("starcoder2:nano", "window=0");
    test_return("smollm3:nano", "pattern=3");
    test_return("phi:nano", NULL);
    test_return("gptj:nano", NULL);
    test_return("cohere:nano", NULL);
    test_return("cohere2:nano", NULL);
    test_return("nemotron:nano", NULL);
    test_return("qwen2-moe:nano", "biased=0");
    test_return("roberta:nano", NULL);
    test_return("distilbert:nano", NULL);
    test_return("bart:nano", "dec_layers=2");
    test_return("bloom:nano", NULL);
    test_return("deepseek-v2:nano", NULL);
    test_return("deepseek-v2:nano", "q_rank=0,grouped=0,parts=1,kept=1,rope_gain=1.1");
    test_return("deepseek-v3:nano", "normalize=0,rope_temper=0.5");
    test_return("deepseek-v3:nano",
                "rope_factor=1,rope_original=0,rope_high=4,rope_by_pair=0,"
                "rope_temper=0");
    test_return("mistral:nano", NULL);
    test_return("qwen2:nano", "sliding=1,window=32,unbounded=2");
    test_return("gemma2:nano", "layers=5");
    test_return("gemma3:nano", "layers=5,rope_factor=8");
    test_return("gemma3:nano", "layers=3,pattern=6");
    test_return("opt:nano", NULL);
    test_return("bert:nano", NULL);
    test_return("vit:nano", NULL);
    test_return("t5-gated:nano", "seq=512,target_seq=512");
    test_windows();
    test_longrope();
    test_return("t5:nano", "seq=2048,target_seq=512");
    test_beside();
    return done_testing();
}
