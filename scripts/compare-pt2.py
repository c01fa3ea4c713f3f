#!/usr/bin/env python3
"""What torch.export writes of a model is that model for weft: same ops, same loss.

    $PYTHON scripts/compare-pt2.py [--bin BUILD/bin] [--fixtures DIR] [CASE...]

Needs PyTorch, transformers, safetensors and numpy; nothing is downloaded: models are small and have
random weights. Each case is exported as it is and decomposed into core ATen. weft-import must make a
model of either: of the same kinds of op and as many parameters as weft-import makes of the model's
config.json, where there is a family for it. weft-run begins with the model's weights and takes three
steps of AdamW, and so does PyTorch: the losses must be the same. What weft has no op for must be
refused with the targets that the case names.

With --fixtures only the archives of the tests are written, without weights and without what weft-import
does not read. Ends with status 1 if losses differ by more than 1e-5, relative.
"""
import argparse
import collections
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
import transformers as hf
from torch import nn

LIMIT, BATCH, SEQ, VOCAB, STEPS = 1e-5, 4, 24, 120, 3


class Attention(nn.Module):
    """nanoGPT's, spelled out: scores, a mask, softmax."""
    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(SEQ, SEQ)).view(1, 1, SEQ, SEQ))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.c_attn(x).split(c, dim=2))
        s = (q @ k.transpose(-2, -1)) / (c // self.heads) ** 0.5
        s = s.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        y = self.drop(F.softmax(s, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads, parallel):
        super().__init__()
        self.parallel, self.ln_1, self.ln_2 = parallel, nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU("tanh"), nn.Linear(3 * width, width))

    def forward(self, x):
        if self.parallel:
            return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width=48, heads=4, layers=2, parallel=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, width), nn.Embedding(SEQ, width)
        self.blocks = nn.ModuleList(Block(width, heads, parallel) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class Perceptron(nn.Module):
    """Residual blocks of one square product each: two dims of one size."""
    def __init__(self, width=32, layers=3):
        super().__init__()
        self.fc_in, self.out = nn.Linear(8 * 8, width), nn.Linear(width, 10)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, image):
        x = self.fc_in(image.flatten(1))
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.out(x)


class Mixer(nn.Module):
    def __init__(self, places=16, width=24, layers=2):
        super().__init__()
        def mix(n, hidden):
            return nn.Sequential(nn.Linear(n, hidden), nn.GELU("tanh"), nn.Linear(hidden, n))
        self.embed = nn.Linear(12, width)
        self.places = nn.ModuleList(mix(places, 40) for _ in range(layers))
        self.channels = nn.ModuleList(mix(width, 60) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        x = self.embed(image)
        for i, (places, channels) in enumerate(zip(self.places, self.channels)):
            x = x + places(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


class Relative(nn.Module):
    """Layers that have T5's relative positions in common: 8 buckets, alike from 12 on."""
    def __init__(self, width=32, heads=2, layers=2):
        super().__init__()
        self.heads, self.wte, self.bias = heads, nn.Embedding(VOCAB, width), nn.Embedding(8, heads)
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
                                    for _ in range(layers))
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids):
        b, t = ids.shape
        ahead = torch.arange(t)[None] - torch.arange(t)[:, None]
        by = ahead.abs()
        far = 2 + (torch.log(by.float() / 2) / np.log(6) * 2).long()
        bucket = (ahead > 0).long() * 4 + torch.where(by < 2, by, torch.min(far, torch.full_like(far, 3)))
        bias = self.bias(bucket).permute(2, 0, 1)[None]
        x = self.wte(ids)
        for q, k, v, out in self.layers:
            y = (m(x).view(b, t, self.heads, -1).transpose(1, 2) for m in (q, k, v))
            y = F.scaled_dot_product_attention(*y, attn_mask=bias, scale=1.0)
            x = x + out(y.transpose(1, 2).reshape(b, t, -1))
        return self.head(x)


def angles(d):
    return torch.outer(torch.arange(SEQ).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d))


class Complex(nn.Module):
    """Neighbours turn as complex numbers, as in Meta's own Llama; tables are written out."""
    def __init__(self, width=48, heads=4, kv=2, layers=2):
        super().__init__()
        self.heads, self.kv, self.d = heads, kv, width // heads
        self.wte, self.out = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB, bias=False)
        self.layers = nn.ModuleList(nn.ModuleList(
            [nn.RMSNorm(width), nn.Linear(width, width, bias=False), nn.Linear(width, kv * self.d, bias=False),
             nn.Linear(width, kv * self.d, bias=False), nn.Linear(width, width, bias=False)]) for _ in range(layers))
        self.turns = torch.polar(torch.ones(SEQ, self.d // 2), angles(self.d))

    def turn(self, x):
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * self.turns[None, :, None]).flatten(3).type_as(x)

    def forward(self, ids):
        b, t = ids.shape
        x, mask = self.wte(ids), torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
        for norm, q, k, v, out in self.layers:
            y = norm(x)
            q, k, v = self.turn(q(y).view(b, t, -1, self.d)), self.turn(k(y).view(b, t, -1, self.d)), v(y)
            k, v = (z.view(b, t, self.kv, 1, self.d).expand(-1, -1, -1, self.heads // self.kv, -1).reshape(
                b, t, self.heads, self.d).transpose(1, 2) for z in (k, v))
            s = q.transpose(1, 2) @ k.transpose(2, 3) / self.d ** 0.5 + mask
            x = x + out((F.softmax(s, -1) @ v).transpose(1, 2).reshape(b, t, -1))
        return self.out(x)


class Bare(nn.Module):
    """Norms without weights, of queries and keys too, halves that turn backwards, squares of ReLU, capped logits."""
    def __init__(self, width=48, heads=4, layers=2):
        super().__init__()
        self.heads, self.wte, self.head = heads, nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB, bias=False)
        sizes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(*s, bias=False) for s in sizes) for _ in range(layers))
        for name, table in (("cos", angles(width // heads).cos()), ("sin", angles(width // heads).sin())):
            self.register_buffer(name, table, persistent=False)

    def turn(self, x):
        a, b = F.rms_norm(x, x.shape[-1:]).chunk(2, -1)
        cos, sin = self.cos[:, None], self.sin[:, None]
        return torch.cat([a * cos + b * sin, a * -sin + b * cos], -1)

    def forward(self, ids):
        x = F.rms_norm(self.wte(ids), (self.wte.embedding_dim,))
        for q, k, v, out, up, down in self.layers:
            y = F.rms_norm(x, x.shape[-1:])
            q, k, v = (m(y).view(*ids.shape, self.heads, -1) for m in (q, k, v))
            q, k, v = (z.transpose(1, 2) for z in (self.turn(q), self.turn(k), v))
            x = x + out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            x = x + down(F.relu(up(F.rms_norm(x, x.shape[-1:]))).square())
        return 15 * torch.tanh(self.head(x) / 15)


class Thin(nn.Module):
    """Layer norms without a bias, a gate of exact GELU, a head that is tied."""
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.wte, self.head = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.wte.weight
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(layers))
        self.layers = nn.ModuleList(nn.ModuleList(
            [nn.Linear(width, 40), nn.Linear(width, 40), nn.Linear(40, width)]) for _ in range(layers))

    def forward(self, ids):
        x = self.wte(ids)
        for norm, (gate, up, down) in zip(self.norms, self.layers):
            y = norm(x)
            x = x + down(F.gelu(gate(y)) * up(y))
        return self.head(x) * 0.3


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 1)

    def forward(self, image):
        a = torch.relu(self.down(image))
        b = torch.relu(self.inner(F.max_pool2d(a, 2)))
        return self.out(torch.cat([self.up(b), a], 1)).flatten(2).mean(2)


TINY = dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=80, max_position_embeddings=SEQ, bos_token_id=0,
            eos_token_id=0, use_cache=False)


def gpt2():
    return hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=VOCAB, n_positions=SEQ, n_embd=48, n_layer=2, n_head=4, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0, use_cache=False))


def decoder(name, **more):
    model = getattr(hf, name + "ForCausalLM")
    given = {**TINY, **more}
    if name == "GPTNeoX":
        del given["num_key_value_heads"]  # which the family does not have
    return lambda: model(model.config_class(**given))


def distilbert():
    return hf.DistilBertForMaskedLM(hf.DistilBertConfig(
        vocab_size=VOCAB, max_position_embeddings=SEQ, n_layers=2, n_heads=4, dim=48, hidden_dim=96, dropout=0.0,
        attention_dropout=0.0))


def t5(**more):
    return hf.T5ForConditionalGeneration(hf.T5Config(
        vocab_size=VOCAB, d_model=48, d_kv=16, d_ff=80, num_layers=2, num_heads=4, dropout_rate=0, use_cache=False,
        **more))


def t5_gated():
    """The last product of T5 1.1 is its own, which the class ties."""
    model = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def vit():
    return hf.ViTForImageClassification(hf.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80,
        image_size=12, patch_size=4, num_labels=10))


def bert():
    return hf.BertForMaskedLM(hf.BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=80, max_position_embeddings=SEQ, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, pad_token_id=None))


def opt():
    return hf.OPTForCausalLM(hf.OPTConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, ffn_dim=80,
        max_position_embeddings=SEQ, dropout=0, pad_token_id=None, bos_token_id=0, eos_token_id=0,
        use_cache=False))


def falcon(**more):
    return hf.FalconForCausalLM(hf.FalconConfig(**{**dict(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=80,
        max_position_embeddings=SEQ, alibi=False, bos_token_id=0, eos_token_id=0, use_cache=False), **more}))


def gptj():
    return hf.GPTJForCausalLM(hf.GPTJConfig(
        vocab_size=VOCAB, n_positions=SEQ, n_embd=48, n_layer=2, n_head=2, rotary_dim=8, n_inner=80, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0, use_cache=False))


def bart():
    return hf.BartForConditionalGeneration(hf.BartConfig(
        vocab_size=VOCAB, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=80, decoder_ffn_dim=80, max_position_embeddings=SEQ, dropout=0,
        use_cache=False, pad_token_id=None, bos_token_id=0, eos_token_id=0, forced_eos_token_id=None,
        decoder_start_token_id=0))


def scaled(kind, **more):
    return decoder("Llama", rope_parameters=dict(rope_type=kind, rope_theta=10000.0, factor=8.0, **more))


def image(*shape):
    return lambda: torch.rand(BATCH, *shape)


# The loss that keeps experts busy is no part of what a program gives; of two layers.
BALANCE = {"expert-load": 2, "add": 2, "balance": 1}
CASES = {  # what makes it; its example; targets that are refused
    "gpt2": dict(make=gpt2), "llama": dict(make=decoder("Llama", rope_theta=500000.0)),
    "llama-tied": dict(make=decoder("Llama", tie_word_embeddings=True, num_key_value_heads=4)),
    "qwen2": dict(make=decoder("Qwen2")), "qwen3": dict(make=decoder("Qwen3", head_dim=16)),
    "mistral": dict(make=decoder("Mistral", sliding_window=None)),
    "neox": dict(make=decoder("GPTNeoX", rotary_pct=1.0), plain=True),
    "mistral-window": dict(make=decoder("Mistral", sliding_window=7)),
    "gemma": dict(make=decoder("Gemma", head_dim=16, pad_token_id=None)),
    "gemma2": dict(make=decoder("Gemma2", head_dim=16, pad_token_id=None, sliding_window=7)),
    "gemma3": dict(make=decoder("Gemma3", head_dim=16, pad_token_id=None, sliding_window=7)),
    "phi3": dict(make=decoder("Phi3", pad_token_id=None, num_key_value_heads=4)),
    "phi3-grouped": dict(make=decoder("Phi3", pad_token_id=None)),
    "mixtral": dict(make=decoder("Mixtral", num_local_experts=4), plain=True, beside=BALANCE),
    "qwen3-moe": dict(make=decoder("Qwen3Moe", num_experts=6, num_experts_per_tok=3, norm_topk_prob=False, head_dim=16,
                                   moe_intermediate_size=40), plain=True, beside=BALANCE),
    "falcon": dict(make=falcon), "falcon-two": dict(make=lambda: falcon(num_attention_heads=2)),
    "falcon-new": dict(make=lambda: falcon(new_decoder_architecture=True, num_kv_heads=2)),
    "falcon-heads": dict(make=lambda: falcon(multi_query=False)),
    "opt": dict(make=opt, other_ops=True), "bert": dict(make=bert, plain=True),
    "vit": dict(make=vit, image=image(3, 12, 12), plain=True),
    "t5": dict(make=t5, pairs=True),
    "t5-gated": dict(make=t5_gated, pairs=True, plain=True, beside={"scale": 1}),  # by 1
    "neox-part": dict(make=decoder("GPTNeoX", rotary_pct=0.25, num_attention_heads=2), plain=True),
    "phi": dict(make=decoder("Phi", partial_rotary_factor=0.5), plain=True),
    "stablelm": dict(make=decoder("StableLm", partial_rotary_factor=0.25, num_attention_heads=2), plain=True),
    "glm4": dict(make=decoder("Glm4", partial_rotary_factor=0.5, head_dim=16, pad_token_id=None), plain=True),
    "gptj": dict(make=gptj, plain=True), "llama-linear": dict(make=scaled("linear")),
    "llama3": dict(make=scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0,
                               original_max_position_embeddings=16)),
    "llama-yarn": dict(make=scaled("yarn", original_max_position_embeddings=16)),
    "granite": dict(make=decoder("Granite", embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
                                 attention_multiplier=0.125), plain=True),
    "starcoder2": dict(make=decoder("Starcoder2", sliding_window=7), plain=True),
    "smollm3": dict(make=decoder("SmolLM3", num_hidden_layers=4, no_rope_layer_interval=4, pad_token_id=None), plain=True),
    "arcee": dict(make=decoder("Arcee", pad_token_id=None), plain=True), "olmo": dict(make=decoder("Olmo"), plain=True),
    "cohere": dict(make=decoder("Cohere", pad_token_id=None), plain=True),
    "cohere2": dict(make=decoder("Cohere2", pad_token_id=None, sliding_window=7), plain=True),
    "olmo2": dict(make=decoder("Olmo2", pad_token_id=None)),
    "olmo3": dict(make=decoder("Olmo3", pad_token_id=None, sliding_window=7), plain=True),
    "olmoe": dict(make=decoder("Olmoe", pad_token_id=None, num_experts=4, num_experts_per_tok=2),
                  plain=True, beside=BALANCE),
    "qwen2-moe": dict(make=decoder("Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40,
                                   shared_expert_intermediate_size=40, decoder_sparse_step=1), plain=True, beside=BALANCE),
    "bloom": dict(make=lambda: hf.BloomForCausalLM(hf.BloomConfig(
        vocab_size=VOCAB, hidden_size=48, n_head=6, n_layer=2, use_cache=False))),
    "mpt": dict(make=lambda: hf.MptForCausalLM(hf.MptConfig(
        vocab_size=VOCAB, d_model=48, n_heads=4, n_layers=2, max_seq_len=SEQ, use_cache=False)), plain=True),
    "falcon-rw": dict(make=lambda: falcon(alibi=True, multi_query=False, parallel_attn=False, bias=True)),
    "nemotron": dict(make=decoder("Nemotron", num_key_value_heads=2, norm_eps=1e-5, head_dim=12)),
    "distilbert": dict(make=distilbert, plain=True),
    "bart": dict(make=bart, pairs=True, plain=True),
    "complex": dict(make=Complex), "bare": dict(make=Bare), "thin": dict(make=Thin),
    "own-gpt": dict(make=GPT), "own-parallel": dict(make=lambda: GPT(parallel=True)),
    "relative": dict(make=Relative), "perceptron": dict(make=Perceptron, image=image(8, 8)),
    "mixer": dict(make=Mixer, image=image(16, 12)),
    "unet": dict(make=UNet, image=image(3, 8, 8), refused="max_pool2d.*cat"),
}
FIXTURES = ["gpt2", "llama", "own-gpt", "relative", "unet", "vit", "bert", "gemma", "mixer", "mixtral",
            "phi3-grouped", "falcon-new", "neox-part", "llama-yarn", "complex", "bare", "thin", "olmo2", "qwen2-moe", "bloom"]


def export(model, inputs, decompose, path):
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else ((inputs,), {})
    program = torch.export.export(model, args, kwargs, strict=False)
    if decompose:
        program = program.run_decompositions()
    torch.export.save(program, path)


def slim(source, path):
    """Without weights, and without what weft-import does not read of the program."""
    with zipfile.ZipFile(source) as full, zipfile.ZipFile(path, "w") as out:
        listed = next(e for e in full.namelist() if e.endswith("_weights_config.json"))
        weights = {"/weights/" + w["path_name"] for w in json.loads(full.read(listed))["config"].values()
                   if w["is_param"]}
        for e in full.namelist():
            data = full.read(e)
            if any(e.endswith(w) for w in weights) or "sample_inputs" in e:
                continue
            if e.endswith("models/model.json"):
                program = json.loads(data)
                graph = program["graph_module"]["graph"]
                program["graph_module"]["module_call_graph"] = []
                for node in graph["nodes"]:
                    stack = node["metadata"].get("nn_module_stack", "").split(";")[-1]
                    key, path, kind = (stack.split(",") + ["", ""])[:3]
                    node["metadata"] = {"nn_module_stack": f"{key},{path},{kind.split('.')[-1]}"}
                    for key in ("name", "is_hop_single_tensor_return"):
                        node.pop(key, None)
                    node["inputs"] = [{"name": i["name"], "arg": i["arg"]} for i in node["inputs"]
                                      if i["name"] not in ("device", "layout", "pin_memory")]
                for meta in graph["tensor_values"].values():
                    for key in ("requires_grad", "device", "strides", "storage_offset", "layout"):
                        meta.pop(key)
                data = json.dumps(program, separators=(",", ":"))
            out.writestr(zipfile.ZipInfo(e), data)  # the same bytes on every day


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def kinds(document):
    """How often each kind of op, all instances counted; reshape and dropout at a rate of 0 compute nothing."""
    model, count = json.loads(document), collections.Counter()
    for op in model["ops"]:
        times = model["sizes"][op["repeat"]] if "repeat" in op else 1
        for o in op.get("ops", [op]):
            off = model.get("rates", {}).get(o.get("cap"), 1) == 0
            count[o["kind"]] += times * (len(o["in"]) > 1 or o["kind"] != "add") * (not off)
            held = [o[k] for k in ("weight", "bias") if k in o]  # of which some are there only when a size is not 0
            count["parameters"] += times * sum("tie" in p or model["sizes"].get(p.get("when"), 1) != 0 for p in held)
    return {k: n for k, n in count.items() if n and k not in ("dropout", "reshape")}


def losses_of(model, inputs, targets, lr):
    weights = list(model.parameters())
    groups = [{"params": [p for p in weights if (p.dim() >= 2) == on], "weight_decay": 0.1 * on}
              for on in (True, False)]
    step, losses = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8), []
    for _ in range(STEPS):
        step.zero_grad()
        out = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        logits = out if isinstance(out, torch.Tensor) else out.logits
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        step.step()
        losses.append(loss.item())
    return losses


def pairs(folder, rng):
    """Pairs of sequences as Megatron-LM writes them, all of full length."""
    paths, rows = [], []
    for name in ("input", "target"):
        ids = rng.integers(1, VOCAB, (BATCH, SEQ))
        paths.append(os.path.join(folder, name + ".idx"))
        ids.astype("<u2").tofile(os.path.join(folder, name + ".bin"))
        with open(paths[-1], "wb") as f:
            f.write(b"MMIDIDX\0\0" + struct.pack("<qBqq", 1, 8, BATCH, BATCH + 1))
            f.write(np.full(BATCH, SEQ, "<i4").tobytes())
            f.write((2 * SEQ * np.arange(BATCH)).astype("<i8").tobytes())
            f.write(np.arange(BATCH + 1, dtype="<i8").tobytes())
        rows.append(torch.tensor(ids))
    before = torch.cat([torch.zeros(BATCH, 1, dtype=torch.long), rows[1][:, :-1]], 1)
    return ",".join(paths), {"input_ids": rows[0], "decoder_input_ids": before}, rows[1]


def data_of(case, folder):
    rng = np.random.default_rng(7)
    if "pairs" in case:
        return pairs(folder, rng)
    if "image" not in case:
        ids = np.cumsum(rng.integers(0, 5, BATCH * SEQ + 1)) % VOCAB
        ids.astype("<u2").tofile(os.path.join(folder, "tokens.bin"))
        rows = lambda a: torch.tensor(a.reshape(BATCH, -1))
        return os.path.join(folder, "tokens.bin"), rows(ids[:-1]), rows(ids[1:])
    pixels = rng.integers(0, 256, case["image"]().shape).astype(np.uint8)
    as_read = pixels.transpose(0, 2, 3, 1) if pixels.ndim == 4 else pixels  # channels last
    labels = rng.integers(0, 10, BATCH).astype(np.uint8)
    for name, a in (("images", as_read), ("labels", labels)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(bytes([0, 0, 8, a.ndim]) + np.array(a.shape, ">i4").tobytes() + a.tobytes())
    paths = f"{folder}/images,{folder}/labels"
    return paths, torch.tensor(pixels / 255, dtype=torch.float32), torch.tensor(labels.astype(int))


def train(bin, folder, model_file, data, lr):
    with open(f"{folder}/plan.json", "w") as f:
        json.dump({"format": "weft-plan/1", "model": model_file, "batch": BATCH, "stages": [{}]}, f)
    rc, out, err = run(f"{bin}/weft-run", "-q", "-n", str(STEPS), "--data", data, "--validation", "0",
                       "--lr", str(lr), "--min-lr", str(lr), "--warmup", "0", "--init",
                       f"{folder}/model.safetensors", f"{folder}/plan.json")
    return [json.loads(line)["loss"] for line in out.splitlines()] if rc == 0 else err


def compare(name, case, bin, folder):
    torch.manual_seed(1)
    model = case["make"]()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.08)
    data, inputs, targets = data_of(case, folder)
    said, good, config = [], True, None
    if not hasattr(model, "config") or "plain" in case:  # transformers saves it under other names
        once = {k: p.detach().clone() for k, p in model.named_parameters()}  # those that are tied too
        safetensors.torch.save_file(once, f"{folder}/model.safetensors")
        if "beside" in case:
            model.config.save_pretrained(folder)
            config = collections.Counter(kinds(run(f"{bin}/weft-import", "-q", folder)[1]))
            config.subtract(case["beside"])
            config = {k: n for k, n in config.items() if n}
    else:
        model.save_pretrained(folder)
        rc, config, err = run(f"{bin}/weft-import", "-q", folder)
        config = kinds(config) if rc == 0 and "other_ops" not in case else None
    theirs = None
    for form in ("whole", "decomposed"):
        path = f"{folder}/{name.replace('-', '_')}_{form}.pt2"
        try:
            export(model, inputs, form == "decomposed", path)
        except Exception as e:
            said.append(f"{form}: PyTorch cannot: {str(e).splitlines()[0][:60]}")
            continue
        rc, document, err = run(f"{bin}/weft-import", path)
        if "refused" in case:
            good &= rc == 3 and bool(re.search(case["refused"], err))
            said.append(f"{form}: {err.strip().split('.pt2: ')[-1]}")
            continue
        if rc:
            said.append(f"{form}: {err.strip()}")
            good = False
            continue
        with open(f"{folder}/model.json", "w") as f:
            f.write(document)
        same = config is None or kinds(document) == config
        theirs = theirs or losses_of(model, inputs, targets, 0.001)
        ours = train(bin, folder, f"{folder}/model.json", data, 0.001)
        worst = (max(abs(a - b) / abs(b) for a, b in zip(ours, theirs)) if isinstance(ours, list)
                 else ours.strip())
        good &= same and isinstance(worst, float) and worst < LIMIT
        said.append(f"{form}: losses {worst if isinstance(worst, str) else f'{worst:.1e}'}" + (
            "" if config is None else ", ops as of config.json" if same else
            f", OPS DIFFER {kinds(document)} {config}"))
    print(f"{name}: " + "; ".join(said), flush=True)
    return good


def fixtures(folder):
    for name in FIXTURES:
        torch.manual_seed(1)
        case = CASES[name]
        ids = torch.zeros(2, SEQ, dtype=torch.long)
        example = case["image"]() if "image" in case else ids
        with tempfile.TemporaryDirectory() as temporary:
            export(case["make"](), example, False, f"{temporary}/{name}.pt2")
            slim(f"{temporary}/{name}.pt2", f"{folder}/{name}.pt2")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bin")
    parser.add_argument("--fixtures", metavar="DIR")
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    args = parser.parse_args()
    hf.logging.set_verbosity_error()
    if args.fixtures:
        return fixtures(args.fixtures)
    good = True
    for name in args.cases:
        with tempfile.TemporaryDirectory() as folder:
            good &= compare(name, CASES[name], args.bin, folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
