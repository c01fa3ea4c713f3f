#!/usr/bin/env python3
"""Weights go both ways between weft and Hugging Face's transformers, with the same loss.

    PYTHON=... ; $PYTHON scripts/compare-transformers.py [--bin BUILD/bin] [CASE...]

Needs PyTorch, transformers and numpy; neither is needed for anything else, and nothing is
downloaded: the models have random weights. Each case makes a small model with transformers, saves
it, and evaluates it on one batch. weft-run begins with these weights (--init) and must find the
same loss and the same norm of the gradient; it trains a few steps and saves. weft-ckpt exports the
checkpoint, from_pretrained reads the folder, and must find the loss with which the training goes
on. Both once more in bf16, where both programs read rounded weights, and in several files. And both
programs take one step of AdamW from the same weights, and must come to the same ones.

Prints per case the relative differences. Ends with status 1 if one of losses and norms is beyond
1e-5, the weights of a tensor after the step by 1e-4 of their norm, or a weight that goes in and out
again without a step has changed by a bit.
"""
import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
import torch.nn.functional as F
import transformers

LIMIT = 1e-5
STEP_LIMIT = 1e-4
BATCH = 8


def gpt2(sizes):
    config = transformers.GPT2Config(
        vocab_size=sizes["vocab"], n_positions=sizes["seq"], n_embd=sizes["hidden"],
        n_layer=sizes["layers"], n_head=sizes["heads"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=bool(sizes["tied"]))
    return transformers.GPT2LMHeadModel(config)


def llama(sizes):
    config = transformers.LlamaConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"], intermediate_size=sizes["ffn"], rms_norm_eps=1e-5,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=bool(sizes["tied"]))
    return transformers.LlamaForCausalLM(config)


def family(model, config, **more):
    """A maker of a family that weft reads from the config.json that transformers writes."""
    def made(sizes):
        names = dict(vocab="vocab_size", hidden="hidden_size", layers="num_hidden_layers",
                     heads="num_attention_heads", kv_heads="num_key_value_heads",
                     ffn="intermediate_size", seq="max_position_embeddings")
        said = {names[k]: v for k, v in sizes.items()}
        return model(config(**{**said, **dict(bos_token_id=0, eos_token_id=0, pad_token_id=None),
                               **more}))
    return made


def opt(sizes):
    config = transformers.OPTConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"], ffn_dim=sizes["ffn"],
        dropout=0, pad_token_id=None, bos_token_id=0, eos_token_id=0)
    return transformers.OPTForCausalLM(config)


def falcon(sizes):
    new = "kv_heads" in sizes
    config = transformers.FalconConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"],
        num_kv_heads=sizes.get("kv_heads"), ffn_hidden_size=sizes["ffn"], alibi=False,
        new_decoder_architecture=new, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=not new)
    return transformers.FalconForCausalLM(config)


def falcon_rw(sizes):
    """With slopes, which this class rounds. Biases are drawn, so they count."""
    config = transformers.FalconConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"], alibi=True, bias=True,
        parallel_attn=False, multi_query=False, new_decoder_architecture=False, bos_token_id=0,
        eos_token_id=0)
    return transformers.FalconForCausalLM(config)


def gptj(sizes):
    config = transformers.GPTJConfig(
        vocab_size=sizes["vocab"], n_positions=sizes["seq"], n_embd=sizes["hidden"],
        n_layer=sizes["layers"], n_head=sizes["heads"], rotary_dim=8, bos_token_id=0, eos_token_id=0)
    return transformers.GPTJForCausalLM(config)


def distilbert(sizes):
    config = transformers.DistilBertConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], dim=sizes["hidden"],
        n_layers=sizes["layers"], n_heads=sizes["heads"], hidden_dim=sizes["ffn"], dropout=0,
        attention_dropout=0)
    return transformers.DistilBertForMaskedLM(config)


def bart(sizes):
    config = transformers.BartConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["positions"],
        d_model=sizes["hidden"], encoder_layers=sizes["layers"], decoder_layers=sizes["dec_layers"],
        encoder_attention_heads=sizes["heads"], decoder_attention_heads=sizes["heads"],
        encoder_ffn_dim=sizes["ffn"], decoder_ffn_dim=sizes["dec_ffn"], dropout=0)
    return transformers.BartForConditionalGeneration(config)


def bloom(sizes):
    config = transformers.BloomConfig(
        vocab_size=sizes["vocab"], seq_length=sizes["seq"], hidden_size=sizes["hidden"],
        n_layer=sizes["layers"], n_head=sizes["heads"], hidden_dropout=0, attention_dropout=0,
        bos_token_id=0, eos_token_id=0)
    return transformers.BloomForCausalLM(config)


# Multi-head latent attention with scaled positions, one dense layer, and experts.
LATENT = dict(layers=3, hidden=96, heads=6, kv_heads=6, ffn=160, seq=32, vocab=300)


def latent(model, config, **more):
    """A small DeepSeek. The biases of V3's routers, which are no parameters, are drawn too."""
    made = family(model, config, **dict(
        dict(kv_lora_rank=40, q_lora_rank=48, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20,
             moe_intermediate_size=56, n_routed_experts=12, n_shared_experts=2, num_experts_per_tok=3,
             first_k_dense_replace=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                              "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 0.707,
                              "mscale_all_dim": 0.707, "original_max_position_embeddings": 12}),
        **more))

    def drawn(sizes):
        m = made(sizes)
        for name, buffer in m.named_buffers():
            if name.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(buffer, std=0.1)
        return m
    return drawn


def vit(sizes):
    config = transformers.ViTConfig(
        hidden_size=sizes["hidden"], num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"], intermediate_size=sizes["ffn"],
        image_size=sizes["image"], patch_size=sizes["patch"], num_labels=sizes["classes"])
    return transformers.ViTForImageClassification(config)


def rope(**scaling):
    """Llama with scaled positions."""
    return family(transformers.LlamaForCausalLM, transformers.LlamaConfig,
                  rope_parameters={"rope_theta": 10000.0, **scaling})


def longrope(seq):
    """Phi-3 of 128k positions in small, on sequences of seq, of which 16 are short."""
    listed = lambda least, most: [round(x, 4) for x in np.linspace(least, most, 6).tolist()]
    made = family(transformers.Phi3ForCausalLM, transformers.Phi3Config,
                  original_max_position_embeddings=16, rope_parameters={
                      "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                      "short_factor": listed(1, 1.7), "long_factor": listed(1.08, 9.6)})
    return dict(make=made, sizes=dict(GROUPED, seq=seq))


def mixtral(sizes):
    config = transformers.MixtralConfig(
        vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"], hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"], intermediate_size=sizes["ffn"], rms_norm_eps=1e-5,
        num_local_experts=sizes["experts"], num_experts_per_tok=sizes["top"],
        output_router_logits=True, router_aux_loss_coef=0.02, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=bool(sizes["tied"]))
    return transformers.MixtralForCausalLM(config)


def qwen(make, config):
    """A maker of one of Qwen's families, or of one with experts like theirs."""
    def made(sizes):
        more = dict(num_experts=sizes["experts"], num_experts_per_tok=sizes["top"],
                    norm_topk_prob=True, output_router_logits=True) if "experts" in sizes else {}
        if hasattr(config, "moe_intermediate_size"):
            more["moe_intermediate_size"] = sizes["ffn"]
        if "shared_ffn" in sizes:
            more["shared_expert_intermediate_size"] = sizes["shared_ffn"]
        if "kv" in sizes:
            more["head_dim"] = sizes["kv"]
        return make(config(
            vocab_size=sizes["vocab"], max_position_embeddings=sizes["seq"],
            hidden_size=sizes["hidden"], num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["heads"], num_key_value_heads=sizes["kv_heads"],
            intermediate_size=sizes["ffn"], rope_theta=1000000.0, bos_token_id=0,
            eos_token_id=0, pad_token_id=None, tie_word_embeddings=bool(sizes["tied"]), **more))
    return made


def t5_gated(sizes):
    """T5 1.1's last product is its own, which the class ties."""
    model = t5(sizes, feed_forward_proj="gated-gelu")
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def t5(sizes, **more):
    config = transformers.T5Config(
        vocab_size=sizes["vocab"], d_model=sizes["hidden"], d_kv=sizes["kv"], d_ff=sizes["ffn"],
        num_layers=sizes["layers"], num_decoder_layers=sizes["dec_layers"],
        num_heads=sizes["heads"], dropout_rate=0, tie_word_embeddings=bool(sizes["tied"]),
        **more)
    return transformers.T5ForConditionalGeneration(config)


def tokens(folder, sizes, rng):
    """One batch of windows of a stream: what weft-run and what the model reads, and targets."""
    ids = np.cumsum(rng.integers(0, 5, BATCH * sizes["seq"] + 1)) % sizes["vocab"]
    path = os.path.join(folder, "tokens.bin")
    ids.astype("<u2").tofile(path)
    windows = lambda a: torch.tensor(a.reshape(BATCH, -1))
    return path, {"input_ids": windows(ids[:-1])}, windows(ids[1:])


def sequences(path, ids, longest):
    """Sequences as Megatron-LM writes them; and as rows, with -100 behind each."""
    lengths = [len(one) for one in ids]
    np.concatenate(ids).astype("<u2").tofile(path + ".bin")
    with open(path + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<qBqq", 1, 8, BATCH, BATCH + 1))
        f.write(np.array(lengths, "<i4").tobytes())
        f.write((2 * (np.cumsum(lengths) - lengths)).astype("<i8").tobytes())
        f.write(np.arange(BATCH + 1, dtype="<i8").tobytes())
    padded = np.full((BATCH, longest), -100)
    for row, one in zip(padded, ids):
        row[:len(one)] = one
    return path + ".idx", torch.tensor(padded)


def masked_behind(folder, sizes, rng):
    """The same with padding of 1, in sequences that leave two rows of the positions out."""
    return masked(folder, dict(sizes, seq=sizes["seq"] - 2), rng, pad=1)


def pairs(folder, sizes, rng, pad=0, start=0):
    """One batch of pairs of sequences; some are shorter than others."""
    paths, rows = zip(*(
        sequences(os.path.join(folder, name),
                  [rng.integers(pad + 1, sizes["vocab"], n)
                   for n in rng.integers(longest // 2, longest + 1, BATCH)], longest)
        for name, longest in (("input", sizes["seq"]), ("target", sizes["target_seq"]))))
    before = torch.cat([torch.full((BATCH, 1), start), rows[1][:, :-1]], 1)
    padded = lambda row: torch.where(row >= 0, row, pad)
    return ",".join(paths), {"input_ids": padded(rows[0]),
                             "attention_mask": (rows[0] >= 0).long(),
                             "decoder_input_ids": padded(before)}, rows[1]


def pairs_of_bart(folder, sizes, rng):
    return pairs(folder, dict(sizes, seq=sizes["positions"], target_seq=sizes["positions"]), rng,
                 pad=1, start=2)


def masked(folder, sizes, rng, pad=0):
    """One batch of texts of which some tokens are to be found: the others' targets are padding."""
    lengths = rng.integers(sizes["seq"] // 2, sizes["seq"] + 1, BATCH)
    ids = [rng.integers(pad + 1, sizes["vocab"], n) for n in lengths]
    asked = [np.where(rng.random(len(one)) < 0.3, one, pad) for one in ids]
    hidden = [np.where(one != pad, 3, text) for one, text in zip(asked, ids)]
    one, rows = sequences(os.path.join(folder, "input"), hidden, sizes["seq"])
    other, targets = sequences(os.path.join(folder, "target"), asked, sizes["seq"])
    return f"{one},{other}", {"input_ids": torch.where(rows >= 0, rows, pad),
                              "attention_mask": (rows >= 0).long()}, \
        torch.where(targets > pad, targets, -100)


def images(folder, sizes, rng):
    """One batch of images and their classes, in MNIST's format with channels last."""
    pixels = rng.integers(0, 256, (BATCH, sizes["image"], sizes["image"], 3)).astype(np.uint8)
    labels = rng.integers(0, sizes["classes"], BATCH).astype(np.uint8)
    paths = [os.path.join(folder, name) for name in ("images", "labels")]
    for path, a in zip(paths, (pixels, labels)):
        with open(path, "wb") as f:
            f.write(bytes([0, 0, 8, a.ndim]) + struct.pack(f">{a.ndim}i", *a.shape))
            f.write(a.tobytes())
    values = torch.tensor(pixels / 255, dtype=torch.float32).permute(0, 3, 1, 2)
    return ",".join(paths), {"pixel_values": values}, torch.tensor(labels.astype(np.int64))


GROUPED = dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=160, seq=32, vocab=300)

# Without "model" weft reads the config.json that transformers writes beside the weights.
CASES = {
    "gpt2": dict(make=gpt2, model="gpt:nano",
                 sizes=dict(layers=3, hidden=96, heads=6, seq=48, vocab=300, tied=1)),
    "gpt2-untied": dict(make=gpt2, model="gpt:nano",
                        sizes=dict(layers=2, hidden=64, heads=2, seq=32, vocab=129, tied=0)),
    "gpt2-qkv": dict(make=gpt2, model="gpt-qkv:nano",
                     sizes=dict(layers=2, hidden=64, heads=4, seq=32, vocab=129, tied=1)),
    "llama": dict(make=llama, model="llama:nano",
                  sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=160, seq=32, vocab=300,
                             tied=0)),
    "llama-tied": dict(make=llama, model="llama:nano",
                       sizes=dict(layers=2, hidden=64, heads=4, kv_heads=4, ffn=96, seq=48,
                                  vocab=129, tied=1)),
    "llama3": dict(make=rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=24),
                   sizes=GROUPED),
    "llama-linear": dict(make=rope(rope_type="linear", factor=3.0), sizes=GROUPED),
    "llama-yarn": dict(make=rope(rope_type="yarn", factor=4.0, beta_fast=4.0,
                                 original_max_position_embeddings=12), sizes=GROUPED),
    "phi3": dict(make=family(transformers.Phi3ForCausalLM, transformers.Phi3Config,
                             rope_parameters={"rope_theta": 10000.0,
                                                              "partial_rotary_factor": 0.75}),
                 sizes=GROUPED),
    "phi3-window": dict(make=family(transformers.Phi3ForCausalLM, transformers.Phi3Config,
                                    sliding_window=10), sizes=GROUPED),
    "phi3-long": longrope(32),
    "phi3-short": longrope(16),
    "gpt-neox": dict(make=family(transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig),
                     sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "gemma": dict(make=family(transformers.GemmaForCausalLM, transformers.GemmaConfig,
                              head_dim=24), sizes=GROUPED),
    "gemma2": dict(make=family(transformers.Gemma2ForCausalLM, transformers.Gemma2Config,
                               head_dim=24, sliding_window=10, query_pre_attn_scalar=20,
                               attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
                   sizes=dict(GROUPED, layers=3)),
    "gemma3": dict(make=family(transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig,
                               head_dim=24, sliding_window=10, query_pre_attn_scalar=20,
                               sliding_window_pattern=3, rope_parameters={
                                   "full_attention": {"rope_type": "linear", "factor": 8.0,
                                                      "rope_theta": 1000000.0},
                                   "sliding_attention": {"rope_type": "default",
                                                         "rope_theta": 10000.0}}),
                   sizes=dict(GROUPED, layers=4)),
    "mistral": dict(make=family(transformers.MistralForCausalLM, transformers.MistralConfig,
                                sliding_window=10), sizes=GROUPED),
    "qwen2-window": dict(make=family(transformers.Qwen2ForCausalLM, transformers.Qwen2Config,
                                     use_sliding_window=True, sliding_window=7,
                                     max_window_layers=1), sizes=dict(GROUPED, layers=3)),
    "opt": dict(make=opt, sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "falcon": dict(make=falcon, sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "falcon-new": dict(make=falcon, sizes=GROUPED),
    "falcon-rw": dict(make=falcon_rw, sizes=dict(layers=2, hidden=96, heads=6, seq=32, vocab=300)),
    "falcon-rw-long": dict(make=falcon_rw,
                           sizes=dict(layers=2, hidden=96, heads=6, seq=2048, vocab=300)),
    "llama-biases": dict(make=family(transformers.LlamaForCausalLM, transformers.LlamaConfig,
                                     attention_bias=True, mlp_bias=True), sizes=GROUPED),
    "olmo2": dict(make=family(transformers.Olmo2ForCausalLM, transformers.Olmo2Config),
                  sizes=GROUPED),
    "granite": dict(make=family(transformers.GraniteForCausalLM, transformers.GraniteConfig,
                                embedding_multiplier=12, attention_multiplier=0.1,
                                residual_multiplier=0.22, logits_scaling=8, attention_bias=True),
                    sizes=GROUPED),
    "stablelm": dict(make=family(transformers.StableLmForCausalLM, transformers.StableLmConfig),
                     sizes=GROUPED),
    "stablelm-biases": dict(make=family(transformers.StableLmForCausalLM,
                                        transformers.StableLmConfig, use_qkv_bias=True),
                            sizes=GROUPED),
    "starcoder2": dict(make=family(transformers.Starcoder2ForCausalLM,
                                   transformers.Starcoder2Config, sliding_window=10,
                                   residual_dropout=0, embedding_dropout=0), sizes=GROUPED),
    "smollm3": dict(make=family(transformers.SmolLM3ForCausalLM, transformers.SmolLM3Config,
                                no_rope_layer_interval=2), sizes=dict(GROUPED, layers=4)),
    "phi": dict(make=family(transformers.PhiForCausalLM, transformers.PhiConfig),
                sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "gptj": dict(make=gptj, sizes=dict(layers=2, hidden=96, heads=6, seq=32, vocab=300)),
    "cohere": dict(make=family(transformers.CohereForCausalLM, transformers.CohereConfig,
                               logit_scale=0.25), sizes=GROUPED),
    "cohere2": dict(make=family(transformers.Cohere2ForCausalLM, transformers.Cohere2Config,
                                logit_scale=0.25, sliding_window=10),
                    sizes=dict(GROUPED, layers=5)),
    "nemotron": dict(make=family(transformers.NemotronForCausalLM, transformers.NemotronConfig,
                                 head_dim=24), sizes=GROUPED),
    "qwen2-moe": dict(make=qwen(transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig),
                      model="qwen2-moe:nano",
                      sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=56, shared_ffn=72,
                                 seq=32, vocab=300, experts=8, top=3, group=BATCH, normalize=1,
                                 tied=0)),
    "olmoe": dict(make=qwen(transformers.OlmoeForCausalLM, transformers.OlmoeConfig),
                  model="olmoe:nano",
                  sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=56, seq=32, vocab=300,
                             experts=8, top=3, group=BATCH, normalize=1, base=1000000, tied=0)),
    "roberta": dict(make=family(transformers.RobertaForMaskedLM, transformers.RobertaConfig,
                                hidden_dropout_prob=0, pad_token_id=1, type_vocab_size=1),
                    data=masked_behind,
                    sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=34, vocab=300)),
    "distilbert": dict(make=distilbert, data=masked,
                       sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "bart": dict(make=bart, data=pairs_of_bart,
                 sizes=dict(layers=2, dec_layers=3, hidden=64, heads=4, ffn=96, dec_ffn=72,
                            positions=24, vocab=200)),
    "bloom": dict(make=bloom, sizes=dict(layers=2, hidden=96, heads=6, seq=32, vocab=300)),
    "deepseek-v2-lite": dict(make=latent(transformers.DeepseekV2ForCausalLM,
                                         transformers.DeepseekV2Config, q_lora_rank=None,
                                         topk_method="greedy", n_group=1, topk_group=1),
                             sizes=LATENT),
    "deepseek-v2": dict(make=latent(transformers.DeepseekV2ForCausalLM,
                                    transformers.DeepseekV2Config,
                                    topk_method="group_limited_greedy"), sizes=LATENT),
    "deepseek-v3": dict(make=latent(transformers.DeepseekV3ForCausalLM,
                                    transformers.DeepseekV3Config), sizes=LATENT),
    "deepseek-v3-plain": dict(make=latent(transformers.DeepseekV3ForCausalLM,
                                          transformers.DeepseekV3Config, q_lora_rank=None,
                                          n_group=1, topk_group=1, norm_topk_prob=False,
                                          first_k_dense_replace=0), sizes=LATENT),
    "bert": dict(make=family(transformers.BertForMaskedLM, transformers.BertConfig,
                             hidden_dropout_prob=0), data=masked,
                 sizes=dict(layers=2, hidden=96, heads=6, ffn=160, seq=32, vocab=300)),
    "vit": dict(make=vit, data=images,
                sizes=dict(layers=2, hidden=96, heads=6, ffn=160, image=12, patch=4, classes=7)),
    "t5-gated": dict(make=t5_gated, data=pairs, model="t5-gated:nano",
                     sizes=dict(layers=2, dec_layers=3, hidden=64, heads=4, kv=8, ffn=96, seq=24,
                                target_seq=16, vocab=200, tied=0)),
    "mixtral": dict(make=mixtral, model="mixtral:nano",
                    sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=160, seq=32, vocab=300,
                               experts=8, top=2, group=BATCH, tied=0)),
    "mixtral-tied": dict(make=mixtral, model="mixtral:nano",
                         sizes=dict(layers=3, hidden=64, heads=4, kv_heads=4, ffn=96, seq=48,
                                    vocab=129, experts=5, top=3, group=BATCH, tied=1)),
    "qwen2": dict(make=qwen(transformers.Qwen2ForCausalLM, transformers.Qwen2Config),
                  model="qwen2:nano",
                  sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, ffn=160, seq=32, vocab=300,
                             tied=1)),
    "qwen3": dict(make=qwen(transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
                  model="qwen3:nano",
                  sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, kv=24, ffn=160, seq=32,
                             vocab=300, tied=0)),
    "qwen3-moe": dict(make=qwen(transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig),
                      model="qwen3-moe:nano",
                      sizes=dict(layers=2, hidden=96, heads=6, kv_heads=2, kv=24, ffn=64, seq=32,
                                 vocab=300, experts=8, top=2, group=BATCH, tied=0)),
    "t5": dict(make=t5, model="t5:nano", data=pairs,
               sizes=dict(layers=2, dec_layers=3, hidden=64, heads=4, kv=8, ffn=96, seq=24,
                          target_seq=16, vocab=200, tied=1)),
}


def evaluate(model, inputs, targets):
    """In fp32: loss, what routers add to it before its coefficient, and the norm of the gradient of
    what is trained for."""
    model.float().eval().zero_grad()
    out = model(**inputs)
    found = {"loss": F.cross_entropy(out.logits.flatten(0, -2), targets.flatten())}
    total = found["loss"]
    if "aux_loss" in out:
        found["balance"] = out.aux_loss
        total = total + model.config.router_aux_loss_coef * out.aux_loss
    total.backward()
    norm = sum(float((p.grad ** 2).sum()) for p in model.parameters() if p.grad is not None)
    return {**{k: x.item() for k, x in found.items()}, "grad_norm": norm ** 0.5}


def adamw_step(model, inputs, targets, lr):
    """As weft-run's defaults: decay of matrices, the gradient clipped to norm 1."""
    evaluate(model, inputs, targets)
    weights = list(model.parameters())
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    groups = [{"params": [p for p in weights if (p.dim() >= 2) == on], "weight_decay": 0.1 * on}
              for on in (True, False)]
    torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8).step()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


class Weft:
    def __init__(self, bin, folder, case, data):
        self.bin, self.folder, self.data = bin, folder, data
        self.model = case.get("model", self.path("transformers/config.json"))
        self.set = ",".join(f"{k}={v}" for k, v in case["sizes"].items()) if "model" in case else ""
        plan = {"format": "weft-plan/1", "model": self.model, "set": self.set, "batch": BATCH,
                "stages": [{}]}
        with open(self.path("plan.json"), "w") as f:
            json.dump(plan, f)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, steps, *options):
        """The metrics of each step. An epoch of the data is one batch."""
        lines = run([f"{self.bin}/weft-run", "-q", "-n", str(steps), "--data", self.data,
                     "--validation", "0", *options, self.path("plan.json")])
        return [json.loads(line) for line in lines.splitlines()]

    def export(self, checkpoint, name):
        run([f"{self.bin}/weft-ckpt", "export", "-q", "-m", self.model,
             *(["--set", self.set] if self.set else []), "-o", self.path(name),
             self.path(checkpoint)])
        return self.path(name)


def differ(ours, theirs):
    return max(abs(ours[k] - x) / abs(x) for k, x in theirs.items())


def differ_by_norm(a, b):
    """Of the worst tensor. Softmax does not see a bias of keys that are not turned: its gradient is
    rounding noise, which AdamW blows up to full steps of either sign."""
    worst = 0
    for name, x in a.state_dict().items():
        y = b.state_dict()[name]
        if re.search(r"(coder\..*|attention\.)k_proj\.bias$|key\.bias$|k_lin\.bias$", name):
            continue
        if name.endswith("c_attn.bias"):
            (x, y) = (torch.cat([t.chunk(3)[k] for k in (0, 2)]) for t in (x, y))
        worst = max(worst, float((x - y).norm() / y.norm()))
    return worst


def compare(name, case, bin, folder):
    make_data = case.get("data", tokens)
    data, inputs, targets = make_data(folder, case["sizes"], np.random.default_rng(7))
    weft = Weft(bin, folder, case, data)
    torch.manual_seed(1)
    model = case["make"](case["sizes"])
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    differences = {}

    def same(what, folder, model):
        differences[what] = differ(weft.train(1, "--lr", "0", "--init", folder)[0],
                                   evaluate(model, inputs, targets))

    saved = weft.path("transformers")
    model.save_pretrained(saved)
    same("in", saved, model)
    model.save_pretrained(weft.path("sharded"), max_shard_size="100KB")
    assert os.path.exists(weft.path("sharded/model.safetensors.index.json"))
    same("in, several files", weft.path("sharded"), model)
    weft.train(3, "--lr", "0.003", "--init", saved, "--save", weft.path("trained"))
    back = type(model).from_pretrained(weft.export("trained", "exported"))
    resumed = weft.train(4, "--resume", weft.path("trained"))[0]
    differences["out"] = differ(resumed, evaluate(back, inputs, targets))
    weft.train(1, "--lr", "0", "--init", saved, "--save", weft.path("untouched"))
    again = type(model).from_pretrained(weft.export("untouched", "again"))
    exact = all(torch.equal(p, q) for p, q in zip(model.state_dict().values(),
                                                  again.state_dict().values()))
    weft.train(1, "--lr", "0.001", "--init", saved, "--save", weft.path("stepped"))
    stepped = type(model).from_pretrained(weft.export("stepped", "after"))
    adamw_step(again, inputs, targets, lr=0.001)
    step = differ_by_norm(stepped, again)
    model.bfloat16().save_pretrained(weft.path("bf16"))
    rounded = type(model).from_pretrained(weft.path("bf16"), dtype=torch.float32)
    same("in, bf16", weft.path("bf16"), rounded)
    print(f"{name}: in and out again {'exact' if exact else 'DIFFERENT'}; " +
          ", ".join(f"{what} {x:.1e}" for what, x in differences.items()) +
          f"; weights after a step {step:.1e}")
    return exact and max(differences.values()) < LIMIT and step < STEP_LIMIT


def run_cases(doc, cases, compare, **numbers):
    """Compares the cases that the command line names, which has an option for each of the numbers."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(cases))
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in cases]
    if unknown:
        parser.error(f"no case {unknown[0]} (there are: {' '.join(cases)})")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    good = True
    for name in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(name, cases[name], args.bin, folder, *(getattr(args, n) for n in numbers))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(run_cases(__doc__, CASES, compare))
