/* Hugging Face's config.json as a model: published models have as many parameters as their files, and
 * what cannot be expressed is refused by its key. */
#include "model.h"

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

/* What of config.json concerns the model, and the number of parameters that the model's
 * safetensors have. Both are written down from memory; that they agree to the last one
 * is what checks either. */
static const struct {
    const char *name;
    int64_t parameters;
    const char *config;
} published[] = {
#define LLAMA(layers, hidden, heads, kv, ffn, vocab, seq)                                  \
    "'num_hidden_layers': " #layers ", 'hidden_size': " #hidden                            \
    ", 'num_attention_heads': " #heads ", 'num_key_value_heads': " #kv                     \
    ", 'intermediate_size': " #ffn ", 'vocab_size': " #vocab                               \
    ", 'max_position_embeddings': " #seq ", 'hidden_act': 'silu'"
#define GPT2(layers, hidden, heads)                                                        \
    "{'model_type': 'gpt2', 'activation_function': 'gelu_new', 'attn_pdrop': 0.1, "        \
    "'embd_pdrop': 0.1, 'resid_pdrop': 0.1, 'layer_norm_epsilon': 1e-05, 'n_ctx': 1024, "  \
    "'n_positions': 1024, 'vocab_size': 50257, 'initializer_range': 0.02, "                \
    "'summary_type': 'cls_index', 'summary_use_proj': true, 'bos_token_id': 50256, "       \
    "'n_layer': " #layers ", 'n_embd': " #hidden ", 'n_head': " #heads "}"
    {"openai-community/gpt2", 124439808, GPT2(12, 768, 12)},
    {"openai-community/gpt2-medium", 354823168, GPT2(24, 1024, 16)},
    {"openai-community/gpt2-large", 774030080, GPT2(36, 1280, 20)},
    {"openai-community/gpt2-xl", 1557611200, GPT2(48, 1600, 25)},
    {"meta-llama/Llama-2-7b-hf", 6738415616,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_scaling': null, "
     "'tie_word_embeddings': false, " LLAMA(32, 4096, 32, 32, 11008, 32000, 4096) "}"},
    {"meta-llama/Llama-2-13b-hf", 13015864320,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, " LLAMA(40, 5120, 40, 40, 13824, 32000,
                                                             4096) "}"},
    {"meta-llama/Llama-2-70b-hf", 68976648192,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, " LLAMA(80, 8192, 64, 8, 28672, 32000,
                                                             4096) "}"},
    {"meta-llama/Meta-Llama-3-8B", 8030261248,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, "
     "'attention_bias': false, 'pretraining_tp': 1, 'torch_dtype': 'bfloat16', " LLAMA(
         32, 4096, 32, 8, 14336, 128256, 8192) "}"},
    {"meta-llama/Meta-Llama-3-70B", 70553706496,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, " LLAMA(
         80, 8192, 64, 8, 28672, 128256, 8192) "}"},
#define LLAMA3(factor)                                                                     \
    "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 500000.0, "              \
    "'attention_bias': false, 'mlp_bias': false, 'rope_scaling': {'factor': " #factor      \
    ", 'high_freq_factor': 4.0, 'low_freq_factor': 1.0, "                                  \
    "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}, "
    {"meta-llama/Llama-3.1-8B", 8030261248,
     LLAMA3(8.0) LLAMA(32, 4096, 32, 8, 14336, 128256, 131072) "}"},
    {"meta-llama/Llama-3.1-405B", 405853388800,
     LLAMA3(8.0) LLAMA(126, 16384, 128, 8, 53248, 128256, 131072) "}"},
    {"meta-llama/Llama-3.2-1B", 1235814400,
     LLAMA3(32.0) "'head_dim': 64, 'tie_word_embeddings': true, " LLAMA(
         16, 2048, 32, 8, 8192, 128256, 131072) "}"},
    {"meta-llama/Llama-3.2-3B", 3212749824,
     LLAMA3(32.0) "'head_dim': 128, 'tie_word_embeddings': true, " LLAMA(
         28, 3072, 24, 8, 8192, 128256, 131072) "}"},
    {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1100048384,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, " LLAMA(22, 2048, 32, 4, 5632, 32000,
                                                             2048) "}"},
    {"HuggingFaceTB/SmolLM-135M", 134515008,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'tie_word_embeddings': true, " LLAMA(
         30, 576, 9, 3, 1536, 49152, 2048) "}"},
    {"HuggingFaceTB/SmolLM2-1.7B", 1711376384,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 130000, "
     "'tie_word_embeddings': true, " LLAMA(24, 2048, 32, 32, 8192, 49152, 8192) "}"},
    {"01-ai/Yi-6B", 6061035520,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 5000000.0, " LLAMA(
         32, 4096, 32, 4, 11008, 64000, 4096) "}"},
    {"01-ai/Yi-34B", 34388917248,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 5000000.0, " LLAMA(
         60, 7168, 56, 8, 20480, 64000, 4096) "}"},
    {"codellama/CodeLlama-34b-hf", 33743970304,
     "{'model_type': 'llama', 'rms_norm_eps': 1e-05, 'rope_theta': 1000000, " LLAMA(
         48, 8192, 64, 8, 22016, 32000, 16384) "}"},
    {"mistralai/Mistral-7B-v0.3", 7248023552,
     "{'model_type': 'mistral', 'rms_norm_eps': 1e-05, 'rope_theta': 1000000.0, "
     "'sliding_window': null, " LLAMA(32, 4096, 32, 8, 14336, 32768, 32768) "}"},
    {"mistralai/Mistral-Nemo-Base-2407", 12247782400,
     "{'model_type': 'mistral', 'rms_norm_eps': 1e-05, 'rope_theta': 1000000.0, "
     "'head_dim': 128, 'sliding_window': null, " LLAMA(40, 5120, 32, 8, 14336, 131072,
                                                       128000) "}"},
    {"mistralai/Mixtral-8x7B-v0.1", 46702792704,
     "{'model_type': 'mixtral', 'rms_norm_eps': 1e-05, 'rope_theta': 1000000.0, "
     "'sliding_window': null, 'num_local_experts': 8, 'num_experts_per_tok': 2, "
     "'output_router_logits': false, 'router_aux_loss_coef': 0.02, " LLAMA(
         32, 4096, 32, 8, 14336, 32000, 32768) "}"},
    {"mistralai/Mixtral-8x22B-v0.1", 140620634112,
     "{'model_type': 'mixtral', 'rms_norm_eps': 1e-05, 'rope_theta': 1000000, "
     "'sliding_window': null, 'num_local_experts': 8, 'num_experts_per_tok': 2, " LLAMA(
         56, 6144, 48, 8, 16384, 32000, 65536) "}"},
#define QWEN2(eps)                                                                         \
    "{'model_type': 'qwen2', 'rms_norm_eps': " #eps ", 'rope_theta': 1000000.0, "          \
    "'sliding_window': 32768, 'max_window_layers': 28, 'use_sliding_window': false, "
    {"Qwen/Qwen2-0.5B", 494032768,
     QWEN2(1e-6) "'tie_word_embeddings': true, " LLAMA(24, 896, 14, 2, 4864, 151936,
                                                       131072) "}"},
    {"Qwen/Qwen2-1.5B", 1543714304,
     QWEN2(1e-6) "'tie_word_embeddings': true, " LLAMA(28, 1536, 12, 2, 8960, 151936,
                                                       131072) "}"},
    {"Qwen/Qwen2-7B", 7615616512,
     QWEN2(1e-6) "'tie_word_embeddings': false, " LLAMA(28, 3584, 28, 4, 18944, 152064,
                                                        131072) "}"},
    {"Qwen/Qwen2-72B", 72706203648,
     QWEN2(1e-5) LLAMA(80, 8192, 64, 8, 29568, 152064, 131072) "}"},
    {"Qwen/Qwen2.5-14B", 14770033664,
     QWEN2(1e-5) LLAMA(48, 5120, 40, 8, 13824, 152064, 131072) "}"},
    {"Qwen/Qwen2.5-32B", 32763876352,
     QWEN2(1e-5) LLAMA(64, 5120, 40, 8, 27648, 152064, 131072) "}"},
#define QWEN3                                                                              \
    "{'model_type': 'qwen3', 'rms_norm_eps': 1e-06, 'rope_theta': 1000000, 'head_dim': "   \
    "128, 'attention_bias': false, 'attention_dropout': 0.0, 'max_window_layers': 36, "    \
    "'rope_scaling': null, 'sliding_window': null, 'use_sliding_window': false, "
    {"Qwen/Qwen3-0.6B", 596049920,
     QWEN3 "'tie_word_embeddings': true, " LLAMA(28, 1024, 16, 8, 3072, 151936, 40960) "}"},
    {"Qwen/Qwen3-4B", 4022468096,
     QWEN3 "'tie_word_embeddings': true, " LLAMA(36, 2560, 32, 8, 9728, 151936, 40960) "}"},
    {"Qwen/Qwen3-8B", 8190735360, QWEN3 LLAMA(36, 4096, 32, 8, 12288, 151936, 40960) "}"},
    {"Qwen/Qwen3-14B", 14768307200, QWEN3 LLAMA(40, 5120, 40, 8, 17408, 151936, 40960) "}"},
    {"Qwen/Qwen3-32B", 32762123264, QWEN3 LLAMA(64, 5120, 64, 8, 25600, 151936, 40960) "}"},
#define QWEN3_MOE(ffn)                                                                     \
    "{'model_type': 'qwen3_moe', 'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "         \
    "'head_dim': 128, 'num_experts': 128, 'num_experts_per_tok': 8, 'norm_topk_prob': "    \
    "true, 'decoder_sparse_step': 1, 'mlp_only_layers': [], 'router_aux_loss_coef': "      \
    "0.001, 'moe_intermediate_size': " #ffn ", "
    {"Qwen/Qwen3-30B-A3B", 30532122624,
     QWEN3_MOE(768) LLAMA(48, 2048, 32, 4, 6144, 151936, 40960) "}"},
    {"Qwen/Qwen3-235B-A22B", 235093634560,
     QWEN3_MOE(1536) LLAMA(94, 4096, 64, 4, 12288, 151936, 40960) "}"},
#define BLOOM(layers, hidden, heads)                                                       \
    "{'model_type': 'bloom', 'apply_residual_connection_post_layernorm': false, "          \
    "'attention_dropout': 0.0, 'attention_softmax_in_fp32': true, "                        \
    "'bias_dropout_fusion': true, 'hidden_dropout': 0.0, 'layer_norm_epsilon': 1e-05, "    \
    "'masked_softmax_fusion': true, 'n_inner': null, 'offset_alibi': 100, "                \
    "'pretraining_tp': 1, 'seq_length': 2048, 'skip_bias_add': true, "                     \
    "'skip_bias_add_qkv': false, 'slow_but_exact': false, 'unk_token_id': 0, "             \
    "'vocab_size': 250880, 'n_embed': " #hidden ", 'n_layer': " #layers                    \
    ", 'num_attention_heads': " #heads "}"
    {"bigscience/bloom-560m", 559214592, BLOOM(24, 1024, 16)},
    {"bigscience/bloom-1b1", 1065314304, BLOOM(24, 1536, 16)},
    {"bigscience/bloom-1b7", 1722408960, BLOOM(24, 2048, 16)},
    {"bigscience/bloom-3b", 3002557440, BLOOM(30, 2560, 32)},
    {"bigscience/bloom-7b1", 7069016064, BLOOM(30, 4096, 32)},
    {"bigscience/bloom", 176247271424, BLOOM(70, 14336, 112)},
#define YARN40(share)                                                                      \
    "'rope_scaling': {'beta_fast': 32, 'beta_slow': 1, 'factor': 40, 'mscale': " #share    \
    ", 'mscale_all_dim': " #share ", 'original_max_position_embeddings': 4096, 'type': "   \
    "'yarn'}, 'max_position_embeddings': 163840, 'rope_theta': 10000, "
#define LATENT                                                                             \
    "'attention_bias': false, 'attention_dropout': 0.0, 'aux_loss_alpha': 0.001, "         \
    "'ep_size': 1, 'hidden_act': 'silu', 'kv_lora_rank': 512, 'moe_layer_freq': 1, "       \
    "'pretraining_tp': 1, 'qk_nope_head_dim': 128, 'qk_rope_head_dim': 64, "               \
    "'rms_norm_eps': 1e-06, 'seq_aux': true, 'tie_word_embeddings': false, "               \
    "'v_head_dim': 128, "
#define DEEPSEEK2                                                                          \
    "{'model_type': 'deepseek_v2', 'first_k_dense_replace': 1, 'n_shared_experts': 2, "    \
    "'norm_topk_prob': false, 'num_experts_per_tok': 6, 'scoring_func': 'softmax', "       \
    "'vocab_size': 102400, " LATENT YARN40(0.707)
    {"deepseek-ai/DeepSeek-V2-Lite", 15706484224,
     DEEPSEEK2 "'hidden_size': 2048, 'intermediate_size': 10944, 'moe_intermediate_size': "
               "1408, 'n_group': 1, 'n_routed_experts': 64, 'num_attention_heads': 16, "
               "'num_hidden_layers': 27, 'num_key_value_heads': 16, 'q_lora_rank': null, "
               "'routed_scaling_factor': 1.0, 'topk_group': 1, 'topk_method': 'greedy'}"},
    {"deepseek-ai/DeepSeek-V2", 235741434880,
     DEEPSEEK2 "'hidden_size': 5120, 'intermediate_size': 12288, 'moe_intermediate_size': "
               "1536, 'n_group': 8, 'n_routed_experts': 160, 'num_attention_heads': 128, "
               "'num_hidden_layers': 60, 'num_key_value_heads': 128, 'q_lora_rank': 1536, "
               "'routed_scaling_factor': 16.0, 'topk_group': 3, 'topk_method': "
               "'group_limited_greedy'}"},
    /* with the biases of its routers, 256 in each of 58 layers, and without the layer behind the last one */
    {"deepseek-ai/DeepSeek-V3", 671026419200,
     "{'model_type': 'deepseek_v3', 'first_k_dense_replace': 3, 'n_shared_experts': 1, "
     "'norm_topk_prob': true, 'num_experts_per_tok': 8, 'scoring_func': 'sigmoid', "
     "'vocab_size': 129280, 'num_nextn_predict_layers': 1, 'quantization_config': "
     "{'fmt': 'e4m3', 'quant_method': 'fp8', 'weight_block_size': [128, 128]}, " LATENT YARN40(
         1.0) "'hidden_size': 7168, 'intermediate_size': 18432, "
              "'moe_intermediate_size': 2048, 'n_group': 8, 'n_routed_experts': 256, "
              "'num_attention_heads': 128, 'num_hidden_layers': 61, "
              "'num_key_value_heads': 128, 'q_lora_rank': 1536, "
              "'routed_scaling_factor': 2.5, 'topk_group': 4, 'topk_method': 'noaux_tc'}"},
    {"microsoft/Phi-3-mini-4k-instruct", 3821079552,
     "{'model_type': 'phi3', 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, "
     "'rope_scaling': null, 'sliding_window': 2047, 'attention_bias': false, "
     "'embd_pdrop': 0.0, 'resid_pdrop': 0.0, 'original_max_position_embeddings': 4096, "
     "'tie_word_embeddings': false, " LLAMA(32, 3072, 32, 32, 8192, 32064, 4096) "}"},
/* The factors of 128k positions are published; here each of the two lists has one number for all pairs. */
#define SIX(x) #x ", " #x ", " #x ", " #x ", " #x ", " #x
#define PAIRS48(x)                                                                         \
    "[" SIX(x) ", " SIX(x) ", " SIX(x) ", " SIX(x) ", " SIX(x) ", " SIX(x) ", " SIX(       \
        x) ", " SIX(x) "]"
#define LONGROPE(type)                                                                     \
    "'rope_scaling': {'type': '" #type                                                     \
    "', 'short_factor': " PAIRS48(1.05) ", 'long_factor': " PAIRS48(                       \
        8.3) "}, 'original_max_position_embeddings': 4096, "                               \
             "'sliding_window': 262144, 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, "    \
             "'attention_bias': false, "
    {"microsoft/Phi-3-mini-128k-instruct", 3821079552,
     "{'model_type': 'phi3', " LONGROPE(su)
         LLAMA(32, 3072, 32, 32, 8192, 32064, 131072) "}"},
    {"microsoft/Phi-4-mini-instruct", 3836021760,
     "{'model_type': 'phi3', 'partial_rotary_factor': 0.75, 'tie_word_embeddings': true, " LONGROPE(
         longrope) LLAMA(32, 3072, 24, 8, 8192, 200064, 131072) "}"},
    {"microsoft/phi-4", 14659507200,
     "{'model_type': 'phi3', 'rms_norm_eps': 1e-05, 'rope_theta': 250000, "
     "'rope_scaling': null, 'sliding_window': null, 'attention_bias': false, "
     "'embd_pdrop': 0.0, 'resid_pdrop': 0.0, 'original_max_position_embeddings': 16384, "
     "'tie_word_embeddings': false, " LLAMA(40, 5120, 40, 10, 17920, 100352, 16384) "}"},
#define NEOX(layers, hidden, heads, ffn, vocab)                                            \
    "{'model_type': 'gpt_neox', 'hidden_act': 'gelu', 'layer_norm_eps': 1e-05, "           \
    "'max_position_embeddings': 2048, 'rotary_emb_base': 10000, 'rotary_pct': 0.25, "      \
    "'tie_word_embeddings': false, 'use_parallel_residual': true, 'hidden_size': " #hidden \
    ", 'intermediate_size': " #ffn ", 'num_attention_heads': " #heads                      \
    ", 'num_hidden_layers': " #layers ", 'vocab_size': " #vocab "}"
    {"EleutherAI/pythia-160m", 162322944, NEOX(12, 768, 12, 3072, 50304)},
    {"EleutherAI/pythia-1.4b", 1414647808, NEOX(24, 2048, 16, 8192, 50304)},
    {"EleutherAI/pythia-12b", 11846072320, NEOX(36, 5120, 40, 20480, 50688)},
    {"EleutherAI/gpt-neox-20b", 20554567680, NEOX(44, 6144, 64, 24576, 50432)},
#define FALCON(layers, hidden, heads)                                                      \
    "{'model_type': 'falcon', 'alibi': false, 'attention_dropout': 0.0, 'bias': false, "   \
    "'apply_residual_connection_post_layernorm': false, 'hidden_dropout': 0.0, "           \
    "'layer_norm_epsilon': 1e-05, 'parallel_attn': true, 'vocab_size': 65024, "            \
    "'num_hidden_layers': " #layers ", 'hidden_size': " #hidden                            \
    ", 'num_attention_heads': " #heads
    {"tiiuae/falcon-7b", 6921720704,
     FALCON(32, 4544, 71) ", 'multi_query': true, 'new_decoder_architecture': false}"},
    {"tiiuae/falcon-40b", 41303293952,
     FALCON(60, 8192, 128) ", 'new_decoder_architecture': true, 'num_kv_heads': 8}"},
    {"tiiuae/falcon-180B", 179522565120,
     FALCON(80, 14848, 232) ", 'new_decoder_architecture': true, 'num_kv_heads': 8, "
                            "'tie_word_embeddings': false}"},
#define GEMMA(layers, hidden, heads, kv, ffn)                                              \
    "{'model_type': 'gemma', 'rms_norm_eps': 1e-06, 'rope_theta': 10000.0, 'head_dim': "   \
    "256, 'attention_bias': false, 'hidden_act': 'gelu', 'hidden_activation': null, "      \
    "'max_position_embeddings': 8192, 'rope_scaling': null, 'vocab_size': 256000, "        \
    "'hidden_size': " #hidden ", 'intermediate_size': " #ffn                               \
    ", 'num_attention_heads': " #heads ", 'num_hidden_layers': " #layers                   \
    ", 'num_key_value_heads': " #kv "}"
    {"google/gemma-2b", 2506172416, GEMMA(18, 2048, 8, 1, 16384)},
    {"google/gemma-7b", 8537680896, GEMMA(28, 3072, 16, 16, 24576)},
    {"mistralai/Mistral-7B-v0.1", 7241732096,
     "{'model_type': 'mistral', 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, "
     "'sliding_window': 4096, " LLAMA(32, 4096, 32, 8, 14336, 32000, 32768) "}"},
#define GEMMA2(layers, hidden, heads, kv_heads, kv, ffn, scalar)                              \
    "{'model_type': 'gemma2', 'rms_norm_eps': 1e-06, 'rope_theta': 10000.0, 'head_dim': " #kv \
    ", 'attention_bias': false, 'hidden_act': 'gelu_pytorch_tanh', "                          \
    "'hidden_activation': 'gelu_pytorch_tanh', 'attn_logit_softcapping': 50.0, "              \
    "'final_logit_softcapping': 30.0, 'query_pre_attn_scalar': " #scalar                      \
    ", 'sliding_window': 4096, 'cache_implementation': 'hybrid', "                            \
    "'max_position_embeddings': 8192, 'vocab_size': 256000, 'hidden_size': " #hidden          \
    ", 'intermediate_size': " #ffn ", 'num_attention_heads': " #heads                         \
    ", 'num_hidden_layers': " #layers ", 'num_key_value_heads': " #kv_heads "}"
    {"google/gemma-2-2b", 2614341888, GEMMA2(26, 2304, 8, 4, 256, 9216, 256)},
    {"google/gemma-2-9b", 9241705984, GEMMA2(42, 3584, 16, 8, 256, 14336, 256)},
    {"google/gemma-2-27b", 27227128320, GEMMA2(46, 4608, 32, 16, 128, 36864, 144)},
    {"google/gemma-3-1b-pt", 999885952,
     "{'model_type': 'gemma3_text', 'rms_norm_eps': 1e-06, 'rope_theta': 1000000, "
     "'rope_local_base_freq': 10000, 'rope_scaling': null, 'head_dim': 256, "
     "'attention_bias': false, 'attn_logit_softcapping': null, "
     "'final_logit_softcapping': null, 'query_pre_attn_scalar': 256, 'sliding_window': "
     "512, 'sliding_window_pattern': 6, 'cache_implementation': 'hybrid', "
     "'hidden_activation': 'gelu_pytorch_tanh', 'max_position_embeddings': 32768, "
     "'vocab_size': 262144, 'hidden_size': 1152, 'intermediate_size': 6912, "
     "'num_attention_heads': 4, 'num_hidden_layers': 26, 'num_key_value_heads': 1}"},
    {"google/gemma-3-270m", 268098176,
     "{'model_type': 'gemma3_text', 'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, "
     "'rope_local_base_freq': 10000.0, 'rope_scaling': null, 'head_dim': 256, "
     "'_sliding_window_pattern': 6, 'query_pre_attn_scalar': 256, 'sliding_window': 512, "
     "'use_bidirectional_attention': false, 'hidden_activation': 'gelu_pytorch_tanh', "
     "'max_position_embeddings': 32768, 'vocab_size': 262144, 'hidden_size': 640, "
     "'intermediate_size': 2048, 'num_attention_heads': 4, 'num_hidden_layers': 18, "
     "'num_key_value_heads': 1}"},
#define OPT(layers, hidden, heads, ffn)                                                    \
    "{'model_type': 'opt', '_remove_final_layer_norm': false, 'activation_dropout': 0.0, " \
    "'activation_function': 'relu', 'attention_dropout': 0.0, 'do_layer_norm_before': "    \
    "true, 'dropout': 0.1, 'init_std': 0.02, 'layerdrop': 0.0, "                           \
    "'max_position_embeddings': 2048, 'prefix': '</s>', 'vocab_size': 50272, "             \
    "'ffn_dim': " #ffn ", 'hidden_size': " #hidden ", 'num_attention_heads': " #heads      \
    ", 'num_hidden_layers': " #layers ", 'word_embed_proj_dim': " #hidden "}"
    {"facebook/opt-125m", 125239296, OPT(12, 768, 12, 3072)},
    {"facebook/opt-1.3b", 1315758080, OPT(24, 2048, 32, 8192)},
    {"facebook/opt-6.7b", 6658473984, OPT(32, 4096, 32, 16384)},
    {"facebook/opt-30b", 29974540288, OPT(48, 7168, 56, 28672)},
#define BERT(layers, hidden, heads, ffn, vocab)                                             \
    "{'model_type': 'bert', 'attention_probs_dropout_prob': 0.1, 'hidden_act': 'gelu', "    \
    "'hidden_dropout_prob': 0.1, 'layer_norm_eps': 1e-12, 'max_position_embeddings': 512, " \
    "'position_embedding_type': 'absolute', 'type_vocab_size': 2, 'hidden_size': " #hidden  \
    ", 'intermediate_size': " #ffn ", 'num_attention_heads': " #heads                       \
    ", 'num_hidden_layers': " #layers ", 'vocab_size': " #vocab "}"
    /* without the pooler and the second task of its files, which transformers' BertForMaskedLM leaves
     * out too */
    {"google-bert/bert-base-uncased", 109514298, BERT(12, 768, 12, 3072, 30522)},
    {"google-bert/bert-large-uncased", 335174458, BERT(24, 1024, 16, 4096, 30522)},
#define VIT(layers, hidden, heads, ffn, patch, classes)                                    \
    "{'model_type': 'vit', 'attention_probs_dropout_prob': 0.0, 'hidden_act': 'gelu', "    \
    "'hidden_dropout_prob': 0.0, 'layer_norm_eps': 1e-12, 'image_size': 224, "             \
    "'num_channels': 3, 'qkv_bias': true, 'encoder_stride': 16, 'patch_size': " #patch     \
    ", 'num_labels': " #classes ", 'hidden_size': " #hidden ", 'intermediate_size': " #ffn \
    ", 'num_attention_heads': " #heads ", 'num_hidden_layers': " #layers "}"
    {"google/vit-base-patch16-224", 86567656, VIT(12, 768, 12, 3072, 16, 1000)},
    {"google/vit-large-patch16-224", 304326632, VIT(24, 1024, 16, 4096, 16, 1000)},
#define T5_GATED(layers, hidden, ffn, heads)                                               \
    "{'model_type': 't5', 'vocab_size': 32128, 'dropout_rate': 0.1, 'd_kv': 64, "          \
    "'feed_forward_proj': 'gated-gelu', 'layer_norm_epsilon': 1e-06, "                     \
    "'relative_attention_num_buckets': 32, 'tie_word_embeddings': false, "                 \
    "'num_decoder_layers': " #layers ", 'd_model': " #hidden ", 'd_ff': " #ffn             \
    ", 'num_heads': " #heads ", 'num_layers': " #layers "}"
    {"google/t5-v1_1-small", 76961152, T5_GATED(8, 512, 1024, 6)},
    {"google/t5-v1_1-base", 247577856, T5_GATED(12, 768, 2048, 12)},
    {"google/flan-t5-xl", 2849757184, T5_GATED(24, 2048, 5120, 32)},
#define T5(layers, hidden, ffn, heads, kv)                                                 \
    "{'model_type': 't5', 'vocab_size': 32128, 'dropout_rate': 0.1, 'n_positions': 512, "  \
    "'layer_norm_epsilon': 1e-06, 'relative_attention_num_buckets': 32, "                  \
    "'is_encoder_decoder': true, 'd_model': " #hidden ", 'd_ff': " #ffn ", 'd_kv': " #kv   \
    ", 'num_heads': " #heads ", 'num_layers': " #layers "}"
    {"google-t5/t5-small", 60506624, T5(6, 512, 2048, 8, 64)},
    {"google-t5/t5-base", 222903552, T5(12, 768, 3072, 12, 64)},
    {"google-t5/t5-large", 737668096, T5(24, 1024, 4096, 16, 64)},
    {"google-t5/t5-3b", 2851598336, T5(24, 1024, 16384, 32, 128)},
};

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
    refuses("{'model_type': 'llama', 'attention_bias': true, " SMALL "}",
            "attention_bias: expected false", "biases that the family lacks");
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
    test_return("gemma:nano", NULL);
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
