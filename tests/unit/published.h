/* published.h - configs of published models, as their config.json has them, and how many parameters they have.
 *
 *     for (size_t i = 0; i < sizeof published / sizeof *published; i++)
 *         count(model_of_config(published[i].config, &err)); // published[i].parameters
 */
#ifndef WEFT_TEST_PUBLISHED_H
#define WEFT_TEST_PUBLISHED_H

#include <stdint.h>

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
#define OLMO2(layers, hidden, heads, kv, ffn)                                              \
    "{'model_type': 'olmo2', 'rms_norm_eps': 1e-06, 'rope_theta': 500000, "                \
    "'attention_bias': false, 'rope_scaling': null, 'tie_word_embeddings': false, " LLAMA( \
        layers, hidden, heads, kv, ffn, 100352, 4096) "}"
    {"allenai/OLMo-2-0425-1B", 1484916736, OLMO2(16, 2048, 16, 16, 8192)},
    {"allenai/OLMo-2-1124-7B", 7298617344, OLMO2(32, 4096, 32, 32, 11008)},
    {"allenai/OLMo-2-1124-13B", 13716198400, OLMO2(40, 5120, 40, 40, 13824)},
    {"allenai/OLMo-2-0325-32B", 32234279936, OLMO2(64, 5120, 40, 8, 27648)},
    {"allenai/OLMoE-1B-7B-0924", 6919161856,
     "{'model_type': 'olmoe', 'attention_bias': false, 'clip_qkv': null, 'num_experts': "
     "64, 'num_experts_per_tok': 8, 'norm_topk_prob': false, 'router_aux_loss_coef': 0.01, "
     "'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, " LLAMA(16, 2048, 16, 16, 1024, 50304,
                                                            4096) "}"},
#define GRANITE(shrink, scores)                                                            \
    "{'model_type': 'granite', 'attention_bias': false, 'attention_dropout': 0.1, "        \
    "'attention_multiplier': " #scores ", 'embedding_multiplier': 12.0, "                  \
    "'logits_scaling': " #shrink ", 'mlp_bias': false, 'residual_multiplier': 0.22, "      \
    "'rms_norm_eps': 1e-05, 'rope_scaling': null, 'rope_theta': 10000, "                   \
    "'tie_word_embeddings': true, "
    {"ibm-granite/granite-3.0-2b-base", 2533531648,
     GRANITE(8.0, 0.015625) LLAMA(40, 2048, 32, 8, 8192, 49155, 4096) "}"},
    {"ibm-granite/granite-3.0-8b-base", 8170848256,
     GRANITE(16.0, 0.0078125) LLAMA(40, 4096, 32, 8, 12800, 49155, 4096) "}"},
    {"stabilityai/stablelm-3b-4e1t", 2795443200,
     "{'model_type': 'stablelm', 'layer_norm_eps': 1e-05, 'partial_rotary_factor': 0.25, "
     "'rope_theta': 10000, 'tie_word_embeddings': false, 'use_qkv_bias': false, " LLAMA(
         32, 2560, 32, 32, 6912, 50304, 4096) "}"},
#define STARCODER2(layers, hidden, heads, kv, ffn, tied)                                   \
    "{'model_type': 'starcoder2', 'attention_dropout': 0.1, 'embedding_dropout': 0.1, "    \
    "'activation_function': 'gelu', 'attention_softmax_in_fp32': true, "                   \
    "'layer_norm_epsilon': 1e-05, 'scale_attention_softmax_in_fp32': true, "               \
    "'scale_attn_weights': true, "                                                         \
    "'hidden_act': 'gelu_pytorch_tanh', 'max_position_embeddings': 16384, 'mlp_type': "    \
    "'default', 'norm_epsilon': 1e-05, 'norm_type': 'layer_norm', 'residual_dropout': "    \
    "0.1, 'rope_theta': 100000, 'sliding_window': 4096, 'use_bias': true, 'vocab_size': "  \
    "49152, 'tie_word_embeddings': " #tied ", 'num_hidden_layers': " #layers               \
    ", 'hidden_size': " #hidden ", 'num_attention_heads': " #heads                         \
    ", 'num_key_value_heads': " #kv ", 'intermediate_size': " #ffn "}"
    {"bigcode/starcoder2-3b", 3030371328, STARCODER2(30, 3072, 24, 2, 12288, true)},
    {"bigcode/starcoder2-7b", 7173923840, STARCODER2(32, 4608, 36, 4, 18432, true)},
    {"bigcode/starcoder2-15b", 15957889024, STARCODER2(40, 6144, 48, 4, 24576, false)},
    {"HuggingFaceTB/SmolLM3-3B", 3075098624,
     "{'model_type': 'smollm3', 'attention_bias': false, 'max_window_layers': 28, "
     "'mlp_bias': false, 'no_rope_layer_interval': 4, 'no_rope_layers': [1, 1, 1, 0, 1, 1, "
     "1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, "
     "1, 0], 'rms_norm_eps': 1e-06, 'rope_theta': 5000000.0, 'sliding_window': null, "
     "'use_sliding_window': false, " LLAMA(36, 2048, 16, 4, 11008, 128256, 65536) "}"},
#define PHI(layers, hidden, ffn, share)                                                    \
    "{'model_type': 'phi', 'attention_dropout': 0.0, 'embd_pdrop': 0.0, 'hidden_act': "    \
    "'gelu_new', 'layer_norm_eps': 1e-05, 'max_position_embeddings': 2048, "               \
    "'num_attention_heads': 32, 'num_key_value_heads': 32, 'partial_rotary_factor': "      \
    "" #share ", 'qk_layernorm': false, 'resid_pdrop': 0.1, 'rope_theta': 10000.0, "       \
    "'tie_word_embeddings': false, 'vocab_size': 51200, 'num_hidden_layers': " #layers     \
    ", 'hidden_size': " #hidden ", 'intermediate_size': " #ffn "}"
    {"microsoft/phi-1_5", 1418270720, PHI(24, 2048, 8192, 0.5)},
    {"microsoft/phi-2", 2779683840, PHI(32, 2560, 10240, 0.4)},
    {"EleutherAI/gpt-j-6b", 6050882784,
     "{'model_type': 'gptj', 'activation_function': 'gelu_new', 'attn_pdrop': 0.0, "
     "'embd_pdrop': 0.0, 'layer_norm_epsilon': 1e-05, 'n_embd': 4096, 'n_head': 16, "
     "'n_inner': null, 'n_layer': 28, 'n_positions': 2048, 'resid_pdrop': 0.0, 'rotary': "
     "true, 'rotary_dim': 64, 'scale_attn_weights': true, 'tie_word_embeddings': false, "
     "'vocab_size': 50400}"},
    {"CohereForAI/c4ai-command-r-v01", 34980831232,
     "{'model_type': 'cohere', 'layer_norm_eps': 1e-05, 'logit_scale': 0.0625, "
     "'rope_theta': 8000000.0, 'model_max_length': 131072, 'use_qk_norm': false, " LLAMA(
         40, 8192, 64, 64, 22528, 256000, 8192) "}"},
    {"CohereForAI/aya-23-8B", 8028033024,
     "{'model_type': 'cohere', 'layer_norm_eps': 1e-05, 'logit_scale': 0.0625, "
     "'rope_theta': 10000, 'use_qk_norm': false, " LLAMA(32, 4096, 32, 8, 14336, 256000,
                                                         8192) "}"},
    {"CohereForAI/c4ai-command-r7b-12-2024", 8028033024,
     "{'model_type': 'cohere2', 'attention_bias': false, 'cache_implementation': 'hybrid', "
     "'head_dim': 128, 'layer_norm_eps': 1e-05, 'layer_switch': 4, 'logit_scale': 0.25, "
     "'order_of_interleaved_layers': 'local_attn_first', 'position_embedding_type': "
     "'rope_gptj', 'rope_scaling': null, 'rope_theta': 50000, 'rotary_pct': 1.0, "
     "'sliding_window': 4096, 'use_embedding_sharing': true, 'use_gated_activation': true, "
     "'use_parallel_block': true, 'use_parallel_embedding': true, " LLAMA(
         32, 4096, 32, 8, 14336, 256000, 132096) "}"},
    {"nvidia/Minitron-4B-Base", 4190509056,
     "{'model_type': 'nemotron', 'attention_bias': false, 'head_dim': 128, 'hidden_act': "
     "'relu2', 'hidden_size': 3072, 'intermediate_size': 9216, 'max_position_embeddings': "
     "4096, 'mlp_bias': false, 'norm_eps': 1e-05, 'num_attention_heads': 24, "
     "'num_hidden_layers': 32, 'num_key_value_heads': 8, 'partial_rotary_factor': 0.5, "
     "'rope_theta': 10000, 'tie_word_embeddings': false, 'vocab_size': 256000}"},
    {"Qwen/Qwen1.5-MoE-A2.7B", 14315784192,
     "{'model_type': 'qwen2_moe', 'decoder_sparse_step': 1, 'max_window_layers': 21, "
     "'moe_intermediate_size': 1408, 'norm_topk_prob': false, 'num_experts': 60, "
     "'num_experts_per_tok': 4, 'output_router_logits': false, 'rms_norm_eps': 1e-06, "
     "'rope_theta': 1000000.0, 'router_aux_loss_coef': 0.001, "
     "'shared_expert_intermediate_size': 5632, 'sliding_window': 32768, "
     "'tie_word_embeddings': false, 'use_sliding_window': false, " LLAMA(
         24, 2048, 16, 16, 5632, 151936, 8192) "}"},
#define ROBERTA(type, layers, hidden, heads, ffn, vocab)                                   \
    "{'model_type': '" type "', 'attention_probs_dropout_prob': 0.1, 'hidden_act': "       \
    "'gelu', 'hidden_dropout_prob': 0.1, 'layer_norm_eps': 1e-05, "                        \
    "'max_position_embeddings': 514, 'type_vocab_size': 1, 'hidden_size': " #hidden        \
    ", 'intermediate_size': " #ffn ", 'num_attention_heads': " #heads                      \
    ", 'num_hidden_layers': " #layers ", 'vocab_size': " #vocab "}"
    {"FacebookAI/roberta-base", 124697433, ROBERTA("roberta", 12, 768, 12, 3072, 50265)},
    {"FacebookAI/roberta-large", 355412057, ROBERTA("roberta", 24, 1024, 16, 4096, 50265)},
    {"FacebookAI/xlm-roberta-base", 278295186,
     ROBERTA("xlm-roberta", 12, 768, 12, 3072, 250002)},
    {"FacebookAI/xlm-roberta-large", 560142482,
     ROBERTA("xlm-roberta", 24, 1024, 16, 4096, 250002)},
    {"distilbert/distilbert-base-uncased", 66985530,
     "{'model_type': 'distilbert', 'activation': 'gelu', 'attention_dropout': 0.1, 'dim': "
     "768, 'dropout': 0.1, 'hidden_dim': 3072, 'max_position_embeddings': 512, 'n_heads': "
     "12, 'n_layers': 6, 'qa_dropout': 0.1, 'seq_classif_dropout': 0.2, "
     "'sinusoidal_pos_embds': false, 'tie_weights_': true, 'vocab_size': 30522}"},
#define BART(layers, hidden, heads, ffn)                                                   \
    "{'model_type': 'bart', 'activation_dropout': 0.1, 'activation_function': 'gelu', "    \
    "'add_bias_logits': false, 'add_final_layer_norm': false, 'attention_dropout': 0.1, "  \
    "'classifier_dropout': 0.1, 'decoder_layerdrop': 0.0, 'dropout': 0.1, "                \
    "'early_stopping': true, 'encoder_layerdrop': 0.0, 'init_std': 0.02, "                 \
    "'is_encoder_decoder': true, 'max_position_embeddings': 1024, 'normalize_before': "    \
    "false, 'normalize_embedding': true, 'scale_embedding': false, 'vocab_size': 50265, "  \
    "'decoder_layers': " #layers ", 'encoder_layers': " #layers                            \
    ", 'num_hidden_layers': " #layers ", 'd_model': " #hidden                              \
    ", 'decoder_attention_heads': " #heads ", 'encoder_attention_heads': " #heads          \
    ", 'decoder_ffn_dim': " #ffn ", 'encoder_ffn_dim': " #ffn "}"
    {"facebook/bart-base", 139420416, BART(6, 768, 12, 3072)},
    {"facebook/bart-large", 406291456, BART(12, 1024, 16, 4096)},
    {"tiiuae/falcon-rw-1b", 1311625216,
     "{'model_type': 'falcon', 'alibi': true, 'apply_residual_connection_post_layernorm': "
     "false, 'attention_dropout': 0.0, 'bias': true, 'hidden_dropout': 0.0, 'hidden_size': "
     "2048, 'layer_norm_epsilon': 1e-05, 'multi_query': false, 'new_decoder_architecture': "
     "false, 'num_attention_heads': 32, 'num_hidden_layers': 24, 'parallel_attn': false, "
     "'vocab_size': 50304}"},
};

#endif
